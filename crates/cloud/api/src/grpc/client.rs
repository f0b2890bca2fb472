//! A cloud whose plugin is elsewhere.
//!
//! A plugin that has only the seed's eight methods answers UNIMPLEMENTED to the rest. What that leaves possible is
//! done: its networks come with its resources, its kind is guessed from its name, and lists are short. What cannot
//! be done without the extension (deleting, above all) is refused with that reason.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicBool, Ordering},
};

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
    trestle::v1::{self, cloud_extension_client::CloudExtensionClient},
};

use super::convert::{
    attachment, deployment, entries, listing, parse, parse_all, resource, site_message, status, texts, traits,
};
use super::is_missing;
use crate::{At, Attachment, Cloud, CloudError, CloudErrorKind, Listing, PeeringSpec, ResourceSpec};

/// The region of resources whose plugin cannot say.
const ONLY_REGION: &str = "default";

/// A cloud behind a connection. The connection does TLS, deadlines and reconnecting.
pub struct RemoteCloud {
    name: Segment,
    plugin: CloudPluginClient<Channel>,
    extension: CloudExtensionClient<Channel>,
    /// The plugin has shown that it knows the extension, and so that entries have names.
    is_extended: AtomicBool,
}

impl RemoteCloud {
    pub fn new(name: Segment, channel: Channel) -> Self {
        Self {
            name,
            plugin: CloudPluginClient::new(channel.clone()),
            extension: CloudExtensionClient::new(channel),
            is_extended: AtomicBool::new(false),
        }
    }

    fn plugin(&self) -> CloudPluginClient<Channel> {
        self.plugin.clone()
    }

    fn extension(&self) -> CloudExtensionClient<Channel> {
        self.extension.clone()
    }
}

/// The answer of an extension method, or `other` if the plugin does not have it.
fn or_without<T>(
    answer: Result<Response<T>, Status>,
    other: impl FnOnce() -> Option<T>,
) -> Result<T, CloudError> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) if is_missing(&status) => other().ok_or_else(seed_only),
        Err(status) => Err(status.into()),
    }
}

fn seed_only() -> CloudError {
    let message =
        "its plugin has the seed's methods only, and they cannot do this; it needs trestle.v1.CloudExtension";
    CloudError::new(CloudErrorKind::Unsupported, message)
}

fn done(answer: Result<Response<v1::CloudDone>, Status>) -> Result<(), CloudError> {
    or_without(answer, || None).map(drop)
}

/// The seed's plugins say no in a reply that is otherwise fine.
fn basic(answer: Result<Response<BasicResponse>, Status>) -> Result<(), CloudError> {
    let answer = answer?.into_inner();
    if answer.success { Ok(()) } else { Err(CloudError::new(CloudErrorKind::Conflict, answer.message)) }
}

fn list_of(at: &At, uri: &str, rules: &[PermitEntry]) -> PermitList {
    PermitList {
        associated_resource: uri.to_owned(),
        rules: rules.iter().map(PermitListRule::from).collect(),
        namespace: at.site.namespace.to_string(),
        deployment: Some(deployment(at, 0)),
    }
}

fn network(at: &At, region: &Segment, space: Option<Ipv4Net>) -> v1::CloudNetwork {
    let address_space = space.map(|space| space.to_string()).unwrap_or_default();
    v1::CloudNetwork { site: Some(site_message(at)), region: region.to_string(), address_space }
}

fn peering(spec: &PeeringSpec) -> v1::CloudPeering {
    let [deployment_a, deployment_b] = spec.deployments.clone();
    v1::CloudPeering { name: spec.name.to_string(), deployment_a, deployment_b }
}

fn connection(at: &At, peer: &Site) -> v1::CloudConnection {
    v1::CloudConnection {
        site: Some(site_message(at)),
        peer_namespace: peer.namespace.to_string(),
        peer_cloud: peer.cloud.to_string(),
    }
}

#[async_trait]
impl Cloud for RemoteCloud {
    fn keeps_replaced_entries(&self) -> bool {
        !self.is_extended.load(Ordering::Relaxed)
    }

    fn knows_only_the_seed(&self) -> bool {
        !self.is_extended.load(Ordering::Relaxed)
    }

    async fn describe(&self) -> Result<CloudTraits, CloudError> {
        match self.extension().describe_cloud(v1::DescribeCloudRequest {}).await {
            Ok(answer) => {
                self.is_extended.store(true, Ordering::Relaxed);
                traits(answer.get_ref())
            }
            Err(status) if is_missing(&status) => Ok(CloudTraits::of_kind(self.name.as_str())),
            Err(status) => Err(status.into()),
        }
    }

    async fn inspect_resource(
        &self,
        at: &At,
        name: &Segment,
        description: &str,
    ) -> Result<Segment, CloudError> {
        let request = v1::InspectResourceRequest {
            site: Some(site_message(at)),
            description: description.to_owned(),
            name: name.to_string(),
        };
        let answer = self.extension().inspect_resource(request).await;
        let guessed = || Some(v1::InspectResourceResponse { region: ONLY_REGION.to_owned() });
        parse("region", &or_without(answer, guessed)?.region)
    }

