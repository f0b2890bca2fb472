//! A cloud whose plugin speaks Paraglider's protocol and nothing else: the eight methods of `invisinetspb.CloudPlugin`.
//!
//! What they leave possible is done: networks come with resources, and peering and NAT with the rules that need them.
//! What cannot be done without the extension (deleting, above all) is refused with that reason. What that means for
//! plans and checks is in the description, with the bounds that whoever connects knows of such a cloud.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, ResourceState, Segment, Site,
};
use tonic::{Response, Status, transport::Channel};
use wire::invisinetspb::{
    BasicResponse, CreateVpnBgpSessionsRequest, CreateVpnConnectionsRequest, PermitList, ResourceDescription,
    ResourceId, cloud_plugin_client::CloudPluginClient,
};

use super::convert::{deployment, entries, parse, parse_all, rules_without, texts};
use crate::{At, CloudError, CloudErrorKind, Listing, PeeringSpec, ResourceSpec, Result, prelude::*};

/// The region of resources whose plugin cannot say.
const ONLY_REGION: &str = "default";

/// A cloud behind a connection. The connection does TLS, deadlines and reconnecting.
pub struct OriginalCloud {
    plugin: CloudPluginClient<Channel>,
    traits: CloudTraits,
}

impl OriginalCloud {
    /// `bounds` is what is known of the cloud: its plugin cannot say.
    pub fn new(channel: Channel, bounds: CloudTraits) -> Self {
        let traits = CloudTraits {
            places_resources: true,
            lists_everything: false,
            deletes: false,
            names_entries: false,
            ..bounds
        };
        Self { plugin: CloudPluginClient::new(channel), traits }
    }

    fn plugin(&self) -> CloudPluginClient<Channel> {
        self.plugin.clone()
    }
}

/// For everything that only the extension has.
fn refuse<T>() -> Result<T> {
    Err(CloudError::unsupported(
        "its plugin has Paraglider's methods only, and they cannot do this; it needs \
         trestle.v1.CloudExtension",
    ))
}

/// Paraglider's plugins say no in a reply that is otherwise fine.
fn basic(answer: std::result::Result<Response<BasicResponse>, Status>) -> Result {
    let answer = answer?.into_inner();
    if answer.success { Ok(()) } else { Err(CloudError::new(CloudErrorKind::Conflict, answer.message)) }
}

/// A message with those of `list` that are not in `other`; none if there are none.
fn rest(at: &At, uri: &str, list: &[PermitEntry], other: &[PermitEntry]) -> Option<PermitList> {
    let rules = rules_without(list, other);
    (!rules.is_empty()).then(|| PermitList {
        associated_resource: uri.to_owned(),
        rules,
        namespace: at.site.namespace.to_string(),
        deployment: Some(deployment(at, 0)),
    })
}

#[async_trait]
impl Cloud for OriginalCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(self.traits.clone())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        let used = self.plugin().get_used_address_spaces(deployment(at, 0)).await?.into_inner();
        let spaces: Vec<Ipv4Net> = parse_all("prefix", &used.address_spaces)?;
        let region: Segment = parse("region", ONLY_REGION)?;
        let networks = spaces.into_iter().map(|space| (region.clone(), space)).collect();
        Ok(Listing { networks, ..Listing::default() })
    }
}

/// A plugin makes a network with the first resource in it, and joins networks when a rule needs it.
#[async_trait]
impl Networks for OriginalCloud {
    async fn ensure_network(&self, _: &At, _: &Segment, _: Ipv4Net) -> Result {
        Ok(())
    }

    async fn delete_network(&self, _: &At, _: &Segment) -> Result {
        refuse()
    }

    async fn ensure_peering(&self, _: &PeeringSpec) -> Result {
        Ok(())
    }

    async fn delete_peering(&self, _: &PeeringSpec) -> Result {
        refuse()
    }

    async fn ensure_nat(&self, _: &At, _: &Segment) -> Result {
        Ok(())
    }

    async fn delete_nat(&self, _: &At, _: &Segment) -> Result {
        refuse()
    }
}

#[async_trait]
impl Resources for OriginalCloud {
    async fn inspect_resource(&self, _: &At, _: &Segment, _: &str) -> Result<Segment> {
        parse("region", ONLY_REGION)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        let request = ResourceDescription {
            id: at.deployment.clone(),
            description: spec.description.clone().into_bytes(),
            namespace: at.site.namespace.to_string(),
            name: spec.name.to_string(),
            region: spec.region.to_string(),
            deployment: Some(deployment(at, 0)),
        };
        let made = self.plugin().create_resource(request).await?.into_inner();
        let region =
            if made.region.is_empty() { spec.region.clone() } else { parse("region", &made.region)? };
        Ok(ResourceState { uri: made.uri, address: parse("address", &made.ip)?, region })
    }

    async fn delete_resource(&self, _: &At, _: &Segment) -> Result {
        refuse()
    }
}

impl Attachments for OriginalCloud {}

#[async_trait]
impl PermitLists for OriginalCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        let id = ResourceId {
            id: uri.to_owned(),
            namespace: at.site.namespace.to_string(),
            deployment: Some(deployment(at, 0)),
        };
        entries(&self.plugin().get_permit_list(id).await?.into_inner().rules)
    }

    /// What is new and what is to go follows from the two lists. It is not read first: a plugin may tell in other words
    /// what it was told.
    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        if let Some(new) = rest(at, uri, wanted, before) {
            basic(self.plugin().add_permit_list_rules(new).await)?;
        }
        match rest(at, uri, before, wanted) {
            Some(old) => basic(self.plugin().delete_permit_list_rules(old).await),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Links for OriginalCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let made = self.plugin().create_vpn_gateway(deployment(at, asn)).await?.into_inner();
        let asn = u32::try_from(made.asn)
            .map_err(|_| CloudError::invalid(format!("{} is no AS number", made.asn)))?;
        Ok(GatewayState { asn, addresses: parse_all("address", &made.gateway_ip_addresses)? })
    }

    async fn delete_gateway(&self, _: &At) -> Result {
        refuse()
    }

    /// A plugin that does not know the addresses it is given answers with its own.
    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        let request = CreateVpnBgpSessionsRequest {
            deployment: Some(deployment(at, 0)),
            cloud: spec.peer.cloud.to_string(),
            peer_namespace: spec.peer.namespace.to_string(),
            bgp_ip_addresses: texts(&spec.local_bgp),
        };
        let answer = self.plugin().create_vpn_bgp_sessions(request).await?.into_inner();
        let chosen: Vec<Ipv4Addr> = parse_all("address", &answer.bgp_ip_addresses)?;
        Ok(if chosen == spec.local_bgp { Vec::new() } else { chosen })
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        let request = CreateVpnConnectionsRequest {
            deployment: Some(deployment(at, 0)),
            cloud: spec.peer.cloud.to_string(),
            asn: spec.peer_asn.into(),
            address_space: spec.peer_spaces.first().map(ToString::to_string).unwrap_or_default(),
            gateway_ip_addresses: texts(&spec.peer_addresses),
            bgp_ip_addresses: texts(&spec.peer_bgp),
            shared_key: spec.shared_key.expose().to_owned(),
            peer_namespace: spec.peer.namespace.to_string(),
            local_bgp_ip_addresses: texts(&spec.local_bgp),
            address_spaces: texts(&spec.peer_spaces),
        };
        basic(self.plugin().create_vpn_connections(request).await)
    }

    async fn delete_connections(&self, _: &At, _: &Site) -> Result {
        refuse()
    }

    async fn connection_status(&self, _: &At, _: &Site) -> Result<ConnectionStatus> {
        refuse()
    }
}
