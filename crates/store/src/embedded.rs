//! The embedded backend: one directory, one file, one writing thread.
//!
//! In: transactions through a bounded queue; reads from any task. Out: durable commits in groups, watches from a
//! shared ring. Holds: the directory (locked), the file, the writer thread. When the last handle is dropped the
//! queue is worked off, the file closed and the directory given free.
//! Not here: more than one process; that is [`crate::etcd`].
//!
//! ```text
//! transact ─► queue ─► writer thread ─► redb file ◄─ get, list, snapshot
//!                          └─► feed (ring) ─► watches ─┘ (log, when the ring no longer has it)
//! ```

mod apply;
mod database;
mod feed;
mod leases;
mod open;
mod read;
mod restore;
mod tables;
mod watch;
mod writer;

#[cfg(test)]
mod power_loss;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use redb::ReadableTable as _;
use tokio::sync::{Semaphore, oneshot, watch as tokio_watch};

pub use open::OpenError;
pub use restore::restore;

use self::{
    database::{Db, EngineError},
    feed::Feed,
    leases::Leases,
    open::read_state,
    tables::{LEASES, State},
    writer::{Job, Request, Writer},
};
use crate::api::{
    Backend, Committed, CompactError, Entry, Health, Key, Lease, LeaseError, LeaseId, Limit, Listing,
    Outcome, Prefix, ReadError, Revision, Snapshot, Store, TransactError, Transaction, Watch, WatchFrom,
};

/// How an embedded store is opened. [`Options::new`] has defaults that suit 100,000 small objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's own directory; made if absent.
    pub dir: PathBuf,
    /// redb's page cache, above the kernel's. Objects are not kept in memory otherwise.
    pub cache_bytes: usize,
    /// Transactions that may wait for the writer; a caller beyond that waits for a place.
    pub queue_depth: usize,
    /// History kept for watches that resume: transactions, and bytes of changes.
    pub log_revisions: u64,
    pub log_bytes: u64,
    /// Changes kept in memory for watches that are nearly up to date.
    pub ring_changes: usize,
    pub ring_bytes: usize,
    pub max_operations: usize,
    pub max_transaction_bytes: usize,
    /// Verify every checksum of the file when opening it: about a second per GiB.
    pub verify: bool,
    /// How long a watch may take over its initial state, during which the file cannot reuse freed pages.
    pub snapshot_time: Duration,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            cache_bytes: 16 << 20,
            // Four full batches: deep enough that the writer never starves, shallow enough that the wait stays short.
            queue_depth: 4096,
            log_revisions: 100_000,
            log_bytes: 256 << 20,
            ring_changes: 8192,
            ring_bytes: 8 << 20,
            max_operations: 4096,
            max_transaction_bytes: 8 << 20,
            verify: true,
            snapshot_time: watch::SNAPSHOT_TIME,
        }
    }

    /// Opens the directory's store, making an empty one if there is none. Blocks while the file is verified.
    pub fn open(self) -> Result<Store, OpenError> {
        let (db, state) = open::open(&self.dir, self.cache_bytes, self.verify)?;
        Embedded::start(self, db, state).map(Store::new)
    }
}

/// Opens a store with the default options.
pub fn open(dir: impl Into<PathBuf>) -> Result<Store, OpenError> {
    Options::new(dir).open()
}

struct Embedded {
    shared: Arc<Shared>,
    /// `None` only while dropping.
    jobs: Option<mpsc::Sender<Job>>,
    places: Arc<Semaphore>,
    writer: Option<thread::JoinHandle<()>>,
    /// Closed when the writer is gone.
    running: tokio_watch::Receiver<()>,
    trouble: Arc<Mutex<Option<String>>>,
    options: Options,
}

/// What reads and watches need; watches may outlive the store and then see it closed.
struct Shared {
    db: Arc<Db>,
    feed: Arc<Feed>,
    snapshot_time: Duration,
}

impl Shared {
    fn place(&self) -> String {
        self.db.path().display().to_string()
    }
}

