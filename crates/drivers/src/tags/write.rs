//! The writer: judges requests and stores what they ask for, many to a transaction.

use std::sync::{Arc, atomic::Ordering};

use model::change::Change;
use store::{Revision, Store, TransactError};
use tags::Batch;
use tokio::sync::mpsc;

use super::{Job, TagError, Tags, change::change, keys};

/// Requests judged together. Their facts share one fsync.
const BATCH: usize = 512;
/// Tries before a batch gives way to other controllers' writes.
const TRIES: usize = 32;

pub(super) async fn run(tags: Arc<Tags>, store: Store, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(BATCH);
    while jobs.recv_many(&mut batch, BATCH).await > 0 {
        tags.queued.store(jobs.len(), Ordering::Relaxed);
        let results = write(&tags, &store, &batch).await;
        // Together they may be too large for one transaction although each alone is not.
        if batch.len() > 1 && results.iter().any(is_too_large) {
            for job in batch.drain(..) {
                let mut result = write(&tags, &store, std::slice::from_ref(&job)).await;
                answer(job, result.pop().unwrap_or(Err(TagError::Stopping)));
            }
            continue;
        }
        batch.drain(..).zip(results).for_each(|(job, result)| answer(job, result));
    }
}

fn is_too_large(result: &Result<Change, TagError>) -> bool {
    matches!(result, Err(TagError::Store(TransactError::TooLarge { .. })))
}

fn answer(job: Job, result: Result<Change, TagError>) {
    // A caller that went away wants no answer.
    let _ = job.verdict.send(result);
}

/// Judges the requests in order and commits all that are accepted. One verdict per request.
async fn write(tags: &Tags, store: &Store, jobs: &[Job]) -> Vec<Result<Change, TagError>> {
    for _ in 0..TRIES {
        let snapshot = tags.current.load_full();
        let mut batch = Batch::new(&snapshot.graph);
        let verdicts: Vec<_> = jobs.iter().map(|job| judge(&mut batch, job)).collect();
        let plan = batch.finish();
        if plan.is_empty() {
            // No commit proves that the verdicts rest on the newest state, so ask.
            match store.get(&keys::guard()).await {
                Ok(guard) => match guard.map_or(Revision(0), |entry| entry.modified) {
                    newest if newest == snapshot.guard => return verdicts,
                    newest => tags.leave(&snapshot, Some(newest)).await,
                },
                Err(err) => return jobs.iter().map(|_| Err(TagError::Read(err.clone()))).collect(),
            }
            continue;
        }
        match store.transact(keys::transaction(plan, snapshot.guard)).await {
            Ok(committed) => {
                tags.reach(committed.revision).await;
                return verdicts;
            }
            // Another controller was first: judge again on what it left.
            Err(TransactError::Conflict { found, .. }) => tags.leave(&snapshot, found).await,
            Err(err) => return all(verdicts, &TagError::Store(err)),
        }
    }
    jobs.iter().map(|_| Err(TagError::Busy)).collect()
}

/// What the request will have done, if the batch is stored.
fn judge(batch: &mut Batch, job: &Job) -> Result<Change, TagError> {
    // A clone of the graph shares everything with it.
    let before = batch.graph().clone();
    batch.add(&job.request)?;
    Ok(change(&job.request, &before, batch.graph()))
}

/// Nothing was stored: what was accepted fails with this, what was refused stays refused.
fn all(verdicts: Vec<Result<Change, TagError>>, error: &TagError) -> Vec<Result<Change, TagError>> {
    verdicts.into_iter().map(|verdict| verdict.and_then(|_| Err(error.clone()))).collect()
}
