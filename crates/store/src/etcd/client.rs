//! Connections to the members of a cluster: which one to ask, when to ask another, what a failure means.
//!
//! In: a request as a function of a member. Out: its response, or a [`Failure`] that says whether the request could
//! have been applied. Holds: one lazy connection per endpoint, and the index of the one that worked last.

use std::{
    error::Error as _,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use thiserror::Error;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::{
    Code, Request, Response, Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{
    ConnectError,
    pb::etcdserverpb::{
        kv_client::KvClient, lease_client::LeaseClient, maintenance_client::MaintenanceClient,
        watch_client::WatchClient,
    },
};
use crate::api::{Cause, Outcome, ReadError, TransactError};

/// PEM texts.
#[derive(Clone)]
pub struct Tls {
    /// Who signed the members' certificates; the system's roots are not consulted.
    pub ca: String,
    /// Our own certificate and key, if etcd asks for one (`--client-cert-auth`).
    pub identity: Option<(String, String)>,
    /// The name to expect in the members' certificates, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not be printed.
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// A member that says nothing for so long is asked no longer; a read goes to the next one.
const TRY: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(2);
/// A dead peer is noticed after interval + timeout, also between requests. etcd refuses pings more often than
/// every 5 s (`--grpc-keepalive-min-time`).
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// What etcd may send ahead on one stream. The connection's own window is as large as can be: with a small one, a
/// few watches whose readers are slow would hold up every other stream of the connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Client {
    endpoints: Vec<String>,
    channels: Vec<Channel>,
    current: AtomicUsize,
    timeout: Duration,
}

type Guarded = InterceptedService<Channel, RequireLeader>;

/// One member's services.
pub(super) struct Member {
    pub(super) index: usize,
    pub(super) kv: KvClient<Guarded>,
    pub(super) watch: WatchClient<Guarded>,
    pub(super) lease: LeaseClient<Guarded>,
    pub(super) maintenance: MaintenanceClient<Channel>,
}

/// A member without a leader answers at once (and ends watches) instead of waiting for one.
#[derive(Clone, Copy)]
pub(super) struct RequireLeader;

impl Interceptor for RequireLeader {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        Ok(request)
    }
}

#[derive(Clone, Debug, Error)]
pub(super) enum Failure {
    #[error("etcd answered {code:?}: {message}")]
    Status {
        code: Code,
        message: String,
        #[source]
        source: Option<Cause>,
        connected: bool,
    },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let mut connected = true;
        let mut cause = status.source();
        while let Some(error) = cause {
            connected &= !error.is::<tonic::ConnectError>();
            cause = error.source();
        }
        let (code, message) = (status.code(), status.message().to_owned());
        Self::Status { code, message, source: Some(Arc::new(status)), connected }
    }
}

impl Failure {
    fn says(&self, text: &str) -> bool {
        matches!(self, Self::Status { message, .. } if message.contains(text))
    }

    pub(super) fn is_compacted(&self) -> bool {
        self.says("required revision has been compacted")
    }

    pub(super) fn is_future(&self) -> bool {
        self.says("required revision is a future revision")
    }

    pub(super) fn is_lease_not_found(&self) -> bool {
        self.says("requested lease not found")
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.says("request is too large") || self.says("trying to send message larger than max")
    }

    pub(super) fn is_too_many_operations(&self) -> bool {
        self.says("too many operations in txn request")
    }

    fn is_full(&self) -> bool {
        self.says("database space exceeded")
    }

    /// The request was refused before it could have any effect.
    pub(super) fn is_certainly_not_applied(&self) -> bool {
        match self {
            Self::Timeout(_) => false,
            Self::Status { connected: false, .. } => true,
            Self::Status { code, .. } => {
                self.says("etcdserver: no leader")
                    || self.says("etcdserver: too many requests")
                    || self.is_full()
                    || matches!(
                        code,
                        Code::InvalidArgument
                            | Code::NotFound
                            | Code::PermissionDenied
                            | Code::Unauthenticated
                            | Code::OutOfRange
                            | Code::FailedPrecondition
                    )
            }
        }
    }

    /// Another member, or the same a little later, may answer.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Status { code, .. } => {
                matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal)
                    || (*code == Code::Unknown && !self.says("etcdserver: mvcc"))
                    || self.says("etcdserver: too many requests")
            }
        }
    }
}

