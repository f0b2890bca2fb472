//! Get, list and watch.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use drivers::random;
use futures::{Stream, StreamExt as _};
use model::policy::output::Identifier;
use prometheus_client::metrics::gauge::Gauge;
use tonic::Code;
use watch::{Encoding, NotSynced, Resource, View, encoding_for};

use super::{App, own_node};
use crate::{access::Caller, failure::Failure};

/// How long a watch lasts if the client does not say: between one and two of these, so that not all end at once.
const LONGEST: u64 = 7200;

pub(super) type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

pub(super) async fn list_or_watch(
    resource: Resource,
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Query(pairs) = pairs.map_err(|err| Failure::invalid(&err))?;
    let query = watch::Query::parse(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let query = query.map_err(|err| match err.is_invalid() {
        true => Failure::invalid(&err).with_status(StatusCode::UNPROCESSABLE_ENTITY),
        false => Failure::invalid(&err),
    })?;
    check_node(&caller, resource, &query.view)?;
    let encoding = accepted(&headers)?;
    if !query.watch {
        let body = app.watch.list(resource, &query.view, encoding).map_err(not_synced)?;
        return Ok(reply(encoding, body));
    }
    let watch = app
        .watch
        .watch(resource, query.view, query.start, encoding, query.marks_initial_end)
        .map_err(|err| Failure::from_error(Code::OutOfRange, &err).with_status(StatusCode::GONE))?;
    let seconds =
        query.timeout_seconds.unwrap_or_else(|| LONGEST + u64::from_le_bytes(random::bytes()) % LONGEST);
    Ok(stream(&app, watch, encoding, Duration::from_secs(seconds)))
}

/// The headers go out at once; frames follow as there are any; the stream ends cleanly.
fn stream(
    app: &App,
    watch: impl Stream<Item = bytes::Bytes> + Send + 'static,
    encoding: Encoding,
    lasts: Duration,
) -> Response {
    let counted = Counted::new(&app.metrics.watchers);
    let stopping = app.serving.streams();
    let end = async move {
        let _ = tokio::time::timeout(lasts, stopping.cancelled()).await;
    };
    let frames = watch.take_until(Box::pin(end)).map(move |frames| {
        let _ = &counted;
        Ok::<_, Infallible>(frames)
    });
    ([(header::CONTENT_TYPE, encoding.content_type(true))], Body::from_stream(frames)).into_response()
}

pub(super) async fn get(
    resource: Resource,
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let encoding = accepted(&headers)?;
    let node = own_node(&caller).map(Arc::from);
    let found = app.watch.get(resource, &Identifier::parse(&name), &node, encoding).map_err(not_synced)?;
    let body = found.ok_or_else(|| {
        let name: String = name.chars().take(256).collect();
        Failure::new(Code::NotFound, format!("{}.{} {name:?} not found", resource.plural(), watch::GROUP))
    })?;
    Ok(reply(encoding, body))
}

/// A node asks for itself by name; to be shown less than one asked for would look like an empty cluster.
fn check_node(caller: &Caller, resource: Resource, view: &View) -> Result<(), Failure> {
    match own_node(caller) {
        Some(own) if view.node.as_deref() != Some(own.as_str()) => Err(Failure::new(
            Code::PermissionDenied,
            format!(
                "{} may list and watch {} with fieldSelector nodeName={own} only",
                caller.subject,
                resource.plural()
            ),
        )),
        _ => Ok(()),
    }
}

pub(super) fn accepted(headers: &HeaderMap) -> Result<Encoding, Failure> {
    let accept = headers.get(header::ACCEPT).map_or(Some(""), |value| value.to_str().ok());
    accept.and_then(encoding_for).ok_or_else(|| {
        let text = "only application/json and application/vnd.kubernetes.protobuf are spoken here";
        Failure::new(Code::InvalidArgument, text).with_status(StatusCode::NOT_ACCEPTABLE)
    })
}

pub(super) fn not_synced(err: NotSynced) -> Failure {
    Failure::from_error(Code::Unavailable, &err)
}

pub(super) fn reply(encoding: Encoding, body: bytes::Bytes) -> Response {
    ([(header::CONTENT_TYPE, encoding.content_type(false))], body).into_response()
}

/// One more in a gauge, as long as it lives.
struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
