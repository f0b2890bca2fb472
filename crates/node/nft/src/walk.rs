//! The rules carried out in memory: what becomes of the first packet of a connection.
//!
//! In: tables as they should be, a packet, and what the host knows of addresses. Out: for each hook, whether the
//! packet passes, and what was done to it. For tests, and to explain where packets go.
//! Holds: nothing. Not here: routing and the order of hooks, which the caller plays.
//!
//! What a rule leaves to chance is not guessed: [`outcomes`] plays every possibility.

mod expression;

use std::{collections::BTreeMap, net::IpAddr};

use crate::{Chain, Hook, Policy, Reject, Table, Verdict};

/// A packet on its way, and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Protocols without ports have here the first two bytes behind the IP header, and in `destination` the next two.
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    /// Number of the protocol over IP.
    pub protocol: u8,
    pub mark: u32,
    /// Where it comes in and goes out; empty in hooks that have none.
    pub interfaces: (String, String),
    /// What the connection was first sent to.
    pub original: (IpAddr, u16),
    /// Its destination was translated.
    pub translated: bool,
    /// Its source will be hidden.
    pub masqueraded: bool,
    /// Comments of the rules that had an effect, in order.
    pub steps: Vec<String>,
    /// What rules wrote into dynamic maps.
    pub remembered: Memory,
    /// What chance will say, and how much of it was used.
    chance: Vec<u32>,
    used: usize,
}

impl Flow {
    pub fn new(protocol: u8, source: (IpAddr, u16), destination: (IpAddr, u16)) -> Self {
        Self {
            source,
            destination,
            protocol,
            mark: 0,
            interfaces: Default::default(),
            original: destination,
            translated: false,
            masqueraded: false,
            steps: Vec::new(),
            remembered: Memory::new(),
            chance: Vec::new(),
            used: 0,
        }
    }

    /// One of so many possibilities, as chance says.
    pub fn choose(&mut self, possibilities: u32) -> Result<u32, Stop> {
        let said = *self.chance.get(self.used).ok_or(Stop::Chance(possibilities))?;
        self.used += 1;
        Ok(said)
    }

    /// Sends it elsewhere, as a translation does.
    pub fn translate(&mut self, destination: (IpAddr, u16)) {
        self.destination = destination;
        self.translated = true;
    }
}

/// Contents of dynamic maps, by set and key.
pub type Memory = BTreeMap<(String, Box<[u8]>), Box<[u8]>>;

/// Where a hook leaves a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Dropped,
    Rejected(Reject),
}

/// Why a walk did not come to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Something depends on chance: one of so many possibilities.
    Chance(u32),
    /// A rule says something that is not understood here.
    NotUnderstood(String),
}

/// What the rules can ask about the world.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// All tables, of whatever family.
    pub tables: &'a [&'a Table],
    /// Whether an address is the host's own.
    pub is_local: &'a dyn Fn(IpAddr) -> bool,
    pub memory: &'a Memory,
}

/// Every way in which chance can play it.
pub fn outcomes<T>(
    start: &Flow,
    mut play: impl FnMut(&mut Flow) -> Result<T, Stop>,
) -> Result<Vec<(Flow, T)>, String> {
    let (mut open, mut ended) = (vec![Vec::new()], Vec::new());
    while let Some(chance) = open.pop() {
        let mut flow = Flow { chance: chance.clone(), used: 0, ..start.clone() };
        match play(&mut flow) {
            Ok(end) => ended.push((flow, end)),
            Err(Stop::Chance(possibilities)) => {
                open.extend((0..possibilities).rev().map(|one| [&chance[..], &[one]].concat()));
            }
            Err(Stop::NotUnderstood(what)) => return Err(what),
        }
    }
    Ok(ended)
}

/// More jumps than the kernel bears.
const DEPTH: usize = 16;

/// What a chain says of a packet.
enum Said {
    /// Nothing: whoever came here goes on.
    Nothing,
    /// This base chain is done with it.
    Accepted,
    Ended(End),
}

impl World<'_> {
    /// Plays all chains of one hook, in the order of their priorities.
    pub fn hook(&self, hook: Hook, flow: &mut Flow) -> Result<End, Stop> {
        let mut chains = Vec::new();
        for table in self.tables.iter().filter(|table| table.takes(flow)) {
            for (name, chain) in &table.chains {
                if let Some(base) = chain.base.filter(|base| base.hook == hook) {
                    chains.push((base, name, *table, chain));
                }
            }
        }
        chains.sort_by_key(|(base, name, ..)| (base.priority, *name));
        for (base, _, table, chain) in chains {
            match self.chain(table, chain, flow, 0)? {
                Said::Ended(end) => return Ok(end),
                Said::Nothing if base.policy == Policy::Drop => return Ok(End::Dropped),
                Said::Nothing | Said::Accepted => {}
            }
        }
        Ok(End::Passed)
    }

    fn chain(&self, table: &Table, chain: &Chain, flow: &mut Flow, depth: usize) -> Result<Said, Stop> {
        if depth > DEPTH {
            return Err(Stop::NotUnderstood("rules that lead in a circle, or too deep".into()));
        }
        for rule in &chain.rules {
            let said = self.rule(table, rule, flow)?;
            let verdict = match said {
                expression::Said::Goes => continue,
                expression::Said::Accepts => return Ok(Said::Accepted),
                expression::Said::Ends(end) => return Ok(Said::Ended(end)),
                expression::Said::Verdict(verdict) => verdict,
            };
            match verdict {
                Verdict::Accept => return Ok(Said::Accepted),
                Verdict::Drop => return Ok(Said::Ended(End::Dropped)),
                Verdict::Return => return Ok(Said::Nothing),
                Verdict::Continue => {}
                Verdict::Jump(target) => match self.named(table, &target, flow, depth + 1)? {
                    Said::Nothing => {}
                    said => return Ok(said),
                },
                Verdict::Goto(target) => return self.named(table, &target, flow, depth + 1),
            }
        }
        Ok(Said::Nothing)
    }

    fn named(&self, table: &Table, name: &str, flow: &mut Flow, depth: usize) -> Result<Said, Stop> {
        let chain = table.chains.get(name);
        let chain = chain.ok_or_else(|| Stop::NotUnderstood(format!("there is no chain {name}")))?;
        self.chain(table, chain, flow, depth)
    }
}

#[cfg(test)]
mod tests;
