//! `trestle.v1.Services`.

use std::sync::Arc;

use drivers::services::Services;
use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    ExplainServiceRequest, ExplainServiceResponse, GetServiceRequest, ListServicesRequest,
    ListServicesResponse, ServiceState, services_server,
};

use crate::services_view as view;

pub(super) struct Grpc(pub Arc<Services>);

#[tonic::async_trait]
impl services_server::Services for Grpc {
    async fn list_services(
        &self,
        request: Request<ListServicesRequest>,
    ) -> Result<Response<ListServicesResponse>, Status> {
        let services = view::list(&self.0, &request.into_inner().namespace);
        Ok(Response::new(ListServicesResponse { services }))
    }

    async fn get_service(
        &self,
        request: Request<GetServiceRequest>,
    ) -> Result<Response<ServiceState>, Status> {
        let GetServiceRequest { namespace, name } = request.into_inner();
        Ok(Response::new(view::get(&self.0, &namespace, &name)?))
    }

    async fn explain_service(
        &self,
        request: Request<ExplainServiceRequest>,
    ) -> Result<Response<ExplainServiceResponse>, Status> {
        Ok(Response::new(view::explain(&self.0, request.get_ref())?))
    }
}
