//! Calls that panic, that outlive their callers, and that do not end.

use std::path::Path;

use axum::{Router, body::Body, middleware, routing::post};
use life::Life;
use model::Role;
use store::embedded;
use time::OffsetDateTime;
use tokio::sync::{Notify, Semaphore};
use tower::ServiceExt as _;

use super::*;
use crate::{
    access::{Credentials, table, tenure::Tenures},
    audit::{Audit, AuditConfig, Query},
    metrics::Metrics,
    pki::Pki,
    places::Places,
};

const OPERATION: &str = "DELETE /tags/{tag}";

fn gate(dir: &Path) -> Arc<Gate> {
    let (life, metrics) = (Life::default(), Metrics::new());
    let store = embedded::Options::new(dir.join("store")).open().unwrap();
    let pki = Pki::open(&dir.join("pki"), OffsetDateTime::UNIX_EPOCH).unwrap();
    Arc::new(Gate {
        refusal: Arc::new(|_, _| None),
        credentials: Arc::new(Credentials::start(store, Arc::new(pki), &life)),
        audit: Arc::new(Audit::open(dir, AuditConfig::default(), Arc::clone(&metrics)).unwrap()),
        enforcement: None,
        metrics,
        anonymous: None,
        secure: true,
        places: Places::new(8, 8, 8),
        tenures: Tenures::default(),
        max_body: 1 << 20,
        life,
    })
}

/// Puts the calls of a router on record.
fn on_record(gate: &Arc<Gate>, router: Router) -> Router {
    let gate = Arc::clone(gate);
    let pass = move |mut request: Request, next: Next| {
        let place = request.extensions_mut().remove::<Place>();
        let subject = Some(Subject { role: Role::Admin, name: "alice".parse().unwrap() });
        let rule = table::rule(OPERATION).unwrap();
        let asked = Asked { peer: String::new(), subject, rule, is_grpc: false, place };
        carry_out(Arc::clone(&gate), asked, request, next)
    };
    router.layer(middleware::from_fn(pass))
}

fn request() -> Request {
    Request::post("/").body(Body::empty()).unwrap()
}

/// The one call that was made: its result, and what is noted.
fn told(gate: &Gate) -> (String, String) {
    let records = gate.audit.find(Query::default(), 9).unwrap();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    (record.result.clone(), record.note.clone())
}

#[tokio::test]
async fn a_panic_is_answered_and_on_record() {
    let dir = tempfile::tempdir().unwrap();
    let gate = gate(dir.path());
    async fn panics() {
        audit::note("half way");
        panic!("on purpose")
    }
    let router = on_record(&gate, Router::new().route("/", post(panics)));
    assert_eq!(router.oneshot(request()).await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(told(&gate), ("INTERNAL".to_owned(), "half way; it panicked".to_owned()));
    assert_eq!(gate.metrics.panics.get(), 1);
}

#[tokio::test]
async fn a_call_goes_on_without_its_caller_and_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let gate = gate(dir.path());
    let (go, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waits, begins) = (Arc::clone(&go), Arc::clone(&begun));
    let handler = move || async move {
        begins.notify_one();
        waits.notified().await;
    };
    let router = on_record(&gate, Router::new().route("/", post(handler)));
    let places = Arc::new(Semaphore::new(1));
    let mut request = request();
    let place = Arc::clone(&places).try_acquire_owned().unwrap();
    request.extensions_mut().insert(Place::new(place));
    {
        let call = std::pin::pin!(router.oneshot(request));
        tokio::select! {
            _ = call => panic!("it cannot end yet"),
            () = begun.notified() => {}
        }
    }
    assert_eq!((told(&gate).0.as_str(), places.available_permits()), ("RUNNING", 0));
    go.notify_one();
    let _place = places.acquire().await.unwrap();
    assert_eq!(told(&gate), ("OK".to_owned(), "the caller was gone before it ended".to_owned()));
}

#[tokio::test]
async fn a_call_that_does_not_end_does_not_keep_the_controller_from_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let gate = gate(dir.path());
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let handler = move || async move {
        begins.notify_one();
        std::future::pending::<()>().await;
    };
    let router = on_record(&gate, Router::new().route("/", post(handler)));
    let call = tokio::spawn(router.oneshot(request()));
    begun.notified().await;
    tokio::time::pause();
    gate.life.end().await.expect("no task is missing");
    assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    let (result, note) = told(&gate);
    assert_eq!(result, "UNAVAILABLE");
    assert!(note.contains("the controller stopped"), "{note}");
}
