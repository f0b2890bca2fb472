//! `trestle.v1.Join`: machines that become hosts.

use std::sync::Arc;

use jiff::Timestamp;
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{
    ChallengeRequest, ChallengeResponse, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse,
    RenewRequest, join_request, join_server,
};

use crate::{
    access::{
        Caller, Credential,
        join::{Admissions, Admitted, Asked, Proof},
    },
    audit,
    failure::Failure,
    hosts,
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc(pub Arc<Admissions>);

#[tonic::async_trait]
impl join_server::Join for Grpc {
    async fn challenge(&self, _: Request<ChallengeRequest>) -> Reply<ChallengeResponse> {
        let now = Timestamp::now().as_second();
        let certificate_seconds = i64::try_from(self.0.lifetime().as_secs()).unwrap_or(i64::MAX);
        Ok(Response::new(ChallengeResponse { nonce: self.0.challenge(), now, certificate_seconds }))
    }

    async fn join(&self, request: Request<JoinRequest>) -> Reply<JoinResponse> {
        let JoinRequest { request, name, proof } = request.into_inner();
        let proof = match proof {
            None => Proof::Key,
            Some(join_request::Proof::Token(text)) => Proof::parse(text),
        };
        let admitted = self.0.join(Asked { request, name, proof }).await?;
        Ok(Response::new(told(admitted)))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Reply<JoinResponse> {
        let caller = caller(&request)?;
        let name = caller.subject.name.clone();
        audit::object(&name);
        let serial = match &caller.credential {
            Some(Credential::Certificate(serial)) => Some(serial.as_str()),
            Some(Credential::Token(_)) | None => None,
        };
        let admitted = self.0.renew(&name, serial, &request.get_ref().request).await?;
        Ok(Response::new(told(admitted)))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Reply<LeaveResponse> {
        let name = caller(&request)?.subject.name.clone();
        audit::object(&name);
        self.0.leave(&name).await?;
        Ok(Response::new(LeaveResponse {}))
    }
}

/// The host that calls: the gate lets nobody but nodes in.
fn caller<T>(request: &Request<T>) -> Result<&Caller, Failure> {
    let caller = request.extensions().get::<Caller>();
    caller.ok_or_else(|| Failure::new(Code::Unauthenticated, "the caller is not known"))
}

fn told(Admitted { record, certificate, warnings }: Admitted) -> JoinResponse {
    JoinResponse {
        host: Some(hosts::info(&record)),
        certificate_pem: certificate.certificate_pem,
        now: Timestamp::now().as_second(),
        warnings,
    }
}
