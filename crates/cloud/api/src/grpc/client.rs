//! A cloud whose plugin is elsewhere, and knows both services.
//!
//! What Paraglider's protocol says well enough goes over it ([`OriginalCloud`]); the rest over the extension.

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, ResourceState, Segment, Site,
};
use tonic::{Response, Status, transport::Channel};
use wire::trestle::v1::{self, cloud_extension_client::CloudExtensionClient};

use super::convert::{
    attachment, listing, parse, parse_all, resource, rules_without, site_message, status, traits,
};
use super::{OriginalCloud, is_missing};
use crate::{At, Attachment, Listing, PeeringSpec, ResourceSpec, Result, prelude::*};

/// A cloud behind a connection. The connection does TLS, deadlines and reconnecting.
pub struct RemoteCloud {
    original: OriginalCloud,
    extension: CloudExtensionClient<Channel>,
}

impl RemoteCloud {
    pub fn new(channel: Channel) -> Self {
        Self {
            original: OriginalCloud::extended(channel.clone()),
            extension: CloudExtensionClient::new(channel),
        }
    }

    fn extension(&self) -> CloudExtensionClient<Channel> {
        self.extension.clone()
    }
}

fn done(answer: std::result::Result<Response<v1::CloudDone>, Status>) -> Result {
    Ok(answer.map(drop)?)
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
    async fn describe(&self) -> Result<CloudTraits> {
        traits(self.extension().describe_cloud(v1::DescribeCloudRequest {}).await?.get_ref())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        listing(self.extension().list_site(site_message(at)).await?.into_inner())
    }
}

#[async_trait]
impl Networks for RemoteCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        done(self.extension().ensure_network(network(at, region, Some(space))).await)
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        done(self.extension().delete_network(network(at, region, None)).await)
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        done(self.extension().ensure_peering(peering(spec)).await)
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        done(self.extension().delete_peering(peering(spec)).await)
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        done(self.extension().ensure_nat(network(at, region, None)).await)
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        done(self.extension().delete_nat(network(at, region, None)).await)
    }
}

#[async_trait]
impl Resources for RemoteCloud {
    async fn inspect_resource(&self, at: &At, name: &Segment, description: &str) -> Result<Segment> {
        let request = v1::InspectResourceRequest {
            site: Some(site_message(at)),
            description: description.to_owned(),
            name: name.to_string(),
        };
        parse("region", &self.extension().inspect_resource(request).await?.get_ref().region)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.original.create_resource(at, spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        let request = v1::DeleteCloudResourceRequest { site: Some(site_message(at)), name: name.to_string() };
        done(self.extension().delete_cloud_resource(request).await)
    }
}

#[async_trait]
impl Attachments for RemoteCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        let request = v1::InspectAttachmentRequest { site: Some(site_message(at)), id: id.to_owned() };
        attachment(self.extension().inspect_attachment(request).await?.into_inner())
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        done(self.extension().adopt_network(network(at, region, Some(space))).await)
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result {
        done(self.extension().release_network(network(at, region, None)).await)
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        let request = v1::AttachCloudResourceRequest {
            site: Some(site_message(at)),
            name: name.to_string(),
            id: id.to_owned(),
        };
        Ok(resource(self.extension().attach_cloud_resource(request).await?.into_inner())?.1)
    }
}

#[async_trait]
impl PermitLists for RemoteCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        self.original.permit_list(at, uri).await
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let request = v1::PutPermitListRequest {
            site: Some(site_message(at)),
            uri: uri.to_owned(),
            wanted: rules_without(wanted, &[]),
            unwanted: rules_without(before, wanted),
        };
        match self.extension().put_permit_list(request).await {
            // A plugin from before there was this call.
            Err(status) if is_missing(&status) => self.original.put_list(at, uri, before, wanted).await,
            answer => done(answer),
        }
    }
}

#[async_trait]
impl Links for RemoteCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        self.original.create_gateway(at, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        done(self.extension().delete_gateway(site_message(at)).await)
    }

    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        self.original.create_bgp_sessions(at, spec).await
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        self.original.create_connections(at, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        done(self.extension().delete_connections(connection(at, peer)).await)
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        status(self.extension().get_connection_status(connection(at, peer)).await?.get_ref())
    }

    async fn connection_addresses(&self, at: &At, peer: &Site) -> Result<Vec<IpAddr>> {
        let answer = self.extension().get_connection_addresses(connection(at, peer)).await?;
        parse_all("address", &answer.get_ref().addresses)
    }
}
