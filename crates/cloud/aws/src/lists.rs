//! Permit lists: read the groups, plan, then at most one request per group, direction and kind of change.

use cloud_api::{CloudError, Result, list_after, rules::is_strange};
use cloud_http::{Class, Failure};
use model::{Direction, PermitEntry, Ports, Protocol, Site};

use crate::{
    account::{Account, Place},
    groups::{self, Group, spread, together},
    rules::{Change, Rule, Rules, difference, entries_of, rules_of},
    shapes::{IpPermission, IpRange, SecurityGroup, actions as ask},
};

/// How a resource is known to the controller: `REGION/INSTANCE/GROUP/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uri<'u> {
    pub(crate) region: &'u str,
    pub(crate) instance: &'u str,
    /// The first of its groups.
    pub(crate) group: &'u str,
    pub(crate) name: &'u str,
}

impl<'u> Uri<'u> {
    fn parse(uri: &'u str) -> Result<Self> {
        match uri.split('/').collect::<Vec<_>>().as_slice() {
            [region, instance, group, name] if instance.starts_with("i-") && group.starts_with("sg-") => {
                Ok(Self { region, instance, group, name })
            }
            _ => Err(CloudError::not_found(format!("{uri} is no resource of AWS"))),
        }
    }
}

impl std::fmt::Display for Uri<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.region, self.instance, self.group, self.name)
    }
}

/// The rules of a group as EC2 shows them. What Trestle never makes (other groups, IPv6, prefix lists) is left alone.
pub(crate) fn rules_in(group: &SecurityGroup) -> Rules {
    let mut rules = Rules::new();
    for (list, direction) in
        [(&group.ip_permissions, Direction::Inbound), (&group.ip_permissions_egress, Direction::Outbound)]
    {
        for permission in list.iter() {
            let protocol = match permission.ip_protocol.as_str() {
                "-1" => Protocol::Any,
                other => match other.parse() {
                    Ok(protocol) => protocol,
                    Err(_) => continue,
                },
            };
            let port = |number: Option<i32>| number.and_then(|number| u16::try_from(number).ok());
            let ports = match (protocol, port(permission.from_port), port(permission.to_port)) {
                (Protocol::TCP | Protocol::UDP, Some(0), Some(u16::MAX)) => Ports::Any,
                (Protocol::TCP | Protocol::UDP, Some(first), Some(last)) => Ports::Range { first, last },
                _ => Ports::Any,
            };
            for range in permission.ip_ranges.iter() {
                if let Ok(prefix) = range.cidr_ip.parse() {
                    rules.insert(
                        Rule { direction, protocol, ports, prefix },
                        range.description.clone().unwrap_or_default(),
                    );
                }
            }
        }
    }
    rules
}

/// A group's rules as a request has them: those of one protocol and port range together.
fn permissions<'r>(
    rules: impl Iterator<Item = (&'r Rule, &'r String)>,
    described: bool,
) -> Vec<IpPermission> {
    let mut permissions: Vec<IpPermission> = Vec::new();
    for (rule, description) in rules {
        let range = IpRange {
            cidr_ip: rule.prefix.net().to_string(),
            description: described.then(|| description.clone()),
        };
        let new = permission_of(rule);
        let is_same = |one: &&mut IpPermission| {
            (&one.ip_protocol, one.from_port, one.to_port) == (&new.ip_protocol, new.from_port, new.to_port)
        };
        match permissions.iter_mut().find(is_same) {
            Some(there) => there.ip_ranges.push(range),
            None => permissions.push(IpPermission { ip_ranges: vec![range], ..new }),
        }
    }
    permissions
}

/// Protocol and ports of a rule, without prefixes.
fn permission_of(rule: &Rule) -> IpPermission {
    let ip_protocol = match rule.protocol {
        Protocol::Any => "-1".to_owned(),
        Protocol::TCP => "tcp".to_owned(),
        Protocol::UDP => "udp".to_owned(),
        Protocol::ICMP => "icmp".to_owned(),
        Protocol::Number(number) => number.to_string(),
    };
    let (from_port, to_port) = match (rule.protocol, rule.ports) {
        (Protocol::TCP | Protocol::UDP, Ports::Range { first, last }) => {
            (Some(first.into()), Some(last.into()))
        }
        (Protocol::TCP | Protocol::UDP, Ports::Any) => (Some(0), Some(65_535)),
        // All types and codes.
        (Protocol::ICMP, _) => (Some(-1), Some(-1)),
        _ => (None, None),
    };
    IpPermission { ip_protocol, from_port, to_port, ip_ranges: Vec::new() }
}

pub(crate) async fn read(account: &Account, site: &Site, uri: &str) -> Result<Vec<PermitEntry>> {
    let uri = Uri::parse(uri)?;
    Ok(entries_of(&together(&groups::in_force(account.at(site, uri.region), &uri).await?)))
}

