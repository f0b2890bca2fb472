//! The gate every request passes: who calls, may they, and a record of it.
//!
//! ```text
//!   listener ─ Peer ─► limits ─► gate ─ Caller ─► handler
//!                                 │ authenticate: token, else session, else certificate, else anonymous if configured
//!                                 │ admit:        the operation's line in the table
//!                                 └ carry out:    writes in a task of their own, on record before and after
//! ```
//!
//! Refusals are on record too.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
};
use jiff::Timestamp;
use life::Life;
use model::{Role, Secret, Subject};
use tonic::Code;
use tracing::{Span, field::display};

use super::{
    Caller, Credential, Credentials, Peer, Proof, recorded, session,
    table::{self, Effect},
};
use crate::{
    audit::{Audit, Phase, Record},
    call::{Place, is_grpc, operation, refuse},
    failure::{Failure, code_name},
    metrics::Metrics,
};

/// Why callers of an operation are not served, if so.
pub type Refusal = Arc<dyn Fn(&str, bool) -> Option<Failure> + Send + Sync>;

/// What the gate needs to decide.
pub struct Gate {
    pub credentials: Arc<Credentials>,
    pub audit: Arc<Audit>,
    pub metrics: Arc<Metrics>,
    /// Whether callers of an operation are served now; its second argument says that anyone may call it.
    pub refusal: Refusal,
    /// The role of callers who do not say who they are. Only ever set where every listener is plaintext loopback.
    pub anonymous: Option<Role>,
    /// Listeners speak TLS, and so cookies are only ever sent over it.
    pub secure: bool,
    /// Longest body of a call that writes.
    pub max_body: usize,
    /// Has not ended before the calls that write have.
    pub life: Life,
}

/// Axum middleware for gRPC and REST routers alike.
pub async fn pass(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(&request);
    // Not for handlers: a stream would keep it for as long as it lasts.
    let place = request.extensions_mut().remove::<Place>();
    let Some(operation) = operation(&request, is_grpc) else {
        // No route: there is nothing to guard, and the router answers that it does not exist.
        return next.run(request).await;
    };
    let Some(rule) = table::rule(&operation) else {
        let unknown = Failure::new(Code::Unimplemented, format!("there is no operation {operation}"));
        return refuse(unknown, is_grpc);
    };
    if let Some(refusal) = (gate.refusal)(rule.operation, rule.who.admits(None)) {
        return refuse(refusal, is_grpc);
    }
    let peer = request.extensions().get::<Peer>().map(|peer| peer.addr.to_string()).unwrap_or_default();
    let caller = gate.authenticate(&request);
    let subject =
        caller.as_ref().ok().and_then(|caller| caller.as_ref()).map(|caller| caller.subject.clone());
    if let Err(failure) = gate.admit(rule, &caller) {
        gate.refused(peer, subject, rule.operation, failure.code);
        return refuse(failure, is_grpc);
    }
    if let Ok(Some(caller)) = caller {
        Span::current().record("caller", display(&caller.subject));
        request.extensions_mut().insert(caller);
    }
    match rule.effect {
        Effect::Read | Effect::Report => next.run(request).await,
        Effect::Write | Effect::Export => match recorded::take_in(request, gate.max_body).await {
            Ok(request) => {
                let asked = recorded::Asked { peer, subject, rule, is_grpc, place };
                recorded::carry_out(gate, asked, request, next).await
            }
            Err(failure) => {
                // Who hung up has asked for nothing.
                if failure.code != Code::Cancelled {
                    gate.refused(peer, subject, rule.operation, failure.code);
                }
                refuse(failure, is_grpc)
            }
        },
    }
}

impl Gate {
    /// Who calls: `Ok(None)` if nobody says, an error if what they say is not true.
    fn authenticate(&self, request: &Request) -> Result<Option<Caller>, Failure> {
        if let Some(value) = request.headers().get(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")).map(Secret::new);
            let token = token.ok_or_else(|| {
                Failure::new(
                    Code::Unauthenticated,
                    "the authorization header is not of the form `Bearer TOKEN`",
                )
            })?;
            let (subject, id) = self.credentials.check_token(&token, Timestamp::now())?;
            let credential = Some(Credential::Token(id));
            return Ok(Some(Caller { subject, proof: Proof::Token, credential }));
        }
        if let Some(cookie) = session::cookie(request, self.secure) {
            let (subject, id) = self.credentials.check_session(&cookie, Timestamp::now())?;
            let credential = Some(Credential::Token(id));
            return Ok(Some(Caller { subject, proof: Proof::Session, credential }));
        }
        let peer = request.extensions().get::<Peer>();
        if let Some(certificate) = peer.and_then(|peer| peer.certificate.as_ref()) {
            self.credentials.check_certificate(certificate)?;
            let credential = Some(Credential::Certificate(certificate.serial.clone()));
            let subject = certificate.subject.clone();
            return Ok(Some(Caller { subject, proof: Proof::Certificate, credential }));
        }
        let anonymous = self.anonymous.filter(|_| session::may_be_anonymous(request));
        Ok(anonymous.map(|role| Caller {
            subject: Subject { role, name: "anonymous".parse().expect("it is a legal name") },
            proof: Proof::Anonymous,
            credential: None,
        }))
    }

    fn admit(&self, rule: &table::Rule, caller: &Result<Option<Caller>, Failure>) -> Result<(), Failure> {
        let caller = match caller {
            Ok(caller) => caller.as_ref(),
            // What anyone may call is not refused for a stale token.
            Err(_) if rule.who.admits(None) => None,
            Err(failure) => return Err(failure.clone()),
        };
        if rule.who.admits(caller.map(Caller::role)) {
            return Ok(());
        }
        Err(match caller {
            None => Failure::new(
                Code::Unauthenticated,
                format!("{} needs a bearer token or a client certificate", rule.operation),
            ),
            Some(caller) => Failure::new(
                Code::PermissionDenied,
                format!("{} may not call {}", caller.subject, rule.operation),
            ),
        })
    }

    fn refused(&self, peer: String, caller: Option<Subject>, operation: &str, code: Code) {
        let result = code_name(code).to_owned();
        let record = Record::event(Timestamp::now(), operation, String::new());
        self.audit.refused(Record { phase: Phase::Refusal, caller, peer, result, ..record });
    }
}
