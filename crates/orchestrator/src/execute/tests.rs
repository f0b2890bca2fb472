//! The orchestrator over fake clouds: stories, faults, and cuts at every point.

mod adopt;
mod bugs;
mod cuts;
mod faults;
mod house;
mod leading;
mod lists;
mod meddler;
mod memory;
mod plugins;
mod promises;
mod stories;
mod unreadable;
