//! What the plane is told: objects of the controller, and the workloads of this node.

use std::{fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use model::policy::output::{Direction, Member, MemberKind, NamedPort, NetworkPolicy};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    AppliedToSet,
    AddressSet,
    Policy,
}

/// Names an object, in errors above all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    pub kind: ObjectKind,
    pub name: String,
}

impl ObjectId {
    pub fn new(kind: ObjectKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ObjectKind::AppliedToSet => "applied-to set",
            ObjectKind::AddressSet => "address set",
            ObjectKind::Policy => "policy",
        };
        write!(f, "{kind} {}", self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    AppliedTo,
    Address,
}

impl From<SetKind> for ObjectKind {
    fn from(kind: SetKind) -> Self {
        match kind {
            SetKind::AppliedTo => Self::AppliedToSet,
            SetKind::Address => Self::AddressSet,
        }
    }
}

/// One message of the controller.
#[derive(Clone, Debug)]
pub enum Change {
    /// `replace` forgets all members first; then `removed` go and `put` come. Members are told apart by everything
    /// but their ports.
    PutSet {
        kind: SetKind,
        name: String,
        replace: bool,
        put: Vec<Member>,
        removed: Vec<Member>,
    },
    PutPolicy {
        name: String,
        policy: Box<NetworkPolicy>,
    },
    Remove {
        kind: ObjectKind,
        name: String,
    },
}

impl Change {
    pub fn object(&self) -> ObjectId {
        match self {
            Self::PutSet { kind, name, .. } => ObjectId::new((*kind).into(), name),
            Self::PutPolicy { name, .. } => ObjectId::new(ObjectKind::Policy, name),
            Self::Remove { kind, name } => ObjectId::new(*kind, name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadId {
    pub kind: MemberKind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl WorkloadId {
    pub fn new(kind: MemberKind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    pub fn pod(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self::new(MemberKind::Pod, namespace, name)
    }

    pub fn of(member: &Member) -> Self {
        Self::new(member.kind, member.namespace.clone(), &*member.name)
    }
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A workload on this node, as the local registry knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub id: WorkloadId,
    /// The node's end of its link. From there come, and there go, packets of its own addresses only.
    pub interface: Option<String>,
    /// Empty: those that the controller knows, if the workload is in an address set.
    pub addresses: Vec<IpAddr>,
    /// Empty: those that the controller knows.
    pub ports: Vec<NamedPort>,
    /// The controller may not have told yet what applies to it: nothing passes.
    pub pending: bool,
    /// A list of its own: what is not on it does not pass, in either direction. `None`: only policies count.
    pub permits: Option<Vec<Permit>>,
}

impl Workload {
    pub fn new(id: WorkloadId, addresses: impl Into<Vec<IpAddr>>) -> Self {
        let (addresses, ports) = (addresses.into(), Vec::new());
        Self { id, interface: None, addresses, ports, pending: false, permits: None }
    }
}

/// An entry of a workload's own permit list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub direction: Direction,
    /// The peers: any of these. Empty: nobody.
    pub prefixes: Vec<IpNet>,
    /// `None`: every protocol, and then every port.
    pub protocol: Option<u8>,
    /// Both ends included; `None`: every port.
    pub source_ports: Option<(u16, u16)>,
    pub ports: Option<(u16, u16)>,
}

/// One change of the local registry.
#[derive(Clone, Debug)]
pub enum LocalChange {
    /// Adds or replaces.
    Put(Workload),
    Remove(WorkloadId),
    /// The node guards itself, if policies apply to it; these pass whatever policies of other tiers than the first say
    /// ([`LOCKDOWN_TIERS`](crate::LOCKDOWN_TIERS)).
    Host {
        fail_safes: Vec<Permit>,
    },
}

/// An object that is not in force as it is written, and what is done instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectError {
    pub object: ObjectId,
    pub message: String,
}
