//! Antrea NetworkPolicy and ClusterNetworkPolicy: ordered rules with tiers, and rules that follow the namespace of the
//! Pod they are applied to.
//!
//! ```text
//!  rule ──┬─ ordinary peers ────────────► one rule, applied to all of appliedTo
//!         ├─ peers with match: Self ────► one rule per affected namespace, applied to that namespace's part
//!         └─ peers with sameLabels ─────► one rule per distinct tuple of values, applied to those namespaces' parts
//! ```

mod applied_to;
mod peer;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use model::policy::{
    LabelSelector, Labels,
    antrea::{
        AppliedTo, BASELINE_TIER_PRIORITY, DEFAULT_TIER, DEFAULT_TIER_PRIORITY, NamespacedName, PRIORITIES,
        Peer, PolicySpec, Rule, tier_name,
    },
    convert,
    output::{Action, Detail, Direction, Problem, RuleDetail, Service},
};

use smallvec::SmallVec;

use super::{
    GroupRefs, Peers, TranslatedRule, Translation, World,
    peers::{everyone, everywhere, services},
};
use crate::selection::Scope;

/// `namespace` is empty for a ClusterNetworkPolicy.
pub fn antrea_policy<'a>(spec: &'a PolicySpec, namespace: &'a str, world: &impl World) -> Translation<'a> {
    let rules = || spec.ingress.iter().chain(&spec.egress);
    let follows = rules().flat_map(|r| r.from.iter().chain(&r.to)).any(|p| p.namespaces.is_some());
    let mut translator = Translator {
        world,
        namespace,
        namespaces: if follows { world.namespaces() } else { Vec::new() },
        per_rule: follows || rules().any(|rule| !rule.applied_to.is_empty()),
        problems: Vec::new(),
        remarks: Vec::new(),
    };
    let tier = tier_name(&spec.tier);
    let tier_priority = world.tier_priority(tier).unwrap_or_else(|| {
        translator
            .say("spec.tier", format!("the tier `{tier}` does not exist; `{DEFAULT_TIER}` stands in for it"));
        DEFAULT_TIER_PRIORITY
    });
    let priority = if PRIORITIES.contains(&spec.priority) {
        spec.priority
    } else {
        translator.say("spec.priority", "not between 1 and 10000; the policy comes last in its tier");
        *PRIORITIES.end()
    };
    let mut translated = SmallVec::new();
    for (list, direction) in [(&spec.ingress, Direction::In), (&spec.egress, Direction::Out)] {
        for (index, rule) in list.iter().enumerate() {
            let context = RuleContext::new(rule, index, direction, tier_priority, &spec.applied_to);
            translator.rule(&context, &mut translated);
        }
    }
    let applied_to = if translator.per_rule {
        GroupRefs::new()
    } else {
        translator.applied_to("spec.appliedTo", &spec.applied_to)
    };
    if spec.applied_to.is_empty() && rules().any(|rule| rule.applied_to.is_empty()) {
        translator.say("spec.appliedTo", "some rules are applied to nothing; name it here or in each rule");
    }
    Translation {
        tier_priority: Some(tier_priority),
        priority: Some(priority),
        applied_to_per_rule: translator.per_rule,
        applied_to,
        rules: translated,
        problems: translator.finish(),
    }
}

struct Translator<'a, 'w, W> {
    world: &'w W,
    namespace: &'a str,
    /// Known namespaces; empty unless some peer follows the namespace it is applied to.
    namespaces: Vec<(Arc<str>, Labels)>,
    per_rule: bool,
    problems: Vec<Problem>,
    /// Reported, but no fault of a rule: what an absent group means is defined, and so is what stands in for it.
    remarks: Vec<Problem>,
}

struct RuleContext<'a> {
    rule: &'a Rule,
    index: usize,
    direction: Direction,
    base: String,
    peers_path: String,
    written: &'a [Peer],
    /// `None`: the action itself is at fault.
    action: Option<Action>,
    action_problem: Option<Problem>,
    applied_to: &'a [AppliedTo],
    applied_to_path: String,
}

