//! `trestle.v1.Permissions`.

use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    AllowOutcome, AllowRequest, DenyRequest, ListPermissionsRequest, ListPermissionsResponse, PermissionInfo,
    PermissionRequest, Proof, permissions_server,
};

use crate::permissions::Allows;

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc(pub Allows);

#[tonic::async_trait]
impl permissions_server::Permissions for Grpc {
    async fn allow(&self, request: Request<AllowRequest>) -> Reply<AllowOutcome> {
        Ok(Response::new(self.0.allow(request.get_ref()).await?))
    }

    async fn deny(&self, request: Request<DenyRequest>) -> Reply<AllowOutcome> {
        Ok(Response::new(self.0.deny(request.into_inner()).await?))
    }

    async fn list_permissions(&self, _: Request<ListPermissionsRequest>) -> Reply<ListPermissionsResponse> {
        Ok(Response::new(ListPermissionsResponse { permissions: self.0.list()? }))
    }

    async fn get_permission(&self, request: Request<PermissionRequest>) -> Reply<PermissionInfo> {
        Ok(Response::new(self.0.get(&request.get_ref().name)?))
    }

    async fn prove(&self, request: Request<AllowRequest>) -> Reply<Proof> {
        Ok(Response::new(self.0.prove(request.get_ref()).await?))
    }
}
