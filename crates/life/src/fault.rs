//! Why a task is gone, and where it panicked.

use std::{
    any::Any,
    cell::RefCell,
    future::poll_fn,
    panic::{self, AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Once,
    task::Poll,
};

use crate::Name;

/// A task that is gone and should not be: the process cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{task} {reason}")]
pub struct Fault {
    pub task: Name,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("ended unexpectedly")]
    Ended,
    /// The text of the panic, and the place in the source.
    #[error("panicked: {0}")]
    Panicked(String),
}

impl Reason {
    pub(crate) fn outranks(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Panicked(_), Self::Ended))
    }
}

thread_local! {
    /// Text and place of the last panic on this thread. Whoever catches a panic does so on the thread it happened on.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What is caught is only the payload; the place is known to the hook alone. What the hook did before, it still does.
pub fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let text = info.payload_as_str().unwrap_or("without a text");
            let place = info.location().map(|place| format!(", at {place}")).unwrap_or_default();
            LAST.with(|last| last.replace(Some(format!("{text}{place}"))));
            before(info);
        }));
    });
}

/// Why a panic that was just caught on this thread happened.
pub fn panicked(payload: Box<dyn Any + Send>) -> Reason {
    let text = LAST.with(RefCell::take).unwrap_or_else(|| {
        // Somebody has put a hook in the place of ours.
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
    });
    Reason::Panicked(text)
}

/// Runs a task, and catches its panic.
pub async fn caught(task: impl Future<Output = ()>) -> Result<(), Reason> {
    let mut task = pin!(task);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(panicked(payload))),
    })
    .await
}
