pub mod endpoints;
mod file;
pub mod held;
pub mod journal;
