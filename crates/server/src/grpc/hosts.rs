//! `trestle.v1.Hosts`: the machines that have joined.

use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    GetHostRequest, HostInfo, ListHostsRequest, ListHostsResponse, RemoveHostRequest, RemoveHostResponse,
    hosts_server,
};

use crate::hosts::Hosts;

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc(pub Hosts);

#[tonic::async_trait]
impl hosts_server::Hosts for Grpc {
    async fn list_hosts(&self, _: Request<ListHostsRequest>) -> Reply<ListHostsResponse> {
        Ok(Response::new(ListHostsResponse { hosts: self.0.list() }))
    }

    async fn get_host(&self, request: Request<GetHostRequest>) -> Reply<HostInfo> {
        Ok(Response::new(self.0.get(&request.get_ref().name)?))
    }

    async fn remove_host(&self, request: Request<RemoveHostRequest>) -> Reply<RemoveHostResponse> {
        Ok(Response::new(self.0.remove(&request.get_ref().name).await?))
    }
}
