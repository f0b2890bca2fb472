//! Permit rules between wire and model.

use std::collections::BTreeSet;

use model::{
    Address, Direction, EntryName, Member, MemberError, NameError, ParseAddressError, PermitEntry,
    PermitError, PermitRule, Ports, Protocol, Traffic,
};

use crate::invisinetspb::{self, PermitListRule};

/// Why a rule message is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("the rule's direction {direction} is neither 0 (inbound) nor 1 (outbound)")]
    Direction { direction: i32 },
    #[error("the rule's traffic makes no sense")]
    Traffic(#[from] PermitError),
    #[error("a target of the rule is not acceptable")]
    Target(#[from] ParseAddressError),
    #[error("a tag of the rule is not acceptable")]
    Tag(#[from] MemberError),
    #[error("the rule's name is not legal")]
    Name(#[from] NameError),
    #[error("rule {name:?} has no targets, which a cloud might take for anybody")]
    NoTargets { name: String },
}

/// The traffic of a rule message. Protocols without ports take 0, which clients send for "not set", as any.
pub fn traffic(rule: &PermitListRule) -> Result<Traffic, RuleError> {
    let direction = match invisinetspb::Direction::try_from(rule.direction) {
        Ok(invisinetspb::Direction::Inbound) => Direction::Inbound,
        Ok(invisinetspb::Direction::Outbound) => Direction::Outbound,
        Err(_) => return Err(RuleError::Direction { direction: rule.direction }),
    };
    let protocol = Protocol::try_from(i64::from(rule.protocol))?;
    let ports = |first: i32, last: i32| {
        let ports = Ports::from_numbers(first.into(), last.into())?;
        Ok::<_, PermitError>(if !protocol.has_ports() && ports == Ports::one(0) { Ports::Any } else { ports })
    };
    let (src, dst) = (ports(rule.src_port, rule.src_port_last)?, ports(rule.dst_port, rule.dst_port_last)?);
    Ok(Traffic::new(direction, protocol, src, dst)?)
}

/// A rule as a user sends it: peers are its tags, which may be addresses. Targets are the controller's to find.
pub fn permit_rule(rule: &PermitListRule) -> Result<PermitRule, RuleError> {
    let traffic = traffic(rule)?;
    let peers = rule.tags.iter().map(|tag| tag.parse::<Member>()).collect::<Result<BTreeSet<_>, _>>()?;
    let name = if rule.id.is_empty() { None } else { Some(rule.id.parse()?) };
    Ok(PermitRule::new(name, traffic, peers)?)
}

/// An entry of a permit list as a plugin is sent it.
pub fn permit_entry(rule: &PermitListRule) -> Result<PermitEntry, RuleError> {
    let traffic = traffic(rule)?;
    let targets =
        rule.targets.iter().map(|target| target.parse::<Address>()).collect::<Result<BTreeSet<_>, _>>()?;
    let name = match rule.id.as_str() {
        // In Paraglider's dialect a rule is its content.
        "" => {
            let peers = targets.iter().map(|target| Member::Literal(*target)).collect();
            let rule = PermitRule::new(None, traffic, peers);
            EntryName::own(&rule.map_err(|_| RuleError::NoTargets { name: String::new() })?.name)
        }
        id => EntryName::reported(id),
    };
    let tags = rule.tags.iter().cloned().collect();
    PermitEntry::new(name, traffic, targets, tags)
        .ok_or_else(|| RuleError::NoTargets { name: rule.id.clone() })
}

/// A rule as the message has it.
pub fn permit_list_rule(
    id: String,
    traffic: &Traffic,
    targets: Vec<String>,
    tags: Vec<String>,
) -> PermitListRule {
    let ports = |ports: Ports| match ports {
        Ports::Any => (-1, 0),
        Ports::Range { first, last } if first == last => (first.into(), 0),
        Ports::Range { first, last } => (i32::from(first), i32::from(last)),
    };
    let ((src_port, src_port_last), (dst_port, dst_port_last)) =
        (ports(traffic.src_ports), ports(traffic.dst_ports));
    let protocol = match traffic.protocol {
        Protocol::Any => -1,
        Protocol::Number(number) => number.into(),
    };
    let direction = match traffic.direction {
        Direction::Inbound => invisinetspb::Direction::Inbound,
        Direction::Outbound => invisinetspb::Direction::Outbound,
    };
    let direction = direction.into();
    PermitListRule {
        id,
        targets,
        direction,
        src_port,
        dst_port,
        protocol,
        tags,
        src_port_last,
        dst_port_last,
    }
}

impl From<&PermitEntry> for PermitListRule {
    fn from(entry: &PermitEntry) -> Self {
        let targets = entry.targets().iter().map(ToString::to_string).collect();
        permit_list_rule(
            entry.name.to_string(),
            &entry.traffic,
            targets,
            entry.tags.iter().cloned().collect(),
        )
    }
}

impl From<&PermitRule> for PermitListRule {
    fn from(rule: &PermitRule) -> Self {
        let tags = rule.peers.iter().map(ToString::to_string).collect();
        permit_list_rule(rule.name.to_string(), &rule.traffic, Vec::new(), tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(protocol: i32, src_port: i32, dst_port: i32) -> PermitListRule {
        PermitListRule {
            id: "r".into(),
            targets: vec!["10.0.0.1".into(), "2001:db8::/32".into()],
            tags: vec!["web".into()],
            protocol,
            src_port,
            dst_port,
            ..PermitListRule::default()
        }
    }

    #[test]
    fn entries_and_rules_survive_the_round_trip() {
        for message in [
            rule(-1, -1, -1),
            rule(1, -1, -1),
            rule(6, -1, 22),
            PermitListRule { dst_port_last: 90, ..rule(17, 53, 80) },
        ] {
            let entry = permit_entry(&message).unwrap();
            assert_eq!(PermitListRule::from(&entry), message);
            let user = PermitListRule { targets: Vec::new(), ..message };
            assert_eq!(PermitListRule::from(&permit_rule(&user).unwrap()), user);
        }
    }

    /// What has no targets never becomes an entry.
    #[test]
    fn an_entry_without_targets_is_refused() {
        let empty = PermitListRule { targets: Vec::new(), ..rule(6, -1, 22) };
        assert_eq!(permit_entry(&empty), Err(RuleError::NoTargets { name: "r".into() }));
        let nameless = PermitListRule { id: String::new(), ..empty };
        assert!(matches!(permit_entry(&nameless), Err(RuleError::NoTargets { .. })));
    }

    /// A rule needs tags, and targets sent by a user do not count.
    #[test]
    fn a_users_rule_needs_tags_and_its_targets_are_ignored() {
        let without = PermitListRule { tags: Vec::new(), ..rule(6, -1, 22) };
        assert_eq!(permit_rule(&without), Err(RuleError::Traffic(PermitError::NoPeers)));
        assert_eq!(permit_rule(&rule(6, -1, 22)).unwrap().peers.len(), 1);
    }

    /// Any protocol is any, and nonsense is refused rather than sent on.
    #[test]
    fn numbers_out_of_range_are_refused() {
        for bad in [rule(256, -1, -1), rule(-2, -1, -1), rule(6, -2, 1), rule(6, 65536, 1), rule(1, -1, 22)] {
            assert!(permit_rule(&bad).is_err(), "{bad:?}");
        }
        let direction = PermitListRule { direction: 2, ..rule(6, -1, 1) };
        assert_eq!(permit_rule(&direction), Err(RuleError::Direction { direction: 2 }));
        // An omitted port is 0: no port of TCP, but nothing for a protocol without ports.
        assert_eq!(permit_rule(&rule(6, 0, 0)).unwrap().traffic.dst_ports, Ports::one(0));
        assert_eq!(permit_rule(&rule(1, 0, 0)).unwrap().traffic.dst_ports, Ports::Any);
    }
}
