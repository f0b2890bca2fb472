//! Bad luck in a whole system, in network namespaces of its own: etcd, controllers and agents are killed and halted while
//! clients write and packets flow. Needs root.
//!
//! `TRESTLE_CHAOS_SECONDS` and `TRESTLE_CHAOS_AGENTS` make it long; `TRESTLE_CHAOS_SEED` chooses what happens, not when
//! exactly.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    reason = "a test may fail where it stands, and uses a part of the lab"
)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../lab/mod.rs"]
mod lab;

mod book;
mod client;
mod crowd;
mod disk;
mod judge;
mod luck;
mod process;
mod site;
mod trial;
mod writers;

use std::time::Instant;

use lab::{probe, restore, traffic, world};
use process::Process;
use site::{SIZE, Site};
use trial::Trial;
use world::World;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_forbidden_passes() {
    let seed = number("TRESTLE_CHAOS_SEED", 1);
    let seconds = number("TRESTLE_CHAOS_SECONDS", 12);
    let agents = number("TRESTLE_CHAOS_AGENTS", 12);
    eprintln!("{agents} agents for {seconds} s, TRESTLE_CHAOS_SEED={seed}");
    let mut trial = Trial::new(agents);
    let traffic = trial.traffic();
    let (book, lives) = trial.play(seconds, seed);
    let peace = Instant::now();
    let tell = |what: &str| eprintln!("{what}; {:?} after peace", peace.elapsed());
    trial.nothing_is_lost(book);
    tell("nothing is lost");
    let agents = trial.agents_converge(lives);
    tell("all agents hold what the controllers mean");
    let policies = trial.policies_are_realized();
    tell(&format!("{policies} policies are realized"));
    trial.clouds_and_records_are_whole();
    traffic.assert_held();
    let objects = trial.agents_hold_what_is_told_afresh(agents);
    tell(&format!("agents hold {objects:?} objects, to the letter"));
    trial.site.controllers.iter_mut().for_each(Process::stop);
}

/// Of three controllers on etcd.
#[test]
fn agents_follow_a_restore_of_an_older_backup() {
    let mut world = World::without_controller(2, None);
    let mut site = Site::start(&mut world);
    (0..world.hosts.len()).for_each(|index| world.admit(index));
    restore::play(&mut world, |world, file| {
        site.controllers.iter_mut().for_each(Process::stop);
        let config = site.config(0).display().to_string();
        world.ok(&["store", "restore", file, "--config", &config, "--replace"]);
        site.controllers.iter_mut().for_each(Process::start);
        (0..SIZE).for_each(|index| site.wait_until_it_serves(index));
    });
}
