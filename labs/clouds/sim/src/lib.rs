//! Simulated public clouds, for tests and demonstrations. Never part of a controller that drives real ones.
//!
//! In: HTTP requests as a cloud's own clients send them. Out: answers as the cloud gives them. Holds: the objects of
//! each cloud, a virtual clock, faults on demand, and the one [`wire::Wire`] between them. Requests and answers are
//! checked against cuts of the clouds' own API descriptions (`schemas/`, with their origin).
//!
//! ```text
//!   plugin or official client ── HTTP ──► server ── faults ──► aws │ azure │ gcp │ ibm ── objects ──► wire: who reaches whom?
//! ```

/// Refuses a request: the status, the cloud's word for it, and why, as in `format!`.
macro_rules! bail {
    ($status:expr, $code:expr, $($why:tt)+) => {
        return Err($crate::rest::refuse($status, $code, format!($($why)+)))
    };
}

mod aws;
mod azure;
mod clock;
mod faults;
mod gcp;
mod ibm;
mod metadata;
mod objects;
mod question;
mod record;
mod rest;
mod server;
pub mod wire;
mod world;

pub use clock::VirtualClock;
pub use faults::{Fault, Faults};
pub use world::{Call, Machine, OwnSite, Sim};