impl Client {
    pub(super) fn new(
        endpoints: &[String],
        tls: Option<&Tls>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        if endpoints.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        let channels = endpoints.iter().map(|endpoint| channel(endpoint, tls)).collect::<Result<_, _>>()?;
        Ok(Self { endpoints: endpoints.to_vec(), channels, current: AtomicUsize::new(0), timeout })
    }

    pub(super) fn place(&self) -> String {
        format!("etcd at {}", self.endpoints.join(", "))
    }

    pub(super) fn member(&self) -> Member {
        let index = self.current.load(Ordering::Relaxed) % self.channels.len();
        let channel = self.channels[index].clone();
        let kv = KvClient::with_interceptor(channel.clone(), RequireLeader);
        Member {
            index,
            // A page of large values is larger than tonic's default of 4 MiB; etcd itself bounds requests.
            kv: kv.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX),
            watch: WatchClient::with_interceptor(channel.clone(), RequireLeader)
                .max_decoding_message_size(usize::MAX),
            lease: LeaseClient::with_interceptor(channel.clone(), RequireLeader),
            maintenance: MaintenanceClient::new(channel),
        }
    }

    /// Ask the next member from now on, unless somebody already moved on from this one.
    pub(super) fn leave(&self, index: usize) {
        let next = (index + 1) % self.channels.len();
        let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A request that may be repeated: tried on each member in turn until the time is over.
    pub(super) async fn read<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        request: impl Fn(Member) -> F,
    ) -> Result<T, Failure> {
        let give_up = Instant::now() + self.timeout;
        loop {
            let member = self.member();
            let index = member.index;
            let failure = match timeout(TRY, request(member)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => Failure::from(status),
                Err(_) => Failure::Timeout(TRY),
            };
            if !failure.is_passing() {
                return Err(failure);
            }
            self.leave(index);
            if Instant::now() + PAUSE >= give_up {
                return Err(failure);
            }
            sleep(PAUSE).await;
        }
    }

    /// A request that must not be applied twice: repeated only when it certainly was not applied.
    pub(super) async fn write<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        request: impl Fn(Member) -> F,
    ) -> Result<T, Failure> {
        let give_up = Instant::now() + self.timeout;
        loop {
            let member = self.member();
            let index = member.index;
            let failure = match timeout_at(give_up, request(member)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => Failure::from(status),
                Err(_) => Failure::Timeout(self.timeout),
            };
            if failure.is_passing() {
                self.leave(index);
            }
            let repeat = failure.is_passing() && failure.is_certainly_not_applied();
            if !repeat || Instant::now() + PAUSE >= give_up {
                return Err(failure);
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) fn read_error(&self, failure: Failure) -> ReadError {
        let (place, passing) = (self.place(), failure.is_passing());
        let source: Cause = Arc::new(failure);
        if passing { ReadError::Unavailable { place, source } } else { ReadError::Storage { place, source } }
    }

    pub(super) fn damaged(&self, what: String) -> ReadError {
        ReadError::Damaged { place: self.place(), what }
    }

    /// `otherwise` is what is known of the outcome if the failure itself does not tell.
    pub(super) fn write_error(&self, failure: Failure, otherwise: Outcome) -> TransactError {
        let place = self.place();
        let certain = failure.is_certainly_not_applied();
        let outcome = if certain { Outcome::NotApplied } else { otherwise };
        let (full, passing) = (failure.is_full(), failure.is_passing());
        let source: Cause = Arc::new(failure);
        match (full, passing) {
            (true, _) => TransactError::Full {
                place: format!(
                    "{place} (raise --quota-backend-bytes or compact, then `etcdctl alarm disarm`)"
                ),
                source,
            },
            (false, true) => TransactError::Unavailable { place, outcome, source },
            (false, false) => TransactError::Storage { place, outcome, source },
        }
    }
}

fn channel(text: &str, tls: Option<&Tls>) -> Result<Channel, ConnectError> {
    let unusable = |source: tonic::transport::Error| ConnectError::Endpoint {
        endpoint: text.to_owned(),
        source: Arc::new(source),
    };
    let mut endpoint = Endpoint::from_shared(text.to_owned())
        .map_err(unusable)?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = tls {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &tls.server_name {
            config = config.domain_name(name);
        }
        endpoint = endpoint.tls_config(config).map_err(unusable)?;
    }
    Ok(endpoint.connect_lazy())
}
