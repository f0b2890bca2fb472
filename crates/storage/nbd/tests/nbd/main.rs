//! The NBD backend from outside: unmodified clients, hostile clients, crashes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bad_luck;
mod clients;
mod conformance;
mod crash;
mod filesystem;
mod hostile;
mod isolation;
mod limits;
mod raw;
mod world;