pub(crate) async fn put(
    account: &Account,
    site: &Site,
    uri: &str,
    before: &[PermitEntry],
    wanted: &[PermitEntry],
) -> Result {
    let _turn = account.turns.take(uri).await;
    let uri = Uri::parse(uri)?;
    let place = account.at(site, uri.region);
    let mut tries = 0;
    loop {
        let groups = groups::in_force(place, &uri).await?;
        let changes = spread(&groups, &plan(&together(&groups), before, wanted)?);
        if changes.len() > groups.len() {
            groups::add(place, &uri).await?;
            continue;
        }
        match apply_all(place, uri.name, &groups, &changes).await {
            // Somebody else changed a group between the read and the change.
            Err(failure) if matches!(failure.class(), Class::Exists | Class::NotFound) && tries < 3 => {
                tries += 1
            }
            outcome => return Ok(outcome?),
        }
    }
}

async fn apply_all(
    place: Place<'_>,
    name: &str,
    groups: &[Group],
    changes: &[Change],
) -> Result<(), Failure> {
    for (group, change) in groups.iter().zip(changes) {
        if group.has_room_for(change) {
            apply(place, name, &group.id, change).await?;
        } else {
            let (first, then) = change.clone().revoking_first();
            apply(place, name, &group.id, &first).await?;
            apply(place, name, &group.id, &then).await?;
        }
    }
    Ok(())
}

/// Opens first, then describes, then closes: nothing that stays permitted is interrupted.
pub(crate) async fn apply(place: Place<'_>, name: &str, id: &str, change: &Change) -> Result<(), Failure> {
    let steps = [
        ("AuthorizeSecurityGroupIngress", &change.authorize, Direction::Inbound, true),
        ("AuthorizeSecurityGroupEgress", &change.authorize, Direction::Outbound, true),
        ("UpdateSecurityGroupRuleDescriptionsIngress", &change.describe, Direction::Inbound, true),
        ("UpdateSecurityGroupRuleDescriptionsEgress", &change.describe, Direction::Outbound, true),
        ("RevokeSecurityGroupIngress", &change.revoke, Direction::Inbound, false),
        ("RevokeSecurityGroupEgress", &change.revoke, Direction::Outbound, false),
    ];
    for (action, rules, direction, described) in steps {
        let part = rules.iter().filter(|(rule, _)| rule.direction == direction);
        let ip_permissions = permissions(part, described);
        if !ip_permissions.is_empty() {
            place.account.touch(&groups::memory(place, name));
            place.ask(&ask::ChangeRules { action, group_id: id, ip_permissions }).await?;
        }
    }
    Ok(())
}

/// What to change in a group so that the wanted entries are there, and those before them are not.
fn plan(current: &Rules, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result<Change> {
    let (ours, strange): (Vec<_>, Vec<_>) =
        entries_of(current).into_iter().partition(|entry| !is_strange(entry));
    let mut wanted = rules_of(&list_after(ours, before, wanted))?;
    // What others put there stays, word for word, until somebody asks for it to go.
    for entry in strange.iter().filter(|entry| !before.contains(entry)) {
        let is_its = |rule: &Rule| entry.targets().contains(&rule.prefix) && entry.traffic == rule.traffic();
        for (rule, description) in current.iter().filter(|(rule, _)| is_its(rule)) {
            wanted.entry(rule.clone()).or_insert_with(|| description.clone());
        }
    }
    Ok(difference(current, &wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, target: &str) -> PermitEntry {
        let traffic = (Protocol::TCP, Ports::one(22));
        testkit::lists::entry(name, Direction::Inbound, traffic, &[target], &[""; 0])
    }

    #[test]
    fn strange_rules_stay_until_they_are_asked_to_go() {
        let mut current = rules_of(&[entry("a", "10.0.0.1")]).unwrap();
        let strange = rules_of(&[entry("x", "0.0.0.0/0")]).unwrap().into_keys().next().unwrap();
        current.insert(strange.clone(), "by hand".to_owned());
        assert_eq!(plan(&current, &[], &[]).unwrap(), Change::default());
        let change = plan(&current, &[], &[entry("b", "10.0.0.2")]).unwrap();
        assert_eq!((change.authorize.len(), change.describe.len(), change.revoke.len()), (1, 0, 0));
        let seen = entries_of(&current).into_iter().find(is_strange).unwrap();
        let change = plan(&current, &[seen], &[]).unwrap();
        assert_eq!(change.revoke.keys().collect::<Vec<_>>(), [&strange]);
    }

    #[test]
    fn uris_are_taken_apart() {
        let uri = "us-east-1/i-1/sg-2/web";
        assert_eq!(Uri::parse(uri).unwrap().to_string(), uri);
        for bad in ["", "no/such/uri/here", "i-1/sg-2", "us-east-1/sg-2/i-1/web", "a/i-1/sg-2"] {
            assert!(Uri::parse(bad).is_err(), "{bad}");
        }
    }
}
