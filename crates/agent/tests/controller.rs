//! Agents and a real controller, in one process: streams, state on disk, the local API. The kernel is in `labs`.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "controller/churn.rs"]
mod churn;
#[path = "controller/fakes.rs"]
mod fakes;
#[path = "controller/faults.rs"]
mod faults;
#[path = "controller/harness.rs"]
mod harness;
#[path = "controller/leave.rs"]
mod leave;
#[path = "controller/life.rs"]
mod life;
#[path = "controller/supervision.rs"]
mod supervision;
