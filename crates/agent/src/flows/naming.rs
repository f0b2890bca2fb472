//! From what was seen to what it is for this node: which of its workloads are concerned, and which rule decides.
//!
//! A connection between two workloads of the node is two rows, one for what leaves and one for what comes, as it is when they are on two
//! nodes: what each end's rules say of it are two things.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use model::{policy::output::Direction, protocol};
use node_flows::{Key, Sum};
use node_policy::{Decision, L4, Plane, Subject, layout};
use wire::trestle::v1::{FlowDirection, FlowVerdict};

use super::{Judged, Met, Named, Seen};

/// Who is on this node.
#[derive(Debug, Default)]
pub struct Locals {
    pub workloads: HashMap<IpAddr, Arc<str>>,
    pub host: BTreeSet<IpAddr>,
    /// What the node is called.
    pub node: Arc<str>,
}

impl Locals {
    fn name(&self, address: Option<IpAddr>) -> Option<Arc<str>> {
        let address = address?;
        let host = || self.host.contains(&address).then(|| Arc::clone(&self.node));
        self.workloads.get(&address).cloned().or_else(host)
    }

    fn subject(&self, address: Option<IpAddr>) -> Option<Subject> {
        let address = address?;
        if self.workloads.contains_key(&address) {
            return Some(Subject::Workload(address));
        }
        self.host.contains(&address).then_some(Subject::Host)
    }
}

/// Names what was seen, with the rules if those are wanted. O(rows × rules that apply).
pub fn name(plane: &Plane, locals: &Locals, seen: Vec<Seen>, rules: bool) -> Vec<Named> {
    let naming = Naming { plane, locals, rules };
    seen.into_iter().flat_map(|(key, sum)| naming.rows(key, sum)).collect()
}

struct Naming<'a> {
    plane: &'a Plane,
    locals: &'a Locals,
    rules: bool,
}

impl Naming<'_> {
    fn rows(&self, key: Key<Met>, sum: Sum) -> Vec<Named> {
        if let Met::Refused(refusal) = &key.label {
            let refusal = Arc::clone(refusal);
            return vec![self.refused(&refusal, key, sum)];
        }
        let (source, destination) = (self.locals.subject(key.from), self.locals.subject(key.to));
        let passed = |direction, rule| (self.key(&key, FlowVerdict::Allowed, direction, rule), sum);
        let mut rows = Vec::new();
        if let Some(subject) = source {
            let rule = self.rule(subject, key.to, Direction::Out, &key, sum, true);
            rows.push(passed(FlowDirection::Out, rule));
        }
        if let Some(subject) = destination {
            let rule = self.rule(subject, key.from, Direction::In, &key, sum, true);
            rows.push(passed(FlowDirection::In, rule));
        }
        if rows.is_empty() {
            rows.push(passed(FlowDirection::Through, None));
        }
        rows
    }

    fn refused(&self, refusal: &layout::Refusal, key: Key<Met>, sum: Sum) -> Named {
        let observes = self.plane.options().observe;
        let verdict = if observes { FlowVerdict::Observed } else { FlowVerdict::Denied };
        let (own, peer) = match refusal.direction {
            Direction::In => (key.to, key.from),
            Direction::Out => (key.from, key.to),
        };
        let direction = match refusal.direction {
            Direction::In => FlowDirection::In,
            Direction::Out => FlowDirection::Out,
        };
        let subject = match refusal.judged {
            layout::Judged::Workload => own.map(Subject::Workload),
            layout::Judged::Host | layout::Judged::Published => Some(Subject::Host),
        };
        let asked = match (refusal.judged, key.service) {
            (layout::Judged::Published, Some(service)) => Key { port: Some(service.port()), ..key.clone() },
            _ => key.clone(),
        };
        let rule = match &*refusal.why {
            "" => subject.and_then(|subject| self.rule(subject, peer, refusal.direction, &asked, sum, false)),
            why => Some(why.into()),
        };
        (self.key(&key, verdict, direction, rule), sum)
    }

    /// What decides, if it still decides as it did: policies may have changed since.
    fn rule(
        &self,
        subject: Subject,
        peer: Option<IpAddr>,
        direction: Direction,
        key: &Key<Met>,
        sum: Sum,
        passed: bool,
    ) -> Option<Arc<str>> {
        let is_icmp = matches!(key.protocol, protocol::ICMP | protocol::ICMPV6);
        let l4 = match (is_icmp, key.port) {
            (true, Some(kind)) => L4 { protocol: key.protocol, first: kind, second: 0 },
            (false, Some(port)) => L4 { protocol: key.protocol, first: sum.source_port, second: port },
            // Of many ports each may be another rule's.
            (_, None) if matches!(key.protocol, protocol::TCP | protocol::UDP | protocol::SCTP) => {
                return None;
            }
            (_, None) => L4 { protocol: key.protocol, first: 0, second: 0 },
        };
        let ruling = self.rules.then_some(self.plane)?.ruling(subject, peer?, direction, l4)?;
        let agrees = (ruling.decision == Decision::Permit) == passed;
        agrees.then(|| ruling.by.into())
    }

    fn key(
        &self,
        key: &Key<Met>,
        verdict: FlowVerdict,
        direction: FlowDirection,
        rule: Option<Arc<str>>,
    ) -> Key<Judged> {
        let (from, to) = (self.locals.name(key.from), self.locals.name(key.to));
        let label = Judged { verdict, direction, rule, from, to };
        let Key { from, to, protocol, port, service, .. } = *key;
        Key { label, from, to, protocol, port, service }
    }
}
