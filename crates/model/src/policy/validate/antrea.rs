//! Antrea policies, tiers and groups.

mod together;

use std::collections::BTreeSet;

use super::Report;
use crate::policy::{
    LabelSelector,
    antrea::{
        AppliedTo, BASELINE_TIER, Group, PRIORITIES, Peer, Policy, Rule, SYSTEM_TIERS, Tier, tier_name,
    },
    convert,
    output::{Action, Direction},
    selector::label_key,
};

/// Priorities that belong to system tiers and to upstream's admin policies.
const RESERVED_TIER_PRIORITIES: [i32; 4] = [251, 252, 254, 255];

impl Report {
    pub(super) fn antrea_policy(&mut self, policy: &Policy, cluster: bool) {
        let spec = &policy.spec;
        if !PRIORITIES.contains(&spec.priority) {
            self.say("spec.priority", format!("{} is not between 1 and 10000", spec.priority));
        }
        let context = Context {
            cluster,
            baseline: tier_name(&spec.tier) == BASELINE_TIER,
            applied_to: !spec.applied_to.is_empty(),
        };
        let rules = || spec.ingress.iter().chain(&spec.egress);
        if spec.applied_to.is_empty() && rules().count() == 0 {
            self.say("spec.appliedTo", "the policy must be applied to something, here or in its rules");
        }
        for (i, applied_to) in spec.applied_to.iter().enumerate() {
            self.applied_to(&format!("spec.appliedTo[{i}]"), applied_to, cluster);
        }
        self.applied_to_services(spec);
        let mut names = BTreeSet::new();
        for (i, rule) in spec.ingress.iter().enumerate() {
            self.antrea_rule(&format!("spec.ingress[{i}]"), rule, Direction::In, &context);
            self.rule_name(&format!("spec.ingress[{i}].name"), rule, &mut names);
        }
        for (i, rule) in spec.egress.iter().enumerate() {
            self.antrea_rule(&format!("spec.egress[{i}]"), rule, Direction::Out, &context);
            self.rule_name(&format!("spec.egress[{i}].name"), rule, &mut names);
        }
    }

