//! `trestle.v1.Access`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use model::Subject;
use tonic::{Code, Request, Response, Status};
use wire::{
    access::role,
    trestle::v1::{
        self, AuditRecord, CertificateInfo, CreateLoginRequest, CreateLoginResponse, CreateTokenRequest,
        CreateTokenResponse, Identity, IssueCertificateRequest, IssueCertificateResponse, ListAuditRequest,
        ListAuditResponse, ListCertificatesRequest, ListCertificatesResponse, ListTokensRequest,
        ListTokensResponse, RevokeCertificateRequest, RevokeCertificateResponse, RevokeTokenRequest,
        RevokeTokenResponse, TokenInfo, WhoAmIRequest, access_server,
    },
};

use crate::{
    access::{Caller, CertificateRecord, Credentials, Proof, TokenRecord},
    audit::{self, Audit, Record},
    failure::Failure,
};

type Reply<T> = Result<Response<T>, Status>;

/// Audit records returned unless asked otherwise.
const AUDIT_LIMIT: u32 = 100;
/// How long a login link can be used.
const LOGIN: Duration = Duration::from_secs(600);

pub(super) struct Service {
    pub credentials: Arc<Credentials>,
    pub audit: Arc<Audit>,
    pub ca_pem: String,
}

#[tonic::async_trait]
impl access_server::Access for Service {
    async fn create_token(&self, request: Request<CreateTokenRequest>) -> Reply<CreateTokenResponse> {
        let request = request.into_inner();
        let subject = subject(&request.name, request.role)?;
        audit::object(&subject);
        let made =
            self.credentials.create_token(subject, ttl(request.ttl_seconds)).await.map_err(Failure::from)?;
        let info = Some(token_info(made.id, &made.record));
        Ok(Response::new(CreateTokenResponse { info, secret: made.token.expose().to_owned() }))
    }

    async fn create_login(&self, request: Request<CreateLoginRequest>) -> Reply<CreateLoginResponse> {
        let caller = request.extensions().get::<Caller>();
        let known = caller.filter(|caller| caller.proof != Proof::Anonymous);
        let Some(caller) = known else {
            let text = "callers without credentials need no login: the page lets them in as they are";
            return Err(Failure::new(Code::FailedPrecondition, text).into());
        };
        audit::object(&caller.subject);
        let code =
            self.credentials.create_login(caller.subject.clone(), LOGIN).await.map_err(Failure::from)?;
        let expires_at = Timestamp::now().as_second().saturating_add_unsigned(LOGIN.as_secs());
        Ok(Response::new(CreateLoginResponse { code: code.expose().to_owned(), expires_at }))
    }

    async fn list_tokens(&self, _: Request<ListTokensRequest>) -> Reply<ListTokensResponse> {
        let tokens = self.credentials.tokens();
        let tokens = tokens.into_iter().map(|(id, record)| token_info(id, &record)).collect();
        Ok(Response::new(ListTokensResponse { tokens }))
    }

    async fn revoke_token(&self, request: Request<RevokeTokenRequest>) -> Reply<RevokeTokenResponse> {
        audit::object(&request.get_ref().id);
        self.credentials.revoke_token(&request.get_ref().id).await.map_err(Failure::from)?;
        Ok(Response::new(RevokeTokenResponse {}))
    }

    async fn issue_certificate(
        &self,
        request: Request<IssueCertificateRequest>,
    ) -> Reply<IssueCertificateResponse> {
        let request = request.into_inner();
        let subject = subject(&request.name, request.role)?;
        audit::object(&subject);
        let issued = self.credentials.issue_certificate(subject, ttl(request.ttl_seconds)).await;
        let (issued, record) = issued.map_err(Failure::from)?;
        Ok(Response::new(IssueCertificateResponse {
            info: Some(certificate_info(issued.serial, &record)),
            certificate_pem: issued.certificate_pem,
            key_pem: issued.key_pem.expose().to_owned(),
            ca_pem: self.ca_pem.clone(),
        }))
    }

    async fn list_certificates(
        &self,
        _: Request<ListCertificatesRequest>,
    ) -> Reply<ListCertificatesResponse> {
        let certificates = self.credentials.certificates();
        let certificates =
            certificates.into_iter().map(|(serial, record)| certificate_info(serial, &record)).collect();
        Ok(Response::new(ListCertificatesResponse { certificates }))
    }

    async fn revoke_certificate(
        &self,
        request: Request<RevokeCertificateRequest>,
    ) -> Reply<RevokeCertificateResponse> {
        audit::object(&request.get_ref().serial);
        self.credentials.revoke_certificate(&request.get_ref().serial).await.map_err(Failure::from)?;
        Ok(Response::new(RevokeCertificateResponse {}))
    }

    async fn who_am_i(&self, request: Request<WhoAmIRequest>) -> Reply<Identity> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller is not known"))?;
        Ok(Response::new(Identity {
            role: v1::Role::from(caller.role()) as i32,
            name: caller.subject.name.to_string(),
            proof: caller.proof.as_str().to_owned(),
        }))
    }

    async fn list_audit(&self, request: Request<ListAuditRequest>) -> Reply<ListAuditResponse> {
        let limit = match request.get_ref().limit {
            0 => AUDIT_LIMIT,
            limit => limit,
        };
        let records = self.audit.newest(limit as usize).into_iter().map(audit_record).collect();
        Ok(Response::new(ListAuditResponse { records }))
    }
}

fn subject(name: &str, number: i32) -> Result<Subject, Failure> {
    let name = name.parse().map_err(|err: model::NameError| Failure::invalid(&err))?;
    Ok(Subject { role: role(number).map_err(|err| Failure::invalid(&err))?, name })
}

fn ttl(seconds: Option<u64>) -> Option<Duration> {
    seconds.map(Duration::from_secs)
}

fn token_info(id: String, record: &TokenRecord) -> TokenInfo {
    TokenInfo {
        id,
        name: record.subject.name.to_string(),
        role: v1::Role::from(record.subject.role) as i32,
        created_at: record.created_at.as_second(),
        expires_at: record.expires_at.map(|end| end.as_second()),
        session: record.session,
    }
}

fn certificate_info(serial: String, record: &CertificateRecord) -> CertificateInfo {
    CertificateInfo {
        serial,
        name: record.subject.name.to_string(),
        role: v1::Role::from(record.subject.role) as i32,
        not_before: record.not_before.as_second(),
        not_after: record.not_after.as_second(),
        revoked: record.revoked,
    }
}

fn audit_record(record: Record) -> AuditRecord {
    let role = record.caller.as_ref().map_or(v1::Role::Unspecified, |caller| caller.role.into());
    AuditRecord {
        time: record.time.to_string(),
        role: role as i32,
        name: record.caller.map(|caller| caller.name.to_string()).unwrap_or_default(),
        peer: record.peer,
        operation: record.operation,
        object: record.object,
        result: record.result,
    }
}
