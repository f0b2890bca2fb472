//! Calls on record: carried out in a task of their own, from the intent to the outcome.
//!
//! In: an admitted call. Out: its response. A caller who hangs up, or whose deadline passes, ends its own waiting and
//! nothing else: the call goes on to its end, keeps its place among those in flight, and its outcome says how it really
//! ended. At the stop of the controller calls get time to end, then they are cut, and that is on record too.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    RequestExt as _,
    body::{self, HttpBody as _},
    extract::{RawPathParams, Request},
    http::{HeaderValue, StatusCode},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;
use http_body_util::LengthLimitError;
use model::Subject;
use tokio::sync::oneshot;
use tonic::Code;
use tracing::Instrument as _;

use super::{
    gate::Gate,
    table::{Rule, Who},
};
use crate::{
    audit::{self, Call},
    bounded::Cut,
    call::{Place, panicked, refuse, result_code},
    enforcement::{self, Begun, Enforcement},
    failure::Failure,
};

/// Time calls get to end when the controller stops: as long as connections get.
const DRAIN: Duration = Duration::from_secs(10);
/// Before a gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// An admitted call.
pub struct Asked {
    pub peer: String,
    pub subject: Option<Subject>,
    pub rule: &'static Rule,
    pub is_grpc: bool,
    /// Its place among the calls in flight.
    pub place: Option<Place>,
}

/// Reads the body with the caller: one who hangs up before its end has asked for nothing.
pub async fn take_in(request: Request, max: usize) -> Result<Request, Failure> {
    let (parts, body) = request.into_parts();
    let max = max + PREFIX;
    let too_large = |max: u64| {
        let text = format!("the request is larger than {max} bytes");
        Failure::new(Code::ResourceExhausted, text).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    };
    if body.size_hint().lower() > max as u64 {
        return Err(too_large(max as u64));
    }
    let body = body::to_bytes(body, max).await.map_err(|err| {
        let is_long = std::error::Error::source(&err).is_some_and(|err| err.is::<LengthLimitError>());
        match Cut::behind(&err) {
            Some(Cut::TooLarge(max)) => too_large(max),
            None if is_long => too_large(max as u64),
            Some(Cut::TooSlow) => Failure::new(Code::DeadlineExceeded, "the request did not arrive in time"),
            None => Failure::new(Code::Cancelled, format!("the request did not arrive whole: {err}")),
        }
    })?;
    Ok(Request::from_parts(parts, body.into()))
}

/// Carries a call out, on record. If the returned future is dropped, the call goes on.
pub async fn carry_out(gate: Arc<Gate>, asked: Asked, request: Request, next: Next) -> Response {
    let is_grpc = asked.is_grpc;
    let waits = !is_grpc && enforcement::waits(request.uri().query());
    let following = gate.enforcement.clone().filter(|_| waits);
    let (answer, answered) = oneshot::channel();
    let life = gate.life.clone();
    let carried = async move {
        let response = on_record(&gate, asked, request, next, &answer).await;
        // A caller that went away wants no answer.
        let _ = answer.send(response);
    };
    life.spawn_once("write on record", carried.in_current_span());
    let response = answered.await.unwrap_or_else(|_| {
        refuse(Failure::new(Code::Internal, "the call failed inside the server; see its log"), is_grpc)
    });
    // The call has ended and given its place back; who waits, waits for what came of it.
    match following {
        Some(following) => enforcement::answer(&following, response).await,
        None => response,
    }
}

async fn on_record(
    gate: &Gate,
    asked: Asked,
    mut request: Request,
    next: Next,
    answer: &oneshot::Sender<Response>,
) -> Response {
    let Asked { peer, subject, rule, is_grpc, place: _place } = asked;
    let object = object_of(rule, is_grpc, &mut request).await;
    // Callers who prove themselves by what is in the request are on record once they have.
    let is_proven = subject.is_some() || rule.who != Who::Anyone;
    let call = Call::new(Arc::clone(&gate.audit), subject, peer, rule.operation, object);
    if is_proven && let Err(failure) = call.begin() {
        return refuse(failure, is_grpc);
    }
    let begun = gate.enforcement.as_ref().map(Enforcement::begin);
    let handler = followed(begun.clone(), next.run(request));
    let handler = AssertUnwindSafe(Arc::clone(&call).observe(handler)).catch_unwind();
    let cut = async {
        gate.life.stopping().cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    let (mut response, mut note) = tokio::select! {
        ended = handler => match ended {
            Ok(response) => (response, String::new()),
            Err(panic) => (panicked(&gate.metrics, &*panic, is_grpc), "it panicked".to_owned()),
        },
        () = cut => {
            let text = "the controller stopped before the call ended";
            (refuse(Failure::new(Code::Unavailable, text), is_grpc), text.to_owned())
        }
    };
    // Also of a call that failed half way: what it has stored is to be in force.
    let changes = gate.enforcement.as_ref().zip(begun).map(|(all, begun)| all.follow(&begun));
    for name in changes.into_iter().flatten().filter_map(|name| HeaderValue::try_from(name).ok()) {
        response.headers_mut().append(enforcement::HEADER, name);
    }
    if answer.is_closed() {
        note.push_str(if note.is_empty() { "" } else { "; " });
        note.push_str("the caller was gone before it ended");
    }
    call.conclude(result_code(&response), &note).await;
    response
}

/// Runs a handler which may say what it changes.
async fn followed(begun: Option<Begun>, handler: impl Future<Output = Response>) -> Response {
    match begun {
        Some(begun) => begun.observe(handler).await,
        None => handler.await,
    }
}

/// What the request names: for REST the values in its path, for gRPC what its message says.
async fn object_of(rule: &Rule, is_grpc: bool, request: &mut Request) -> String {
    if !is_grpc {
        let Ok(values) = request.extract_parts::<RawPathParams>().await else { return String::new() };
        return values.iter().map(|(_, value)| value).collect::<Vec<_>>().join("/");
    }
    // The body was taken in, so reading it waits for nothing.
    let body = std::mem::take(request.body_mut());
    let body = body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let object = audit::named(rule.operation, &body).unwrap_or_default();
    *request.body_mut() = body.into();
    object
}

#[cfg(test)]
mod tests;
