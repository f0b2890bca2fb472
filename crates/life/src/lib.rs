//! The life of a process's tasks and threads: each has a name, and none is gone without being missed.
//!
//! In: futures and closures. Out: the first [`Fault`], that is a task that panicked or ended though it should not have.
//! Holds: who runs. A fault tells everything else to stop at once, so that whoever asks `is_stopping` or `fault` is not
//! told that all is well; the process ends with what [`Life::end`] returns, and is started again from outside. A process
//! that goes on without one of its parts would do half its work and look whole.
//!
//! ```text
//!   spawn          runs until the process stops        ends earlier: fault
//!   spawn_to_end   ends by itself once stopping        ends earlier: fault     panics: fault, in all of them
//!   thread         the same, on a thread of its own    ends earlier: fault
//!   spawn_once     may end whenever it likes
//! ```
//!
//! Not here: what is to be stopped in which order, exit codes, signals.

mod fault;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::sleep};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::error;

pub use fault::{Fault, Reason};

/// How long the others have to end after a fault; then the process ends without them.
pub const GRACE: Duration = Duration::from_secs(10);

pub type Name = Cow<'static, str>;

/// Shared by everything that runs tasks; cheap to clone.
#[derive(Clone)]
pub struct Life(Arc<Inner>);

struct Inner {
    stop: CancellationToken,
    tasks: TaskTracker,
    fault: watch::Sender<Option<Fault>>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    next: u64,
    /// With what a test kills it; threads cannot be killed.
    tasks: BTreeMap<u64, (Name, Option<CancellationToken>)>,
}

/// Whether a task may end while the process does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    WhenStopping,
    AnyTime,
}

impl Default for Life {
    fn default() -> Self {
        fault::remember_panics();
        Self(Arc::new(Inner {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            fault: watch::Sender::new(None),
            running: Mutex::default(),
        }))
    }
}

impl Life {
    /// Runs a task until the process stops; it should not end before.
    pub fn spawn(&self, name: impl Into<Name>, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stopping();
        let task = async move {
            stop.run_until_cancelled_owned(task).await;
        };
        self.start(name.into(), Ends::WhenStopping, task);
    }

    /// Runs a task that ends by itself once `stopping` is, and not before.
    pub fn spawn_to_end(&self, name: impl Into<Name>, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name.into(), Ends::WhenStopping, task);
    }

    /// Runs a task that may end at any time. It is not cut short: one that can last has to look at `stopping`.
    pub fn spawn_once(&self, name: impl Into<Name>, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name.into(), Ends::AnyTime, task);
    }

    /// Runs a thread that ends by itself once the process stops, and not before.
    pub fn thread(&self, name: impl Into<Name>, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let name = name.into();
        let builder = std::thread::Builder::new().name(name.clone().into_owned());
        let entry = self.enter(name, Ends::WhenStopping, None);
        // Its end and its panics are seen inside, so nobody needs to join it.
        let body = move || entry.leave(catch_unwind(AssertUnwindSafe(run)).map_err(fault::panicked));
        builder.spawn(body).map(drop)
    }

    /// Cancelled when the process stops.
    pub fn stopping(&self) -> CancellationToken {
        self.0.stop.clone()
    }

    pub fn is_stopping(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Why the process cannot go on, if so.
    pub fn fault(&self) -> Option<Fault> {
        self.0.fault.borrow().clone()
    }

    /// Returns when the process cannot go on.
    pub async fn faulted(&self) -> Fault {
        let mut faults = self.0.fault.subscribe();
        let fault = faults.wait_for(Option::is_some).await.expect("the sender is in self");
        fault.clone().expect("waited for")
    }

    /// The names of all that run, in order; as often as they run.
    pub fn running(&self) -> Vec<Name> {
        let mut names: Vec<_> = self.lock().tasks.values().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Tells all tasks to stop and waits for them; after a fault no longer than [`GRACE`].
    pub async fn end(&self) -> Result<(), Fault> {
        self.end_within(GRACE).await
    }

    /// As [`Life::end`], with another time for the others after a fault.
    pub async fn end_within(&self, grace: Duration) -> Result<(), Fault> {
        self.0.stop.cancel();
        self.0.tasks.close();
        let give_up = async {
            self.faulted().await;
            sleep(grace).await;
        };
        tokio::select! {
            () = self.0.tasks.wait() => {}
            () = give_up => error!(running = ?self.running(), "ending without those that did not stop"),
        }
        self.fault().map_or(Ok(()), Err)
    }

    /// For tests: makes the tasks of a name panic. Whether there were any; threads cannot be killed.
    #[doc(hidden)]
    pub fn kill(&self, name: &str) -> bool {
        let running = self.lock();
        let named = running.tasks.values().filter(|(running, _)| running == name);
        named.filter_map(|(_, killed)| killed.as_ref()).map(CancellationToken::cancel).count() > 0
    }

    fn start(&self, name: Name, ends: Ends, task: impl Future<Output = ()> + Send + 'static) {
        let killed = CancellationToken::new();
        let entry = self.enter(name, ends, Some(killed.clone()));
        let task = async move {
            tokio::select! {
                () = killed.cancelled() => panic!("killed by a test"),
                () = task => {}
            }
        };
        // Its end and its panics are seen inside, so nobody needs the handle.
        drop(tokio::spawn(async move { entry.leave(fault::caught(task).await) }));
    }

    fn enter(&self, name: Name, ends: Ends, killed: Option<CancellationToken>) -> Entry {
        let mut running = self.lock();
        let id = running.next;
        running.next += 1;
        running.tasks.insert(id, (name.clone(), killed));
        Entry { life: self.clone(), id, name, ends, left: false, _counted: self.0.tasks.token() }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // Nothing in it can be half done.
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first fault counts. But a panic outranks an end: whoever waits for a task that panics ends for want of it,
    /// and may do so while the panic is still unwinding.
    fn note(&self, fault: Fault) {
        error!(task = &*fault.task, reason = %fault.reason, "a task is gone; everything stops");
        self.0.fault.send_if_modified(|first| {
            let counts = first.as_ref().is_none_or(|first| fault.reason.outranks(&first.reason));
            if counts {
                *first = Some(fault);
            }
            counts
        });
        self.0.stop.cancel();
    }
}

/// One that runs; lives as long as it does.
struct Entry {
    life: Life,
    id: u64,
    name: Name,
    ends: Ends,
    left: bool,
    _counted: TaskTrackerToken,
}

impl Entry {
    fn leave(mut self, outcome: Result<(), Reason>) {
        self.left = true;
        let reason = match outcome {
            Err(reason) => reason,
            Ok(()) if self.ends == Ends::WhenStopping && !self.life.is_stopping() => Reason::Ended,
            Ok(()) => return,
        };
        self.life.note(Fault { task: self.name.clone(), reason });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.life.lock().tasks.remove(&self.id);
        // Not run to its end: what it held panicked when it was dropped, or the runtime went away under it.
        if !self.left && !self.life.is_stopping() {
            self.life.note(Fault { task: self.name.clone(), reason: Reason::Ended });
        }
    }
}

#[cfg(test)]
mod tests;
