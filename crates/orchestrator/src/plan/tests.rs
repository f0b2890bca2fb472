//! Plans: cases by name, then random stories against a naive model.

mod adopt;
mod cases;
mod in_force;
mod permissions;
mod stories;
mod verdicts;
pub(crate) mod world;
