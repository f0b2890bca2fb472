//! Node streams end to end: a real controller with TLS, real gRPC clients, and clients that misbehave.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "nodes/agent.rs"]
mod agent;
#[path = "nodes/allotments.rs"]
mod allotments;
#[path = "nodes/faults.rs"]
mod faults;
#[path = "nodes/harness.rs"]
mod harness;
#[path = "nodes/protocol.rs"]
mod protocol;
#[path = "nodes/seed.rs"]
mod seed;
#[path = "nodes/seed_defects.rs"]
mod seed_defects;
#[path = "nodes/services.rs"]
mod services;
