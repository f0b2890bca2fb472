//! Working stand-ins and the suite that every backend must pass.

mod conformance;
mod fake_backend;
mod memory_records;

pub use self::{
    conformance::{Subject, conforms},
    fake_backend::{FakeBackend, Fault},
    memory_records::MemoryRecords,
};
