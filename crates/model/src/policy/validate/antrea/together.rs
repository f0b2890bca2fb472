//! What an Antrea rule may not say together: the limits of Services, multicast and layer 7, as Antrea's admission has them.
//!
//! In: a rule, or a list of where it applies. Out: problems, each at the field that does not go with the others.

use ipnet::IpNet;

use super::Report;
use crate::policy::{
    antrea::{AppliedTo, PolicySpec, Rule},
    kubernetes::IpBlock,
    output::{Action, Direction},
};

impl Report {
    /// A Service takes a policy in at its node ports, before anything is translated: there is nothing to select but
    /// addresses, and nothing goes out.
    pub(super) fn applied_to_services(&mut self, spec: &PolicySpec) {
        let policy_level = self.services_or_others("spec.appliedTo", &spec.applied_to);
        if policy_level && !spec.egress.is_empty() {
            self.say("spec.appliedTo", "a policy that is applied to Services has no egress rules");
        }
        for (i, rule) in spec.ingress.iter().enumerate() {
            let base = format!("spec.ingress[{i}]");
            let own = self.services_or_others(&format!("{base}.appliedTo"), &rule.applied_to);
            if policy_level || own {
                let others = rule.from.iter().enumerate().filter(|(_, peer)| peer.ip_block.is_none());
                for (j, _) in others {
                    let message = "what is applied to Services can select by ipBlock only";
                    self.say(format!("{base}.from[{j}]"), message);
                }
            }
        }
        for (i, rule) in spec.egress.iter().enumerate() {
            let path = format!("spec.egress[{i}].appliedTo");
            if self.services_or_others(&path, &rule.applied_to) {
                self.say(path, "an egress rule cannot be applied to Services");
            }
        }
    }

    /// Whether it is Services that are meant.
    fn services_or_others(&mut self, path: &str, applied_to: &[AppliedTo]) -> bool {
        let services = applied_to.iter().filter(|to| to.service.is_some()).count();
        if services > 0 && services < applied_to.len() {
            self.say(path, "names Services beside others: split the policy");
        }
        services > 0
    }

    pub(super) fn layer_7(&mut self, base: &str, rule: &Rule, action: Option<Action>) {
        if rule.l7_protocols.is_empty() {
            return;
        }
        let path = format!("{base}.l7Protocols");
        if action != Some(Action::Allow) {
            self.say(&path, "layer 7 protocols need the action Allow");
        }
        if !rule.to_services.is_empty() {
            self.say(&path, "layer 7 protocols do not go with `toServices`");
        }
        if rule.l7_protocols.iter().all(|protocol| protocol.http.is_none()) {
            return;
        }
        let is_tcp = |protocol: &Option<String>| protocol.as_deref().is_none_or(|name| name == "TCP");
        for (i, _) in rule.ports.iter().enumerate().filter(|(_, port)| !is_tcp(&port.protocol)) {
            self.say(format!("{base}.ports[{i}].protocol"), "HTTP is spoken over TCP only");
        }
        if !rule.protocols.is_empty() {
            self.say(format!("{base}.protocols"), "HTTP is spoken over TCP only");
        }
    }

    pub(super) fn multicast(
        &mut self,
        base: &str,
        rule: &Rule,
        direction: Direction,
        action: Option<Action>,
    ) {
        let is_unsuited = matches!(action, Some(Action::Pass | Action::Reject));
        if rule.protocols.iter().any(|protocol| protocol.igmp.is_some()) {
            let path = format!("{base}.protocols");
            if is_unsuited {
                self.say(format!("{base}.action"), "IGMP can be allowed and dropped only");
            }
            let is_alone = rule.ports.is_empty()
                && rule.to_services.is_empty()
                && rule.from.is_empty()
                && rule.to.is_empty()
                && rule.protocols.iter().all(|protocol| protocol.icmp.is_none());
            if !is_alone {
                self.say(path, "IGMP stands alone: without peers, ports, ICMP and `toServices`");
            }
        }
        if direction == Direction::Out {
            let blocks = rule.to.iter().filter_map(|peer| peer.ip_block.as_ref());
            if self.one_kind_of_addresses(&format!("{base}.to"), blocks) && is_unsuited {
                let message = "traffic to multicast addresses can be allowed and dropped only";
                self.say(format!("{base}.action"), message);
            }
        }
    }

    /// Whether there are multicast addresses among them.
    pub(super) fn one_kind_of_addresses<'a>(
        &mut self,
        path: &str,
        blocks: impl Iterator<Item = &'a IpBlock>,
    ) -> bool {
        let nets = blocks.filter_map(|block| block.cidr.parse::<IpNet>().ok());
        let kinds: Vec<bool> = nets.map(|net| net.addr().is_multicast()).collect();
        if kinds.contains(&true) && kinds.contains(&false) {
            self.say(path, "multicast addresses do not go with others: split it");
        }
        kinds.contains(&true)
    }
}
