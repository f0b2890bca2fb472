//! Policies too large for one frame.
//!
//! A group is told in parts, a policy cannot be: clients replace it as a whole. One that would not fit is told closed in
//! its stead, so that its workloads are not left open by a client that gives up the stream, and its status says why.

use ipnet::IpNet;
use model::policy::output::{Action, Direction, IpBlock, NetworkPolicy, Problem, Rule, RuleDetail};

/// Clients give up a stream at 16 MiB; JSON may take twice what protobuf takes.
const MOST: usize = 8 << 20;

/// What is wrong with a policy that does not fit.
pub fn problem(policy: &NetworkPolicy) -> Option<Problem> {
    let weight = weight(policy);
    (weight > MOST).then(|| {
        let mib = weight >> 20;
        let message = format!(
            "{} rules of about {mib} MiB do not fit a frame of {} MiB; everything is denied to what it is applied to",
            policy.rules.len(),
            MOST >> 20
        );
        Problem::new("spec", message)
    })
}

/// The policy that is told instead of one that does not fit: it denies everything in each direction it is about.
pub fn closed(policy: &NetworkPolicy) -> Option<NetworkPolicy> {
    problem(policy)?;
    let has = |direction| policy.rules.iter().any(|rule| rule.direction == direction);
    let rules = [Direction::In, Direction::Out].into_iter().filter(|direction| has(*direction));
    let rules = rules.map(|direction| match policy.tier_priority {
        // Without rules a Kubernetes policy isolates.
        None => deny(direction, None, -1, RuleDetail::default()),
        Some(_) => {
            let mut rule = deny(direction, Some(Action::Drop), 0, everything());
            if policy.applied_to_per_rule {
                rule.applied_to_groups.clone_from(&policy.applied_to_groups);
            }
            rule
        }
    });
    Some(NetworkPolicy { rules: rules.collect(), ..policy.clone() })
}

fn deny(direction: Direction, action: Option<Action>, priority: i32, detail: RuleDetail) -> Rule {
    Rule {
        direction,
        action,
        priority,
        enable_logging: false,
        address_groups: Vec::new(),
        applied_to_groups: Vec::new(),
        detail: detail.into(),
    }
}

fn everything() -> RuleDetail {
    let all = [IpNet::default(), IpNet::V6(Default::default())];
    let ip_blocks = all.into_iter().map(|cidr| IpBlock { cidr, except: Vec::new() }).collect();
    RuleDetail { ip_blocks, ..RuleDetail::default() }
}

/// No less than the bytes of its frame. O(rules and what they name).
fn weight(policy: &NetworkPolicy) -> usize {
    const ANY: usize = 64;
    let rule = |rule: &Rule| {
        let detail = &*rule.detail;
        let blocks: usize = detail.ip_blocks.iter().map(|block| ANY * (1 + block.except.len())).sum();
        let texts = detail.fqdns.iter().map(|text| text.len() + 8).sum::<usize>()
            + detail
                .to_services
                .iter()
                .map(|name| name.name.len() + name.namespace.len() + 16)
                .sum::<usize>()
            + detail.name.len()
            + detail.log_label.len();
        let groups = (rule.address_groups.len() + rule.applied_to_groups.len()) * ANY;
        2 * ANY
            + groups
            + blocks
            + texts
            + detail.services.len() * 2 * ANY
            + detail.l7_protocols.len() * 8 * ANY
    };
    let source = policy.source.name.len() + policy.source.namespace.len();
    4 * ANY + source + policy.applied_to_groups.len() * ANY + policy.rules.iter().map(rule).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use model::policy::{
        Kind,
        output::{Identifier, PolicySource},
    };
    use prost::Message as _;

    use super::*;

    fn policy(rules: usize, tier_priority: Option<i32>) -> NetworkPolicy {
        let name = Identifier::parse("0f4789f6-6f28-5440-8ad4-46d8ac276643");
        let rule = Rule {
            address_groups: vec![name.clone(); 40],
            ..deny(Direction::In, Some(Action::Allow), 0, RuleDetail::default())
        };
        let (kind, namespace) = (Kind::AntreaClusterNetworkPolicy, "".into());
        NetworkPolicy {
            uid: name.clone(),
            generation: 1,
            source: PolicySource { kind, namespace, name: "large".into(), uid: name.clone() },
            tier_priority,
            priority: Some(1.0),
            rules: vec![rule; rules],
            applied_to_groups: vec![name],
            applied_to_per_rule: tier_priority.is_some(),
        }
    }

    #[test]
    fn what_fits_is_told_and_what_does_not_is_told_closed() {
        assert!(closed(&policy(100, Some(250))).is_none());
        let large = policy(5_000, Some(250));
        let told = closed(&large).unwrap();
        assert_eq!((told.rules.len(), told.rules[0].action), (1, Some(Action::Drop)));
        assert_eq!(told.rules[0].applied_to_groups, large.applied_to_groups);
        assert_eq!(told.rules[0].detail.ip_blocks.len(), 2);
        let isolating = closed(&policy(5_000, None)).unwrap();
        assert_eq!((isolating.rules.len(), isolating.rules[0].action), (1, None));
        assert!(crate::convert::policy(&large).encoded_len() < 1_000);
        assert!(problem(&large).unwrap().message.contains("5000 rules"));
    }

    #[test]
    fn the_weight_is_never_too_low() {
        for rules in [0, 1, 100, 2_000] {
            let policy = policy(rules, None);
            assert!(weight(&policy) >= crate::convert::policy(&policy).encoded_len());
        }
    }
}
