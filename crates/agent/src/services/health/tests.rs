use std::sync::Arc;

use model::service::ServiceName;
use node_kernel::services::Mode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};

use super::*;
use crate::{
    pulse::Pulse,
    services::{ServicesMetrics, Wish},
};

fn services(state: ServicesState) -> (Services, watch::Sender<Arc<ServicesState>>) {
    let (wanted, _) = watch::channel(Wish { mode: Mode::Nftables, number: 0 });
    let (told, state) = watch::channel(Arc::new(state));
    (Services { wanted, state, pulse: Pulse::default(), metrics: Arc::new(ServicesMetrics::default()) }, told)
}

fn state(checks: &[(&str, u16, usize)]) -> ServicesState {
    let checks = checks.iter().map(|(name, node_port, local_endpoints)| HealthCheck {
        service: ServiceName::new("shop", *name),
        node_port: *node_port,
        local_endpoints: *local_endpoints,
    });
    ServicesState {
        checks: checks.collect(),
        healthy: true,
        mode: Mode::Nftables,
        ..ServicesState::default()
    }
}

/// Status line and body; none if nobody listens.
async fn get(port: u16, path: &str) -> Option<(String, serde_json::Value)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), serde_json::from_str(body).unwrap_or_default()))
}

async fn until(port: u16, code: Option<&str>) -> serde_json::Value {
    for _ in 0..200 {
        let answer = get(port, "/").await;
        let found = answer.as_ref().and_then(|(head, _)| head.split(' ').nth(1));
        if found == code {
            return answer.map(|(_, body)| body).unwrap_or_default();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("port {port} never answered {code:?}");
}

/// A port that was free a moment ago.
async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_service_is_well_while_it_has_endpoints_here_and_its_proxy_works() {
    let (first, second) = (free_port().await, free_port().await);
    let (services, told) = services(state(&[("web", first, 0)]));
    let stop = CancellationToken::new();
    let server = tokio::spawn(serve_checks(services, stop.clone()));
    assert_eq!(until(first, Some("503")).await["localEndpoints"], 0);
    told.send_replace(Arc::new(state(&[("web", first, 18)])));
    let body = until(first, Some("200")).await;
    assert_eq!(body["service"], serde_json::json!({"namespace": "shop", "name": "web"}));
    assert_eq!((&body["localEndpoints"], &body["serviceProxyHealthy"]), (&18.into(), &true.into()));
    let (head, _) = get(first, "/").await.unwrap();
    assert!(head.to_lowercase().contains("x-load-balancing-endpoint-weight: 18"), "{head}");
    told.send_replace(Arc::new(ServicesState { healthy: false, ..state(&[("web", first, 18)]) }));
    assert_eq!(until(first, Some("503")).await["serviceProxyHealthy"], false);
    told.send_replace(Arc::new(state(&[("web", second, 3)])));
    until(second, Some("200")).await;
    until(first, None).await;
    told.send_replace(Arc::new(state(&[])));
    until(second, None).await;
    stop.cancel();
    server.await.unwrap();
}

#[tokio::test]
async fn the_proxy_says_how_it_is_and_livez_does_not_ask_about_the_node() {
    let (services, told) = services(state(&[]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move { axum::serve(listener, router(services)).await });
    let code = async |path: &str| {
        let (head, _) = get(port, path).await.unwrap();
        head.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((code("/healthz").await, code("/livez").await), ("200".into(), "200".into()));
    assert_eq!(code("/proxyMode").await, "200");
    let (_, body) = get(port, "/healthz").await.unwrap();
    assert_eq!(body["status"]["IPv6"]["healthy"], true, "{body}");
    told.send_replace(Arc::new(ServicesState { node_leaving: true, ..state(&[]) }));
    assert_eq!((code("/healthz").await, code("/livez").await), ("503".into(), "200".into()));
    told.send_replace(Arc::new(ServicesState { healthy: false, ..state(&[]) }));
    assert_eq!((code("/healthz").await, code("/livez").await), ("503".into(), "503".into()));
    let recent = Some(Instant::now());
    told.send_replace(Arc::new(ServicesState { healthy: false, updated: recent, ..state(&[]) }));
    assert_eq!(code("/healthz").await, "200", "a moment of trouble is borne");
    server.abort();
}

/// By the time that went by, not by what the clock on the wall shows.
#[test]
fn trouble_is_borne_for_as_long_as_it_lasts_and_no_longer() {
    let then = Instant::now();
    let ill = ServicesState { healthy: false, updated: Some(then), ..state(&[]) };
    let is_well = |state: &ServicesState, now| state.is_well(now, Duration::ZERO);
    assert!(is_well(&ill, then) && is_well(&ill, then + PATIENCE - Duration::from_millis(1)));
    assert!(!is_well(&ill, then + PATIENCE));
    let never = ServicesState { healthy: false, ..state(&[]) };
    assert!(!is_well(&never, then));
}

#[test]
fn what_was_well_when_somebody_last_looked_is_not_well_for_ever() {
    let (now, well) = (Instant::now(), state(&[]));
    assert!(well.is_well(now, PATIENCE - Duration::from_millis(1)));
    assert!(!well.is_well(now, PATIENCE), "the worker is stuck, or gone");
}

#[test]
fn health_is_told_where_node_ports_are_served() {
    let at = |place: &str| BTreeSet::from([place.parse().unwrap()]);
    let everywhere = state(&[("web", 30_100, 1)]);
    assert_eq!(everywhere.listeners(), at("[::]:30100"));
    let check_addresses = Some(vec!["192.168.0.2".parse().unwrap()]);
    assert_eq!(ServicesState { check_addresses, ..everywhere }.listeners(), at("192.168.0.2:30100"));
}
