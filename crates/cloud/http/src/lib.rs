//! One HTTP client for all public clouds.
//!
//! In: requests of a plugin. Out: answers, or a [`Failure`] that says what class of refusal it was. Holds: credentials
//! per cloud ([`auth`]), the retry loop ([`Client`]), an adaptive rate limiter per scope, the driver of long-running
//! work ([`wait`]), the executor that makes one object true ([`ensure`]), and a recorder that never sees a secret. Not here: any cloud's objects (`cloud/aws`, …).
//!
//! ```text
//!   plugin ── Request ──► Client ── limiter ── Signer ── Transport ──► the cloud
//!                            ▲                                            │
//!                            └── pause, again ◄── Dialect: which class? ◄─┘
//! ```

pub mod auth;
mod client;
mod clock;
mod failure;
mod letters;
mod limit;
mod object;
mod recent;
mod record;
mod request;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transport;
mod wait;
mod world;

pub use client::{Client, Dialect, Parts, Patience, Signer};
pub use clock::{Clock, SystemClock};
pub use failure::{Answer, Class, Failure, if_there, or_gone, or_there};
pub use letters::letters;
pub use limit::Rates;
pub use object::{Fit, Kind, Objects, Phase, Wanted, ensure, ensure_from, gone, read_json, remove, settled};
pub use recent::{Recent, Turn, Turns};
pub use record::{Exchange, FileRecorder, Recorder, redact};
pub use request::{Access, Repeat, Reply, Request, encode_component, form};
pub use transport::{HttpTransport, Transport, TransportError};
pub use wait::{Pace, Progress, patiently, wait};
pub use world::World;
