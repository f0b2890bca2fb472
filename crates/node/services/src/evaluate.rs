//! Where a packet goes, worked out in memory from what a plane wants in the kernel.
//!
//! ```text
//!   from outside   prerouting ─► for the host? ─ yes ─► input ─► IPVS ─┬─► postrouting
//!                                     └──────── no ──► forward ────────┤
//!   from the host  output ─► IPVS ─────────────────────────────────────┘
//! ```
//!
//! The rules themselves are played (`node_nft::walk`), so this says what the tables do, not what they were meant to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use node_nft::{
    Hook, Table,
    walk::{self, End, Flow, Stop, World},
};

use crate::{
    Protocol,
    ipvs::{ServerId, ServerState},
};

/// A first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub protocol: Protocol,
    pub from: IpAddr,
    pub to: (IpAddr, u16),
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes to one of these; whether that one sees another source than the client's.
    Balanced(BTreeMap<(IpAddr, u16), bool>),
    /// The client is told that nobody answers.
    Rejected,
    /// In silence.
    Dropped,
    /// No service has to do with it.
    Passed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub fate: Fate,
    /// The rules that had an effect, by their comments.
    pub steps: BTreeSet<String>,
    /// What the affinity map holds afterwards, for each endpoint it may have gone to.
    pub remembered: BTreeMap<(IpAddr, u16), Memory>,
}

pub use node_nft::walk::Memory;

/// Somebody has put a rule into a table that is not understood here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUnderstood(pub String);

/// Asks the nftables plane. `tables` are those of both families, or of one.
pub fn nftables(
    tables: &[&Table],
    probe: Probe,
    is_local: &dyn Fn(IpAddr) -> bool,
    memory: &Memory,
) -> Result<Answer, NotUnderstood> {
    play(probe, &World { tables, is_local, memory }, &|_| Ok(End::Passed))
}

/// Asks the IPVS plane: its servers, its guard tables, and whether an address is bound or the host's own.
pub fn ipvs(
    servers: &BTreeMap<ServerId, ServerState>,
    guards: &[&Table],
    probe: Probe,
    is_local: &dyn Fn(IpAddr) -> bool,
) -> Result<Answer, NotUnderstood> {
    let world = World { tables: guards, is_local, memory: &Memory::new() };
    let schedule = |flow: &mut Flow| {
        let id = ServerId { address: flow.destination.0, port: flow.destination.1, protocol: probe.protocol };
        let Some(server) = servers.get(&id) else { return Ok(End::Passed) };
        let open = server.destinations.iter().filter(|(_, weight)| **weight > 0).map(|(socket, _)| *socket);
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            return Ok(End::Rejected(node_nft::Reject::PortUnreachable));
        }
        let chosen = flow.choose(u32::try_from(open.len()).unwrap_or(u32::MAX))?;
        flow.translate(open[chosen as usize]);
        flow.steps.push(format!("IPVS server {}:{}", id.address, id.port));
        Ok(End::Passed)
    };
    play(probe, &world, &schedule)
}

type Schedule<'a> = dyn Fn(&mut Flow) -> Result<End, Stop> + 'a;

fn play(probe: Probe, world: &World<'_>, schedule: &Schedule<'_>) -> Result<Answer, NotUnderstood> {
    // Clients use ports that no service does.
    let start = Flow::new(probe.protocol.number(), (probe.from, 49_152), probe.to);
    let journey = |flow: &mut Flow| {
        let at = |hook, flow: &mut Flow| world.hook(hook, flow);
        let mut ends = Journey { end: End::Passed };
        if (world.is_local)(probe.from) {
            ends.go(at(Hook::Output, flow)?);
            ends.then(|| schedule(flow))?;
            ends.then(|| at(Hook::Postrouting, flow))?;
            if (world.is_local)(flow.destination.0) {
                ends.then(|| at(Hook::Input, flow))?;
            }
            return Ok(ends.end);
        }
        ends.go(at(Hook::Prerouting, flow)?);
        let for_host = (world.is_local)(flow.destination.0);
        ends.then(|| at(if for_host { Hook::Input } else { Hook::Forward }, flow))?;
        if for_host {
            ends.then(|| schedule(flow))?;
        }
        if !for_host || flow.translated {
            ends.then(|| at(Hook::Postrouting, flow))?;
        }
        Ok(ends.end)
    };
    let ends = walk::outcomes(&start, journey).map_err(NotUnderstood)?;
    Ok(answer(ends))
}

/// Hooks one after the other, until one ends it.
struct Journey {
    end: End,
}

impl Journey {
    fn go(&mut self, end: End) {
        self.end = end;
    }

    fn then(&mut self, next: impl FnOnce() -> Result<End, Stop>) -> Result<(), Stop> {
        if self.end == End::Passed {
            self.end = next()?;
        }
        Ok(())
    }
}

fn answer(ends: Vec<(Flow, End)>) -> Answer {
    let (mut balanced, mut steps, mut remembered) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut worst = None;
    for (flow, end) in ends {
        steps.extend(flow.steps);
        match end {
            End::Dropped => worst = Some(Fate::Dropped),
            End::Rejected(_) => worst = Some(worst.unwrap_or(Fate::Rejected)),
            End::Passed if flow.translated => {
                balanced.insert(flow.destination, flow.masqueraded);
                remembered.insert(flow.destination, flow.remembered);
            }
            End::Passed => {}
        }
    }
    let fate = worst.unwrap_or(if balanced.is_empty() { Fate::Passed } else { Fate::Balanced(balanced) });
    Answer { fate, steps, remembered }
}
