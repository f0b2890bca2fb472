//! `trestle.v1.Access`.

use std::{sync::Arc, time::Duration};

use drivers::blocking;
use jiff::Timestamp;
use model::{Grant, Subject};
use tonic::{Code, Request, Response, Status};
use wire::{
    access::role,
    trestle::v1::{
        self, CertificateInfo, CreateJoinTokenRequest, CreateJoinTokenResponse, CreateLoginRequest,
        CreateLoginResponse, CreateTokenRequest, CreateTokenResponse, Identity, IssueCertificateRequest,
        IssueCertificateResponse, JoinGrant, ListAuditRequest, ListAuditResponse, ListCertificatesRequest,
        ListCertificatesResponse, ListTokensRequest, ListTokensResponse, RevokeCertificateRequest,
        RevokeCertificateResponse, RevokeTokenRequest, RevokeTokenResponse, TokenInfo, TokenKind,
        VerifyAuditRequest, VerifyAuditResponse, WhoAmIRequest, access_server,
    },
};

use super::audit as wire_audit;
use crate::{
    access::{
        Caller, CertificateRecord, Credential, Credentials, CredentialsError, Made, Proof, TokenRecord,
        changes, identity,
        join::{self, Admissions, token::JoinRecord},
        session::LOGIN,
    },
    audit::{self, Audit},
    failure::Failure,
};

type Reply<T> = Result<Response<T>, Status>;

/// Audit records returned unless asked otherwise.
const AUDIT_LIMIT: u32 = 100;

pub(super) struct Grpc {
    pub credentials: Arc<Credentials>,
    pub audit: Arc<Audit>,
    pub ca_pem: String,
    pub admissions: Arc<Admissions>,
}

#[tonic::async_trait]
impl access_server::Access for Grpc {
    async fn create_token(&self, request: Request<CreateTokenRequest>) -> Reply<CreateTokenResponse> {
        let maker = credential(&request);
        let request = request.into_inner();
        let subject = subject(&request.name, request.role)?;
        let made = self.credentials.create_token(subject, ttl(request.ttl_seconds), maker.as_ref()).await;
        let made = made.map_err(Failure::from)?;
        audit::changed(changes::token(&made.id, None, Some(&made.record)));
        let info = Some(token_info(made.id, &made.record));
        Ok(Response::new(CreateTokenResponse { info, secret: made.token.expose().to_owned() }))
    }

    async fn create_join_token(
        &self,
        request: Request<CreateJoinTokenRequest>,
    ) -> Reply<CreateJoinTokenResponse> {
        let maker = request.extensions().get::<Caller>().cloned();
        Ok(Response::new(make_join_token(&self.admissions, maker.as_ref(), request.into_inner()).await?))
    }

    async fn create_login(&self, request: Request<CreateLoginRequest>) -> Reply<CreateLoginResponse> {
        let caller = request.extensions().get::<Caller>();
        let known = caller.filter(|caller| caller.proof != Proof::Anonymous);
        let Some(caller) = known else {
            let text = "callers without credentials need no login: the page lets them in as they are";
            return Err(Failure::new(Code::FailedPrecondition, text).into());
        };
        audit::object(&caller.subject);
        let code = self.credentials.create_login(caller.subject.clone(), caller.credential.as_ref()).await;
        let code = code.map_err(Failure::from)?;
        let expires_at = Timestamp::now().as_second().saturating_add_unsigned(LOGIN.as_secs());
        Ok(Response::new(CreateLoginResponse { code: code.expose().to_owned(), expires_at }))
    }

    async fn list_tokens(&self, _: Request<ListTokensRequest>) -> Reply<ListTokensResponse> {
        let tokens = self.credentials.tokens();
        let joins =
            self.credentials.join_tokens().into_iter().map(|(id, record)| join_token_info(id, &record));
        let tokens = tokens.into_iter().map(|(id, record)| token_info(id, &record)).chain(joins).collect();
        Ok(Response::new(ListTokensResponse { tokens }))
    }

    async fn revoke_token(&self, request: Request<RevokeTokenRequest>) -> Reply<RevokeTokenResponse> {
        let RevokeTokenRequest { id, with_made } = request.get_ref();
        let (before, join) = (self.credentials.token(id), self.credentials.join_token(id));
        let revoked = self.credentials.revoke_token(id).await;
        if revoked.is_ok() {
            audit::changed(match join {
                Some(join) => join::token::changed(id, Some(&join), None),
                None => changes::token(id, before.as_deref(), None),
            });
        }
        let also = match (&revoked, with_made) {
            // Also if only what was made with it is left, as after a call that was cut short.
            (Ok(()) | Err(CredentialsError::NoToken { .. }), true) => {
                self.revoke_made_with(&Credential::Token(id.clone())).await?
            }
            _ => Vec::new(),
        };
        if also.is_empty() {
            revoked.map_err(Failure::from)?;
        }
        Ok(Response::new(RevokeTokenResponse { also }))
    }

