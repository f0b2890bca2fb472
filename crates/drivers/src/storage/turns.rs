//! Whose turn it is: of several controllers on one store, the one that leads makes storage match the records.
//!
//! In: who leads (`orchestrator`), and consumers that any controller wrote. Out: the provider at work, for as long as this
//! controller leads. Holds: nothing; a new turn begins with a look at every consumer. Not here: the election (`leader`),
//! the work (`storage-backend`).
//!
//! A turn that ends leaves its work where it is: every step may be repeated, and whoever leads next looks at all of it.
//! What such a step still writes fails if another controller wrote the record meanwhile.

use std::{future, sync::Arc};

use store::follow::{Follower, Step};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Storage, permits, records};

/// Takes every turn of this controller until `stop`.
pub(super) async fn run(storage: Arc<Storage>, stop: CancellationToken) {
    let orchestrator = Arc::clone(&storage.orchestrator);
    while stop.run_until_cancelled(orchestrator.until_leads(true)).await.is_some() {
        let (listening, heard) = oneshot::channel();
        let work = async {
            // What others write from here on is heard, so that nothing is missed between the first look and the next.
            let _ = heard.await;
            work(&storage, &stop).await;
        };
        tokio::select! {
            () = work => return,
            () = listen(&storage, listening) => {}
            () = orchestrator.until_leads(false) => info!("storage is left to the controller that leads"),
        }
    }
}

async fn work(storage: &Storage, stop: &CancellationToken) {
    match storage.provider.consumers().await {
        Ok(consumers) => {
            let known = consumers.iter().map(|consumer| consumer.id).collect();
            permits::sweep(&storage.orchestrator, storage.permits.as_deref(), &known).await;
        }
        Err(err) => warn!(error = common::chain(&err), "old rules for storage could not be looked for"),
    }
    Arc::clone(&storage.provider).run(stop.clone()).await;
}

/// Has the provider look at every consumer that another controller writes. What is there when it begins, the provider
/// looks at itself.
async fn listen(storage: &Storage, listening: oneshot::Sender<()>) {
    let mut listening = Some(listening);
    if storage.orchestrator.alone() {
        drop(listening.take());
        return future::pending().await;
    }
    let mut follower = Follower::new(storage.store.clone(), records::consumers());
    loop {
        match follower.next().await {
            Step::Apply(entry) if listening.is_none() => {
                records::consumer_of(&entry.key).into_iter().for_each(|id| storage.provider.wake(id));
            }
            Step::Complete { .. } => drop(listening.take()),
            Step::Begin | Step::Apply(_) | Step::Delete { .. } => {}
        }
    }
}
