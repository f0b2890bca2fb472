//! Node streams end to end: a real controller with TLS, real gRPC clients, and clients that misbehave.

#[path = "nodes/agent.rs"]
mod agent;
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
