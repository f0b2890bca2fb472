//! The trait, and what its calls say.

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
    pub fn check_network(&self, network: &Segment) -> Result<(), CloudError> {
        match *network == self.region {
            true => Ok(()),
            false => {
                Err(CloudError::invalid(format!("the description is for {network}, not {}", self.region)))
            }
        }
    }
}

/// Something that exists and can be attached. See [`Cloud::inspect_attachment`].
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
pub trait Cloud: Send + Sync + 'static {
    /// True if entries are recognised by their content and an entry of the same name is not replaced: then whoever
    /// changes an entry must delete the old one.
    fn keeps_replaced_entries(&self) -> bool {
        false
    }

    /// True for a plugin with the seed's eight methods: then [`Cloud::list`] knows networks and nothing else, networks
    /// come with resources, and nothing can be deleted.
    fn knows_only_the_seed(&self) -> bool {
        false
    }

    /// The bounds a plan must keep in this cloud.
    async fn describe(&self) -> Result<CloudTraits, CloudError>;

    /// Checks a description before anything is made, and finds in it the region, or the network of its own that a
    /// resource of that name and kind lives in. Refuses network settings.
    async fn inspect_resource(
        &self,
        at: &At,
        name: &Segment,
        description: &str,
    ) -> Result<Segment, CloudError>;

    /// Everything of the site.
    async fn list(&self, at: &At) -> Result<Listing, CloudError>;

    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<(), CloudError>;
    /// Refuses while resources live in it.
    async fn delete_network(&self, at: &At, region: &Segment) -> Result<(), CloudError>;

    /// Makes a resource in the region's network, closed.
    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState, CloudError>;
    /// Checks that what exists can be attached, and says where it lives and what attaching would change. Changes
    /// nothing. Refuses what is attached already, by whomever, and what could not be closed.
    async fn inspect_attachment(&self, _at: &At, id: &str) -> Result<Attachment, CloudError> {
        Err(CloudError::unsupported(format!("{id} cannot be attached: this cloud attaches nothing")))
    }
    /// Takes part in an existing network, by the name of its inspection: from now on it is listed, and can be peered
    /// and served by the gateway. Refused if its space is another by now.
    async fn adopt_network(&self, _at: &At, region: &Segment, _space: Ipv4Net) -> Result<(), CloudError> {
        Err(CloudError::unsupported(format!("{region} cannot be adopted: this cloud makes all its networks")))
    }
    /// Takes away what was put into an adopted network, and nothing else. Refused while resources are attached.
    async fn release_network(&self, _at: &At, _region: &Segment) -> Result<(), CloudError> {
        Ok(())
    }
    /// Takes over what exists, after checking that it can be closed; then closes it.
    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState, CloudError>;
    /// Deletes what was made. What was attached is let go, as it was.
    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<(), CloudError>;

    /// The permit list in force, by name of entry.
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>, CloudError>;
    /// Adds entries; one of the same name is replaced.
    async fn add_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError>;
    /// Deletes entries that are there exactly as given.
    async fn delete_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError>;

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError>;
    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError>;

    /// Lets a region's resources reach public addresses.
    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError>;
    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError>;

    /// Makes the site's gateway. A gateway that is there keeps its number, which is in the answer.
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState, CloudError>;
    /// Refuses while it has connections.
    async fn delete_gateway(&self, at: &At) -> Result<(), CloudError>;
    /// Prepares this end's BGP addresses towards a peer.
    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<(), CloudError>;
    /// The same, for clouds that choose these addresses by themselves: they are the answer. Empty: those that were
    /// given are taken.
    async fn settle_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>, CloudError> {
        self.create_bgp_sessions(at, spec).await?;
        Ok(Vec::new())
    }
    /// Makes the tunnels of this end. Repeated with another key or other addresses, it changes them.
    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<(), CloudError>;
    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<(), CloudError>;
    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus, CloudError>;

    /// The public addresses of this end's tunnels towards a peer, in their order, for clouds that describe themselves
    /// with `late_addresses`. Empty: the gateway's.
    async fn connection_addresses(&self, _at: &At, _peer: &Site) -> Result<Vec<IpAddr>, CloudError> {
        Ok(Vec::new())
    }
}