    fn rule_name<'a>(&mut self, path: &str, rule: &'a Rule, names: &mut BTreeSet<&'a str>) {
        if !rule.name.is_empty() && !names.insert(&rule.name) {
            self.say(path, format!("`{}` is the name of an earlier rule of this policy", rule.name));
        }
    }

    fn antrea_rule(&mut self, base: &str, rule: &Rule, direction: Direction, context: &Context) {
        let action = self.check(base, convert::action(&rule.action));
        if action == Some(Action::Pass) && context.baseline {
            self.say(format!("{base}.action"), "Pass has nowhere to go from the baseline tier");
        }
        match (context.applied_to, rule.applied_to.is_empty()) {
            (true, false) => {
                self.say(format!("{base}.appliedTo"), "set it on the policy or on every rule, not on both")
            }
            (false, true) => {
                self.say(format!("{base}.appliedTo"), "set it on every rule, or once on the policy")
            }
            (true, true) | (false, false) => {}
        }
        for (i, applied_to) in rule.applied_to.iter().enumerate() {
            self.applied_to(&format!("{base}.appliedTo[{i}]"), applied_to, context.cluster);
        }
        self.ports_and_protocols(base, rule);
        let (side, peers, wrong_side, wrong_peers) = match direction {
            Direction::In => ("from", &rule.from, "to", &rule.to),
            Direction::Out => ("to", &rule.to, "from", &rule.from),
        };
        if !wrong_peers.is_empty() {
            self.say(format!("{base}.{wrong_side}"), format!("peers of this direction stand in `{side}`"));
        }
        if !rule.to_services.is_empty() {
            self.services_alone(base, rule, direction);
        }
        for (i, peer) in peers.iter().enumerate() {
            self.antrea_peer(&format!("{base}.{side}[{i}]"), peer, direction, context.cluster);
        }
        self.multicast(base, rule, direction, action);
        self.layer_7(base, rule, action);
    }

    fn ports_and_protocols(&mut self, base: &str, rule: &Rule) {
        for (i, port) in rule.ports.iter().enumerate() {
            self.check(&format!("{base}.ports[{i}]"), convert::port(port));
        }
        for (i, protocol) in rule.protocols.iter().enumerate() {
            let path = format!("{base}.protocols[{i}]");
            match (&protocol.icmp, &protocol.igmp) {
                (Some(icmp), None) => drop(self.check(&path, convert::icmp(icmp))),
                (None, Some(igmp)) => drop(self.check(&path, convert::igmp(igmp))),
                (None, None) | (Some(_), Some(_)) => self.say(path, "name exactly one of icmp, igmp"),
            }
        }
    }

    fn services_alone(&mut self, base: &str, rule: &Rule, direction: Direction) {
        if direction == Direction::In {
            self.say(format!("{base}.toServices"), "exists for egress rules only");
        }
        if !rule.to.is_empty() || !rule.ports.is_empty() || !rule.protocols.is_empty() {
            self.say(format!("{base}.toServices"), "stands alone: without `to`, `ports` and `protocols`");
        }
    }

    fn antrea_peer(&mut self, path: &str, peer: &Peer, direction: Direction, cluster: bool) {
        let alone = [
            peer.ip_block.is_some(),
            peer.group.is_some(),
            peer.fqdn.is_some(),
            peer.service_account.is_some(),
            peer.node_selector.is_some(),
        ];
        self.one_way(
            path,
            &alone,
            &peer.pod_selector,
            &peer.external_entity_selector,
            &peer.namespace_selector,
        );
        if let Some(block) = &peer.ip_block {
            self.check(&format!("{path}.ipBlock"), convert::ip_block(block));
        }
        if let Some(fqdn) = &peer.fqdn {
            if direction == Direction::In {
                self.say(format!("{path}.fqdn"), "names match egress traffic only");
            }
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'*');
            if fqdn.is_empty() || !fqdn.bytes().all(legal) {
                self.say(
                    format!("{path}.fqdn"),
                    format!("`{fqdn}` is not a DNS name, `*` may stand for any part"),
                );
            }
        }
        if let Some(namespaces) = &peer.namespaces {
            let path = format!("{path}.namespaces");
            match (namespaces.matching.as_str(), namespaces.same_labels.is_empty()) {
                ("Self", true) | ("", false) => {}
                _ => self.say(&path, "set either `match: Self` or `sameLabels`"),
            }
            if !cluster {
                self.say(&path, "exists in a ClusterNetworkPolicy only");
            }
            if peer.namespace_selector.is_some() || alone.contains(&true) {
                self.say(&path, "goes with a podSelector, an externalEntitySelector or nothing");
            }
            for (i, key) in namespaces.same_labels.iter().enumerate() {
                if let Err(message) = label_key(key) {
                    self.say(format!("{path}.sameLabels[{i}]"), message);
                }
            }
        }
        self.selectors(
            path,
            &[
                ("podSelector", &peer.pod_selector),
                ("namespaceSelector", &peer.namespace_selector),
                ("externalEntitySelector", &peer.external_entity_selector),
                ("nodeSelector", &peer.node_selector),
            ],
        );
    }

    fn applied_to(&mut self, path: &str, to: &AppliedTo, cluster: bool) {
        let alone = [
            to.group.is_some(),
            to.service_account.is_some(),
            to.service.is_some(),
            to.node_selector.is_some(),
        ];
        self.one_way(path, &alone, &to.pod_selector, &to.external_entity_selector, &to.namespace_selector);
        let empty = !alone.contains(&true)
            && to.pod_selector.is_none()
            && to.external_entity_selector.is_none()
            && to.namespace_selector.is_none();
        if empty {
            self.say(path, "names nothing to apply the policy to");
        }
        if !cluster && to.namespace_selector.is_some() {
            self.say(
                format!("{path}.namespaceSelector"),
                "a namespaced policy applies to its own namespace only",
            );
        }
        self.selectors(
            path,
            &[
                ("podSelector", &to.pod_selector),
                ("namespaceSelector", &to.namespace_selector),
                ("externalEntitySelector", &to.external_entity_selector),
                ("nodeSelector", &to.node_selector),
            ],
        );
    }

    /// `alone` are the ways that admit nothing beside them; selectors of Pods and entities exclude each other.
    fn one_way(
        &mut self,
        path: &str,
        alone: &[bool],
        pods: &Option<LabelSelector>,
        entities: &Option<LabelSelector>,
        namespaces: &Option<LabelSelector>,
    ) {
        let lone = alone.iter().filter(|set| **set).count();
        let selects = pods.is_some() || entities.is_some() || namespaces.is_some();
        if lone > 1 || (lone == 1 && selects) || (pods.is_some() && entities.is_some()) {
            self.say(path, "names its members in more than one way: split it");
        }
    }

    fn selectors(&mut self, path: &str, selectors: &[(&str, &Option<LabelSelector>)]) {
        for (field, selector) in selectors {
            if let Some(selector) = selector {
                self.selector(&format!("{path}.{field}"), selector);
            }
        }
    }

    pub(super) fn tier(&mut self, tier: &Tier) {
        let (name, priority) = (tier.metadata.name.as_str(), tier.spec.priority);
        match SYSTEM_TIERS.iter().find(|(system, _)| *system == name) {
            Some((_, fixed)) if *fixed == priority => {}
            Some((_, fixed)) => {
                self.say("spec.priority", format!("the tier {name} has the fixed priority {fixed}"))
            }
            None if !(1..=255).contains(&priority) => self.say("spec.priority", "must be between 1 and 255"),
            None if RESERVED_TIER_PRIORITIES.contains(&priority)
                || SYSTEM_TIERS.iter().any(|(_, system)| *system == priority) =>
            {
                self.say("spec.priority", format!("{priority} is taken by the system"));
            }
            None => {}
        }
    }

    pub(super) fn group(&mut self, group: &Group, cluster: bool) {
        let spec = &group.spec;
        let ways = [
            spec.pod_selector.is_some(),
            spec.external_entity_selector.is_some(),
            spec.namespace_selector.is_some()
                && spec.pod_selector.is_none()
                && spec.external_entity_selector.is_none(),
            spec.node_selector.is_some(),
            spec.service_reference.is_some(),
            !spec.ip_blocks.is_empty(),
            !spec.child_groups.is_empty(),
        ];
        if ways.iter().filter(|set| **set).count() != 1 {
            self.say("spec", "a group names its members in exactly one way");
        }
        if !cluster && spec.node_selector.is_some() {
            self.say("spec.nodeSelector", "exists in a ClusterGroup only");
        }
        for (i, block) in spec.ip_blocks.iter().enumerate() {
            self.check(&format!("spec.ipBlocks[{i}]"), convert::ip_block(block));
        }
        self.one_kind_of_addresses("spec.ipBlocks", spec.ip_blocks.iter());
        for (i, child) in spec.child_groups.iter().enumerate() {
            if *child == group.metadata.name {
                self.say(format!("spec.childGroups[{i}]"), "a group is not its own child");
            }
        }
        self.selectors(
            "spec",
            &[
                ("podSelector", &spec.pod_selector),
                ("namespaceSelector", &spec.namespace_selector),
                ("externalEntitySelector", &spec.external_entity_selector),
                ("nodeSelector", &spec.node_selector),
            ],
        );
    }
}

struct Context {
    cluster: bool,
    baseline: bool,
    applied_to: bool,
}
