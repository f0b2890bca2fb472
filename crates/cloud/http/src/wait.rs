//! Long-running work: polled until it ends.
//!
//! The handle of such work is an object's own name or id, which is fixed before the work is asked for and kept by the
//! controller's record. A controller that restarts asks for the same again; the plugin finds the object half made and
//! waits for it here.

use std::{future::Future, time::Duration};

use cloud_api::CloudError;

use crate::{Class, Clock, Failure};

/// How a piece of work is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    Pending,
    /// The cloud says when to look again.
    Later(Duration),
    Done(T),
    /// It ended badly, and will not end otherwise.
    Failed(String),
}

/// How often to look, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub first: Duration,
    pub longest: Duration,
    pub deadline: Duration,
}

impl Pace {
    /// Things that take seconds to minutes.
    pub const QUICK: Self = Self {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(15),
        deadline: Duration::from_secs(15 * 60),
    };
    /// Gateways.
    pub const SLOW: Self = Self {
        first: Duration::from_secs(5),
        longest: Duration::from_secs(30),
        deadline: Duration::from_secs(90 * 60),
    };
}

/// Asks again, for a while at most, as long as something is in use by what is on its way out.
pub async fn patiently<F>(
    clock: &dyn Clock,
    longest: Duration,
    mut ask: impl FnMut() -> F + Send,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let (end, mut pause) = (clock.now() + longest, Duration::from_secs(2));
    loop {
        match ask().await {
            Err(failure) if failure.is(Class::InUse) && clock.now() < end => {
                clock.sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(15));
            }
            outcome => return outcome,
        }
    }
}

/// Looks until the work is done. A failed look is the caller's to judge; it ends the wait.
pub async fn wait<T, F>(
    clock: &dyn Clock,
    pace: Pace,
    what: &str,
    mut look: impl FnMut() -> F + Send,
) -> Result<T, CloudError>
where
    F: Future<Output = Result<Progress<T>, CloudError>> + Send,
{
    let end = clock.now() + pace.deadline;
    let mut pause = pace.first;
    loop {
        match look().await? {
            Progress::Done(value) => return Ok(value),
            Progress::Failed(message) => {
                return Err(CloudError::conflict(format!("{what} failed: {message}")));
            }
            Progress::Pending | Progress::Later(_) if clock.now() >= end => {
                let minutes = pace.deadline.as_secs() / 60;
                return Err(CloudError::unavailable(format!(
                    "{what} is not done after {minutes} minutes; look at it in the cloud's console"
                )));
            }
            Progress::Later(asked) => clock.sleep(asked).await,
            Progress::Pending => {
                clock.sleep(pause).await;
                pause = (pause * 3 / 2).min(pace.longest);
            }
        }
    }
}