    async fn list(&self, at: &At) -> Result<Listing, CloudError> {
        let answer = self.extension().list_site(site_message(at)).await;
        if !matches!(&answer, Err(status) if is_missing(status)) {
            return listing(or_without(answer, || None)?);
        }
        let used = self.plugin().get_used_address_spaces(deployment(at, 0)).await?.into_inner();
        let spaces: Vec<Ipv4Net> = parse_all("prefix", &used.address_spaces)?;
        let region: Segment = parse("region", ONLY_REGION)?;
        Ok(Listing {
            networks: spaces.into_iter().map(|space| (region.clone(), space)).collect(),
            ..Listing::default()
        })
    }

    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<(), CloudError> {
        let answer = self.extension().ensure_network(network(at, region, Some(space))).await;
        or_without(answer, || Some(v1::CloudDone {})).map(drop)
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        done(self.extension().delete_network(network(at, region, None)).await)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState, CloudError> {
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

    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment, CloudError> {
        let request = v1::InspectAttachmentRequest { site: Some(site_message(at)), id: id.to_owned() };
        // What the plugin says of a cloud that attaches nothing is worth more than that it does not know the call.
        attachment(self.extension().inspect_attachment(request).await?.into_inner())
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<(), CloudError> {
        done(self.extension().adopt_network(network(at, region, Some(space))).await)
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        done(self.extension().release_network(network(at, region, None)).await)
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState, CloudError> {
        let request = v1::AttachCloudResourceRequest {
            site: Some(site_message(at)),
            name: name.to_string(),
            id: id.to_owned(),
        };
        Ok(resource(self.extension().attach_cloud_resource(request).await?.into_inner())?.1)
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<(), CloudError> {
        let request = v1::DeleteCloudResourceRequest { site: Some(site_message(at)), name: name.to_string() };
        done(self.extension().delete_cloud_resource(request).await)
    }

    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>, CloudError> {
        let id = ResourceId {
            id: uri.to_owned(),
            namespace: at.site.namespace.to_string(),
            deployment: Some(deployment(at, 0)),
        };
        entries(&self.plugin().get_permit_list(id).await?.into_inner().rules)
    }

    async fn add_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError> {
        basic(self.plugin().add_permit_list_rules(list_of(at, uri, entries)).await)
    }

    async fn delete_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError> {
        basic(self.plugin().delete_permit_list_rules(list_of(at, uri, entries)).await)
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        // The seed's plugins peer by themselves when a rule needs it.
        let answer = self.extension().ensure_peering(peering(spec)).await;
        or_without(answer, || Some(v1::CloudDone {})).map(drop)
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        done(self.extension().delete_peering(peering(spec)).await)
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let answer = self.extension().ensure_nat(network(at, region, None)).await;
        or_without(answer, || Some(v1::CloudDone {})).map(drop)
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        done(self.extension().delete_nat(network(at, region, None)).await)
    }

    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState, CloudError> {
        let made = self.plugin().create_vpn_gateway(deployment(at, asn)).await?.into_inner();
        let asn = u32::try_from(made.asn)
            .map_err(|_| CloudError::invalid(format!("{} is no AS number", made.asn)))?;
        Ok(GatewayState { asn, addresses: parse_all("address", &made.gateway_ip_addresses)? })
    }

    async fn delete_gateway(&self, at: &At) -> Result<(), CloudError> {
        done(self.extension().delete_gateway(site_message(at)).await)
    }

    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<(), CloudError> {
        self.settle_bgp_sessions(at, spec).await.map(drop)
    }

    /// A plugin of the seed does not know the addresses it is given, and answers with its own.
    async fn settle_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>, CloudError> {
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

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<(), CloudError> {
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

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<(), CloudError> {
        done(self.extension().delete_connections(connection(at, peer)).await)
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus, CloudError> {
        status(self.extension().get_connection_status(connection(at, peer)).await?.get_ref())
    }

    async fn connection_addresses(&self, at: &At, peer: &Site) -> Result<Vec<IpAddr>, CloudError> {
        let answer = self.extension().get_connection_addresses(connection(at, peer)).await;
        let none = || Some(v1::CloudConnectionAddresses { addresses: Vec::new() });
        parse_all("address", &or_without(answer, none)?.addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a plugin refuses must not be taken for what it does not have, which is passed over.
    #[test]
    fn a_refusal_is_no_missing_method() {
        let answer = |status: Status| or_without(Err::<Response<u8>, _>(status), || Some(7));
        assert_eq!(answer(Status::unimplemented("")), Ok(7));
        let refusal = CloudError::unsupported("not without its flag");
        assert_eq!(answer(refusal.clone().into()), Err(refusal));
    }
}
