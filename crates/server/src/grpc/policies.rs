//! `trestle.v1.Policies`.

use std::sync::Arc;

use drivers::policy::Policy;
use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    ExplainRequest, ExplainResponse, ListPoliciesRequest, ListPoliciesResponse, PolicyDetail, PolicyRequest,
    policies_server,
};

use crate::{explain::Explainer, realisation::Realisations};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc {
    pub policy: Arc<Policy>,
    pub realisations: Realisations,
    pub explainer: Explainer,
}

#[tonic::async_trait]
impl policies_server::Policies for Grpc {
    async fn list_policies(&self, request: Request<ListPoliciesRequest>) -> Reply<ListPoliciesResponse> {
        let policies = self.realisations.policies(&self.policy, request.get_ref().places);
        Ok(Response::new(ListPoliciesResponse { policies }))
    }

    async fn get_policy(&self, request: Request<PolicyRequest>) -> Reply<PolicyDetail> {
        Ok(Response::new(self.realisations.named(&self.policy, &request.into_inner())?))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Reply<ExplainResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.explainer.explain(&request).await?))
    }
}
