//! The etcd backend: the same contract on a cluster that several controllers share.
//!
//! In: transactions, reads and watches. Out: etcd's v3 API over HTTP/2, all keys below a namespace. Holds: one lazy
//! connection per endpoint and which of them works; no state of its own. Reads are linearizable.
//! Not here: running etcd; `docs/store.md` says which of its flags matter.
//!
//! A write is repeated on another member only when it was certainly not applied: no connection was made, or the
//! member refused it before proposing it. All else is [`Outcome::Unknown`]: a repeated transaction could otherwise
//! meet its own first effect and be told of a conflict.

mod client;
mod keys;
mod lease;
mod read;
mod restore;
mod transact;
mod watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use thiserror::Error;

pub use client::Tls;
pub use restore::restore;

use self::{
    client::Client,
    keys::Namespace,
    pb::etcdserverpb::{CompactionRequest, StatusRequest},
};
use crate::api::{
    Backend, Cause, Committed, CompactError, Entry, Health, Key, Lease, LeaseError, LeaseId, Listing,
    Outcome, Prefix, ReadError, Revision, Snapshot, Store, TransactError, Transaction, Watch, WatchFrom,
};

/// Generated from `proto/etcd`.
#[expect(clippy::enum_variant_names, reason = "generated")]
mod pb {
    pub(super) mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    pub(super) mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
}

/// How to reach etcd.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http://host:2379` or `https://host:2379`, any number of members of one cluster.
    pub endpoints: Vec<String>,
    /// All keys are below this; two installations may share a cluster under two namespaces.
    pub namespace: String,
    pub tls: Option<Tls>,
    /// How long a request may take, tries on other members included.
    pub timeout: Duration,
    /// etcd's `--max-txn-ops`, or less. Transactions of more are sent in parts, up to a quarter of its square (4096 for 128).
    pub max_operations: usize,
    /// Must not exceed etcd's `--max-request-bytes`.
    pub max_request_bytes: usize,
}

impl Options {
    /// Defaults that fit an etcd with default flags.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            namespace: "/trestle/".to_owned(),
            tls: None,
            timeout: Duration::from_secs(10),
            max_operations: 128,
            max_request_bytes: 1_572_864,
        }
    }

    /// Connects, and proves with a linearizable read that the cluster answers.
    pub async fn connect(self) -> Result<Store, ConnectError> {
        let etcd = Etcd::new(self)?;
        let marker = etcd.namespace.restore_marker();
        match etcd.get_raw(marker).await {
            Ok(None) => Ok(Store::new(etcd)),
            Ok(Some(_)) => Err(ConnectError::HalfRestored { namespace: etcd.options.namespace.clone() }),
            Err(source) => Err(ConnectError::Read(source)),
        }
    }
}

#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("no etcd endpoint was given")]
    NoEndpoint,
    #[error("etcd endpoint {endpoint:?} is not usable; write it as http://host:2379 or https://host:2379")]
    Endpoint {
        endpoint: String,
        #[source]
        source: Cause,
    },
    #[error("namespace {namespace:?} must begin and end with '/' and hold a name")]
    Namespace { namespace: String },
    #[error(
        "a restore into {namespace} was cut off half way; run it again and ask it to replace what is there"
    )]
    HalfRestored { namespace: String },
    #[error("etcd does not answer")]
    Read(#[source] ReadError),
}

struct Etcd {
    client: Arc<Client>,
    namespace: Namespace,
    options: Options,
}

impl Etcd {
    fn new(options: Options) -> Result<Self, ConnectError> {
        let namespace = Namespace::new(&options.namespace)
            .ok_or_else(|| ConnectError::Namespace { namespace: options.namespace.clone() })?;
        let client = Client::new(&options.endpoints, options.tls.as_ref(), options.timeout)?;
        Ok(Self { client: Arc::new(client), namespace, options })
    }
}

#[async_trait]
impl Backend for Etcd {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        let found = self.get_raw(self.namespace.key(key)).await?;
        found.map(|kv| self.namespace.entry(kv).map_err(|what| self.client.damaged(what))).transpose()
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError> {
        read::list(&self.client, &self.namespace, prefix).await
    }

    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        read::snapshot(&self.client, &self.namespace, prefix).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError> {
        transaction.check_distinct()?;
        transact::check_size(&transaction, &self.options)?;
        transact::transact(&self.client, &self.namespace, &transaction, self.options.max_operations).await
    }

    fn watch(&self, prefix: &Prefix, from: WatchFrom) -> Watch {
        watch::watch(Arc::clone(&self.client), self.namespace.clone(), prefix.clone(), from)
    }

    async fn revision(&self) -> Result<Revision, ReadError> {
        read::revision(&self.client, &self.namespace).await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError> {
        lease::grant(&self.client, ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError> {
        lease::keep_alive(&self.client, lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), LeaseError> {
        lease::revoke(&self.client, lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), CompactError> {
        let request = CompactionRequest { revision: keys::signed(revision.0), physical: false };
        let compacted = self.client.read(|mut member| async move { member.kv.compact(request).await }).await;
        let Err(failure) = compacted else { return Ok(()) };
        if failure.is_compacted() {
            return Ok(());
        }
        if failure.is_future() {
            let current = self.revision().await.unwrap_or_default();
            return Err(CompactError::Future { asked: revision, current });
        }
        Err(CompactError::Write(self.client.write_error(failure, Outcome::Unknown)))
    }

    async fn health(&self) -> Result<Health, ReadError> {
        let revision = self.revision().await?;
        let status =
            self.client.read(|mut member| async move { member.maintenance.status(StatusRequest {}).await });
        let status = status.await.map_err(|failure| self.client.read_error(failure))?;
        let errors = status.errors.join(", ");
        Ok(Health {
            place: self.client.place(),
            revision,
            compacted: None,
            queued: 0,
            size_bytes: u64::try_from(status.db_size).unwrap_or(0),
            refusing_writes: (!errors.is_empty()).then_some(errors),
        })
    }
}
