//! `trestle.v1.Policies`.

use std::sync::Arc;

use drivers::policy::Policy;
use tonic::{Request, Response, Status};
use watch::Phase;
use wire::trestle::v1::{
    ExplainRequest, ExplainResponse, ListPoliciesRequest, ListPoliciesResponse, NodeFailure, PolicyProblem,
    PolicyState, policies_server,
};

use crate::{
    explain::Explainer,
    realisation::{Realisations, problems},
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Service {
    pub policy: Arc<Policy>,
    pub realisations: Realisations,
    pub explainer: Explainer,
}

#[tonic::async_trait]
impl policies_server::Policies for Service {
    async fn list_policies(&self, _: Request<ListPoliciesRequest>) -> Reply<ListPoliciesResponse> {
        let mut realisations = self.realisations.all();
        let policies = self.policy.list().into_iter().map(|(id, state)| {
            let told = realisations.remove(&id);
            let failures = told.iter().flat_map(|told| &told.failures);
            let failures = failures
                .map(|(node, message)| NodeFailure { node: node.to_string(), message: message.clone() });
            PolicyState {
                phase: told.as_ref().map_or(Phase::Pending, |told| told.phase).as_str().to_owned(),
                realized: told.as_ref().map_or(0, |told| u32::try_from(told.current).unwrap_or(u32::MAX)),
                failures: failures.collect(),
                kind: id.kind.as_str().to_owned(),
                namespace: id.namespace,
                name: id.name,
                generation: state.generation,
                span: u32::try_from(state.span.len()).unwrap_or(u32::MAX),
                problems: problems(state.problems, told.as_ref())
                    .into_iter()
                    .map(|problem| PolicyProblem { path: problem.path, message: problem.message })
                    .collect(),
            }
        });
        Ok(Response::new(ListPoliciesResponse { policies: policies.collect() }))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Reply<ExplainResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.explainer.explain(&request).await?))
    }
}