impl<'a> RuleContext<'a> {
    fn new(
        rule: &'a Rule,
        index: usize,
        direction: Direction,
        tier: i32,
        policy_level: &'a [AppliedTo],
    ) -> Self {
        let (list, side, written) = match direction {
            Direction::In => ("ingress", "from", &rule.from),
            Direction::Out => ("egress", "to", &rule.to),
        };
        let base = format!("spec.{list}[{index}]");
        let action = match convert::action(&rule.action) {
            Ok(Action::Pass) if tier == BASELINE_TIER_PRIORITY => Err(Problem::new(
                ".action",
                "Pass has nowhere to go from the baseline tier; everything is dropped",
            )),
            other => other,
        };
        let own = !rule.applied_to.is_empty();
        RuleContext {
            rule,
            index,
            direction,
            peers_path: format!("{base}.{side}"),
            written,
            action: action.as_ref().ok().copied(),
            action_problem: action.err(),
            applied_to: if own { &rule.applied_to } else { policy_level },
            applied_to_path: if own { format!("{base}.appliedTo") } else { "spec.appliedTo".into() },
            base,
        }
    }

    fn denies(&self) -> bool {
        matches!(self.action, None | Some(Action::Drop | Action::Reject))
    }
}

impl<'a, W: World> Translator<'a, '_, W> {
    fn say(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    /// One fault of `spec.appliedTo` is met once per rule that falls back on it.
    fn finish(mut self) -> Vec<Problem> {
        self.problems.append(&mut self.remarks);
        self.problems.sort_unstable();
        self.problems.dedup();
        self.problems
    }

    fn rule(&mut self, context: &RuleContext<'a>, out: &mut SmallVec<[TranslatedRule<'a>; 2]>) {
        let faults_before = self.problems.len();
        if let Some(problem) = &context.action_problem {
            self.problems.push(problem.clone().under(&context.base));
        }
        let services = self.services(context);
        let mut ordinary = Peers::default();
        let mut own_namespace = Vec::new();
        let mut same_labels: BTreeMap<Vec<String>, Vec<(usize, &'a Peer)>> = BTreeMap::new();
        for (i, peer) in context.written.iter().enumerate() {
            match &peer.namespaces {
                None => self.peer(context, i, peer, &mut ordinary),
                Some(_) if !self.namespace.is_empty() => {
                    self.say(
                        format!("{}[{i}].namespaces", context.peers_path),
                        "exists in a ClusterNetworkPolicy only",
                    );
                }
                Some(namespaces) if namespaces.matching == "Self" && namespaces.same_labels.is_empty() => {
                    own_namespace.push((i, peer));
                }
                Some(namespaces) if namespaces.matching.is_empty() && !namespaces.same_labels.is_empty() => {
                    let mut keys = namespaces.same_labels.clone();
                    keys.sort_unstable();
                    keys.dedup();
                    same_labels.entry(keys).or_default().push((i, peer));
                }
                Some(_) => self.say(
                    format!("{}[{i}].namespaces", context.peers_path),
                    "either `match: Self` or `sameLabels` is needed",
                ),
            }
        }
        let follows = !own_namespace.is_empty() || !same_labels.is_empty();
        let parts = if follows { self.parts(context) } else { Vec::new() };
        if self.problems.len() > faults_before && context.denies() {
            out.push(self.deny_everything(context));
            return;
        }
        let Some(services) = services else { return };
        let everyone_meant = context.written.is_empty() && context.rule.to_services.is_empty();
        if everyone_meant {
            ordinary = everyone(context.direction, &context.rule.ports);
        }
        if !ordinary.is_empty() || !context.rule.to_services.is_empty() {
            let applied_to = self.rule_applied_to(context);
            out.push(self.emit(context, ordinary, &services, applied_to));
        }
        if !own_namespace.is_empty() {
            self.per_namespace(context, &own_namespace, &parts, &services, out);
        }
        for (keys, peers) in &same_labels {
            self.per_tuple(context, keys, peers, &parts, &services, out);
        }
    }

    /// `None` when ports were written and none is usable.
    fn services(&mut self, context: &RuleContext<'a>) -> Option<Vec<Service>> {
        let rule = context.rule;
        let mut usable = services(&context.base, &rule.ports, &mut self.problems);
        for (i, protocol) in rule.protocols.iter().enumerate() {
            let converted = match (&protocol.icmp, &protocol.igmp) {
                (Some(icmp), None) => convert::icmp(icmp),
                (None, Some(igmp)) => convert::igmp(igmp),
                (None, None) | (Some(_), Some(_)) => {
                    Err(Problem::new("", "exactly one of icmp, igmp is needed"))
                }
            };
            match converted {
                Ok(service) => usable.push(service),
                Err(problem) => {
                    self.problems.push(problem.under(&format!("{}.protocols[{i}]", context.base)))
                }
            }
        }
        let written = rule.ports.len() + rule.protocols.len();
        (written == 0 || !usable.is_empty()).then_some(usable)
    }

    fn rule_applied_to(&mut self, context: &RuleContext<'a>) -> GroupRefs<'a> {
        if self.per_rule {
            self.applied_to(&context.applied_to_path, context.applied_to)
        } else {
            GroupRefs::new()
        }
    }

    fn emit(
        &self,
        context: &RuleContext<'a>,
        peers: Peers<'a>,
        services: &[Service],
        applied_to: GroupRefs<'a>,
    ) -> TranslatedRule<'a> {
        let rule = context.rule;
        TranslatedRule {
            direction: context.direction,
            action: context.action,
            priority: context.index as i32,
            enable_logging: rule.enable_logging,
            applied_to,
            groups: peers.groups,
            detail: Detail::from(RuleDetail {
                ip_blocks: peers.ip_blocks,
                fqdns: peers.fqdns,
                to_services: self.services_meant(rule),
                services: services.to_vec(),
                l7_protocols: rule.l7_protocols.clone(),
                name: rule.name.clone(),
                log_label: rule.log_label.clone(),
                ..RuleDetail::default()
            }),
        }
    }

    /// A Service without a namespace is one of the policy's own.
    fn services_meant(&self, rule: &Rule) -> Vec<NamespacedName> {
        let meant = |service: &NamespacedName| match service.namespace.as_str() {
            "" => NamespacedName { namespace: self.namespace.to_owned(), name: service.name.clone() },
            _ => service.clone(),
        };
        rule.to_services.iter().map(meant).collect()
    }

    /// What stands in for a denying rule that is not understood.
    fn deny_everything(&mut self, context: &RuleContext<'a>) -> TranslatedRule<'a> {
        let applied_to = self.rule_applied_to(context);
        let peers = Peers { ip_blocks: everywhere().into(), ..Peers::default() };
        let mut rule = self.emit(context, peers, &[], applied_to);
        rule.action = Some(Action::Drop);
        rule.detail = Detail::from(RuleDetail {
            to_services: Vec::new(),
            l7_protocols: Vec::new(),
            ..(*rule.detail).clone()
        });
        rule
    }

    fn per_namespace(
        &mut self,
        context: &RuleContext<'a>,
        peers: &[(usize, &'a Peer)],
        parts: &[(usize, GroupRefs<'a>)],
        services: &[Service],
        out: &mut SmallVec<[TranslatedRule<'a>; 2]>,
    ) {
        for (namespace, applied_to) in parts {
            let name = self.namespaces[*namespace].0.to_string();
            let mut gathered = Peers::default();
            for (i, peer) in peers {
                self.pods(context, *i, peer, Scope::Namespace(Cow::Owned(name.clone())), &mut gathered);
            }
            if !gathered.is_empty() {
                out.push(self.emit(context, gathered, services, applied_to.clone()));
            }
        }
    }

    /// Namespaces that lack one of the labels are like no other, not even like themselves.
    fn per_tuple(
        &mut self,
        context: &RuleContext<'a>,
        keys: &[String],
        peers: &[(usize, &'a Peer)],
        parts: &[(usize, GroupRefs<'a>)],
        services: &[Service],
        out: &mut SmallVec<[TranslatedRule<'a>; 2]>,
    ) {
        let mut tuples: BTreeMap<Vec<String>, GroupRefs<'a>> = BTreeMap::new();
        for (namespace, applied_to) in parts {
            let labels = &self.namespaces[*namespace].1;
            let values: Option<Vec<String>> = keys.iter().map(|key| labels.get(key).cloned()).collect();
            if let Some(values) = values {
                tuples.entry(values).or_default().extend(applied_to.iter().cloned());
            }
        }
        for (values, applied_to) in tuples {
            let alike = LabelSelector::of_labels(keys.iter().cloned().zip(values));
            let mut gathered = Peers::default();
            for (i, peer) in peers {
                self.pods(context, *i, peer, Scope::Matching(Cow::Owned(alike.clone())), &mut gathered);
            }
            if !gathered.is_empty() {
                out.push(self.emit(context, gathered, services, applied_to));
            }
        }
    }
}
