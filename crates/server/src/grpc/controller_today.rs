//! `paragliderpb.Controller`: what plugins ask of the controller, as Paraglider of today has it.

use std::sync::Arc;

use drivers::{
    namespaces::Namespaces,
    plugin_values::{PluginValueError, PluginValues},
};
use model::{
    Segment,
    change::{Change, What},
};
use orchestrator::execute::Orchestrator;
use tonic::{Code, Request, Response, Status};
use wire::paragliderpb::{
    AddressSpaceMapping, ConnectCloudsRequest, ConnectCloudsResponse, DeleteValueRequest,
    DeleteValueResponse, FindUnusedAddressSpacesRequest, FindUnusedAddressSpacesResponse,
    FindUnusedAsnRequest, FindUnusedAsnResponse, GetUsedAddressSpacesResponse, GetValueRequest,
    GetValueResponse, SetValueRequest, SetValueResponse, controller_server,
};

use super::controller::{connect, name};
use crate::{
    audit,
    failure::{Failure, store_failure},
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc {
    pub orchestrator: Arc<Orchestrator>,
    pub namespaces: Namespaces,
    pub values: PluginValues,
}

#[tonic::async_trait]
impl controller_server::Controller for Grpc {
    async fn find_unused_address_spaces(
        &self,
        request: Request<FindUnusedAddressSpacesRequest>,
    ) -> Reply<FindUnusedAddressSpacesResponse> {
        let sizes = request.into_inner().sizes.into_iter().map(u32::try_from).collect::<Result<Vec<_>, _>>();
        let sizes =
            sizes.map_err(|_| Failure::new(Code::InvalidArgument, "`sizes` has a number below zero"))?;
        let spaces = self.orchestrator.find_unused_spaces(&sizes).await.map_err(Failure::from)?;
        let address_spaces = spaces.iter().map(ToString::to_string).collect();
        Ok(Response::new(FindUnusedAddressSpacesResponse { address_spaces }))
    }

    async fn get_used_address_spaces(&self, _: Request<()>) -> Reply<GetUsedAddressSpacesResponse> {
        let spaces = self.orchestrator.used_spaces(None).map_err(Failure::from)?;
        let namespaces = self.namespaces.list().await.map_err(Failure::from)?;
        let mapping = |(site, spaces): (model::Site, Vec<ipnet::Ipv4Net>)| {
            let namespace = namespaces.iter().find(|namespace| namespace.name == site.namespace);
            let deployment = namespace.and_then(|namespace| namespace.deployments.get(&site.cloud));
            AddressSpaceMapping {
                address_spaces: spaces.iter().map(ToString::to_string).collect(),
                cloud: site.cloud.to_string(),
                namespace: site.namespace.to_string(),
                deployment: deployment.map(|deployment| deployment.as_str().to_owned()),
            }
        };
        let address_space_mappings = spaces.into_iter().map(mapping).collect();
        Ok(Response::new(GetUsedAddressSpacesResponse { address_space_mappings }))
    }

    async fn find_unused_asn(&self, _: Request<FindUnusedAsnRequest>) -> Reply<FindUnusedAsnResponse> {
        let asn = self.orchestrator.find_unused_asn().map_err(Failure::from)?;
        Ok(Response::new(FindUnusedAsnResponse { asn }))
    }

    async fn connect_clouds(&self, request: Request<ConnectCloudsRequest>) -> Reply<ConnectCloudsResponse> {
        let it = request.into_inner();
        let (a, b) = ((&*it.cloud_a, &*it.cloud_a_namespace), (&*it.cloud_b, &*it.cloud_b_namespace));
        connect(&self.orchestrator, a, b).await?;
        Ok(Response::new(ConnectCloudsResponse {}))
    }

    async fn set_value(&self, request: Request<SetValueRequest>) -> Reply<SetValueResponse> {
        let it = request.into_inner();
        let (cloud, namespace) = place(&it.cloud, &it.namespace)?;
        self.values.set(&cloud, &namespace, &it.key, it.value).await.map_err(refused)?;
        audit::changed(Change::named(told(&cloud, &namespace, &it.key), What::Changed));
        Ok(Response::new(SetValueResponse {}))
    }

    async fn get_value(&self, request: Request<GetValueRequest>) -> Reply<GetValueResponse> {
        let it = request.into_inner();
        let (cloud, namespace) = place(&it.cloud, &it.namespace)?;
        let value = self.values.get(&cloud, &namespace, &it.key).await.map_err(refused)?;
        let missing = || {
            let key = told(&cloud, &namespace, &it.key);
            Failure::new(Code::NotFound, format!("there is no {key}"))
        };
        Ok(Response::new(GetValueResponse { value: value.ok_or_else(missing)? }))
    }

    async fn delete_value(&self, request: Request<DeleteValueRequest>) -> Reply<DeleteValueResponse> {
        let it = request.into_inner();
        let (cloud, namespace) = place(&it.cloud, &it.namespace)?;
        self.values.delete(&cloud, &namespace, &it.key).await.map_err(refused)?;
        audit::changed(Change::named(told(&cloud, &namespace, &it.key), What::Deleted));
        Ok(Response::new(DeleteValueResponse {}))
    }
}

fn place(cloud: &str, namespace: &str) -> Result<(Segment, Segment), Failure> {
    Ok((name(cloud)?, name(namespace)?))
}

fn told(cloud: &Segment, namespace: &Segment, key: &str) -> String {
    format!("value {key:?} of {namespace}.{cloud}")
}

fn refused(error: PluginValueError) -> Failure {
    match &error {
        PluginValueError::Key { .. } | PluginValueError::TooLong { .. } => {
            Failure::from_error(Code::InvalidArgument, &error)
        }
        PluginValueError::Read(err) => store_failure::read(&error, err),
        PluginValueError::Write(err) => store_failure::transact(&error, err),
    }
}
