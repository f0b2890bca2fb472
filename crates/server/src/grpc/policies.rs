//! `trestle.v1.Policies`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use wire::trestle::v1::{
    ExplainRequest, ExplainResponse, ListPoliciesRequest, ListPoliciesResponse, PolicyProblem, PolicyState,
    policies_server,
};

use crate::{explain, policy::Policy};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Service(pub Arc<Policy>);

#[tonic::async_trait]
impl policies_server::Policies for Service {
    async fn list_policies(&self, _: Request<ListPoliciesRequest>) -> Reply<ListPoliciesResponse> {
        let policies = self.0.list().into_iter().map(|(id, state)| PolicyState {
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace,
            name: id.name,
            generation: state.generation,
            span: u32::try_from(state.span.len()).unwrap_or(u32::MAX),
            problems: state
                .problems
                .into_iter()
                .map(|problem| PolicyProblem { path: problem.path, message: problem.message })
                .collect(),
        });
        Ok(Response::new(ListPoliciesResponse { policies: policies.collect() }))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Reply<ExplainResponse> {
        let request = request.into_inner();
        Ok(Response::new(explain::explain(&self.0, &request)?))
    }
}
