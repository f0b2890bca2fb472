//! Permit lists as rules of security groups. Pure.
//!
//! EC2 has one rule per protocol, port range and prefix, whatever entries ask for it; two entries may ask for the same.
//! So a rule belongs to the set of its entries, and its description says which:
//!
//! ```text
//!   trestle;web=*;db==ops,dev      entry "web", whose rule names this very prefix;
//!                                  entry "db", which has it through the tags "ops" and "dev"
//! ```

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::{CloudError, CloudErrorKind};
use ipnet::IpNet;
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};

/// Rules per direction of one group, EC2's default.
pub const MOST: usize = 60;
/// Groups on one interface, EC2's default.
pub const MOST_GROUPS: usize = 5;
/// EC2's bound on a description.
const LONGEST: usize = 255;
const MARK: &str = "trestle";

/// What makes a rule of a group this rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub direction: Direction,
    pub protocol: Protocol,
    /// Any for protocols without.
    pub ports: Ports,
    pub prefix: Address,
}

/// The rules of a group, with their descriptions.
pub type Rules = BTreeMap<Rule, String>;

/// One entry's share in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    entry: String,
    literal: bool,
    tags: Vec<String>,
}

impl Share {
    fn write(&self) -> String {
        let literal = if self.literal { "*" } else { "" };
        format!("{}={literal}={}", self.entry, self.tags.join(","))
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '=');
        let (entry, literal, tags) = (parts.next()?, parts.next()?, parts.next()?);
        let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        Some(Self { entry: entry.to_owned(), literal: literal == "*", tags })
    }
}

/// The rules that a list needs. Refused if EC2 cannot express it or has no room for it.
pub fn rules_of(entries: &[PermitEntry]) -> Result<Rules, CloudError> {
    let mut shares: BTreeMap<Rule, Vec<Share>> = BTreeMap::new();
    for entry in entries {
        let traffic = &entry.traffic;
        let refuse = |why: &str| {
            CloudError::new(CloudErrorKind::Unsupported, format!("the entry {} {why}", entry.name))
        };
        if traffic.src_ports != Ports::Any {
            return Err(refuse(
                "names source ports, which AWS security groups do not look at; leave them out",
            ));
        }
        if traffic.protocol.has_ports()
            && !matches!(traffic.protocol, Protocol::TCP | Protocol::UDP)
            && traffic.dst_ports != Ports::Any
        {
            return Err(refuse(
                "names ports of a protocol for which AWS security groups know none; leave them out",
            ));
        }
        let texts: BTreeSet<String> = entry.targets().iter().map(ToString::to_string).collect();
        let tags: Vec<String> = entry.tags.iter().filter(|tag| !texts.contains(*tag)).cloned().collect();
        for target in entry.targets() {
            if matches!(target.net(), IpNet::V6(_)) {
                return Err(refuse("has an IPv6 target; networks of Trestle in AWS are IPv4 only"));
            }
            let rule = Rule {
                direction: traffic.direction,
                protocol: traffic.protocol,
                ports: traffic.dst_ports,
                prefix: *target,
            };
            let literal = entry.tags.contains(&target.to_string());
            let share = Share { entry: entry.name.to_string(), literal, tags: tags.clone() };
            shares.entry(rule).or_default().push(share);
        }
    }
    for direction in [Direction::Inbound, Direction::Outbound] {
        let count = shares.keys().filter(|rule| rule.direction == direction).count();
        if count > MOST * MOST_GROUPS {
            return Err(CloudError::conflict(format!(
                "the permit list needs {count} {direction} rules; an instance can have {MOST_GROUPS} AWS security groups \
                 of {MOST} each. Permit prefixes instead of single addresses"
            )));
        }
    }
    shares.into_iter().map(|(rule, shares)| Ok((rule, describe(&shares)?))).collect()
}

fn describe(shares: &[Share]) -> Result<String, CloudError> {
    let parts = std::iter::once(MARK.to_owned()).chain(shares.iter().map(Share::write));
    let text = parts.collect::<Vec<_>>().join(";");
    if text.len() > LONGEST {
        let names: Vec<_> = shares.iter().map(|share| share.entry.as_str()).collect();
        return Err(CloudError::conflict(format!(
            "the names of the entries {} and of their tags take {} characters; AWS keeps {LONGEST} with a rule. Use \
             shorter names, or fewer tags in one rule",
            names.join(", "),
            text.len()
        )));
    }
    Ok(text)
}

/// The list that rules stand for. A rule that is not ours shows as an entry of its own, named after what it permits.
pub fn entries_of(rules: &Rules) -> Vec<PermitEntry> {
    let mut found: BTreeMap<(String, Traffic), (BTreeSet<Address>, BTreeSet<String>)> = BTreeMap::new();
    for (rule, description) in rules {
        let traffic = Traffic {
            direction: rule.direction,
            protocol: rule.protocol,
            src_ports: Ports::Any,
            dst_ports: rule.ports,
        };
        let mut parts = description.split(';');
        let ours = parts.next() == Some(MARK);
        let shares: Vec<Share> = parts.filter_map(Share::read).collect();
        if !ours || shares.is_empty() {
            let name = format!("not-ours {traffic} {}", rule.prefix);
            found.entry((name, traffic)).or_default().0.insert(rule.prefix);
            continue;
        }
        for share in shares {
            let (targets, tags) = found.entry((share.entry, traffic)).or_default();
            targets.insert(rule.prefix);
            tags.extend(share.tags);
            tags.extend(share.literal.then(|| rule.prefix.to_string()));
        }
    }
    let entry = |((name, traffic), (targets, tags))| {
        PermitEntry::new(EntryName::reported(name), traffic, targets, tags)
    };
    found.into_iter().filter_map(entry).collect()
}

