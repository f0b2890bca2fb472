//! What network policies say about a resource's traffic, and what that leaves of its permit rules.
//!
//! A cloud's list only permits, and everything else is closed. Policies also deny, in an order. So the order is
//! worked out here, and what comes out is a list that permits exactly what is permitted in the end:
//!
//! ```text
//!   tiers, in order ──► Kubernetes policies, together ──► baseline tier, in order ──► the permit rules
//!     allow  drop          allow   isolate                  allow  drop                 permit   (closed)
//!     pass ───┘ (leaves the tiers only)
//! ```
//!
//! In: [`Verdicts`] of a resource, and its permit rules as [`Draft`]s. Out: drafts. Traffic on which no policy has a word
//! is left to the permit rules; where a Kubernetes policy isolates a direction, they have no say.

use std::collections::{BTreeMap, BTreeSet};

use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic, policy::output::Action};
use serde::Serialize;

use super::region::{Match, Region};

/// Addresses in one direction of one resource beyond which nothing is worked out, and the direction stays closed.
const MOST: usize = 200_000;

/// A rule of a policy, with its groups resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The policy's UID and the rule's place in it; letters, digits, `-`, `_` and `.`.
    pub id: String,
    /// The policy and the rule, for people.
    pub source: String,
    pub action: Action,
    pub regions: Vec<Region>,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sided {
    pub tiers: Vec<Verdict>,
    /// None: no Kubernetes policy isolates the resource.
    pub kubernetes: Option<Vec<Verdict>>,
    pub baseline: Vec<Verdict>,
}

impl Sided {
    pub fn is_silent(&self) -> bool {
        self.tiers.is_empty() && self.kubernetes.is_none() && self.baseline.is_empty()
    }
}

/// What policies say about one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub inbound: Sided,
    pub outbound: Sided,
}

/// An entry before it is known where its targets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub name: EntryName,
    pub traffic: Traffic,
    pub targets: BTreeSet<Address>,
    pub tags: BTreeSet<String>,
    /// It is reason enough for a link.
    pub build: bool,
}

impl Draft {
    pub fn entry(self) -> Option<PermitEntry> {
        PermitEntry::new(self.name, self.traffic, self.targets, self.tags)
    }

    fn region(&self) -> Region {
        let Traffic { protocol, src_ports, dst_ports, .. } = self.traffic;
        Region { peers: self.targets.clone(), packets: Match { protocol, src_ports, dst_ports } }
    }
}

/// The policies of a resource are too much to work out. The direction is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{direction} policies cut each other into more than {MOST} pieces; the direction is closed")]
pub struct TooManyPieces {
    pub direction: Direction,
}

impl Verdicts {
    /// What is permitted in the end; and the directions that are closed because they are too much.
    pub fn decide(&self, drafts: Vec<Draft>) -> (Vec<Draft>, Vec<TooManyPieces>) {
        let (inbound, outbound): (Vec<_>, Vec<_>) =
            drafts.into_iter().partition(|draft| draft.traffic.direction == Direction::Inbound);
        let (mut decided, mut failed) = (Vec::new(), Vec::new());
        for (direction, side, drafts) in
            [(Direction::Inbound, &self.inbound, inbound), (Direction::Outbound, &self.outbound, outbound)]
        {
            if side.is_silent() {
                decided.extend(drafts);
                continue;
            }
            let mut decision = Decision::new(direction);
            match decision.decide(side, drafts) {
                Ok(()) => decided.append(&mut decision.permitted),
                Err(error) => failed.push(error),
            }
        }
        (decided, failed)
    }
}

struct Decision {
    direction: Direction,
    permitted: Vec<Draft>,
    /// What is permitted or denied already.
    decided: Vec<Region>,
    pieces: usize,
}

impl Decision {
    fn new(direction: Direction) -> Self {
        Self { direction, permitted: Vec::new(), decided: Vec::new(), pieces: 0 }
    }

    fn decide(&mut self, side: &Sided, drafts: Vec<Draft>) -> Result<(), TooManyPieces> {
        let mut passed = Vec::new();
        for verdict in &side.tiers {
            self.take(verdict, &mut passed)?;
        }
        if let Some(verdicts) = &side.kubernetes {
            for verdict in verdicts {
                let left = self.left(&verdict.regions, &[])?;
                self.permit(verdict, left);
            }
            return Ok(());
        }
        for verdict in &side.baseline {
            self.take(verdict, &mut Vec::new())?;
        }
        for draft in drafts {
            let regions = draft.region().by_family();
            let left = self.left(&regions, &[])?;
            if left == regions {
                self.permitted.push(draft);
                continue;
            }
            let part = |packets: &Match| EntryName::part_of(&draft.name, &suffix(packets));
            self.push(left, part, &draft.tags, draft.build);
        }
        Ok(())
    }

    /// Takes the next verdict of an ordered stage. Pass only keeps later verdicts of the same stage away.
    fn take(&mut self, verdict: &Verdict, passed: &mut Vec<Region>) -> Result<(), TooManyPieces> {
        let left = self.left(&verdict.regions, passed)?;
        match verdict.action {
            Action::Pass => passed.extend(left),
            Action::Allow => {
                self.decided.extend(left.iter().cloned());
                self.permit(verdict, left);
            }
            Action::Drop | Action::Reject => self.decided.extend(left),
        }
        Ok(())
    }

    /// What of these regions nobody has decided yet.
    fn left(&mut self, regions: &[Region], passed: &[Region]) -> Result<Vec<Region>, TooManyPieces> {
        let mut left = regions.to_vec();
        for other in self.decided.iter().chain(passed) {
            left = left.iter().flat_map(|region| region.without(other)).collect();
            let size: usize = left.iter().map(|region| region.peers.len()).sum();
            if self.pieces + size > MOST {
                return Err(TooManyPieces { direction: self.direction });
            }
        }
        self.pieces += left.iter().map(|region| region.peers.len()).sum::<usize>();
        Ok(left)
    }

    fn permit(&mut self, verdict: &Verdict, left: Vec<Region>) {
        let name = |packets: &Match| EntryName::of_policy(&format!("{}.{}", verdict.id, suffix(packets)));
        self.push(left, name, &[verdict.source.clone()].into(), false);
    }

    /// One draft for all peers of the same packets.
    fn push(
        &mut self,
        left: Vec<Region>,
        name: impl Fn(&Match) -> EntryName,
        tags: &BTreeSet<String>,
        build: bool,
    ) {
        let mut by_packets: BTreeMap<Match, BTreeSet<Address>> = BTreeMap::new();
        for region in left {
            by_packets.entry(region.packets).or_default().extend(region.peers);
        }
        for (packets, targets) in by_packets {
            let Match { protocol, src_ports, dst_ports } = packets;
            let traffic = Traffic { direction: self.direction, protocol, src_ports, dst_ports };
            self.permitted.push(Draft { name: name(&packets), traffic, targets, tags: tags.clone(), build });
        }
    }
}

/// Tells the entries of one rule apart, and stays the same while the packets do.
fn suffix(packets: &Match) -> String {
    let protocol = match packets.protocol {
        Protocol::Any => "any".to_owned(),
        Protocol::Number(number) => number.to_string(),
    };
    let ports = |ports: Ports| match ports {
        Ports::Any => "any".to_owned(),
        Ports::Range { first, last } => format!("{first}-{last}"),
    };
    format!("{protocol}_{}_{}", ports(packets.src_ports), ports(packets.dst_ports))
}
