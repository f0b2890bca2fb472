//! A cloud of this process on the wire: the original `invisinetspb.CloudPlugin`, and `trestle.v1.CloudExtension`.
//!
//! Who knows the original only is served too: what its messages leave out is found or chosen here (`alone`).

mod alone;

use std::sync::Arc;

use model::{ConnectionSpec, PeeringName, Secret, Segment, Site};
use tonic::{Request, Response, Status, transport::Channel};
use wire::{
    invisinetspb::{
        AddressSpaceList, BasicResponse, CreateResourceResponse, CreateVpnBgpSessionsRequest,
        CreateVpnBgpSessionsResponse, CreateVpnConnectionsRequest, CreateVpnGatewayResponse,
        InvisinetsDeployment, PermitList, PermitListRule, ResourceDescription, ResourceId,
        cloud_plugin_server::CloudPlugin, controller_client::ControllerClient,
    },
    trestle::v1::{self, cloud_extension_server::CloudExtension},
};

use super::convert::{
    at, attachment_message, deployed, entries, listing_message, parse, parse_all, parts_of_id,
    resource_message, status_message, texts, traits_message,
};
use crate::{At, Cloud, CloudError, PeeringSpec, ResourceSpec, Result};

type Reply<T> = Result<Response<T>, Status>;

/// Serves one cloud. Clone it for the second of the two services.
#[derive(Clone)]
pub struct PluginService {
    name: Segment,
    cloud: Arc<dyn Cloud>,
    /// Whom to ask for address spaces, for callers who leave that to the plugin.
    orchestrator: Option<ControllerClient<Channel>>,
}

impl PluginService {
    pub fn new(name: Segment, cloud: Arc<dyn Cloud>) -> Self {
        Self { name, cloud, orchestrator: None }
    }

    /// One that asks an orchestrator of Paraglider's for address spaces, as its own plugins do.
    pub fn asking(self, orchestrator: Channel) -> Self {
        Self { orchestrator: Some(ControllerClient::new(orchestrator)), ..self }
    }

    fn at(&self, message: Option<InvisinetsDeployment>, namespace: &str) -> Result<At> {
        deployed(message, namespace, &self.name)
    }
}

fn basic(message: &str) -> Reply<BasicResponse> {
    Ok(Response::new(BasicResponse { success: true, message: message.to_owned(), updated_resource: None }))
}

fn done(result: Result) -> Reply<v1::CloudDone> {
    result?;
    Ok(Response::new(v1::CloudDone {}))
}

#[tonic::async_trait]
impl CloudPlugin for PluginService {
    async fn get_used_address_spaces(
        &self,
        request: Request<InvisinetsDeployment>,
    ) -> Reply<AddressSpaceList> {
        let at = self.at(Some(request.into_inner()), "")?;
        let listing = self.cloud.list(&at).await?;
        let address_spaces = listing.networks.iter().map(|(_, space)| space.to_string()).collect();
        Ok(Response::new(AddressSpaceList { address_spaces }))
    }

    async fn create_resource(&self, request: Request<ResourceDescription>) -> Reply<CreateResourceResponse> {
        let request = request.into_inner();
        let mut at = self.at(request.deployment, &request.namespace)?;
        let description = String::from_utf8(request.description)
            .map_err(|_| CloudError::invalid("the description is not UTF-8 text"))?;
        let (deployment, last) = parts_of_id(&request.id);
        let name = if request.name.is_empty() { last.to_owned() } else { request.name };
        if at.deployment.is_empty() {
            at.deployment = deployment;
        }
        let name: Segment = parse("name", &name)?;
        let region = match request.region.as_str() {
            "" => self.home(&at, &name, &description).await?,
            region => parse("region", region)?,
        };
        let spec = ResourceSpec { name: name.clone(), region, description };
        let made = self.cloud.create_resource(&at, &spec).await?;
        let region = made.region.to_string();
        let reply = CreateResourceResponse {
            name: name.to_string(),
            uri: made.uri,
            ip: made.address.to_string(),
            region,
        };
        Ok(Response::new(reply))
    }

    async fn get_permit_list(&self, request: Request<ResourceId>) -> Reply<PermitList> {
        let request = request.into_inner();
        let at = self.at(request.deployment, &request.namespace)?;
        let list = self.cloud.permit_list(&at, &request.id).await?;
        let rules = list.iter().map(PermitListRule::from).collect();
        let reply = PermitList {
            associated_resource: request.id,
            rules,
            namespace: at.site.namespace.to_string(),
            deployment: None,
        };
        Ok(Response::new(reply))
    }

    async fn add_permit_list_rules(&self, request: Request<PermitList>) -> Reply<BasicResponse> {
        let request = request.into_inner();
        let at = self.at(request.deployment, &request.namespace)?;
        self.cloud.put_list(&at, &request.associated_resource, &[], &entries(&request.rules)?).await?;
        basic("the rules are in force")
    }