/// What must change in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub authorize: Rules,
    /// There, but described otherwise.
    pub describe: Rules,
    pub revoke: Rules,
}

impl Change {
    /// Two changes that do the same, for a group that is full.
    pub fn revoking_first(self) -> (Self, Self) {
        let first = Self { revoke: self.revoke, ..Self::default() };
        (first, Self { authorize: self.authorize, describe: self.describe, revoke: Rules::new() })
    }
}

pub fn difference(current: &Rules, wanted: &Rules) -> Change {
    let mut change = Change::default();
    for (rule, description) in wanted {
        match current.get(rule) {
            None => change.authorize.insert(rule.clone(), description.clone()),
            Some(there) if there != description => change.describe.insert(rule.clone(), description.clone()),
            Some(_) => None,
        };
    }
    let gone = current.iter().filter(|(rule, _)| !wanted.contains_key(*rule));
    change.revoke = gone.map(|(rule, description)| (rule.clone(), description.clone())).collect();
    change
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, port: u16, targets: &[&str], tags: &[&str]) -> PermitEntry {
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(port)).unwrap();
        let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        PermitEntry::new(EntryName::reported(name), traffic, targets, tags).unwrap()
    }

    #[test]
    fn two_entries_may_share_a_rule() {
        let entries = [
            entry("a", 80, &["10.0.0.1"], &["10.0.0.1"]),
            entry("b", 80, &["10.0.0.1", "10.0.0.2"], &["ops"]),
        ];
        let rules = rules_of(&entries).unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(entries_of(&rules), entries);
        let without = rules_of(&entries[1..]).unwrap();
        let change = difference(&rules, &without);
        assert_eq!((change.authorize.len(), change.describe.len(), change.revoke.len()), (0, 1, 0));
    }

    #[test]
    fn what_ec2_cannot_do_is_refused_before_the_first_call() {
        let many: Vec<String> = (0..301).map(|n| format!("10.{}.{}.1", n / 256, n % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(rules_of(&[entry("a", 80, &many, &[])]).unwrap_err().kind, CloudErrorKind::Conflict);
        assert!(rules_of(&[entry("a", 80, &many[..300], &[])]).is_ok());
        let long = "x".repeat(120);
        assert!(rules_of(&[entry(&long, 80, &["10.0.0.1"], &[&long, "y"])]).is_ok());
        assert!(rules_of(&[entry(&long, 80, &["10.0.0.1"], &[&long, &long.replace('x', "z")])]).is_err());
        assert!(rules_of(&[entry("a", 80, &["2001:db8::1"], &[])]).is_err());
        let mut from = entry("a", 80, &["10.0.0.1"], &[]);
        from.traffic.src_ports = Ports::one(53);
        assert_eq!(rules_of(&[from]).unwrap_err().kind, CloudErrorKind::Unsupported);
    }

    #[test]
    fn a_rule_of_somebody_else_is_seen_and_not_mistaken() {
        let rule = rules_of(&[entry("a", 22, &["0.0.0.0/0"], &[])]).unwrap().into_keys().next().unwrap();
        for description in ["", "for the admins", "trestle", "trestle;x"] {
            let seen = entries_of(&Rules::from([(rule.clone(), description.to_owned())]));
            assert!(seen[0].name.as_str().starts_with("not-ours"), "{description}");
        }
    }

    proptest! {
        /// Whatever the lists, applying the difference gives the wanted one, and it reads back as it was.
        #[test]
        fn lists_survive_the_way_through_ec2(
            a in proptest::collection::btree_map("[a-z]{1,3}", (80u16..83, proptest::collection::btree_set(1u8..6, 1..4), any::<bool>()), 0..5),
            b in proptest::collection::btree_map("[a-z]{1,3}", (80u16..83, proptest::collection::btree_set(1u8..6, 1..4), any::<bool>()), 0..5),
        ) {
            let list = |map: &BTreeMap<String, (u16, BTreeSet<u8>, bool)>| -> Vec<PermitEntry> {
                map.iter().map(|(name, (port, hosts, literal))| {
                    let targets: Vec<String> = hosts.iter().map(|host| format!("10.0.0.{host}")).collect();
                    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
                    entry(name, *port, &targets, if *literal { &targets[..1] } else { &["some.tag"] })
                }).collect()
            };
            let (current, wanted) = (rules_of(&list(&a)).unwrap(), rules_of(&list(&b)).unwrap());
            let change = difference(&current, &wanted);
            let mut applied = current;
            applied.retain(|rule, _| !change.revoke.contains_key(rule));
            applied.extend(change.authorize);
            applied.extend(change.describe);
            prop_assert_eq!(&applied, &wanted);
            prop_assert_eq!(entries_of(&applied), list(&b));
        }
    }
}
