//! A cloud whose plugin speaks the first or the second revision of Paraglider's protocol and nothing else: the eight methods
//! of `invisinetspb.CloudPlugin`.
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
use wire::{
    invisinetspb::{
        BasicResponse, CreateVpnBgpSessionsRequest, CreateVpnConnectionsRequest, PermitList, PermitListRule,
        ResourceDescription, ResourceId, cloud_plugin_client::CloudPluginClient,
    },
    revisions::second,
};

use super::convert::{
    ONLY_REGION, cannot, deployment, entries, id_of_resource, parse, parse_all, rules_without, texts,
    traits_of_original,
};
use crate::{At, CloudError, CloudErrorKind, Listing, PeeringSpec, ResourceSpec, Result, prelude::*};

/// A cloud behind a connection. The connection does TLS, deadlines and reconnecting.
pub struct OriginalCloud {
    plugin: Plugin,
    traits: CloudTraits,
    /// The plugin reads the fields that are ours.
    is_extended: bool,
}

/// The two revisions differ in one message.
enum Plugin {
    First(CloudPluginClient<Channel>),
    Second(CloudPluginClient<Channel>, second::cloud_plugin_client::CloudPluginClient<Channel>),
}

impl OriginalCloud {
    /// `bounds` is what is known of the cloud: its plugin cannot say.
    pub fn first(channel: Channel, bounds: CloudTraits) -> Self {
        let plugin = Plugin::First(CloudPluginClient::new(channel));
        Self { plugin, traits: traits_of_original(bounds), is_extended: false }
    }

    pub fn second(channel: Channel, bounds: CloudTraits) -> Self {
        let connections = second::cloud_plugin_client::CloudPluginClient::new(channel.clone());
        let plugin = Plugin::Second(CloudPluginClient::new(channel), connections);
        Self { plugin, traits: traits_of_original(bounds), is_extended: false }
    }

    /// For what a plugin of ours is asked in the first revision, with the fields that are ours.
    pub(super) fn extended(channel: Channel) -> Self {
        Self { is_extended: true, ..Self::first(channel, CloudTraits::default()) }
    }

    fn plugin(&self) -> CloudPluginClient<Channel> {
        match &self.plugin {
            Plugin::First(plugin) | Plugin::Second(plugin, _) => plugin.clone(),
        }
    }

    /// A message with those of `list` that are not in `other`; none if there are none.
    fn rest(
        &self,
        at: &At,
        uri: &str,
        list: &[PermitEntry],
        other: &[PermitEntry],
    ) -> Result<Option<PermitList>> {
        let rules = rules_without(list, other);
        let has_range = |rule: &&PermitListRule| rule.src_port_last != 0 || rule.dst_port_last != 0;
        if let Some(rule) = rules.iter().find(has_range).filter(|_| !self.is_extended) {
            return Err(cannot(&format!("permit a range of ports, as rule {} does", rule.id)));
        }
        Ok((!rules.is_empty()).then(|| PermitList {
            associated_resource: uri.to_owned(),
            rules,
            namespace: at.site.namespace.to_string(),
            deployment: Some(deployment(at, 0)),
        }))
    }
}

/// Paraglider's plugins say no in a reply that is otherwise fine.
fn basic(answer: std::result::Result<Response<BasicResponse>, Status>) -> Result {
    let answer = answer?.into_inner();
    said(answer.success, answer.message)
}

fn said(success: bool, message: String) -> Result {
    if success { Ok(()) } else { Err(CloudError::new(CloudErrorKind::Conflict, message)) }
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
        Err(cannot("delete networks"))
    }

    async fn ensure_peering(&self, _: &PeeringSpec) -> Result {
        Ok(())
    }

    async fn delete_peering(&self, _: &PeeringSpec) -> Result {
        Err(cannot("take peerings down"))
    }

    async fn ensure_nat(&self, _: &At, _: &Segment) -> Result {
        Ok(())
    }

    async fn delete_nat(&self, _: &At, _: &Segment) -> Result {
        Err(cannot("take NAT down"))
    }
}

#[async_trait]
impl Resources for OriginalCloud {
    async fn inspect_resource(&self, _: &At, _: &Segment, _: &str) -> Result<Segment> {
        parse("region", ONLY_REGION)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        let request = ResourceDescription {
            id: match self.is_extended {
                true => at.deployment.clone(),
                false => id_of_resource(&at.deployment, spec.name.as_str()),
            },
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
        Err(cannot("delete resources"))
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
        let new = self.rest(at, uri, wanted, before)?;
        let old = self.rest(at, uri, before, wanted)?;
        if let Some(new) = new.clone() {
            basic(self.plugin().add_permit_list_rules(new).await)?;
        }
        let Some(old) = old else { return Ok(()) };
        let replaced = new.and_then(|new| replacing(new, &old));
        basic(self.plugin().delete_permit_list_rules(old).await)?;
        match replaced {
            Some(replaced) => basic(self.plugin().add_permit_list_rules(replaced).await),
            None => Ok(()),
        }
    }
}

/// What has the id of something that goes. A rule is its content, and adding it again is nothing; but a plugin that goes by
/// the id has just deleted it.
fn replacing(mut new: PermitList, old: &PermitList) -> Option<PermitList> {
    new.rules.retain(|rule| old.rules.iter().any(|gone| gone.id == rule.id));
    (!new.rules.is_empty()).then_some(new)
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
        Err(cannot("take gateways down"))
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
        let (gateway_ip_addresses, bgp_ip_addresses) = (texts(&spec.peer_addresses), texts(&spec.peer_bgp));
        let shared_key = spec.shared_key.expose().to_owned();
        match &self.plugin {
            Plugin::First(plugin) => {
                let request = CreateVpnConnectionsRequest {
                    deployment: Some(deployment(at, 0)),
                    cloud: spec.peer.cloud.to_string(),
                    asn: spec.peer_asn.into(),
                    address_space: spec.peer_spaces.first().map(ToString::to_string).unwrap_or_default(),
                    gateway_ip_addresses,
                    bgp_ip_addresses,
                    shared_key,
                    peer_namespace: spec.peer.namespace.to_string(),
                    local_bgp_ip_addresses: texts(&spec.local_bgp),
                    address_spaces: texts(&spec.peer_spaces),
                };
                basic(plugin.clone().create_vpn_connections(request).await)
            }
            Plugin::Second(_, plugin) => {
                let namespace = at.site.namespace.to_string();
                let request = second::CreateVpnConnectionsRequest {
                    deployment: Some(second::InvisinetsDeployment { id: at.deployment.clone(), namespace }),
                    cloud: spec.peer.cloud.to_string(),
                    asn: spec.peer_asn.into(),
                    gateway_ip_addresses,
                    bgp_ip_addresses,
                    shared_key,
                };
                let answer = plugin.clone().create_vpn_connections(request).await?.into_inner();
                said(answer.success, answer.message)
            }
        }
    }

    async fn delete_connections(&self, _: &At, _: &Site) -> Result {
        Err(cannot("take links down"))
    }

    async fn connection_status(&self, _: &At, _: &Site) -> Result<ConnectionStatus> {
        Err(cannot("say how its links are"))
    }
}
