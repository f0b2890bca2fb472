//! The life of a controller's tasks: they run until it stops, and it has not stopped before they are gone.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Shared by everything that runs tasks; cheap to clone.
#[derive(Clone, Default)]
pub struct Life {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Life {
    /// Runs a task until it ends by itself or the controller stops, whichever comes first.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }

    /// Runs a task that ends by itself once `stopping` is.
    pub fn spawn_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Cancelled when the controller stops.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Tells all tasks to stop and waits for them.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