impl Embedded {
    fn start(options: Options, db: Db, state: State) -> Result<Self, OpenError> {
        let path = db.path().to_owned();
        let leases = read_leases(&db)
            .map_err(|error| OpenError::Corrupted { file: path.clone(), source: Arc::new(error) })?;
        let db = Arc::new(db);
        let feed = Arc::new(Feed::new(state.revision, options.ring_changes, options.ring_bytes));
        let trouble = Arc::new(Mutex::new(None));
        // Its bound is the semaphore, whose places can be awaited.
        let (jobs_tx, jobs_rx) = mpsc::channel();
        let writer = Writer {
            db: Arc::clone(&db),
            feed: Arc::clone(&feed),
            jobs: jobs_rx,
            leases,
            max_log_rows: options.log_revisions,
            max_log_bytes: options.log_bytes,
            trouble: Arc::clone(&trouble),
            full: false,
            lost: None,
        };
        let thread = thread::Builder::new().name("store-writer".to_owned());
        let (runs, running) = tokio_watch::channel(());
        let write = move || {
            // Dropped with the thread, also if it panics.
            let _runs = runs;
            writer.run();
        };
        let handle = thread.spawn(write).map_err(open::io_error(&path))?;
        let shared = Arc::new(Shared { db, feed, snapshot_time: options.snapshot_time });
        let places = Arc::new(Semaphore::new(options.queue_depth.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self { shared, jobs: Some(jobs_tx), places, writer: Some(handle), running, trouble, options })
    }

    /// Queues a request and waits for its answer. An error is for the case that the writer is gone.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, TransactError> {
        let gone = |outcome| TransactError::Unavailable {
            place: self.shared.place(),
            outcome,
            source: Arc::new(EngineError::Closed),
        };
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| gone(Outcome::NotApplied))?;
        let (answer_tx, answer_rx) = oneshot::channel();
        let job = Job { request: request(answer_tx), place };
        let jobs = self.jobs.as_ref().ok_or_else(|| gone(Outcome::NotApplied))?;
        jobs.send(job).map_err(|_| gone(Outcome::NotApplied))?;
        answer_rx.await.map_err(|_| gone(Outcome::Unknown))
    }

    fn check_size(&self, transaction: &Transaction) -> Result<(), TransactError> {
        let hint = "split it";
        let check = |unit, size: usize, limit: usize| {
            if size <= limit {
                return Ok(());
            }
            Err(TransactError::TooLarge { unit, size: size as u64, limit: limit as u64, hint })
        };
        let operations = transaction.operations.len().max(transaction.compares.len());
        check(Limit::Operations, operations, self.options.max_operations)?;
        check(Limit::Bytes, transaction.size(), self.options.max_transaction_bytes)
    }
}

fn read_leases(db: &Db) -> Result<Leases, EngineError> {
    let now = Instant::now();
    db.read(|transaction| {
        let mut leases = Leases::default();
        for row in transaction.open_table(LEASES)?.iter()? {
            let (lease, ttl_ms) = row?;
            leases.insert(LeaseId(lease.value()), Duration::from_millis(ttl_ms.value()), now);
        }
        Ok(leases)
    })
}

#[async_trait]
impl Backend for Embedded {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.shared.get(key).await
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError> {
        self.shared.list(prefix).await
    }

    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        self.shared.snapshot(prefix).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError> {
        self.check_size(&transaction)?;
        transaction.check_distinct()?;
        self.ask(|answer| Request::Transact { transaction, answer }).await?
    }

    fn watch(&self, prefix: &Prefix, from: WatchFrom) -> Watch {
        watch::watch(Arc::clone(&self.shared), prefix.clone(), from)
    }

    async fn revision(&self) -> Result<Revision, ReadError> {
        Ok(Revision(self.shared.feed.head()))
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError> {
        let ttl = crate::api::check_ttl(ttl)?;
        self.ask(|answer| Request::Grant { ttl, answer }).await.map_err(LeaseError::Write)?
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError> {
        self.ask(|answer| Request::KeepAlive { lease, answer }).await.map_err(LeaseError::Write)?
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.ask(|answer| Request::Revoke { lease, answer }).await.map_err(LeaseError::Write)?
    }

    async fn compact(&self, revision: Revision) -> Result<(), CompactError> {
        self.ask(|answer| Request::Compact { revision, answer }).await.map_err(CompactError::Write)?
    }

    async fn failed(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    async fn health(&self) -> Result<Health, ReadError> {
        let state = self.shared.read_off_thread(read_state).await?;
        Ok(Health {
            place: self.shared.place(),
            revision: Revision(state.revision),
            compacted: Some(Revision(state.compacted)),
            queued: self.options.queue_depth.saturating_sub(self.places.available_permits()),
            size_bytes: fs::metadata(self.shared.db.path()).map_or(0, |file| file.len()),
            refusing_writes: self.trouble.lock().clone(),
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The writer works off what is queued, then ends.
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.shared.place(), "the writer thread panicked");
        }
        self.shared.feed.close();
        self.shared.db.close();
    }
}
