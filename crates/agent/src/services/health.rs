//! Health of services, for balancers outside: one listener per health-check node port, and one for the proxy itself.
//!
//! ```text
//!   GET :HEALTH_CHECK_NODE_PORT/    200 if an endpoint of the service is ready here and the proxy is well, else 503
//!   GET :10256/healthz              200 if the proxy is well and the node stays
//!   GET :10256/livez                200 if the proxy is well
//! ```
//!
//! The answers are kube-proxy's.

use std::{
    collections::BTreeMap,
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
}

/// Keeps one listener per health-check node port, until told to stop. Ends before only if one of them is lost.
pub async fn serve_checks(services: Services, stop: CancellationToken) {
    let mut state = services.state();
    let mut open: BTreeMap<u16, CancellationToken> = BTreeMap::new();
    let mut servers = JoinSet::new();
    while !stop.is_cancelled() {
        let wanted: Vec<u16> = state.borrow_and_update().ports().into_keys().collect();
        open.retain(|port, listener| {
            let stays = wanted.contains(port);
            if !stays {
                listener.cancel();
            }
            stays
        });
        let mut failed = false;
        for port in wanted {
            if open.contains_key(&port) {
                continue;
            }
            match listen(port).await {
                Ok(listener) => {
                    info!(port, "health of a service is told");
                    let ends = stop.child_token();
                    open.insert(port, ends.clone());
                    let router = Router::new().fallback(get(check)).with_state((services.clone(), port));
                    servers.spawn(async move {
                        let served = axum::serve(listener, router);
                        (port, served.with_graceful_shutdown(ends.clone().cancelled_owned()).await, ends)
                    });
                }
                Err(error) => {
                    failed = true;
                    warn!(port, %error, "cannot tell the health of a service: is the port in use?");
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
                Ok((port, served, _)) => {
                    error!(port, error = ?served.err(), "the listener for the health of a service has ended");
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

/// Both families at once, or the older one where there is only that.
async fn listen(port: u16) -> io::Result<TcpListener> {
    let at = |address: IpAddr| SocketAddr::new(address, port);
    match TcpListener::bind(at(Ipv6Addr::UNSPECIFIED.into())).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => TcpListener::bind(at(Ipv4Addr::UNSPECIFIED.into())).await,
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

/// `/healthz` and `/livez` of the proxy.
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
            let body = json!({
                "lastUpdated": updated.map(|at| at.to_string()),
                "currentTime": now.to_string(),
                "nodeEligible": !state.node_leaving,
                "healthy": well,
                "mode": state.mode.to_string(),
            });
            (code, Json(body)).into_response()
        }
    };
    Router::new()
        .route("/healthz", get(answer(false)))
        .route("/livez", get(answer(true)))
        .with_state(services)
}

#[cfg(test)]
mod tests;
