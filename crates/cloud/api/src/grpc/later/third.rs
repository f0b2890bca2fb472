//! The third revision's plugins: today's messages in, the third revision's numbers on the wire.

use tonic::{Status, transport::Channel};
use wire::{
    paragliderpb::{
        AddPermitListRulesRequest, CreateResourceRequest, CreateVpnConnectionsRequest,
        CreateVpnGatewayRequest, CreateVpnGatewayResponse, DeletePermitListRulesRequest,
        GetPermitListRequest, GetUsedAddressSpacesRequest, ParagliderDeployment, PermitListRule,
    },
    revisions::third::{self, cloud_plugin_client::CloudPluginClient},
};

use super::{Made, refused};
use crate::grpc::convert::id_of_resource;

pub(super) struct Third(CloudPluginClient<Channel>);

impl Third {
    pub fn new(channel: Channel) -> Self {
        Self(CloudPluginClient::new(channel))
    }

    fn plugin(&self) -> CloudPluginClient<Channel> {
        self.0.clone()
    }

    /// By namespace.
    pub async fn used_spaces(
        &self,
        request: GetUsedAddressSpacesRequest,
    ) -> Result<Vec<(String, Vec<String>)>, Status> {
        let deployments = request.deployments.into_iter().map(deployment).collect();
        let request = third::GetUsedAddressSpacesRequest { deployments };
        let mappings = self.plugin().get_used_address_spaces(request).await?.into_inner();
        let mappings = mappings.address_space_mappings.into_iter();
        Ok(mappings.map(|mapping| (mapping.namespace, mapping.address_spaces)).collect())
    }

    pub async fn create_resource(&self, request: CreateResourceRequest) -> Result<Made, Status> {
        let ParagliderDeployment { id, namespace } = request.deployment.unwrap_or_default();
        let request = third::ResourceDescription {
            id: id_of_resource(&id, &request.name),
            description: request.description,
            namespace,
        };
        let made = self.plugin().create_resource(request).await?.into_inner();
        Ok(Made { uri: made.uri, ip: made.ip })
    }

    pub async fn permit_list(&self, request: GetPermitListRequest) -> Result<Vec<PermitListRule>, Status> {
        let request =
            third::GetPermitListRequest { namespace: request.namespace, resource: request.resource };
        let rules = self.plugin().get_permit_list(request).await?.into_inner().rules;
        let heard = |rule: third::PermitListRule| PermitListRule {
            name: rule.name,
            targets: rule.targets,
            direction: rule.direction,
            src_port: rule.src_port,
            dst_port: rule.dst_port,
            protocol: rule.protocol,
            tags: rule.tags,
        };
        Ok(rules.into_iter().map(heard).collect())
    }

    pub async fn add(&self, request: AddPermitListRulesRequest) -> Result<(), Status> {
        let told = |rule: PermitListRule| third::PermitListRule {
            // The plugin's own.
            id: String::new(),
            name: rule.name,
            targets: rule.targets,
            direction: rule.direction,
            src_port: rule.src_port,
            dst_port: rule.dst_port,
            protocol: rule.protocol,
            tags: rule.tags,
        };
        let request = third::AddPermitListRulesRequest {
            namespace: request.namespace,
            resource: request.resource,
            rules: request.rules.into_iter().map(told).collect(),
        };
        self.plugin().add_permit_list_rules(request).await.map(drop)
    }

    pub async fn delete(&self, request: DeletePermitListRulesRequest) -> Result<(), Status> {
        let request = third::DeletePermitListRulesRequest {
            namespace: request.namespace,
            resource: request.resource,
            rule_names: request.rule_names,
        };
        self.plugin().delete_permit_list_rules(request).await.map(drop)
    }

    pub async fn create_gateway(
        &self,
        request: CreateVpnGatewayRequest,
    ) -> Result<CreateVpnGatewayResponse, Status> {
        let request = third::CreateVpnGatewayRequest {
            deployment: request.deployment.map(deployment),
            cloud: request.cloud,
            bgp_peering_ip_addresses: request.bgp_peering_ip_addresses,
        };
        let made = self.plugin().create_vpn_gateway(request).await?.into_inner();
        Ok(CreateVpnGatewayResponse { asn: made.asn, gateway_ip_addresses: made.gateway_ip_addresses })
    }

    pub async fn create_connections(&self, request: CreateVpnConnectionsRequest) -> Result<(), Status> {
        let request = third::CreateVpnConnectionsRequest {
            deployment: request.deployment.map(deployment),
            cloud: request.cloud,
            asn: request.asn,
            gateway_ip_addresses: request.gateway_ip_addresses,
            bgp_ip_addresses: request.bgp_ip_addresses,
            shared_key: request.shared_key,
        };
        let answer = self.plugin().create_vpn_connections(request).await?.into_inner();
        if answer.success { Ok(()) } else { Err(refused(answer.message)) }
    }
}

fn deployment(message: ParagliderDeployment) -> third::InvisinetsDeployment {
    third::InvisinetsDeployment { id: message.id, namespace: message.namespace }
}
