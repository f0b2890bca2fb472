//! `trestle.v1.Namespaces`.

use std::sync::Arc;

use drivers::namespaces::Namespaces;
use model::{Namespace, Segment};
use orchestrator::execute::Orchestrator;
use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    self, DeleteNamespaceRequest, DeleteNamespaceResponse, GetNamespaceRequest, ListNamespacesRequest,
    ListNamespacesResponse, namespaces_server,
};

use crate::{audit, failure::Failure};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc {
    pub orchestrator: Arc<Orchestrator>,
    pub namespaces: Namespaces,
}

#[tonic::async_trait]
impl namespaces_server::Namespaces for Grpc {
    async fn list_namespaces(&self, _: Request<ListNamespacesRequest>) -> Reply<ListNamespacesResponse> {
        let namespaces = self.namespaces.list().await.map_err(Failure::from)?;
        let namespaces = namespaces.into_iter().map(Into::into).collect();
        Ok(Response::new(ListNamespacesResponse { namespaces }))
    }

    async fn get_namespace(&self, request: Request<GetNamespaceRequest>) -> Reply<v1::Namespace> {
        let name = name(&request.get_ref().name)?;
        Ok(Response::new(self.namespaces.get(&name).await.map_err(Failure::from)?.into()))
    }

    async fn set_namespace(&self, request: Request<v1::Namespace>) -> Reply<v1::Namespace> {
        let namespace = Namespace::try_from(request.into_inner()).map_err(|err| Failure::invalid(&err))?;
        audit::changed(self.namespaces.set(&namespace).await.map_err(Failure::from)?);
        Ok(Response::new(namespace.into()))
    }

    async fn delete_namespace(
        &self,
        request: Request<DeleteNamespaceRequest>,
    ) -> Reply<DeleteNamespaceResponse> {
        let name = name(&request.get_ref().name)?;
        let deleted =
            drivers::orchestration::delete_namespace(&self.orchestrator, &self.namespaces, &name).await;
        audit::changed(deleted.map_err(Failure::from)?);
        Ok(Response::new(DeleteNamespaceResponse {}))
    }
}

fn name(text: &str) -> Result<Segment, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}
