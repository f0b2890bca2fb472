//! `trestle.v1.Policies`.

use std::sync::Arc;

use drivers::policy::Policy;
use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    ExplainRequest, ExplainResponse, LintRequest, LintResponse, ListPoliciesRequest, ListPoliciesResponse,
    PolicyDetail, PolicyRequest, ReplayRequest, ReplayResponse, RunPolicyTestsRequest,
    RunPolicyTestsResponse, SuggestRequest, SuggestResponse, policies_server,
};

use crate::{explain::Explainer, linted, objects::Changing, realisation::Realisations, seen, uses};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc {
    pub policy: Arc<Policy>,
    pub realisations: Realisations,
    pub explainer: Explainer,
    pub changing: Changing,
}

#[tonic::async_trait]
impl policies_server::Policies for Grpc {
    async fn list_policies(&self, request: Request<ListPoliciesRequest>) -> Reply<ListPoliciesResponse> {
        let mut policies = self.realisations.policies(&self.policy, request.get_ref().places);
        uses::tell(&self.changing.flows, &self.policy, &mut policies).await;
        Ok(Response::new(ListPoliciesResponse { policies }))
    }

    async fn get_policy(&self, request: Request<PolicyRequest>) -> Reply<PolicyDetail> {
        let mut detail = self.realisations.named(&self.policy, &request.into_inner())?;
        uses::tell_rules(&self.changing.flows, &self.policy, &mut detail).await;
        Ok(Response::new(detail))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Reply<ExplainResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.explainer.explain(&request).await?))
    }

    async fn run_policy_tests(
        &self,
        request: Request<RunPolicyTestsRequest>,
    ) -> Reply<RunPolicyTestsResponse> {
        Ok(Response::new(self.changing.tests.run(request.into_inner()).await?))
    }

    async fn lint(&self, request: Request<LintRequest>) -> Reply<LintResponse> {
        Ok(Response::new(linted::lint(&self.changing, request.into_inner()).await?))
    }

    async fn replay(&self, request: Request<ReplayRequest>) -> Reply<ReplayResponse> {
        Ok(Response::new(seen::replay(&self.changing, request.into_inner()).await?))
    }

    async fn suggest(&self, request: Request<SuggestRequest>) -> Reply<SuggestResponse> {
        Ok(Response::new(seen::suggest(&self.changing, request.into_inner()).await?))
    }
}
