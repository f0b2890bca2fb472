//! Working stand-ins and the suite that every backend must pass.

mod conformance;
mod fake_backend;
mod fake_network;
mod memory_records;

pub use self::{
    conformance::{Subject, conforms},
    fake_backend::{FakeBackend, Fault, VAULT},
    fake_network::{FakeNetwork, NetworkFault},
    memory_records::MemoryRecords,
};
