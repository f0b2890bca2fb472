//! The one thread that writes: takes all that is queued, commits it once, answers all.
//!
//! In: jobs from the queue, deadlines of leases. Out: one durable commit per batch, then the changes to the feed,
//! then the answers. Holds: the deadlines of leases, and why writes are refused, if they are.
//! Invariant: nothing is answered with success or published before the commit that holds it has been synced.
//!
//! ```text
//! queue ─► batch ─► evaluate each in order ─► one commit (fsync) ─► feed ─► answers
//!                                                  └─ failed: reopen the file, answer all with the reason
//! ```

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    apply::Tables,
    database::{Db, EngineError, guarded},
    feed::Feed,
    leases::Leases,
    open::read_state,
    tables::Change,
};
use crate::api::{
    Committed, CompactError, Lease, LeaseError, LeaseId, Outcome, Revision, TransactError, Transaction,
};

/// How many jobs share a commit at most: bounds the memory of a batch and the wait of its first member.
const MAX_BATCH: usize = 1024;
/// While the disk is full, a batch is tried only if about this much is free again.
const ROOM_TO_TRY: u64 = 256 * 1024;
/// After a failed write, the next one waits for a lease's deadline at least this long.
const RETRY_LEASES: Duration = Duration::from_secs(1);

pub(super) struct Job {
    pub(super) request: Request,
    /// The place in the queue; given back when the job is taken.
    pub(super) place: OwnedSemaphorePermit,
}

pub(super) type Answer<T, E> = oneshot::Sender<Result<T, E>>;

pub(super) enum Request {
    Transact {
        transaction: Transaction,
        answer: Answer<Committed, TransactError>,
    },
    Grant {
        ttl: Duration,
        answer: Answer<Lease, LeaseError>,
    },
    KeepAlive {
        lease: LeaseId,
        answer: Answer<Lease, LeaseError>,
    },
    Revoke {
        lease: LeaseId,
        answer: Answer<(), LeaseError>,
    },
    Compact {
        revision: Revision,
        answer: Answer<(), CompactError>,
    },
    /// The writer's own: a lease is over.
    Expire {
        lease: LeaseId,
    },
}

/// What a request came to, before the commit makes it true.
enum Evaluated {
    Transact(Result<Committed, TransactError>),
    Grant(Lease),
    KeepAlive(Option<Lease>),
    Ended { existed: bool },
    Compact(Result<(), CompactError>),
}

pub(super) struct Writer {
    pub(super) db: Arc<Db>,
    pub(super) feed: Arc<Feed>,
    pub(super) jobs: Receiver<Job>,
    pub(super) leases: Leases,
    pub(super) max_log_rows: u64,
    pub(super) max_log_bytes: u64,
    /// Why writes are refused; read by the health check.
    pub(super) trouble: Arc<Mutex<Option<String>>>,
    pub(super) full: bool,
    /// Set when acknowledged writes were found missing; then nothing is written any more.
    pub(super) lost: Option<EngineError>,
}

