//! Flows as Hubble's clients ask for them and read them.

mod filter;
mod told;

pub use filter::Filters;
pub use told::{flow, moment};
