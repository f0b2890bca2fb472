//! The traits, and what their calls say.
//!
//! [`Cloud`] is the sum; each of its parts is one concern. Whoever holds a `dyn Cloud` calls them all; whoever holds a
//! cloud of a known type brings them into scope with [`crate::prelude`].

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, ExistingNetwork, GatewayState, PeeringName, PermitEntry,
    ResourceState, Segment, Site,
};

/// Where in the cloud a call acts: a namespace's site and the cloud's own id for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub site: Site,
    /// A subscription and resource group, a project, an account; empty where the cloud needs none.
    pub deployment: String,
}

/// A resource to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSpec {
    pub name: Segment,
    pub region: Segment,
    /// The cloud's own description, without network settings.
    pub description: String,
}

impl ResourceSpec {
    /// Refuses to make a resource in another network than its description is for.
    pub fn check_network(&self, network: &Segment) -> Result {
        match *network == self.region {
            true => Ok(()),
            false => {
                Err(CloudError::invalid(format!("the description is for {network}, not {}", self.region)))
            }
        }
    }
}

/// Something that exists and can be attached. See [`Attachments::inspect_attachment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Names the network it will live in, as a region does. For an existing network the plugin makes up a name from
    /// which it finds that network again, and which no region has.
    pub region: Segment,
    /// The network it lives in, if that stays its network; none if it is connected to a network of ours.
    pub network: Option<ExistingNetwork>,
    /// Its address; none if it is given one.
    pub address: Option<IpAddr>,
    /// What attaching would change, for people, a line each.
    pub changes: Vec<String>,
}

/// Two networks to join. Both ends are in this cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeeringSpec {
    pub name: PeeringName,
    /// The deployments of the two ends, in the order of the name.
    pub deployments: [String; 2],
}

/// What a site consists of, as the cloud sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Region and address space.
    pub networks: Vec<(Segment, Ipv4Net)>,
    pub resources: Vec<(Segment, ResourceState)>,
    pub peerings: Vec<PeeringName>,
    /// Regions that have NAT.
    pub nats: Vec<Segment>,
    pub gateway: Option<GatewayState>,
    /// The peers of the gateway's connections.
    pub connections: Vec<Site>,
}

/// What a call answers.
pub type Result<T = (), E = CloudError> = std::result::Result<T, E>;

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    pub kind: CloudErrorKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudErrorKind {
    /// The request can never succeed.
    Invalid,
    NotFound,
    /// The request does not fit what is there.
    Conflict,
    /// The cloud cannot do this at all.
    Unsupported,
    /// Too many requests. Nothing happened.
    Throttled,
    /// The cloud could not be reached or failed. Something may have happened.
    Unavailable,
}

impl CloudError {
    pub fn new(kind: CloudErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(CloudErrorKind::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(CloudErrorKind::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(CloudErrorKind::Conflict, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(CloudErrorKind::Unsupported, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(CloudErrorKind::Unavailable, message)
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, CloudErrorKind::Throttled | CloudErrorKind::Unavailable)
    }
}

/// One cloud. Calls on different objects may come at the same time; calls on one object come one after another.
#[async_trait]
pub trait Cloud: Networks + Resources + Attachments + PermitLists + Links + 'static {
    /// The bounds a plan must keep in this cloud, and what its plugin cannot do.
    async fn describe(&self) -> Result<CloudTraits>;

    /// Everything of the site.
    async fn list(&self, at: &At) -> Result<Listing>;
}

/// A site's networks, and their ways to each other and to public addresses.
#[async_trait]
pub trait Networks: Send + Sync {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result;
    /// Refuses while resources live in it.
    async fn delete_network(&self, at: &At, region: &Segment) -> Result;

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result;
    async fn delete_peering(&self, spec: &PeeringSpec) -> Result;

    /// Lets a region's resources reach public addresses.
    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result;
    async fn delete_nat(&self, at: &At, region: &Segment) -> Result;
}

/// What lives in the networks.
#[async_trait]
pub trait Resources: Send + Sync {
    /// Checks a description before anything is made, and finds in it the region, or the network of its own that a
    /// resource of that name and kind lives in. Refuses network settings.
    async fn inspect_resource(&self, at: &At, name: &Segment, description: &str) -> Result<Segment>;
    /// Makes a resource in the region's network, closed.
    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState>;
    /// Deletes what was made. What was attached is let go, as it was.
    async fn delete_resource(&self, at: &At, name: &Segment) -> Result;
}

/// Taking part in what somebody else made. What was attached is let go by [`Resources::delete_resource`]. The defaults are
/// those of a cloud that attaches nothing.
#[async_trait]
pub trait Attachments: Send + Sync {
    /// Checks that what exists can be attached, and says where it lives and what attaching would change. Changes
    /// nothing. Refuses what is attached already, by whomever, and what could not be closed.
    async fn inspect_attachment(&self, _at: &At, id: &str) -> Result<Attachment> {
        Err(CloudError::unsupported(format!("{id} cannot be attached: this cloud attaches nothing")))
    }
    /// Takes part in an existing network, by the name of its inspection: from now on it is listed, and can be peered
    /// and served by the gateway. Refused if its space is another by now.
    async fn adopt_network(&self, _at: &At, region: &Segment, _space: Ipv4Net) -> Result {
        Err(CloudError::unsupported(format!("{region} cannot be adopted: this cloud makes all its networks")))
    }
    /// Takes away what was put into an adopted network, and nothing else. Refused while resources are attached.
    async fn release_network(&self, _at: &At, _region: &Segment) -> Result {
        Ok(())
    }
    /// Takes over what exists, after checking that it can be closed; then closes it.
    async fn attach_resource(&self, _at: &At, _name: &Segment, id: &str) -> Result<ResourceState> {
        Err(CloudError::unsupported(format!("{id} cannot be attached: this cloud attaches nothing")))
    }
}

/// Who may talk to a resource, and whom it may talk to.
#[async_trait]
pub trait PermitLists: Send + Sync {
    /// The list in force, with what others have put there.
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>>;
    /// Puts a list whole, in place of `before`, which is what was put last and may be there, or not, or in part.
    /// Afterwards every wanted entry is there, and no other of its name. What is in `before` alone is gone, if it was
    /// there exactly as given. Everything else is somebody else's and stays ([`crate::list_after`]).
    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result;
}

/// A site's gateway, and its connections to the gateways of other clouds.
#[async_trait]
pub trait Links: Send + Sync {
    /// Makes the site's gateway. A gateway that is there keeps its number, which is in the answer.
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState>;
    /// Refuses while it has connections.
    async fn delete_gateway(&self, at: &At) -> Result;

    /// Prepares this end's BGP addresses towards a peer. Clouds that choose these addresses by themselves answer with
    /// them; others take those that are given, and answer with none.
    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>>;
    /// The gateway as it is once a link is prepared, for clouds that make theirs for a link; none: as it was made.
    async fn gateway_towards(&self, _at: &At, _spec: &ConnectionSpec) -> Result<Option<GatewayState>> {
        Ok(None)
    }
    /// Makes the tunnels of this end. Repeated with another key or other addresses, it changes them.
    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result;
    async fn delete_connections(&self, at: &At, peer: &Site) -> Result;
    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus>;
    /// The public addresses of this end's tunnels towards a peer, in their order, for clouds that describe themselves
    /// with `late_addresses`. Empty: the gateway's.
    async fn connection_addresses(&self, _at: &At, _peer: &Site) -> Result<Vec<IpAddr>> {
        Ok(Vec::new())
    }
}
