//! Which flows in the kernel's connection table point to an endpoint that is no more.
//!
//! Only UDP: a UDP client never notices that its server is gone, while the connection table keeps sending it there.
//! TCP ends by itself.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use crate::{EndpointInfo, FrontendKind, Protocol, ServiceEndpointsPatch, ServicePortInfo, Store};

/// What a flow was sent to, and who answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub protocol: u8,
    pub destination: (IpAddr, u16),
    /// Source of the replies: the endpoint, if the destination was translated.
    pub answered_by: (IpAddr, u16),
}

/// The frontends to clean, each with the endpoints that may still answer.
#[derive(Clone, Debug, Default)]
pub struct Cleanup {
    serving: HashMap<(IpAddr, u16), HashSet<(IpAddr, u16)>>,
}

impl Cleanup {
    /// After patches were carried out. O(what they changed).
    pub fn after(store: &Store, patches: &[ServiceEndpointsPatch]) -> Self {
        let mut cleanup = Self::default();
        for patch in patches.iter().filter(|patch| patch.id.protocol == Protocol::Udp) {
            // A node port without endpoints may be in use by something else on the host.
            let before = patch.service.before.iter().flat_map(|info| &info.frontends);
            for frontend in before.filter(|frontend| frontend.kind != FrontendKind::NodePort) {
                cleanup.serving.entry((frontend.address, frontend.port)).or_default();
            }
            if let Some((info, endpoints)) = store.port(&patch.id) {
                cleanup.add(info, endpoints);
            }
        }
        cleanup
    }

    /// Of all ports: after a start, when nobody knows what was missed.
    pub fn of_everything(store: &Store) -> Self {
        let mut cleanup = Self::default();
        for (id, info, endpoints) in store.ports() {
            if id.protocol == Protocol::Udp {
                cleanup.add(info, endpoints);
            }
        }
        cleanup
    }

    fn add<'a>(&mut self, info: &ServicePortInfo, endpoints: impl Iterator<Item = &'a EndpointInfo>) {
        let alive: HashSet<_> = endpoints.filter(|one| one.is_serving).map(|one| one.socket()).collect();
        for frontend in &info.frontends {
            if frontend.kind != FrontendKind::NodePort || !alive.is_empty() {
                self.serving.entry((frontend.address, frontend.port)).or_default().extend(&alive);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.serving.is_empty()
    }

    pub fn is_stale(&self, flow: &Flow) -> bool {
        flow.protocol == Protocol::Udp.number()
            && self.serving.get(&flow.destination).is_some_and(|alive| !alive.contains(&flow.answered_by))
    }
}
