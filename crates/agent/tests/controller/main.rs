//! Agents and a real controller, in one process: streams, state on disk, the local API. The kernel is in `labs`.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod churn;
mod fakes;
mod faults;
mod joining;
mod leave;
mod life;
mod supervision;