    async fn issue_certificate(
        &self,
        request: Request<IssueCertificateRequest>,
    ) -> Reply<IssueCertificateResponse> {
        let maker = credential(&request);
        let request = request.into_inner();
        let subject = subject(&request.name, request.role)?;
        let ttl = ttl(request.ttl_seconds);
        let issued = self.credentials.issue_certificate(subject, ttl, maker.as_ref()).await;
        let (issued, record) = issued.map_err(Failure::from)?;
        audit::changed(changes::certificate(&issued.serial, None, Some(&record)));
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
        let RevokeCertificateRequest { serial, with_made } = request.get_ref();
        let before = self.credentials.certificate(serial);
        self.credentials.revoke_certificate(serial).await.map_err(Failure::from)?;
        let after = self.credentials.certificate(serial);
        audit::changed(changes::certificate(serial, before.as_deref(), after.as_deref()));
        let also = match with_made {
            true => self.revoke_made_with(&Credential::Certificate(serial.clone())).await?,
            false => Vec::new(),
        };
        Ok(Response::new(RevokeCertificateResponse { also }))
    }

    async fn who_am_i(&self, request: Request<WhoAmIRequest>) -> Reply<Identity> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller is not known"))?;
        Ok(Response::new(identity(&caller.subject, caller.proof)))
    }

    async fn list_audit(&self, request: Request<ListAuditRequest>) -> Reply<ListAuditResponse> {
        let request = request.into_inner();
        let limit = match request.limit {
            0 => AUDIT_LIMIT,
            limit => limit,
        };
        let query = wire_audit::query(request)?;
        let audit = Arc::clone(&self.audit);
        let found = blocking(move || audit.find(query, limit as usize)).await;
        let found = found.map_err(|err| unreadable(&err))?;
        let records = found.into_iter().map(Into::into).collect();
        Ok(Response::new(ListAuditResponse { records }))
    }

    async fn verify_audit(&self, request: Request<VerifyAuditRequest>) -> Reply<VerifyAuditResponse> {
        if request.get_ref().head_only {
            return Ok(Response::new(self.audit.head().into()));
        }
        let audit = Arc::clone(&self.audit);
        let report = blocking(move || audit.verify()).await.map_err(|err| unreadable(&err))?;
        Ok(Response::new(report.into()))
    }
}

impl Grpc {
    /// Revokes what was made with a credential that is gone, puts that on record, and says what it was.
    async fn revoke_made_with(&self, credential: &Credential) -> Result<Vec<String>, Failure> {
        let mut also = Vec::new();
        let revoked = |made: &Made| {
            audit::changed(made.revoked());
            also.push(made.to_string());
        };
        self.credentials.revoke_made_with(credential, revoked).await?;
        Ok(also)
    }
}

fn unreadable(err: &std::io::Error) -> Failure {
    Failure::new(Code::Internal, format!("the audit log cannot be read: {err}"))
}

fn subject(name: &str, number: i32) -> Result<Subject, Failure> {
    let name = name.parse().map_err(|err: model::NameError| Failure::invalid(&err))?;
    Ok(Subject { role: role(number).map_err(|err| Failure::invalid(&err))?, name })
}

/// What the caller proved with who it is.
fn credential<T>(request: &Request<T>) -> Option<Credential> {
    request.extensions().get::<Caller>()?.credential.clone()
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
        kind: if record.session { TokenKind::Session } else { TokenKind::Bearer } as i32,
        join: None,
        made_with: record.made_with.clone().or_else(|| record.parent.clone()).unwrap_or_default(),
    }
}

/// A token that lets machines join, as it is listed.
fn join_token_info(id: String, record: &JoinRecord) -> TokenInfo {
    let grant = &record.grant;
    TokenInfo {
        id,
        name: grant.names.to_string(),
        role: v1::Role::Node as i32,
        created_at: record.created_at.as_second(),
        expires_at: Some(record.expires_at.as_second()),
        kind: TokenKind::Join as i32,
        join: Some(JoinGrant {
            uses: record.uses,
            uses_left: record.left(),
            names: grant.names.to_string(),
            tags: grant.tags.iter().map(ToString::to_string).collect(),
            labels: grant.labels.clone(),
        }),
        made_with: record.made_with.clone().unwrap_or_default(),
    }
}

/// For gRPC and REST alike.
pub(crate) async fn make_join_token(
    admissions: &Admissions,
    maker: Option<&Caller>,
    request: CreateJoinTokenRequest,
) -> Result<CreateJoinTokenResponse, Failure> {
    let grant =
        Grant::new(&request.names, request.tags, request.labels).map_err(|err| Failure::invalid(&err))?;
    let (token, record) =
        admissions.create_token(request.uses, ttl(request.ttl_seconds), grant, maker).await?;
    let token_text = token.expose().expose().to_owned();
    let servers = admissions.servers().to_vec();
    Ok(CreateJoinTokenResponse { info: Some(join_token_info(token.id, &record)), token: token_text, servers })
}

fn certificate_info(serial: String, record: &CertificateRecord) -> CertificateInfo {
    CertificateInfo {
        serial,
        name: record.subject.name.to_string(),
        role: v1::Role::from(record.subject.role) as i32,
        not_before: record.not_before.as_second(),
        not_after: record.not_after.as_second(),
        revoked: record.revoked,
        made_with: record.made_with.clone().unwrap_or_default(),
    }
}
