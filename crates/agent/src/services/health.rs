//! Health of services, for balancers outside: one listener per health-check node port, and one for the proxy itself.
//!
//! ```text
//!   GET :HEALTH_CHECK_NODE_PORT/    200 if an endpoint of the service is ready here and the proxy is well, else 503;
//!                                   on the addresses that serve node ports
//!   GET :10256/healthz              200 if the proxy is well and the node stays
//!   GET :10256/livez                200 if the proxy is well
//!   GET :10256/proxyMode            nftables, ipvs or none
//! ```
//!
//! The answers are kube-proxy's.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    panic::resume_unwind,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State as Shared,
    http::{HeaderName, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::Timestamp;
use node_services::HealthCheck;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Services, ServicesState};

/// The kernel may differ from what it should hold for this long before the proxy is called ill.
const PATIENCE: Duration = Duration::from_secs(60);
/// A port that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(10);
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

impl ServicesState {
    /// `silence`: for how long nobody has looked after the kernel. What was well then need not be now.
    pub(super) fn is_well(&self, now: Instant, silence: Duration) -> bool {
        let recent = |at: Instant| now.saturating_duration_since(at) < PATIENCE;
        (self.healthy && silence < PATIENCE) || self.updated.is_some_and(recent)
    }

    /// Of several services with one port the first by name has it.
    fn ports(&self) -> BTreeMap<u16, &HealthCheck> {
        let mut ports = BTreeMap::new();
        for check in &self.checks {
            ports.entry(check.node_port).or_insert(check);
        }
        ports
    }

    /// Where each is told; an unspecified address stands for all.
    fn listeners(&self) -> BTreeSet<SocketAddr> {
        let ports = self.ports().into_keys();
        let everywhere = [IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        let addresses = self.check_addresses.as_deref().unwrap_or(&everywhere);
        ports.flat_map(|port| addresses.iter().map(move |address| SocketAddr::new(*address, port))).collect()
    }
}

/// Keeps one listener per health-check node port and address, until told to stop. Ends before only if one of them is lost.
pub async fn serve_checks(services: Services, stop: CancellationToken) {
    let mut state = services.state();
    let mut open: BTreeMap<SocketAddr, CancellationToken> = BTreeMap::new();
    let mut servers = JoinSet::new();
    while !stop.is_cancelled() {
        let wanted = state.borrow_and_update().listeners();
        open.retain(|place, listener| {
            let stays = wanted.contains(place);
            if !stays {
                listener.cancel();
            }
            stays
        });
        let mut failed = false;
        for place in wanted {
            if open.contains_key(&place) {
                continue;
            }
            match listen(place).await {
                Ok(listener) => {
                    info!(%place, "health of a service is told");
                    let ends = stop.child_token();
                    open.insert(place, ends.clone());
                    let state = (services.clone(), place.port());
                    let router = Router::new().fallback(get(check)).with_state(state);
                    servers.spawn(async move {
                        let served = axum::serve(listener, router);
                        (place, served.with_graceful_shutdown(ends.clone().cancelled_owned()).await, ends)
                    });
                }
                Err(error) => {
                    failed = true;
                    warn!(%place, %error, "cannot tell the health of a service: is the port in use?");
                }
            }
        }
        let pause = if failed { RETRY } else { Duration::from_secs(3600) };
        tokio::select! {
            changed = state.changed() => if changed.is_err() { break },
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => break,
            Some(ended) = servers.join_next() => match ended {
                Ok((_, Ok(()), ends)) if ends.is_cancelled() => {}
                Ok((place, served, _)) => {
                    error!(%place, error = ?served.err(), "the listener for the health of a service has ended");
                    return;
                }
                Err(fallen) => resume_unwind(fallen.into_panic()),
            },
        }
    }
    open.values().for_each(CancellationToken::cancel);
    while let Some(ended) = servers.join_next().await {
        if let Err(fallen) = ended {
            resume_unwind(fallen.into_panic());
        }
    }
}

/// Where all addresses are meant: both families at once, or the older one where there is only that.
async fn listen(place: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(place).await {
        Err(error) if place.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, place.port())).await
        }
        bound => bound,
    }
}

async fn check(Shared((services, port)): Shared<(Services, u16)>) -> Response {
    let state = services.state().borrow().clone();
    let ports = state.ports();
    let Some(check) = ports.get(&port) else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let well = services.is_well();
    let code = match check.local_endpoints > 0 && well {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = json!({
        "service": {"namespace": *check.service.namespace, "name": *check.service.name},
        "localEndpoints": check.local_endpoints,
        "serviceProxyHealthy": well,
    });
    (code, [(WEIGHT, check.local_endpoints.to_string())], Json(body)).into_response()
}

/// `/healthz`, `/livez` and `/proxyMode` of the proxy.
pub fn router(services: Services) -> Router {
    let answer = |livez: bool| {
        move |Shared(services): Shared<Services>| async move {
            let state = services.state().borrow().clone();
            let well = services.is_well();
            let good = well && (livez || !state.node_leaving);
            let code = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            services.metrics.answered(livez, code.as_u16());
            let now = Timestamp::now();
            // The age is certain, the clock on the wall may have been set since.
            let updated = state.updated.and_then(|at| now.checked_sub(at.elapsed()).ok());
            let updated = updated.map(|at| at.to_string());
            // One engine for both: what ails one is told of both.
            let family = json!({ "lastUpdated": updated, "healthy": well });
            let body = json!({
                "lastUpdated": updated,
                "currentTime": now.to_string(),
                "nodeEligible": !state.node_leaving,
                "healthy": well,
                "status": { "IPv4": family, "IPv6": family },
                "mode": state.mode.to_string(),
            });
            (code, Json(body)).into_response()
        }
    };
    Router::new()
        .route("/healthz", get(answer(false)))
        .route("/livez", get(answer(true)))
        .route("/proxyMode", get(proxy_mode))
        .with_state(services)
}

async fn proxy_mode(Shared(services): Shared<Services>) -> String {
    services.mode()
}

#[cfg(test)]
mod tests;