impl Writer {
    /// Runs until every sender of jobs is gone and the queue is empty.
    pub(super) fn run(mut self) {
        loop {
            let mut batch = match self.wait() {
                Ok(first) => first.into_iter().collect::<Vec<_>>(),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => Vec::new(),
            };
            while batch.len() < MAX_BATCH {
                match self.jobs.try_recv() {
                    Ok(job) => batch.push(open_job(job)),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            let due = self.leases.due(Instant::now(), MAX_BATCH);
            // A keep-alive that was queued before the lease was found due has won.
            let expired = due.into_iter().filter(|lease| !batch.iter().any(|request| request.keeps(*lease)));
            let expired: Vec<_> = expired.map(|lease| Request::Expire { lease }).collect();
            batch.extend(expired);
            if !batch.is_empty() {
                self.write(batch);
            }
        }
    }

    fn wait(&self) -> Result<Option<Request>, RecvTimeoutError> {
        let job = match self.leases.next_deadline() {
            None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)?,
            Some(deadline) => self.jobs.recv_timeout(deadline.saturating_duration_since(Instant::now()))?,
        };
        Ok(Some(open_job(job)))
    }

    fn write(&mut self, batch: Vec<Request>) {
        if let Some(error) = self.lost.clone() {
            return self.refuse(batch, &error, Outcome::NotApplied);
        }
        if self.full && !self.has_room() {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return self.refuse(batch, &redb::Error::Io(error).into(), Outcome::NotApplied);
        }
        let (generation, begun) = self.db.begin_write();
        let committed = begun.and_then(|transaction| guarded(|| self.commit(transaction, &batch)));
        match committed {
            Ok((evaluated, changes)) => {
                if std::mem::take(&mut self.full) | self.trouble.lock().take().is_some() {
                    tracing::info!(path = %self.db.path().display(), "writes work again");
                }
                if let Some(newest) = changes.last() {
                    self.db.note_acknowledged(newest.revision);
                }
                self.feed.publish(changes);
                let now = Instant::now();
                for (request, evaluated) in batch.into_iter().zip(evaluated) {
                    self.answer(request, evaluated, now);
                }
            }
            Err(error) => {
                let outcome = self.heal(generation, &error);
                self.refuse(batch, &error, outcome);
            }
        }
    }

    /// Evaluates every request in one write transaction and commits it if anything changed.
    fn commit(
        &self,
        transaction: redb::WriteTransaction,
        batch: &[Request],
    ) -> Result<(Vec<Evaluated>, Vec<Arc<Change>>), EngineError> {
        let mut changes = Vec::new();
        let mut evaluated = Vec::with_capacity(batch.len());
        let dirty = {
            let mut tables = Tables::open(&transaction)?;
            for request in batch {
                let (result, change) = self.evaluate(&mut tables, request)?;
                evaluated.push(result);
                changes.extend(change.map(Arc::new));
            }
            if tables.dirty {
                tables.trim_log(self.max_log_rows, self.max_log_bytes, 2 * MAX_BATCH)?;
                tables.store_state()?;
            }
            tables.dirty
        };
        if dirty {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok((evaluated, changes))
    }

    fn evaluate(
        &self,
        tables: &mut Tables<'_>,
        request: &Request,
    ) -> Result<(Evaluated, Option<Change>), EngineError> {
        Ok(match request {
            Request::Transact { transaction, .. } => match tables.transact(transaction)? {
                Ok(change) => {
                    let committed = Committed { revision: Revision(tables.state.revision) };
                    (Evaluated::Transact(Ok(committed)), change)
                }
                Err(refused) => (Evaluated::Transact(Err(refused)), None),
            },
            Request::Grant { ttl, .. } => {
                let id = tables.grant(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))?;
                (Evaluated::Grant(Lease { id, ttl: *ttl }), None)
            }
            Request::KeepAlive { lease, .. } => {
                let lease = tables.lease_ttl(*lease)?.map(|ttl| Lease { id: *lease, ttl });
                (Evaluated::KeepAlive(lease), None)
            }
            Request::Revoke { lease, .. } | Request::Expire { lease } => {
                let ended = tables.end_lease(*lease)?;
                (Evaluated::Ended { existed: ended.is_some() }, ended.flatten())
            }
            Request::Compact { revision, .. } => {
                let current = Revision(tables.state.revision);
                let done = if *revision > current {
                    Err(CompactError::Future { asked: *revision, current })
                } else {
                    tables.compact(revision.0)?;
                    Ok(())
                };
                (Evaluated::Compact(done), None)
            }
        })
    }

    /// A receiver that is gone has stopped waiting; its answer is nobody's.
    fn answer(&mut self, request: Request, evaluated: Evaluated, now: Instant) {
        match (request, evaluated) {
            (Request::Transact { answer, .. }, Evaluated::Transact(result)) => {
                let _ = answer.send(result);
            }
            (Request::Grant { answer, .. }, Evaluated::Grant(lease)) => {
                self.leases.insert(lease.id, lease.ttl, now);
                let _ = answer.send(Ok(lease));
            }
            (Request::KeepAlive { lease, answer }, Evaluated::KeepAlive(found)) => {
                if let Some(found) = found {
                    self.leases.insert(found.id, found.ttl, now);
                }
                let _ = answer.send(found.ok_or(LeaseError::NotFound { lease }));
            }
            (Request::Revoke { lease, answer }, Evaluated::Ended { existed }) => {
                self.leases.remove(lease);
                let _ = answer.send(if existed { Ok(()) } else { Err(LeaseError::NotFound { lease }) });
            }
            (Request::Expire { lease }, Evaluated::Ended { .. }) => {
                self.leases.remove(lease);
                tracing::debug!(%lease, "lease expired");
            }
            (Request::Compact { answer, .. }, Evaluated::Compact(result)) => {
                let _ = answer.send(result);
            }
            (request, _) => tracing::error!(kind = request.kind(), "answer of another kind"),
        }
    }

    /// After a failed commit: open the file again and find out whether the batch is in it.
    fn heal(&mut self, generation: u64, error: &EngineError) -> Outcome {
        let path = self.db.path().display().to_string();
        self.full = error.is_full();
        let reason = common::chain(error);
        tracing::error!(%path, error = %reason, "commit failed, opening the store file again");
        *self.trouble.lock() = Some(reason);
        let before = self.feed.head();
        let healed = self.db.reopen(generation).and_then(|()| self.db.read(read_state));
        match healed {
            // Acknowledged transactions are gone: the disk lied about a sync. Writing on would give their revisions
            // to others.
            Ok(state) if state.revision < before => {
                let lost =
                    format!("revision {before} was acknowledged, the file stands at {}", state.revision);
                tracing::error!(%path, %lost, "the disk lost acknowledged writes; refusing writes until a restart");
                *self.trouble.lock() = Some(lost.clone());
                self.lost = Some(redb::Error::Corrupted(lost).into());
                Outcome::Unknown
            }
            Ok(state) => {
                // The commit may have reached the file although its sync failed: then it is history, and the
                // watches must tell it.
                self.feed.reset(state.revision);
                if state.revision == before { Outcome::NotApplied } else { Outcome::Unknown }
            }
            Err(error) => {
                tracing::error!(%path, error = %common::chain(&error), "the store file cannot be opened again yet");
                Outcome::Unknown
            }
        }
    }

    fn refuse(&mut self, batch: Vec<Request>, error: &EngineError, outcome: Outcome) {
        let place = self.db.path().display().to_string();
        let refusal = if error.is_full() && outcome == Outcome::NotApplied {
            TransactError::Full { place, source: Arc::new(error.clone()) }
        } else {
            TransactError::Storage { place, outcome, source: Arc::new(error.clone()) }
        };
        for request in batch {
            match request {
                Request::Transact { answer, .. } => drop(answer.send(Err(refusal.clone()))),
                Request::Grant { answer, .. } | Request::KeepAlive { answer, .. } => {
                    drop(answer.send(Err(LeaseError::Write(refusal.clone()))));
                }
                Request::Revoke { answer, .. } => drop(answer.send(Err(LeaseError::Write(refusal.clone())))),
                Request::Compact { answer, .. } => {
                    drop(answer.send(Err(CompactError::Write(refusal.clone()))))
                }
                // Still due; tried again, but not in a tight loop.
                Request::Expire { lease } => self.leases.insert(lease, RETRY_LEASES, Instant::now()),
            }
        }
    }

    fn has_room(&self) -> bool {
        let dir: PathBuf = self.db.path().parent().map(Into::into).unwrap_or_default();
        match rustix::fs::statvfs(&dir) {
            Ok(space) => space.f_bavail.saturating_mul(space.f_frsize) >= ROOM_TO_TRY,
            Err(_) => true,
        }
    }
}

impl Request {
    fn keeps(&self, kept: LeaseId) -> bool {
        matches!(self, Self::KeepAlive { lease, .. } if *lease == kept)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Transact { .. } => "transact",
            Self::Grant { .. } => "grant",
            Self::KeepAlive { .. } => "keep alive",
            Self::Revoke { .. } => "revoke",
            Self::Compact { .. } => "compact",
            Self::Expire { .. } => "expire",
        }
    }
}

fn open_job(job: Job) -> Request {
    drop(job.place);
    job.request
}