    async fn delete_permit_list_rules(&self, request: Request<PermitList>) -> Reply<BasicResponse> {
        let request = request.into_inner();
        let at = self.at(request.deployment, &request.namespace)?;
        let uri = &request.associated_resource;
        let gone = alone::meant(&request.rules, self.cloud.permit_list(&at, uri).await?)?;
        self.cloud.put_list(&at, uri, &gone, &[]).await?;
        basic("the rules are gone")
    }

    async fn create_vpn_gateway(
        &self,
        request: Request<InvisinetsDeployment>,
    ) -> Reply<CreateVpnGatewayResponse> {
        let request = request.into_inner();
        let wanted = request.asn;
        let at = self.at(Some(request), "")?;
        let asn = if wanted == 0 { self.number(&at).await? } else { wanted };
        let made = self.cloud.create_gateway(&at, asn).await?;
        let gateway_ip_addresses = texts(&made.addresses);
        Ok(Response::new(CreateVpnGatewayResponse { gateway_ip_addresses, asn: made.asn.into() }))
    }

    async fn create_vpn_bgp_sessions(
        &self,
        request: Request<CreateVpnBgpSessionsRequest>,
    ) -> Reply<CreateVpnBgpSessionsResponse> {
        let request = request.into_inner();
        let at = self.at(request.deployment, "")?;
        let peer = peer(&at, &request.peer_namespace, &request.cloud)?;
        let local_bgp = self.inside(&at, &peer, &request.bgp_ip_addresses).await?;
        let spec = ConnectionSpec {
            bgp: true,
            peer,
            site: at.site.clone(),
            peer_asn: 0,
            peer_addresses: Vec::new(),
            local_bgp: local_bgp.clone(),
            peer_bgp: Vec::new(),
            peer_spaces: Vec::new(),
            shared_key: Secret::new(""),
        };
        let chosen = texts(&self.cloud.create_bgp_sessions(&at, &spec).await?);
        let bgp_ip_addresses = if chosen.is_empty() { texts(&local_bgp) } else { chosen };
        Ok(Response::new(CreateVpnBgpSessionsResponse { bgp_ip_addresses }))
    }

    async fn create_vpn_connections(
        &self,
        request: Request<CreateVpnConnectionsRequest>,
    ) -> Reply<BasicResponse> {
        let request = request.into_inner();
        let at = self.at(request.deployment, "")?;
        let spaces = match request.address_spaces.is_empty() && !request.address_space.is_empty() {
            true => vec![request.address_space],
            false => request.address_spaces,
        };
        let asn = request.asn;
        let peer = peer(&at, &request.peer_namespace, &request.cloud)?;
        let local_bgp = self.inside(&at, &peer, &request.local_bgp_ip_addresses).await?;
        let spec = ConnectionSpec {
            bgp: true,
            peer,
            site: at.site.clone(),
            peer_asn: u32::try_from(asn)
                .map_err(|_| CloudError::invalid(format!("{asn} is no AS number")))?,
            peer_addresses: parse_all("address", &request.gateway_ip_addresses)?,
            local_bgp,
            peer_bgp: parse_all("address", &request.bgp_ip_addresses)?,
            peer_spaces: parse_all("prefix", &spaces)?,
            shared_key: Secret::new(request.shared_key),
        };
        self.cloud.create_connections(&at, &spec).await?;
        basic("the connections are made")
    }
}

/// The site at the other end. In Paraglider's protocol it has the same namespace.
fn peer(at: &At, namespace: &str, cloud: &str) -> Result<Site> {
    let namespace =
        if namespace.is_empty() { at.site.namespace.clone() } else { parse("namespace", namespace)? };
    Ok(Site { namespace, cloud: parse("cloud", cloud)? })
}

fn network(message: v1::CloudNetwork) -> Result<(At, Segment, String)> {
    Ok((at(message.site)?, parse("region", &message.region)?, message.address_space))
}

fn peering(message: v1::CloudPeering) -> Result<PeeringSpec> {
    let name: PeeringName = parse("peering", &message.name)?;
    Ok(PeeringSpec { name, deployments: [message.deployment_a, message.deployment_b] })
}

fn connection(message: v1::CloudConnection) -> Result<(At, Site)> {
    let at = at(message.site)?;
    let peer = peer(&at, &message.peer_namespace, &message.peer_cloud)?;
    Ok((at, peer))
}

#[tonic::async_trait]
impl CloudExtension for PluginService {
    async fn describe_cloud(&self, _: Request<v1::DescribeCloudRequest>) -> Reply<v1::CloudTraits> {
        Ok(Response::new(traits_message(&self.cloud.describe().await?)))
    }

    async fn inspect_resource(
        &self,
        request: Request<v1::InspectResourceRequest>,
    ) -> Reply<v1::InspectResourceResponse> {
        let request = request.into_inner();
        let (at, name) = (at(request.site)?, parse("name", &request.name)?);
        let region = self.cloud.inspect_resource(&at, &name, &request.description).await?;
        Ok(Response::new(v1::InspectResourceResponse { region: region.to_string() }))
    }

