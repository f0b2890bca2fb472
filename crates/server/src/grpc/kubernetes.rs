//! `trestle.v1.Kubernetes`: the clusters that are read.

use tonic::{Request, Response, Status};
use wire::trestle::v1::{ListClustersRequest, ListClustersResponse, kubernetes_server};

use crate::clusters::Clusters;

pub(super) struct Grpc(pub Clusters);

#[tonic::async_trait]
impl kubernetes_server::Kubernetes for Grpc {
    async fn list_clusters(
        &self,
        _: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        Ok(Response::new(ListClustersResponse { clusters: self.0.list() }))
    }
}
