//! A member of a group: one record, shared by every group the workload is in.

use std::{fmt, net::IpAddr, sync::Arc};

use super::Protocol;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberKind {
    Pod,
    ExternalEntity,
    Node,
    Service,
}

/// A workload as groups see it.
///
/// An AddressGroup reads everything but `node`; an AppliedToGroup reads everything but `addresses`. The record is one
/// allocation per workload, not one per membership; a change makes a new record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub kind: MemberKind,
    /// False for Pods that policies leave alone: on the host's network, or run to their end.
    pub enforced: bool,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub addresses: Addresses,
    pub ports: Box<[NamedPort]>,
    /// The span key: where policies for this workload are enforced.
    pub node: Option<Arc<str>>,
}

impl Member {
    pub fn is_address_member(&self) -> bool {
        self.enforced && !self.addresses.is_empty()
    }

    pub fn is_applied_to_member(&self) -> bool {
        self.enforced && self.node.is_some()
    }

    pub fn same_workload(&self, other: &Member) -> bool {
        self.kind == other.kind && self.name == other.name && self.namespace == other.namespace
    }

    /// Key of an AddressGroup member: the workload and its addresses.
    pub fn same_address_key(&self, other: &Member) -> bool {
        self.same_workload(other) && self.addresses == other.addresses
    }

    /// Key of an AppliedToGroup member: the workload and where it is enforced.
    pub fn same_applied_to_key(&self, other: &Member) -> bool {
        self.same_workload(other) && self.node == other.node
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedPort {
    pub name: Arc<str>,
    pub port: u16,
    pub protocol: Protocol,
}

/// Most workloads have one address, a few have two: neither should cost an allocation more than it must.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Addresses {
    #[default]
    None,
    One(IpAddr),
    Many(Box<[IpAddr]>),
}

impl Addresses {
    pub fn as_slice(&self) -> &[IpAddr] {
        match self {
            Addresses::None => &[],
            Addresses::One(address) => std::slice::from_ref(address),
            Addresses::Many(addresses) => addresses,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Addresses::None)
    }
}

/// Keeps the order, drops repetitions.
impl FromIterator<IpAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut addresses = addresses.into_iter();
        let Some(first) = addresses.next() else { return Addresses::None };
        let Some(second) = addresses.find(|a| *a != first) else { return Addresses::One(first) };
        let mut many = vec![first, second];
        for address in addresses {
            if !many.contains(&address) {
                many.push(address);
            }
        }
        Addresses::Many(many.into())
    }
}
