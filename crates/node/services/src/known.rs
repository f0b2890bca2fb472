//! A slice of endpoints in the form in which the store keeps many: nothing that selection does not ask for, and what
//! many endpoints have in common only once.

use std::{net::IpAddr, sync::Arc};

use crate::{Protocol, Slice};

/// Empty if the slice is not for this proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSlice {
    pub ports: Box<[KnownPort]>,
    /// One for each address.
    pub endpoints: Box<[KnownEndpoint]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPort {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEndpoint {
    pub address: IpAddr,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// `None`: nothing is known.
    pub whereabouts: Option<Arc<Whereabouts>>,
}

/// Where an endpoint runs, and who ought to use it. The same for many endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Whereabouts {
    pub node: Option<Box<str>>,
    /// Zones that ought to use it; empty: no hint.
    pub zone_hints: Box<[String]>,
    /// Nodes that ought to use it; empty: no hint.
    pub node_hints: Box<[String]>,
}

impl KnownSlice {
    /// `name` and `place` give the one copy of a value that all share.
    pub fn new(
        slice: Slice,
        mut name: impl FnMut(String) -> Arc<str>,
        mut place: impl FnMut(Whereabouts) -> Arc<Whereabouts>,
    ) -> Self {
        if !slice.is_ours() {
            return Self::default();
        }
        let ports = slice.ports.into_iter().filter_map(|one| {
            let port = one.port.filter(|port| *port != 0)?;
            Some(KnownPort { name: name(one.name?), protocol: one.protocol, port })
        });
        let ports = ports.collect();
        let mut endpoints = Vec::with_capacity(slice.endpoints.iter().map(|one| one.addresses.len()).sum());
        for one in slice.endpoints {
            let known = Whereabouts {
                node: one.node.map(Into::into),
                zone_hints: one.zone_hints.into(),
                node_hints: one.node_hints.into(),
            };
            let whereabouts = (known != Whereabouts::default()).then(|| place(known));
            endpoints.extend(one.addresses.into_iter().map(|address| KnownEndpoint {
                address,
                ready: one.ready.unwrap_or(true),
                serving: one.serving.unwrap_or(true),
                terminating: one.terminating.unwrap_or(false),
                whereabouts: whereabouts.clone(),
            }));
        }
        Self { ports, endpoints: endpoints.into() }
    }
}

impl KnownEndpoint {
    pub fn node(&self) -> Option<&str> {
        self.whereabouts.as_ref()?.node.as_deref()
    }

    pub fn is_on(&self, node: &str) -> bool {
        self.node() == Some(node)
    }

    pub fn zone_hints(&self) -> &[String] {
        self.whereabouts.as_ref().map_or(&[], |known| &known.zone_hints)
    }

    pub fn node_hints(&self) -> &[String] {
        self.whereabouts.as_ref().map_or(&[], |known| &known.node_hints)
    }
}
