//! networking.k8s.io/v1 NetworkPolicy: isolates the Pods it selects, then permits.

use std::borrow::Cow;

use model::policy::{
    convert,
    kubernetes::{NetworkPolicy, Peer, Port},
    output::{Action, Detail, Direction, MemberKind, Problem, RuleDetail},
};

use smallvec::SmallVec;

use super::{
    GroupRefs, Peers, TranslatedRule, Translation,
    peers::{everyone, services},
};
use crate::selection::{GroupRef, Scope, Selection};

/// Rules of Kubernetes policies have no order among themselves.
const UNORDERED: i32 = -1;
/// Of what closes a direction that permits nothing, as Antrea's agents get it from their own controller.
const ISOLATION: i32 = 0;

pub fn kubernetes_policy(policy: &NetworkPolicy) -> Translation<'_> {
    let spec = &policy.spec;
    let mut translator = Translator { namespace: &policy.metadata.namespace, problems: Vec::new() };
    let mut applied_to = GroupRefs::new();
    match convert::selector(&spec.pod_selector) {
        Ok(()) => applied_to.push(translator.pods(Some(&spec.pod_selector))),
        Err(problem) => translator.problems.push(problem.under("spec.podSelector")),
    }
    let has_type = |name: &str| spec.policy_types.iter().any(|t| t == name);
    let mut rules = SmallVec::new();
    if spec.policy_types.is_empty() || has_type("Ingress") {
        let written = spec.ingress.iter().map(|rule| (rule.from.as_slice(), rule.ports.as_slice()));
        translator.direction(Direction::In, written, &mut rules);
    }
    if has_type("Egress") || (spec.policy_types.is_empty() && !spec.egress.is_empty()) {
        let written = spec.egress.iter().map(|rule| (rule.to.as_slice(), rule.ports.as_slice()));
        translator.direction(Direction::Out, written, &mut rules);
    }
    Translation {
        tier_priority: None,
        priority: None,
        applied_to_per_rule: false,
        applied_to,
        rules,
        problems: translator.problems,
    }
}

struct Translator<'a> {
    namespace: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Translator<'a> {
    fn pods(&self, selector: Option<&'a model::policy::LabelSelector>) -> GroupRef<'a> {
        let scope = Scope::Namespace(Cow::Borrowed(self.namespace));
        GroupRef::Selection(Selection { kind: MemberKind::Pod, scope, selector: selector.map(Cow::Borrowed) })
    }

    fn direction(
        &mut self,
        direction: Direction,
        written: impl Iterator<Item = (&'a [Peer], &'a [Port])>,
        rules: &mut SmallVec<[TranslatedRule<'a>; 2]>,
    ) {
        let before = rules.len();
        for (i, (peers, ports)) in written.enumerate() {
            rules.extend(self.rule(i, direction, peers, ports));
        }
        if rules.len() == before {
            let isolation = rule(direction, None, GroupRefs::new(), Detail::default());
            rules.push(TranslatedRule { priority: ISOLATION, ..isolation });
        }
    }

    /// `None` when nothing usable is left: the direction stays isolated.
    fn rule(
        &mut self,
        index: usize,
        direction: Direction,
        written: &'a [Peer],
        ports: &'a [Port],
    ) -> Option<TranslatedRule<'a>> {
        let (list, side) = match direction {
            Direction::In => ("ingress", "from"),
            Direction::Out => ("egress", "to"),
        };
        let services = if ports.is_empty() {
            Vec::new()
        } else {
            let services = services(&format!("spec.{list}[{index}]"), ports, &mut self.problems);
            if services.is_empty() {
                return None;
            }
            services
        };
        let peers = if written.is_empty() {
            everyone(direction, ports)
        } else {
            let mut peers = Peers::default();
            for (i, peer) in written.iter().enumerate() {
                if let Err(problem) = self.peer(peer, &mut peers) {
                    self.problems.push(problem.under(&format!("spec.{list}[{index}].{side}[{i}]")));
                }
            }
            if peers.is_empty() {
                return None;
            }
            peers
        };
        let detail =
            Detail::from(RuleDetail { ip_blocks: peers.ip_blocks, services, ..RuleDetail::default() });
        Some(rule(direction, Some(Action::Allow), peers.groups, detail))
    }

    fn peer(&self, peer: &'a Peer, peers: &mut Peers<'a>) -> Result<(), Problem> {
        let selects = peer.pod_selector.is_some() || peer.namespace_selector.is_some();
        if let Some(block) = &peer.ip_block {
            if selects {
                return Err(Problem::new(
                    "",
                    "an ipBlock beside selectors has no meaning; this peer permits nothing",
                ));
            }
            peers.ip_blocks.push(convert::ip_block(block).map_err(|p| p.under(".ipBlock"))?);
            return Ok(());
        }
        if !selects {
            return Err(Problem::new("", "the peer names nobody; it permits nothing"));
        }
        if let Some(selector) = &peer.pod_selector {
            convert::selector(selector).map_err(|p| p.under(".podSelector"))?;
        }
        let Some(namespaces) = &peer.namespace_selector else {
            peers.add(self.pods(peer.pod_selector.as_ref()));
            return Ok(());
        };
        convert::selector(namespaces).map_err(|p| p.under(".namespaceSelector"))?;
        let scope = Scope::Matching(Cow::Borrowed(namespaces));
        let selector = peer.pod_selector.as_ref().map(Cow::Borrowed);
        peers.select(Selection { kind: MemberKind::Pod, scope, selector });
        Ok(())
    }
}

fn rule<'a>(
    direction: Direction,
    action: Option<Action>,
    groups: GroupRefs<'a>,
    detail: Detail,
) -> TranslatedRule<'a> {
    let (priority, enable_logging) = (UNORDERED, false);
    TranslatedRule {
        direction,
        action,
        priority,
        enable_logging,
        applied_to: GroupRefs::new(),
        groups,
        detail,
    }
}
