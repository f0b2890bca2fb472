//! What the tests on a real kernel share: a node with hosts around it, and probes that tell where packets go. Needs root.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

pub mod lab;
pub mod pods;
pub mod probe;
pub mod refusing;
pub mod sctp;
pub mod states;
