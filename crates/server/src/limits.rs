//! What one request may cost: a bound on its time, and a panic that harms no other call. How many there may be: `places`.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;
use tokio::time::Instant;
use tonic::Code;
use tracing::{Instrument as _, field::Empty, info_span};

use crate::{
    access::table::{self, Effect},
    call::{is_grpc, operation, panicked, refuse, result_code},
    failure::Failure,
    metrics::Metrics,
};

/// The bounds.
pub struct Limits {
    /// Counts calls, to tell them apart in the log.
    calls: AtomicU64,
    timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Limits {
    pub fn new(timeout: Duration, metrics: Arc<Metrics>) -> Self {
        Self { calls: AtomicU64::new(1), timeout, metrics }
    }
}

/// Axum middleware around everything else.
pub async fn keep(State(limits): State<Arc<Limits>>, request: Request, next: Next) -> Response {
    let is_grpc = is_grpc(&request);
    let operation = operation(&request, is_grpc);
    let started = Instant::now();
    let name = label(operation.as_deref());
    // Every line that is logged on behalf of this call carries it.
    let span = info_span!("call", id = limits.calls.fetch_add(1, Relaxed), operation = name, caller = Empty);
    let response = run(&limits, request, next, is_grpc, operation.as_deref()).instrument(span).await;
    limits.metrics.observe_request(name, result_code(&response), started.elapsed());
    response
}

/// Only names from the table become labels, so a stranger cannot fill memory with new ones.
fn label(operation: Option<&str>) -> &'static str {
    operation.and_then(table::rule).map_or("unknown", |rule| rule.operation)
}

async fn run(
    limits: &Limits,
    request: Request,
    next: Next,
    is_grpc: bool,
    operation: Option<&str>,
) -> Response {
    let timeout = match grpc_timeout(&request) {
        Some(asked) => asked.min(limits.timeout),
        None => limits.timeout,
    };
    let call = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => panicked(&limits.metrics, &*panic, is_grpc),
        Err(_) => {
            let mut text = format!("the call took longer than {timeout:?}");
            if operation.and_then(table::rule).is_some_and(|rule| rule.effect == Effect::Write) {
                text.push_str("; if all of it had arrived it goes on, and the audit log tells how it ends");
            }
            refuse(Failure::new(Code::DeadlineExceeded, text), is_grpc)
        }
    }
}

/// The deadline a gRPC caller set: up to eight digits and a unit.
fn grpc_timeout(request: &Request) -> Option<Duration> {
    let text = request.headers().get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, middleware, routing::get};
    use tower::ServiceExt as _;

    use super::*;

    fn router() -> Router {
        let limits = Limits::new(Duration::from_millis(200), Arc::default());
        Router::new()
            .route("/ok", get(|| async { "ok" }))
            .route("/panic", get(panics))
            .route("/slow", get(|| tokio::time::sleep(Duration::from_secs(60))))
            .layer(middleware::from_fn_with_state(Arc::new(limits), keep))
    }

    async fn panics() {
        panic!("on purpose")
    }

    async fn status(router: Router, path: &str) -> u16 {
        let request = Request::get(path).body(Body::empty()).unwrap();
        router.oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_panic_is_answered_and_the_next_call_works() {
        let router = router();
        assert_eq!(status(router.clone(), "/panic").await, 500);
        assert_eq!(status(router, "/ok").await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_is_ended() {
        assert_eq!(status(router(), "/slow").await, 504);
    }

    #[test]
    fn strange_operations_share_one_label() {
        assert_eq!(label(Some("GET /tags")), "GET /tags");
        for strange in [None, Some(""), Some("x/1"), Some("GET /tags/1")] {
            assert_eq!(label(strange), "unknown");
        }
    }

    #[test]
    fn grpc_timeouts_are_read_as_specified() {
        let read = |text: &str| {
            grpc_timeout(&Request::get("/").header("grpc-timeout", text).body(Body::empty()).unwrap())
        };
        assert_eq!(read("5S"), Some(Duration::from_secs(5)));
        assert_eq!(read("100m"), Some(Duration::from_millis(100)));
        for bad in ["", "S", "5", "5s", "123456789S", "-5S", "5é"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
