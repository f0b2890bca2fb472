//! `trestle.v1.Nodes`: the nodes as the controller sees them.

use tonic::{Request, Response, Status};
use wire::trestle::v1::{GetNodeRequest, GetNodeResponse, ListNodesRequest, ListNodesResponse, nodes_server};

use crate::{nodes, parts::Parts};

pub(super) struct Service(pub Parts);

#[tonic::async_trait]
impl nodes_server::Nodes for Service {
    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        Ok(Response::new(ListNodesResponse { nodes: nodes::list(&self.0).await? }))
    }

    async fn get_node(&self, request: Request<GetNodeRequest>) -> Result<Response<GetNodeResponse>, Status> {
        let (status, objects) = nodes::get(&self.0, &request.into_inner().name).await?;
        Ok(Response::new(GetNodeResponse { status: Some(status), objects }))
    }
}
