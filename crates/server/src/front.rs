//! What callers meet: listeners, each with its routes, behind one gate.
//!
//! In: the drivers, and what stands before them (credentials, the record, readiness). Out: three listeners that serve.
//! Holds: handles; every router gets those it needs. Not here: start and stop (`controller`).

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, middleware};
use drivers::{Drivers, StoreKind, pki::Pki};
use jiff::Timestamp;
use life::Life;
use model::TagName;
use tokio::{
    net::TcpListener,
    sync::{RwLock, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::info;

use crate::{
    about::About,
    access::{
        Credentials,
        gate::{self, Gate},
        join::{Admissions, Door},
        tenure::Tenures,
    },
    audit::Audit,
    cluster_ca, cluster_statuses,
    clusters::Clusters,
    config::Config,
    crowd::Crowd,
    enforcement::{self, Enforcement},
    explain::Explainer,
    grpc,
    host_reports::HostReports,
    hosts::Hosts,
    limits::{self, Limits},
    listen::Listener,
    metrics::Metrics,
    news::{self, News},
    nodes::Nodes,
    objects::Changing,
    permissions::Allows,
    places::Places,
    policy_tests::PolicyTests,
    realisation::Realisations,
    rest::{self, session::Secure},
    revocation,
    serving::{self, Serving},
    tls::{Tls, TlsError},
    watch_api,
};

/// How often readiness is told to gRPC health watchers.
const HEALTH_INTERVAL: Duration = Duration::from_secs(2);

/// What stands before the drivers.
pub struct Front {
    pub config: Config,
    pub pki: Arc<Pki>,
    pub credentials: Arc<Credentials>,
    pub audit: Arc<Audit>,
    pub serving: Arc<Serving>,
    pub life: Life,
    metrics: Arc<Metrics>,
    news: Arc<News>,
    hosts: Arc<HostReports>,
    enforcement: Arc<Enforcement>,
    started_at: Timestamp,
    /// Of those whose changes are held against policy tests.
    turn: Arc<RwLock<()>>,
}

/// Bound, and not yet served.
pub struct Sockets {
    pub http: TcpListener,
    pub grpc: TcpListener,
    pub watch: TcpListener,
}

/// Where the listeners are.
pub struct Addresses {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub watch: SocketAddr,
}

impl Front {
    pub fn new(
        config: Config,
        pki: Arc<Pki>,
        audit: Arc<Audit>,
        metrics: Arc<Metrics>,
        drivers: &Drivers,
        life: Life,
    ) -> Self {
        life.spawn("audit", audit.unkept());
        let credentials = Arc::new(Credentials::start(drivers.store.clone(), Arc::clone(&pki), &life));
        let (swept, orchestrator) = (Arc::clone(&credentials), Arc::clone(&drivers.orchestrator));
        life.spawn("old sessions and logins", async move {
            swept.keep_swept(|| orchestrator.until_leads(true)).await;
        });
        let followers = [
            drivers.tags.progress(),
            drivers.policy.progress(),
            drivers.orchestrator.progress(),
            drivers.hosts.progress(),
        ];
        let rooms = serving::Rooms {
            store: drivers.store.clone(),
            policy: Arc::clone(&drivers.policy),
            audit: Arc::clone(&audit),
            hub: Arc::clone(&drivers.transport.hub),
            followers: followers
                .into_iter()
                .chain(credentials.progress())
                .chain(drivers.peers.progress())
                .collect(),
        };
        let bound = match &config.store {
            StoreKind::Embedded => None,
            StoreKind::Etcd(etcd) => Some(Duration::from_secs(etcd.max_staleness_seconds)),
        };
        let serving = Serving::start(rooms, bound, &life);
        let (news, started_at) = (News::new(), Timestamp::now());
        let hosts = Arc::default();
        let rooms = enforcement::Rooms {
            hub: Arc::clone(&drivers.transport.hub),
            peers: Arc::clone(&drivers.peers),
            orchestrator: Arc::clone(&drivers.orchestrator),
            tags: Arc::clone(&drivers.tags),
            policy: Arc::clone(&drivers.policy),
            watch: Arc::clone(&drivers.watch),
            permitted: drivers.permitted.clone(),
            followed: drivers.followed.clone(),
        };
        let enforcement = Enforcement::new(rooms, metrics.enforcement.clone(), &life);
        let turn = Arc::default();
        Self {
            config,
            pki,
            credentials,
            audit,
            serving,
            life,
            metrics,
            news,
            hosts,
            enforcement,
            started_at,
            turn,
        }
    }

    /// Starts the listeners.
    pub fn serve(&self, drivers: &Drivers, sockets: Sockets) -> Result<Addresses, TlsError> {
        let Sockets { http, grpc, watch } = sockets;
        let addr = |listener: &TcpListener, asked| listener.local_addr().unwrap_or(asked);
        let listen = &self.config.listen;
        let addresses = Addresses {
            http: addr(&http, listen.http),
            grpc: addr(&grpc, listen.grpc),
            watch: addr(&watch, listen.watch),
        };
        let tls = self.tls()?;
        let health = HealthReporter::new();
        let telling = tell_health(Arc::clone(&self.serving), self.life.stopping(), health.clone());
        self.life.spawn_to_end("health", telling);
        let limits = &self.config.limits;
        let connections = Arc::new(Semaphore::new(limits.max_connections));
        let (guard, max) = (self.guard(drivers), limits.max_message_bytes);
        let admissions = self.admissions(drivers, tls.clone(), addresses.grpc);
        let rest = rest::router(self.rest(drivers, Arc::clone(&admissions)), max);
        let watch_api = watch_api::router(self.watch_api(drivers), max);
        let routers = [
            ("http", http, rest::for_browsers(guard.around(rest))),
            ("grpc", grpc, guard.around(grpc::router(self.grpc(drivers, admissions), health, max))),
            ("watch", watch, watch_api::speak_kubernetes(guard.around(watch_api))),
        ];
        for (name, socket, router) in routers {
            let listener = Listener {
                name,
                socket,
                tls: tls.clone(),
                router,
                connections: Arc::clone(&connections),
                crowd: Crowd::new(limits.max_strangers, limits.max_strangers_per_address),
                metrics: Arc::clone(&self.metrics),
            };
            self.life.spawn_to_end(format!("listener {name}"), listener.serve(self.life.stopping()));
        }
        let Addresses { http, grpc, watch } = &addresses;
        info!(%http, %grpc, %watch, "the controller listens");
        Ok(addresses)
    }

    /// Everything is read and runs: callers are served, and pages are told of changes.
    pub fn begin(&self, drivers: &Drivers) {
        let rooms = news::Rooms {
            tags: Arc::clone(&drivers.tags),
            policy: Arc::clone(&drivers.policy),
            orchestrator: Arc::clone(&drivers.orchestrator),
            hub: Arc::clone(&drivers.transport.hub),
            peers: Arc::clone(&drivers.peers),
            hosts: Arc::clone(&drivers.hosts),
            watch: Arc::clone(&drivers.watch),
            flows: drivers.flows.clone(),
        };
        self.news.start(rooms, self.audit.changes(), &drivers.store, &self.life);
        let (reports, hosts) = (Arc::clone(&self.hosts), Arc::clone(&drivers.hosts));
        let (hub, peers) = (Arc::clone(&drivers.transport.hub), Arc::clone(&drivers.peers));
        let is_away = move |name: &TagName| {
            let is_here = hub.session(name.as_str()).is_some_and(|session| session.connected);
            !is_here && peers.node(name.as_str()).is_none_or(|node| !node.word.connected)
        };
        self.life.spawn("addresses of hosts", async move { reports.keep_addresses(&hosts, is_away).await });
        if !self.config.kubernetes.is_empty() {
            let writer = cluster_statuses::Writer {
                clusters: Arc::clone(&drivers.clusters),
                policy: Arc::clone(&drivers.policy),
                realisations: realisations(drivers),
                orchestrator: Arc::clone(&drivers.orchestrator),
            };
            self.life.spawn("statuses in clusters", writer.run());
            let clusters = drivers.clusters.with_statuses(|cluster, _| Arc::clone(cluster));
            for (config, cluster) in self.config.kubernetes.iter().zip(clusters) {
                if let Some(place) = config.publish_ca.clone() {
                    let publisher = cluster_ca::Publisher { cluster, place, ca: self.pki.ca_path() };
                    self.life.spawn(format!("CA in cluster {}", config.name), publisher.run());
                }
            }
        }
        self.serving.begin();
    }

    fn tls(&self) -> Result<Option<Arc<Tls>>, TlsError> {
        if self.config.plaintext_loopback {
            return Ok(None);
        }
        let names = self.config.certificate_names(host_name().as_deref());
        let tls = Arc::new(Tls::new(Arc::clone(&self.pki), names, self.config.tls.clone())?);
        let kept = Arc::clone(&tls);
        self.life.spawn("certificate of the listeners", async move { kept.keep_fresh().await });
        Ok(Some(tls))
    }

    fn guard(&self, drivers: &Drivers) -> Guard {
        let limits = &self.config.limits;
        let serving = Arc::clone(&self.serving);
        let gate = Arc::new(Gate {
            credentials: Arc::clone(&self.credentials),
            audit: Arc::clone(&self.audit),
            enforcement: Some(Arc::clone(&self.enforcement)),
            metrics: Arc::clone(&self.metrics),
            refusal: Arc::new(move |operation, anyone| serving.refusal(operation, anyone)),
            anonymous: self.config.anonymous_role,
            secure: !self.config.plaintext_loopback,
            places: Places::new(limits.max_in_flight, limits.max_strangers_in_flight, limits.max_connections),
            tenures: Tenures::default(),
            max_body: limits.max_message_bytes,
            life: self.life.clone(),
        });
        let kept = Arc::clone(&gate);
        let hub = Arc::clone(&drivers.transport.hub);
        self.life.spawn("ends of credentials", async move {
            let credentials = &kept.credentials;
            kept.tenures.keep(credentials, |now| revocation::end_sessions(&hub, credentials, now)).await;
        });
        let limits = Arc::new(Limits::new(limits.request_timeout(), Arc::clone(&self.metrics)));
        Guard { gate, limits }
    }

    fn about(&self, drivers: &Drivers) -> About {
        About {
            store: drivers.store.clone(),
            kind: self.config.store.clone(),
            policy: Arc::clone(&drivers.policy),
            objects: drivers.objects.clone(),
            clusters: Arc::clone(&drivers.clusters),
            orchestrator: Arc::clone(&drivers.orchestrator),
            serving: Arc::clone(&self.serving),
            enforcement: Arc::clone(&self.enforcement),
            started_at: self.started_at,
            storage: match (&drivers.storage, &drivers.storage_failure) {
                (Some(storage), _) => Some(Ok(Arc::clone(storage))),
                (None, Some(why)) => Some(Err(why.clone())),
                (None, None) => None,
            },
        }
    }

    fn nodes(&self, drivers: &Drivers) -> Nodes {
        Nodes {
            hub: Arc::clone(&drivers.transport.hub),
            peers: Arc::clone(&drivers.peers),
            credentials: Arc::clone(&self.credentials),
            objects: drivers.objects.clone(),
            hosts: Arc::clone(&self.hosts),
        }
    }

    fn explainer(&self, drivers: &Drivers) -> Explainer {
        Explainer {
            orchestrator: Arc::clone(&drivers.orchestrator),
            policy: Arc::clone(&drivers.policy),
            objects: drivers.objects.clone(),
            enforced: drivers.enforced.clone(),
            hosts: Arc::clone(&self.hosts),
        }
    }

    fn changing(&self, drivers: &Drivers) -> Changing {
        let (objects, policy) = (drivers.objects.clone(), Arc::clone(&drivers.policy));
        Changing { objects, policy, tests: self.policy_tests(drivers), flows: drivers.flows.clone() }
    }

    fn policy_tests(&self, drivers: &Drivers) -> PolicyTests {
        PolicyTests {
            objects: drivers.objects.clone(),
            explainer: self.explainer(drivers),
            turn: Arc::clone(&self.turn),
        }
    }

    fn allows(&self, drivers: &Drivers) -> Allows {
        Allows {
            permissions: drivers.permissions(),
            explainer: self.explainer(drivers),
            realisations: realisations(drivers),
            tests: self.policy_tests(drivers),
        }
    }

    fn admissions(&self, drivers: &Drivers, tls: Option<Arc<Tls>>, grpc: SocketAddr) -> Arc<Admissions> {
        let names = self.config.certificate_names(host_name().as_deref()).into_iter();
        let door = Door {
            ca: Box::new(move || tls.as_ref()?.root()),
            servers: names.filter(|name| !is_loopback(name)).map(|name| url(&name, grpc.port())).collect(),
        };
        let (credentials, hosts) = (Arc::clone(&self.credentials), Arc::clone(&drivers.hosts));
        let config = &self.config.hosts;
        let (lifetime, identities) = (config.certificate_lifetime(), config.identities.clone());
        Arc::new(Admissions::new(credentials, hosts, lifetime, identities, door))
    }

    fn hosts(&self, drivers: &Drivers) -> Hosts {
        Hosts { records: Arc::clone(&drivers.hosts), credentials: Arc::clone(&self.credentials) }
    }

    fn rest(&self, drivers: &Drivers, admissions: Arc<Admissions>) -> rest::App {
        rest::App {
            about: self.about(drivers),
            store: drivers.store.clone(),
            tags: Arc::clone(&drivers.tags),
            namespaces: drivers.namespaces.clone(),
            orchestrator: Arc::clone(&drivers.orchestrator),
            objects: drivers.objects.clone(),
            policy: Arc::clone(&drivers.policy),
            explainer: self.explainer(drivers),
            changing: self.changing(drivers),
            allows: self.allows(drivers),
            realisations: realisations(drivers),
            enforcement: Arc::clone(&self.enforcement),
            flows: drivers.flows.clone(),
            services: Arc::clone(&drivers.services),
            storage: drivers.storage.clone(),
            nodes: self.nodes(drivers),
            hosts: self.hosts(drivers),
            clusters: Clusters(Arc::clone(&drivers.clusters)),
            admissions,
            hub: Arc::clone(&drivers.transport.hub),
            credentials: Arc::clone(&self.credentials),
            audit: Arc::clone(&self.audit),
            metrics: Arc::clone(&self.metrics),
            news: Arc::clone(&self.news),
            serving: Arc::clone(&self.serving),
            page: self.config.page,
            secure: Secure(!self.config.plaintext_loopback),
        }
    }

    fn grpc(&self, drivers: &Drivers, admissions: Arc<Admissions>) -> grpc::Rooms {
        if let Some(storage) = drivers.storage.clone() {
            self.credentials.know_consumers(Box::new(move |certificate| {
                let consumer = certificate.subject.name.to_string().parse();
                consumer.is_ok_and(|id| storage.provider.admits(id, &certificate.fingerprint))
            }));
        }
        grpc::Rooms {
            about: self.about(drivers),
            store: drivers.store.clone(),
            tags: Arc::clone(&drivers.tags),
            namespaces: drivers.namespaces.clone(),
            orchestrator: Arc::clone(&drivers.orchestrator),
            policy: Arc::clone(&drivers.policy),
            explainer: self.explainer(drivers),
            changing: self.changing(drivers),
            allows: self.allows(drivers),
            realisations: realisations(drivers),
            enforcement: Arc::clone(&self.enforcement),
            flows: drivers.flows.clone(),
            services: Arc::clone(&drivers.services),
            storage: drivers.storage.clone(),
            nodes: self.nodes(drivers),
            hosts: self.hosts(drivers),
            clusters: Clusters(Arc::clone(&drivers.clusters)),
            admissions,
            hub: Arc::clone(&drivers.transport.hub),
            credentials: Arc::clone(&self.credentials),
            ca_pem: self.pki.ca_pem().to_owned(),
            audit: Arc::clone(&self.audit),
            metrics: Arc::clone(&self.metrics),
            serving: Arc::clone(&self.serving),
            life: self.life.clone(),
        }
    }

    fn watch_api(&self, drivers: &Drivers) -> watch_api::App {
        watch_api::App {
            policy: Arc::clone(&drivers.policy),
            watch: Arc::clone(&drivers.watch),
            metrics: Arc::clone(&self.metrics),
            serving: Arc::clone(&self.serving),
        }
    }
}

fn realisations(drivers: &Drivers) -> Realisations {
    Realisations {
        hub: Arc::clone(&drivers.transport.hub),
        peers: Arc::clone(&drivers.peers),
        watch: Arc::clone(&drivers.watch),
    }
}

/// What is put around every router.
struct Guard {
    gate: Arc<Gate>,
    limits: Arc<Limits>,
}

impl Guard {
    fn around(&self, router: Router) -> Router {
        router
            .layer(middleware::from_fn_with_state(Arc::clone(&self.gate), gate::pass))
            .layer(middleware::from_fn_with_state(Arc::clone(&self.limits), limits::keep))
    }
}

/// Tells gRPC health watchers what `/readyz` says.
async fn tell_health(serving: Arc<Serving>, stopping: CancellationToken, health: HealthReporter) {
    let mut told = None;
    while !stopping.is_cancelled() {
        let ready = serving.not_ready().await.is_empty();
        if told != Some(ready) {
            told = Some(ready);
            set_health(&health, if ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        }
        stopping.run_until_cancelled(tokio::time::sleep(HEALTH_INTERVAL)).await;
    }
    set_health(&health, ServingStatus::NotServing).await;
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    // The empty name stands for the server as a whole, the last for the observer, as Hubble's clients ask for it.
    for service in std::iter::once(&"").chain(grpc::SERVED).chain([&"hubble.server.Observer"]) {
        health.set_service_status(service, status).await;
    }
}

/// Whether a name or address of the certificate is of use on this machine only.
fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn url(name: &str, port: u16) -> String {
    match name.parse::<IpAddr>() {
        Ok(address) => format!("https://{}", SocketAddr::new(address, port)),
        Err(_) => format!("https://{name}:{port}"),
    }
}

pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    // Names that no certificate can carry are left out rather than failing the start.
    let legal = !name.is_empty() && name.split('.').all(|label| label.parse::<model::Segment>().is_ok());
    legal.then(|| name.to_owned())
}
