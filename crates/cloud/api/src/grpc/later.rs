//! A cloud whose plugin speaks Paraglider's protocol as it is today, or its third revision, and nothing else.
//!
//! In both, rules have names and are deleted by them, and a gateway is made for a link: it is told who is at the other end
//! and its own BGP addresses, and answers its number. So nothing is made when a gateway is planned, but when it gets its
//! first link. The messages here are today's; `third` says them in the third revision.
//! Not here: the first two revisions (`original`); which one a plugin speaks (`revision`).

mod third;

use std::{collections::BTreeSet, net::Ipv4Addr};

use async_trait::async_trait;
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, Ports, ResourceState, Segment,
    Site,
};
use third::Third;
use tonic::{Status, transport::Channel};
use wire::{
    invisinetspb,
    paragliderpb::{
        AddPermitListRulesRequest, AttachResourceRequest, CreateResourceRequest, CreateVpnConnectionsRequest,
        CreateVpnGatewayRequest, CreateVpnGatewayResponse, DeletePermitListRulesRequest,
        GetPermitListRequest, GetUsedAddressSpacesRequest, ParagliderDeployment, PermitListRule,
        cloud_plugin_client::CloudPluginClient,
    },
};

use super::convert::{ONLY_REGION, cannot, entries, parse, parse_all, texts, traits_of_original};
use crate::{At, Attachment, Listing, PeeringSpec, ResourceSpec, Result, prelude::*};

/// What made a resource tells of it.
struct Made {
    uri: String,
    ip: String,
}

enum Plugin {
    Third(Third),
    Today(CloudPluginClient<Channel>),
}

/// A cloud behind a connection. The connection does TLS, deadlines and reconnecting.
pub struct LaterCloud {
    plugin: Plugin,
    traits: CloudTraits,
}

impl LaterCloud {
    /// `bounds` is what is known of the cloud: its plugin cannot say.
    pub fn third(channel: Channel, bounds: CloudTraits) -> Self {
        Self { plugin: Plugin::Third(Third::new(channel)), traits: traits_of_original(bounds) }
    }

    pub fn today(channel: Channel, bounds: CloudTraits) -> Self {
        Self { plugin: Plugin::Today(CloudPluginClient::new(channel)), traits: traits_of_original(bounds) }
    }

    async fn spaces(&self, at: &At) -> Result<Vec<Ipv4Net>> {
        let request = GetUsedAddressSpacesRequest { deployments: vec![deployment(at)] };
        let mappings = match &self.plugin {
            Plugin::Third(third) => third.used_spaces(request).await?,
            Plugin::Today(plugin) => plugin
                .clone()
                .get_used_address_spaces(request)
                .await?
                .into_inner()
                .address_space_mappings
                .into_iter()
                .map(|mapping| (mapping.namespace, mapping.address_spaces))
                .collect(),
        };
        let here = |namespace: &str| namespace.is_empty() || namespace == at.site.namespace.as_str();
        let spaces = mappings.into_iter().filter(|(namespace, _)| here(namespace));
        let spaces: Vec<String> = spaces.flat_map(|(_, spaces)| spaces).collect();
        parse_all("prefix", &spaces)
    }

    /// A space of the site itself; some plugins find by it which of their networks is meant.
    async fn own_space(&self, at: &At) -> Result<String> {
        Ok(self.spaces(at).await?.first().map(ToString::to_string).unwrap_or_default())
    }

    async fn add(&self, at: &At, uri: &str, rules: Vec<PermitListRule>) -> Result {
        let request = AddPermitListRulesRequest {
            namespace: at.site.namespace.to_string(),
            resource: uri.to_owned(),
            rules,
        };
        match &self.plugin {
            Plugin::Third(third) => third.add(request).await?,
            Plugin::Today(plugin) => drop(plugin.clone().add_permit_list_rules(request).await?),
        }
        Ok(())
    }

    async fn delete(&self, at: &At, uri: &str, rule_names: Vec<String>) -> Result {
        let request = DeletePermitListRulesRequest {
            namespace: at.site.namespace.to_string(),
            resource: uri.to_owned(),
            rule_names,
        };
        match &self.plugin {
            Plugin::Third(third) => third.delete(request).await?,
            Plugin::Today(plugin) => drop(plugin.clone().delete_permit_list_rules(request).await?),
        }
        Ok(())
    }

