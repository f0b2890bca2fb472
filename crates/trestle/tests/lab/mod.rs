//! What the labs share: a world of namespaces with a controller, hosts and Pods, and probes between them. Needs root.

#![allow(dead_code, reason = "each lab uses a part")]

pub mod clocks;
pub mod probe;
pub mod raw;
pub mod restore;
pub mod traffic;
pub mod world;
