//! `trestle.v1.Nodes`: the nodes as the controller sees them.

use tonic::{Request, Response, Status};
use wire::trestle::v1::{GetNodeRequest, GetNodeResponse, ListNodesRequest, ListNodesResponse, nodes_server};

use crate::nodes::Nodes;

pub(super) struct Grpc(pub Nodes);

#[tonic::async_trait]
impl nodes_server::Nodes for Grpc {
    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        Ok(Response::new(ListNodesResponse { nodes: self.0.list().await? }))
    }

    async fn get_node(&self, request: Request<GetNodeRequest>) -> Result<Response<GetNodeResponse>, Status> {
        let (status, objects) = self.0.get(&request.into_inner().name).await?;
        Ok(Response::new(GetNodeResponse { status: Some(status), objects }))
    }
}
