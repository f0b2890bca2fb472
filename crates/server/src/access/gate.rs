//! The gate every request passes: who calls, may they, and a record of it.
//!
//! ```text
//!   listener ─ Peer ─► limits ─► gate ─ Caller ─► handler
//!                                 │ authenticate: token, else session, else certificate, else anonymous if configured
//!                                 │ admit:        the operation's line in the table
//!                                 │ make room:    a place among the calls in flight; strangers have few of their own
//!                                 │ carry out:    writes in a task of their own, on record before and after
//!                                 └ bound:        what a stranger sends and takes; what a credential opens, until it ends
//! ```
//!
//! Refusals are on record too. Questions for health need no place and no proof.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use axum::{
    body::{Body, HttpBody as _},
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
    tenure::{self, Tenures},
};
use crate::{
    audit::{Audit, Phase, Record},
    bounded::{Bounded, Cut, Ending},
    call::{Place, is_grpc, operation, refuse},
    enforcement::Enforcement,
    failure::{Failure, code_name},
    metrics::Metrics,
    places::Places,
};

/// Longest body of a call by somebody who is not known.
const STRANGERS_BYTES: u64 = 64 << 10;
/// The same of a question for health.
const HEALTH_BYTES: u64 = 1 << 10;
/// Time to send it, and to take the answer.
const STRANGERS_TIME: Duration = Duration::from_secs(5);

/// Why callers of an operation are not served, if so.
pub type Refusal = Arc<dyn Fn(&str, bool) -> Option<Failure> + Send + Sync>;

/// What the gate needs to decide.
pub struct Gate {
    pub credentials: Arc<Credentials>,
    pub audit: Arc<Audit>,
    /// Follows what calls change until it is in force; none where nothing is enforced.
    pub enforcement: Option<Arc<Enforcement>>,
    pub metrics: Arc<Metrics>,
    /// Whether callers of an operation are served now; its second argument says that anyone may call it.
    pub refusal: Refusal,
    /// The role of callers who do not say who they are. Only ever set where every listener is plaintext loopback.
    pub anonymous: Option<Role>,
    /// Listeners speak TLS, and so cookies are only ever sent over it.
    pub secure: bool,
    /// Room for calls.
    pub places: Places,
    /// What goes on with which credential.
    pub tenures: Tenures,
    /// Longest body of a call that writes.
    pub max_body: usize,
    /// Has not ended before the calls that write have.
    pub life: Life,
}

/// Axum middleware for gRPC and REST routers alike.
pub async fn pass(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(&request);
    let Some(operation) = operation(&request, is_grpc) else {
        // No route: there is nothing to guard, and the router answers that it does not exist.
        called(&request);
        return next.run(request).await;
    };
    let Some(rule) = table::rule(&operation) else {
        called(&request);
        let unknown = Failure::new(Code::Unimplemented, format!("there is no operation {operation}"));
        return refuse(unknown, is_grpc);
    };
    if rule.effect == Effect::Health {
        return tell_health(request, next, is_grpc).await;
    }
    if let Some(refusal) = (gate.refusal)(rule.operation, rule.who.admits(None)) {
        return refuse(refusal, is_grpc);
    }
    let peer = request.extensions().get::<Peer>().map(|peer| peer.addr.to_string()).unwrap_or_default();
    let caller = gate.authenticate(&request);
    let subject =
        caller.as_ref().ok().and_then(|caller| caller.as_ref()).map(|caller| caller.subject.clone());
    match (&subject, request.extensions().get::<Peer>()) {
        (Some(subject), Some(peer)) if !peer.guest.has_place(|| gate.places.connection(subject)) => {
            let text = format!("{subject} has too many connections; close some");
            return refuse(Failure::new(Code::ResourceExhausted, text), is_grpc);
        }
        (Some(_), Some(peer)) if !peer.guest.is_known() => {
            let text = "too many connections by callers without credentials; connect again";
            return refuse(Failure::new(Code::Unavailable, text), is_grpc);
        }
        (Some(_), _) => {}
        (None, _) => called(&request),
    }
    if let Err(failure) = gate.admit(rule, &caller) {
        gate.refused(peer, subject, rule.operation, failure.code);
        return refuse(failure, is_grpc);
    }
    let place = match gate.place(&request, subject.as_ref()) {
        Ok(place) => place,
        Err(failure) => return refuse(failure, is_grpc),
    };
    let Ok(Some(caller)) = caller else {
        // Until the answer is taken, or was not taken in time, there is no room for another.
        let request =
            request.map(|body| strangers_body(body, STRANGERS_BYTES).holding(place.clone()).into_body());
        let asked = recorded::Asked { peer, subject, rule, is_grpc, place: Some(place.clone()) };
        let response = carry_out(gate, asked, request, next).await;
        return response.map(|body| {
            let late = Ending::Fail(Cut::TooSlow);
            Bounded::until(body, tokio::time::sleep(STRANGERS_TIME), late).holding(place).into_body()
        });
    };
    Span::current().record("caller", display(&caller.subject));
    let credential = caller.credential.clone();
    request.extensions_mut().insert(caller);
    let asked = recorded::Asked { peer, subject, rule, is_grpc, place: Some(place) };
    let response = carry_out(Arc::clone(&gate), asked, request, next).await;
    match credential {
        Some(credential) => gate.bound(response, &credential, is_grpc),
        None => response,
    }
}