    async fn list_site(&self, request: Request<v1::CloudSite>) -> Reply<v1::SiteListing> {
        let at = at(Some(request.into_inner()))?;
        Ok(Response::new(listing_message(&at, &self.cloud.list(&at).await?)))
    }

    async fn ensure_network(&self, request: Request<v1::CloudNetwork>) -> Reply<v1::CloudDone> {
        let (at, region, space) = network(request.into_inner())?;
        done(self.cloud.ensure_network(&at, &region, parse("prefix", &space)?).await)
    }

    async fn delete_network(&self, request: Request<v1::CloudNetwork>) -> Reply<v1::CloudDone> {
        let (at, region, _) = network(request.into_inner())?;
        done(self.cloud.delete_network(&at, &region).await)
    }

    async fn inspect_attachment(
        &self,
        request: Request<v1::InspectAttachmentRequest>,
    ) -> Reply<v1::InspectAttachmentResponse> {
        let request = request.into_inner();
        let found = self.cloud.inspect_attachment(&at(request.site)?, &request.id).await?;
        Ok(Response::new(attachment_message(found)))
    }

    async fn adopt_network(&self, request: Request<v1::CloudNetwork>) -> Reply<v1::CloudDone> {
        let (at, region, space) = network(request.into_inner())?;
        done(self.cloud.adopt_network(&at, &region, parse("prefix", &space)?).await)
    }

    async fn release_network(&self, request: Request<v1::CloudNetwork>) -> Reply<v1::CloudDone> {
        let (at, region, _) = network(request.into_inner())?;
        done(self.cloud.release_network(&at, &region).await)
    }

    async fn attach_cloud_resource(
        &self,
        request: Request<v1::AttachCloudResourceRequest>,
    ) -> Reply<v1::CloudResource> {
        let request = request.into_inner();
        let name: Segment = parse("name", &request.name)?;
        let state = self.cloud.attach_resource(&at(request.site)?, &name, &request.id).await?;
        Ok(Response::new(resource_message(&name, &state)))
    }

    async fn delete_cloud_resource(
        &self,
        request: Request<v1::DeleteCloudResourceRequest>,
    ) -> Reply<v1::CloudDone> {
        let request = request.into_inner();
        done(self.cloud.delete_resource(&at(request.site)?, &parse("name", &request.name)?).await)
    }

    async fn put_permit_list(&self, request: Request<v1::PutPermitListRequest>) -> Reply<v1::CloudDone> {
        let request = request.into_inner();
        let (wanted, unwanted) = (entries(&request.wanted)?, entries(&request.unwanted)?);
        done(self.cloud.put_list(&at(request.site)?, &request.uri, &unwanted, &wanted).await)
    }

    async fn ensure_peering(&self, request: Request<v1::CloudPeering>) -> Reply<v1::CloudDone> {
        done(self.cloud.ensure_peering(&peering(request.into_inner())?).await)
    }

    async fn delete_peering(&self, request: Request<v1::CloudPeering>) -> Reply<v1::CloudDone> {
        done(self.cloud.delete_peering(&peering(request.into_inner())?).await)
    }

    async fn ensure_nat(&self, request: Request<v1::CloudNetwork>) -> Reply<v1::CloudDone> {
        let (at, region, _) = network(request.into_inner())?;
        done(self.cloud.ensure_nat(&at, &region).await)
    }

    async fn delete_nat(&self, request: Request<v1::CloudNetwork>) -> Reply<v1::CloudDone> {
        let (at, region, _) = network(request.into_inner())?;
        done(self.cloud.delete_nat(&at, &region).await)
    }

    async fn delete_gateway(&self, request: Request<v1::CloudSite>) -> Reply<v1::CloudDone> {
        done(self.cloud.delete_gateway(&at(Some(request.into_inner()))?).await)
    }

    async fn delete_connections(&self, request: Request<v1::CloudConnection>) -> Reply<v1::CloudDone> {
        let (at, peer) = connection(request.into_inner())?;
        done(self.cloud.delete_connections(&at, &peer).await)
    }

    async fn get_connection_status(
        &self,
        request: Request<v1::CloudConnection>,
    ) -> Reply<v1::CloudConnectionStatus> {
        let (at, peer) = connection(request.into_inner())?;
        Ok(Response::new(status_message(&self.cloud.connection_status(&at, &peer).await?)))
    }

    async fn get_connection_addresses(
        &self,
        request: Request<v1::CloudConnection>,
    ) -> Reply<v1::CloudConnectionAddresses> {
        let (at, peer) = connection(request.into_inner())?;
        let addresses = texts(&self.cloud.connection_addresses(&at, &peer).await?);
        Ok(Response::new(v1::CloudConnectionAddresses { addresses }))
    }
}
