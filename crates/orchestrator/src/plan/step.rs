//! Steps: what a plan consists of.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::Ipv4Net;
use model::{
    Address, BgpPair, ExistingNetwork, LinkName, NetworkName, PeeringName, ResourceName, Segment, Site,
    TagName, allow::End,
};
use serde::Serialize;

use super::{PermitChange, TooManyPieces, space::NoSpaceLeft};

/// A step's place in its plan.
pub type StepId = usize;

/// One thing to do. Everything that had to be chosen is chosen, but for keys of tunnels, which need chance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    CreateNetwork {
        network: NetworkName,
        space: Ipv4Net,
    },
    DeleteNetwork {
        network: NetworkName,
    },
    /// Takes part in a network that somebody else made.
    AdoptNetwork {
        network: NetworkName,
        existing: ExistingNetwork,
    },
    /// Takes away what was put into an adopted network. The network stays.
    ReleaseNetwork {
        network: NetworkName,
    },
    CreateResource {
        resource: ResourceName,
        network: NetworkName,
    },
    DeleteResource {
        resource: ResourceName,
    },
    AttachResource {
        resource: ResourceName,
        network: NetworkName,
    },
    /// Lets go what was attached, as it was.
    DetachResource {
        resource: ResourceName,
    },
    /// Takes permissions away. Waits for nothing but the resource itself.
    Close {
        resource: ResourceName,
        change: PermitChange,
    },
    /// Gives permissions.
    Open {
        resource: ResourceName,
        change: PermitChange,
    },
    CreatePeering {
        peering: PeeringName,
    },
    DeletePeering {
        peering: PeeringName,
    },
    CreateNat {
        network: NetworkName,
    },
    DeleteNat {
        network: NetworkName,
    },
    CreateGateway {
        gateway: Site,
        asn: u32,
    },
    DeleteGateway {
        gateway: Site,
    },
    CreateLink {
        link: LinkName,
        bgp: Vec<BgpPair>,
        spaces: [Vec<Ipv4Net>; 2],
    },
    DeleteLink {
        link: LinkName,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    #[serde(flatten)]
    pub action: Action,
    /// The steps that must have succeeded before. Always smaller numbers.
    pub after: BTreeSet<StepId>,
}

/// Something a user must solve. What it is about stays closed until then; everything else goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The resource that is not as wanted.
    pub resource: ResourceName,
    /// The rule, if it is about one.
    pub rule: Option<String>,
    pub kind: ProblemKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    #[error("the plugin of cloud {cloud} is not there; what is in that cloud waits for it")]
    UnknownCloud { cloud: Segment },
    #[error("{error}")]
    NoSpace { error: NoSpaceLeft },
    #[error(
        "the network {network} that it lives in has {block}, which overlaps {other}; packets would not know where to go, \
         so one of the two must be moved first"
    )]
    Overlap { network: Box<NetworkName>, block: Ipv4Net, other: Ipv4Net },
    #[error(
        "it lives in the block {block} of the network {network}, but {known} is the block that others are attached from; \
         attach from one block of a network only"
    )]
    OtherBlock { network: Box<NetworkName>, block: Ipv4Net, known: Ipv4Net },
    #[error("{message}")]
    NoNumbers { message: String },
    #[error("there is no tag {tag}; the rule permits nothing through it")]
    UnknownTag { tag: TagName },
    #[error("tag {tag} resolves to no address; the rule permits nothing through it")]
    EmptyTag { tag: TagName },
    #[error("nobody is at {end} now; the permission permits nothing through it until somebody is")]
    Nobody { end: Box<End> },
    #[error("{target} is private but in no network of any cloud; it is left out of the rule")]
    Unplaced { target: Address },
    #[error("{error}")]
    TooManyPieces { error: TooManyPieces },
    #[error(
        "the stored record {record} cannot be read ({reason}); what it is about stays as it is, and nothing is chosen that \
         might collide with it"
    )]
    Unreadable { record: String, reason: String },
}

impl ProblemKind {
    /// Whether it goes by itself: a plugin comes back, nobody has to want something else. Right after a start, none
    /// has answered yet.
    pub fn goes_by_itself(&self) -> bool {
        matches!(self, Self::UnknownCloud { .. } | Self::Nobody { .. })
    }
}

/// What to do, and what cannot be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub problems: Vec<Problem>,
    /// What a cloud says a step would change, beyond what the steps tell.
    pub notes: Vec<String>,
    /// The steps that must be done before a resource is as wanted. A resource that is not here is.
    #[serde(skip)]
    pub waiting: BTreeMap<ResourceName, BTreeSet<StepId>>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Action {
    /// The object acted on. Steps on one object never run at the same time.
    pub fn object(&self) -> String {
        match self {
            Self::CreateNetwork { network, .. }
            | Self::DeleteNetwork { network }
            | Self::AdoptNetwork { network, .. }
            | Self::ReleaseNetwork { network } => format!("network/{network}"),
            Self::CreateResource { resource, .. }
            | Self::DeleteResource { resource }
            | Self::AttachResource { resource, .. }
            | Self::DetachResource { resource }
            | Self::Close { resource, .. }
            | Self::Open { resource, .. } => format!("resource/{resource}"),
            Self::CreatePeering { peering } | Self::DeletePeering { peering } => format!("peering/{peering}"),
            Self::CreateNat { network } | Self::DeleteNat { network } => format!("nat/{network}"),
            Self::CreateGateway { gateway, .. } | Self::DeleteGateway { gateway } => {
                format!("gateway/{gateway}")
            }
            Self::CreateLink { link, .. } | Self::DeleteLink { link } => format!("link/{link}"),
        }
    }
}

impl serde::Serialize for NoSpaceLeft {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
