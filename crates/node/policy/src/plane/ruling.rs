//! Which rule decides about a packet.
//!
//! What is in force has forgotten it: the decisions of all rules are worked out together, so that the table does not grow with them.
//! Here the same rules are asked one by one, in the same order. It costs O(rules that apply), for whoever asks, and packets nothing.

use std::{fmt, net::IpAddr};

use model::policy::output::{Direction, NetworkPolicy};

use super::{Plane, endpoints::Ranked};
use crate::{
    l4::{Decision, L4},
    program::{Stage, Verb},
};

/// Whose rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The workload of this node that has the address.
    Workload(IpAddr),
    Host,
}

/// What is decided, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    pub decision: Decision,
    /// As `explain` names it: `ingress rule 0 of NetworkPolicy shop/web`, `isolated by NetworkPolicy shop/web`.
    pub by: String,
}

impl Plane {
    /// `None` where no rule says anything: it passes.
    pub fn ruling(&self, subject: Subject, peer: IpAddr, direction: Direction, l4: L4) -> Option<Ruling> {
        let ipv6 = peer.is_ipv6();
        let (sets, own, ports) = match subject {
            Subject::Workload(address) => {
                let (_, id) = self.claims.get(&address)?.last()?;
                let local = self.workloads.get(id);
                if local.is_some_and(|local| local.workload.pending) {
                    let by = "no controller covers it".to_owned();
                    return Some(Ruling { decision: Decision::Drop, by });
                }
                let own = local.and_then(|local| local.permits.as_ref());
                (self.selected_by.get(id).cloned().unwrap_or_default(), own, self.ports(id))
            }
            Subject::Host => {
                let (sets, ports) = self.host_sets_and_ports();
                (sets, self.host_list(direction, ipv6), ports)
            }
        };
        let signature = self.peers.signature(self.peers.class_of(peer)).filter(|one| one.ipv6 == ipv6);
        let is_peer =
            |feature: &u32| signature.is_some_and(|one| one.features.binary_search(feature).is_ok());
        let ranked = self.ranked(&sets, own, direction);
        let meets = |one: &&Ranked<'_>| {
            one.parts(ipv6, &ports).iter().any(|part| {
                (part.anyone || part.features.iter().any(is_peer))
                    && part.services.as_ref().is_none_or(|some| some.iter().any(|one| one.covers(l4)))
            })
        };
        decide(&ranked, direction, |stage| {
            ranked.iter().filter(|one| one.rule.stage == stage && one.rule.verb.is_some()).find(meets)
        })
    }
}

/// `first`: the first rule of a stage that meets the packet.
fn decide<'a>(
    ranked: &'a [Ranked<'a>],
    direction: Direction,
    first: impl Fn(Stage) -> Option<&'a Ranked<'a>>,
) -> Option<Ruling> {
    let by_rule = |one: &Ranked<'_>| match one.rule.verb {
        Some(Verb::Decide(decision)) => Some(Ruling { decision, by: name(one, direction) }),
        Some(Verb::Pass) | None => None,
    };
    if let Some(ruling) = first(Stage::Tiers).and_then(by_rule) {
        return Some(ruling);
    }
    if let Some(isolating) = ranked.iter().find(|one| one.rule.stage == Stage::Kubernetes) {
        let by = isolating.policy.map_or_else(|| "its permit list".to_owned(), isolated_by);
        let isolated = Ruling { decision: Decision::Drop, by };
        return Some(first(Stage::Kubernetes).and_then(by_rule).unwrap_or(isolated));
    }
    first(Stage::Baseline).and_then(by_rule)
}

fn isolated_by(policy: &NetworkPolicy) -> String {
    format!("isolated by {}", Source(policy))
}

fn name(one: &Ranked<'_>, direction: Direction) -> String {
    let Some(policy) = one.policy else { return "what stays open whatever policies say".to_owned() };
    let side = if direction == Direction::In { "ingress" } else { "egress" };
    let name = policy.rules.get(one.index).map_or("", |rule| &*rule.detail.name);
    let name = if name.is_empty() { String::new() } else { format!(" `{name}`") };
    format!("{side} rule {}{name} of {}", one.index, Source(policy))
}

/// A policy as its users know it.
struct Source<'a>(&'a NetworkPolicy);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = &self.0.source;
        match &*source.namespace {
            "" => write!(f, "{:?} {}", source.kind, source.name),
            namespace => write!(f, "{:?} {namespace}/{}", source.kind, source.name),
        }
    }
}
