//! HTTP in front of the world: which cloud, which fault, then the answer.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::Response,
    routing::get,
};
use cloud_http::Clock as _;
use http::{HeaderMap, Method, Uri};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    Fault, VirtualClock, aws, azure, gcp, ibm, metadata, question,
    world::{Call, World},
};

#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) clock: Arc<VirtualClock>,
    /// Told when a request has come that gets no answer.
    pub(crate) silence: Arc<Notify>,
    /// With which clouds sign what they say of machines.
    pub(crate) keys: metadata::Keys,
}

impl Shared {
    /// Time goes on, and what was under way comes to its end.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.world.lock().settle(self.clock.now().as_secs());
    }

    /// What is in a cloud when all that is under way has ended, by id; what every account has from the beginning aside.
    pub(crate) fn left_in(&self, cloud: &str) -> Vec<String> {
        self.pass(Duration::from_secs(7200));
        self.world.lock().left_in(cloud)
    }
}

/// What goes back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// A request, as the clouds look at it.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// Seconds since 1970, in simulated time.
    pub(crate) now: u64,
    /// `http://host:port` as the client sees it.
    pub(crate) origin: String,
}

impl<'a> Ask<'a> {
    /// The body; null where there is none.
    pub(crate) fn json(&self) -> serde_json::Result<Value> {
        if self.body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(self.body) }
    }

    /// A request that nobody sent, for what somebody does by hand.
    pub(crate) fn by_hand(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap, now: u64) -> Self {
        Self { method, uri, headers, body: &[], now, origin: "http://localhost".to_owned() }
    }
}

pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/wire", get(question::wire))
        .route("/meter", get(question::meter))
        .route("/left", get(question::left))
        .merge(metadata::routes())
        .fallback(handle)
        .with_state(shared)
}

async fn handle(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let silent = shared.world.lock().trouble.is_silent();
    if silent == Some(false) {
        shared.silence.notify_one();
        return std::future::pending().await;
    }
    let mut hold = Duration::ZERO;
    // Google holds such a request until the operation ends, two minutes at most.
    if let Some(until) = gcp::waits_for(&uri, &shared.world.lock().gcp) {
        let left = Duration::from_secs(until).saturating_sub(shared.clock.now());
        hold = left.min(Duration::from_secs(120));
    }
    if !hold.is_zero() {
        shared.clock.sleep(hold).await;
    }
    shared.clock.begin();
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    // Something in front may speak TLS, for clients that insist on it.
    let scheme = headers.get("x-forwarded-proto").and_then(|scheme| scheme.to_str().ok()).unwrap_or("http");
    let ask = Ask {
        method: &method,
        uri: &uri,
        headers: &headers,
        body: &body,
        now: shared.clock.now().as_secs(),
        origin: format!("{scheme}://{host}"),
    };
    let (answer, lost) = {
        let mut world = shared.world.lock();
        let (answer, lost) = answer(&mut world, &ask);
        if let Some(recorder) = &mut world.recorder {
            recorder.write(&ask, answer.status, shared.clock.now());
        }
        (answer, lost)
    };
    shared.clock.end();
    if silent == Some(true) {
        shared.silence.notify_one();
        return std::future::pending().await;
    }
    let body = match lost {
        false => Body::from(answer.body),
        true => Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))])),
    };
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(answer.status).unwrap_or_default();
    for (name, value) in answer.headers {
        // What the simulators write is legal in a header.
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(answer.content_type));
    response
}

/// A simulated cloud: whose request it is, what it asks for, and the answer.
type Cloud =
    (fn(&Ask<'_>) -> bool, fn(&Ask<'_>) -> String, fn(&mut World, &Ask<'_>, Option<Fault>) -> Answer);

/// The first whose request it is answers. AWS has no path of its own and comes last.
const CLOUDS: [Cloud; 4] = [
    (gcp::is_for, gcp::operation, gcp::answer),
    (azure::is_for, azure::operation, azure::answer),
    (ibm::is_for, ibm::operation, ibm::answer),
    (|_| true, aws::operation, aws::answer),
];

fn answer(world: &mut World, ask: &Ask<'_>) -> (Answer, bool) {
    if let Some(answer) = ibm::token(ask) {
        return (answer, false);
    }
    let [.., last] = CLOUDS;
    let (_, operation, cloud) = CLOUDS.into_iter().find(|(is_for, ..)| is_for(ask)).unwrap_or(last);
    let operation = operation(ask);
    let fault = world.trouble.roll(&operation);
    let answer = match fault {
        Some(Fault::Html) => Answer {
            status: 502,
            content_type: "text/html",
            body: "<html><body><h1>502 Bad Gateway</h1></body></html>".to_owned(),
            ..Answer::default()
        },
        fault => cloud(world, ask, fault),
    };
    world.calls.push(Call { operation, status: answer.status });
    (answer, fault == Some(Fault::Lost))
}
