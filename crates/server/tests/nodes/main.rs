//! Node streams end to end: a real controller with TLS, real gRPC clients, and clients that misbehave.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod agent;
mod allotments;
mod enforcement;
mod faults;
mod flows;
mod hosts;
mod identities;
mod kubernetes;
mod original;
mod original_defects;
mod protocol;
mod services;