/// Tells how the controller is, whatever else goes on. Nobody is asked for a proof, and a connection has a few such calls at once.
async fn tell_health(request: Request, next: Next, is_grpc: bool) -> Response {
    let question = match request.extensions().get::<Peer>().map(|peer| peer.guest.asks()) {
        Some(None) => {
            let text = "too many questions for health at once on one connection";
            return refuse(Failure::new(Code::Unavailable, text), is_grpc);
        }
        question => question.flatten(),
    };
    let request = request.map(|body| strangers_body(body, HEALTH_BYTES).into_body());
    let answer = next.run(request).await;
    answer
        .map(|body| Bounded::until(body, std::future::pending(), Ending::Quiet).holding(question).into_body())
}

/// What a stranger sends: little, and soon.
fn strangers_body(body: Body, most: u64) -> Bounded {
    let late = Ending::Fail(Cut::TooSlow);
    Bounded::until(body, tokio::time::sleep(STRANGERS_TIME), late).at_most(most)
}

/// Counts a call by somebody who is not known.
fn called(request: &Request) {
    if let Some(peer) = request.extensions().get::<Peer>() {
        peer.guest.called();
    }
}

/// Carries an admitted call out.
async fn carry_out(gate: Arc<Gate>, mut asked: recorded::Asked, request: Request, next: Next) -> Response {
    match asked.rule.effect {
        Effect::Read | Effect::Report | Effect::Health => {
            // A stream has its place until it has begun, not until it ends.
            let _place = asked.place.take();
            next.run(request).await
        }
        Effect::Write | Effect::Export => match recorded::take_in(request, gate.max_body).await {
            Ok(request) => recorded::carry_out(gate, asked, request, next).await,
            Err(failure) => {
                // Who hung up has asked for nothing.
                if failure.code != Code::Cancelled {
                    gate.refused(asked.peer, asked.subject, asked.rule.operation, failure.code);
                }
                refuse(failure, asked.is_grpc)
            }
        },
    }
}

impl Gate {
    /// A place for a call. Who has said nothing may be known by an earlier call on the same connection.
    fn place(&self, request: &Request, subject: Option<&Subject>) -> Result<Place, Failure> {
        let peer = request.extensions().get::<Peer>();
        match subject.or_else(|| peer.and_then(|peer| peer.guest.owner())) {
            Some(subject) => self.places.known(subject),
            None => {
                self.places.stranger(peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.addr.ip()))
            }
        }
    }

    /// An answer that ends with the credential it was asked for with. One that is there whole has ended already.
    fn bound(&self, response: Response, credential: &Credential, is_grpc: bool) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        let tenure = self.tenures.begin(credential, &self.credentials);
        let ending = match is_grpc {
            true => Ending::Grpc(Box::new(tenure::ended(credential))),
            false => Ending::Quiet,
        };
        response.map(|body| Bounded::until(body, tenure.over(), ending).into_body())
    }

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
            self.credentials.check_certificate(certificate, Timestamp::now())?;
            let credential = self.credentials.named(certificate);
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
