//! Permit lists as rules of security groups. Pure.
//!
//! EC2 has one rule per protocol, port range and prefix, whatever entries ask for it; two entries may ask for the same.
//! So a rule belongs to the set of its entries, and its description says which:
//!
//! ```text
//!   trestle;web=*;db==ops,dev      entry "web", whose rule names this very prefix;
//!                                  entry "db", which has it through the tags "ops" and "dev"
//! ```

use std::collections::BTreeMap;

pub use cloud_api::rules::Rule;
use cloud_api::{
    CloudError,
    rules::{Gathered, no_source_ports, only_ipv4, tags_of, unsupported},
};
use model::{Direction, PermitEntry, Ports, Protocol};

/// Rules per direction of one group, EC2's default.
pub const MOST: usize = 60;
/// Groups on one interface, EC2's default.
pub const MOST_GROUPS: usize = 5;
/// EC2's bound on a description.
const LONGEST: usize = 255;
const MARK: &str = "trestle";

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
        no_source_ports(entry, "AWS security groups")?;
        only_ipv4(entry, "AWS")?;
        if traffic.protocol.has_ports()
            && !matches!(traffic.protocol, Protocol::TCP | Protocol::UDP)
            && traffic.dst_ports != Ports::Any
        {
            let why = "names ports of a protocol for which AWS security groups know none; leave them out";
            return Err(unsupported(entry, why));
        }
        let tags = tags_of(entry);
        for target in entry.targets() {
            let literal = entry.tags.contains(&target.to_string());
            let share = Share { entry: entry.name.to_string(), literal, tags: tags.clone() };
            shares.entry(Rule::new(traffic, *target)).or_default().push(share);
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
    let mut found = Gathered::default();
    for (rule, description) in rules {
        let mut parts = description.split(';');
        let ours = parts.next() == Some(MARK);
        let shares: Vec<Share> = parts.filter_map(Share::read).collect();
        if !ours || shares.is_empty() {
            found.add(rule.strange_name(), rule.traffic(), [rule.prefix], []);
            continue;
        }
        for share in shares {
            let literal = share.literal.then(|| rule.prefix.to_string());
            let tags = share.tags.into_iter().chain(literal);
            found.add(share.entry, rule.traffic(), [rule.prefix], tags);
        }
    }
    found.entries()
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
    use cloud_api::CloudErrorKind;
    use proptest::prelude::*;
    use testkit::lists;

    use super::*;

    fn entry(name: &str, port: u16, targets: &[&str], tags: &[&str]) -> PermitEntry {
        lists::entry(name, Direction::Inbound, (Protocol::TCP, Ports::one(port)), targets, tags)
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
        fn lists_survive_the_way_through_ec2(a in lists::any(), b in lists::any()) {
            let (current, wanted) = (rules_of(&a).unwrap(), rules_of(&b).unwrap());
            let change = difference(&current, &wanted);
            let mut applied = current;
            applied.retain(|rule, _| !change.revoke.contains_key(rule));
            applied.extend(change.authorize);
            applied.extend(change.describe);
            prop_assert_eq!(&applied, &wanted);
            prop_assert_eq!(entries_of(&applied), b);
        }
    }
}