    fn state(&self, made: Made) -> Result<ResourceState> {
        let region = parse("region", ONLY_REGION)?;
        Ok(ResourceState { uri: made.uri, address: parse("address", &made.ip)?, region })
    }
}

fn deployment(at: &At) -> ParagliderDeployment {
    ParagliderDeployment { id: at.deployment.clone(), namespace: at.site.namespace.to_string() }
}

/// The name under which an entry is known to the plugin. Clouds take letters, digits and hyphens, and not many.
fn rule_name(entry: &PermitEntry) -> String {
    const LONGEST: usize = 40;
    let name = entry.name.as_str();
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.len() <= LONGEST && name.bytes().all(is_plain) && !name.starts_with('_') {
        return name.to_owned();
    }
    // FNV-1a: the name must be found again by any version, and is no secret.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("rule-{hash:016x}")
}

/// An entry as such a plugin can be told it.
fn told(entry: &PermitEntry) -> Result<PermitListRule> {
    let is_range = |ports: &Ports| matches!(ports, Ports::Range { first, last } if first != last);
    if is_range(&entry.traffic.src_ports) || is_range(&entry.traffic.dst_ports) {
        return Err(cannot(&format!("permit a range of ports, as rule {} does", entry.name)));
    }
    let rule = invisinetspb::PermitListRule::from(entry);
    Ok(PermitListRule {
        name: rule_name(entry),
        targets: rule.targets,
        direction: rule.direction,
        src_port: rule.src_port,
        dst_port: rule.dst_port,
        protocol: rule.protocol,
        tags: rule.tags,
    })
}

fn heard(rule: PermitListRule) -> invisinetspb::PermitListRule {
    invisinetspb::PermitListRule {
        id: rule.name,
        targets: rule.targets,
        direction: rule.direction,
        src_port: rule.src_port,
        dst_port: rule.dst_port,
        protocol: rule.protocol,
        tags: rule.tags,
        src_port_last: 0,
        dst_port_last: 0,
    }
}

#[async_trait]
impl Cloud for LaterCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(self.traits.clone())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        let region: Segment = parse("region", ONLY_REGION)?;
        let networks = self.spaces(at).await?.into_iter().map(|space| (region.clone(), space)).collect();
        Ok(Listing { networks, ..Listing::default() })
    }
}

/// A plugin makes a network with the first resource in it, and joins networks when a rule needs it.
#[async_trait]
impl Networks for LaterCloud {
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
impl Resources for LaterCloud {
    async fn inspect_resource(&self, _: &At, _: &Segment, _: &str) -> Result<Segment> {
        parse("region", ONLY_REGION)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        let request = CreateResourceRequest {
            deployment: Some(deployment(at)),
            name: spec.name.to_string(),
            description: spec.description.clone().into_bytes(),
        };
        let made = match &self.plugin {
            Plugin::Third(third) => third.create_resource(request).await?,
            Plugin::Today(plugin) => {
                let made = plugin.clone().create_resource(request).await?.into_inner();
                Made { uri: made.uri, ip: made.ip }
            }
        };
        self.state(made)
    }

    async fn delete_resource(&self, _: &At, _: &Segment) -> Result {
        Err(cannot("delete resources"))
    }
}

#[async_trait]
impl Attachments for LaterCloud {
    /// Nothing is looked at: such a plugin looks when it attaches, and refuses then.
    async fn inspect_attachment(&self, _: &At, _: &str) -> Result<Attachment> {
        let Plugin::Today(_) = &self.plugin else { return Err(cannot("attach what exists")) };
        let changes =
            vec!["what attaching changes is for its plugin to know, which cannot say it".to_owned()];
        Ok(Attachment { region: parse("region", ONLY_REGION)?, network: None, address: None, changes })
    }

    async fn attach_resource(&self, at: &At, _: &Segment, id: &str) -> Result<ResourceState> {
        let Plugin::Today(plugin) = &self.plugin else { return Err(cannot("attach what exists")) };
        let request =
            AttachResourceRequest { namespace: at.site.namespace.to_string(), resource: id.to_owned() };
        let made = plugin.clone().attach_resource(request).await?.into_inner();
        self.state(Made { uri: made.uri, ip: made.ip })
    }
}

#[async_trait]
impl PermitLists for LaterCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        let request =
            GetPermitListRequest { namespace: at.site.namespace.to_string(), resource: uri.to_owned() };
        let rules = match &self.plugin {
            Plugin::Third(third) => third.permit_list(request).await?,
            Plugin::Today(plugin) => plugin.clone().get_permit_list(request).await?.into_inner().rules,
        };
        entries(&rules.into_iter().map(heard).collect::<Vec<_>>())
    }

    /// A rule takes the place of one of its name, so what is replaced is never absent. It is not read first: a plugin may
    /// tell in other words what it was told.
    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let is_new = |entry: &&PermitEntry| !before.contains(entry);
        let new = wanted.iter().filter(is_new).map(told).collect::<Result<Vec<_>>>()?;
        if !new.is_empty() {
            self.add(at, uri, new).await?;
        }
        let kept: BTreeSet<String> = wanted.iter().map(rule_name).collect();
        let old: BTreeSet<String> =
            before.iter().map(rule_name).filter(|name| !kept.contains(name)).collect();
        if old.is_empty() {
            return Ok(());
        }
        // A plugin may refuse to delete what is not there; who deletes again after a crash has nothing to delete.
        let there: BTreeSet<String> =
            self.permit_list(at, uri).await?.iter().map(|entry| entry.name.to_string()).collect();
        let old: Vec<String> = old.intersection(&there).cloned().collect();
        if old.is_empty() { Ok(()) } else { self.delete(at, uri, old).await }
    }
}

#[async_trait]
impl Links for LaterCloud {
    /// Nothing yet: the plugin is told with the first link. The number is a wish until then.
    async fn create_gateway(&self, _: &At, asn: u32) -> Result<GatewayState> {
        Ok(GatewayState { asn: self.traits.asn.unwrap_or(asn), addresses: Vec::new() })
    }

    async fn delete_gateway(&self, _: &At) -> Result {
        Err(cannot("take gateways down"))
    }

    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        Ok(Vec::new())
    }

    async fn gateway_towards(&self, at: &At, spec: &ConnectionSpec) -> Result<Option<GatewayState>> {
        let request = CreateVpnGatewayRequest {
            deployment: Some(deployment(at)),
            cloud: spec.peer.cloud.to_string(),
            bgp_peering_ip_addresses: texts(&spec.local_bgp),
            address_space: self.own_space(at).await?,
        };
        let CreateVpnGatewayResponse { asn, gateway_ip_addresses } = match &self.plugin {
            Plugin::Third(third) => third.create_gateway(request).await?,
            Plugin::Today(plugin) => plugin.clone().create_vpn_gateway(request).await?.into_inner(),
        };
        // Where there is no BGP a plugin has no number to tell.
        let asn = if asn == 0 { self.create_gateway(at, 0).await?.asn } else { asn };
        Ok(Some(GatewayState { asn, addresses: parse_all("address", &gateway_ip_addresses)? }))
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        let request = CreateVpnConnectionsRequest {
            deployment: Some(deployment(at)),
            cloud: spec.peer.cloud.to_string(),
            asn: spec.peer_asn,
            gateway_ip_addresses: texts(&spec.peer_addresses),
            bgp_ip_addresses: texts(&spec.peer_bgp),
            shared_key: spec.shared_key.expose().to_owned(),
            remote_addresses: texts(&spec.peer_spaces),
            is_bgp_disabled: !spec.bgp,
            address_space: self.own_space(at).await?,
        };
        match &self.plugin {
            Plugin::Third(_) if !spec.bgp => return Err(cannot("link clouds without BGP")),
            Plugin::Third(third) => third.create_connections(request).await?,
            Plugin::Today(plugin) => drop(plugin.clone().create_vpn_connections(request).await?),
        }
        Ok(())
    }

    async fn delete_connections(&self, _: &At, _: &Site) -> Result {
        Err(cannot("take links down"))
    }

    async fn connection_status(&self, _: &At, _: &Site) -> Result<ConnectionStatus> {
        Err(cannot("say how its links are"))
    }
}

/// An answer that says no in a message which is otherwise fine.
fn refused(message: String) -> Status {
    Status::failed_precondition(message)
}
