//! Permit lists: read the groups, plan, then at most one request per group, direction and kind of change.

use async_trait::async_trait;
use cloud_api::{At, CloudError, PermitLists, list_after};
use cloud_http::{Class, Failure};
use model::{Direction, PermitEntry, Ports, Protocol, Site};
use serde_json::{Value, json};

use crate::{
    api::{items, text},
    cloud::{AwsCloud, Result},
    groups::{Group, spread, together},
    rules::{Change, Rule, Rules, difference, entries_of, rules_of},
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
pub(crate) fn rules_in(group: &Value) -> Rules {
    let mut rules = Rules::new();
    for (list, direction) in
        [("ipPermissions", Direction::Inbound), ("ipPermissionsEgress", Direction::Outbound)]
    {
        for permission in items(&group[list]) {
            let protocol = match text(permission, "ipProtocol") {
                "-1" => Protocol::Any,
                other => match other.parse() {
                    Ok(protocol) => protocol,
                    Err(_) => continue,
                },
            };
            let port = |name: &str| text(permission, name).parse::<u16>().ok();
            let ports = match (protocol, port("fromPort"), port("toPort")) {
                (Protocol::TCP | Protocol::UDP, Some(0), Some(u16::MAX)) => Ports::Any,
                (Protocol::TCP | Protocol::UDP, Some(first), Some(last)) => Ports::Range { first, last },
                _ => Ports::Any,
            };
            for range in items(&permission["ipRanges"]) {
                if let Ok(prefix) = text(range, "cidrIp").parse() {
                    rules.insert(
                        Rule { direction, protocol, ports, prefix },
                        text(range, "description").to_owned(),
                    );
                }
            }
        }
    }
    rules
}

/// A group's rules as parameters of a request.
fn permissions(rules: &Rules, described: bool) -> Value {
    let mut shown: Vec<(Protocol, Ports, Vec<Value>)> = Vec::new();
    for (rule, description) in rules {
        let mut range = json!({"CidrIp": rule.prefix.net().to_string()});
        if described {
            range["Description"] = description.as_str().into();
        }
        match shown.iter_mut().find(|(protocol, ports, _)| (*protocol, *ports) == (rule.protocol, rule.ports))
        {
            Some((_, _, ranges)) => ranges.push(range),
            None => shown.push((rule.protocol, rule.ports, vec![range])),
        }
    }
    let write = |(protocol, ports, ranges): (Protocol, Ports, Vec<Value>)| {
        let number = match protocol {
            Protocol::Any => "-1".to_owned(),
            Protocol::TCP => "tcp".to_owned(),
            Protocol::UDP => "udp".to_owned(),
            Protocol::ICMP => "icmp".to_owned(),
            Protocol::Number(number) => number.to_string(),
        };
        let mut one = json!({"IpProtocol": number, "IpRanges": ranges});
        let bounds = match (protocol, ports) {
            (Protocol::TCP | Protocol::UDP, Ports::Range { first, last }) => {
                Some((i32::from(first), i32::from(last)))
            }
            (Protocol::TCP | Protocol::UDP, Ports::Any) => Some((0, 65_535)),
            // All types and codes.
            (Protocol::ICMP, _) => Some((-1, -1)),
            _ => None,
        };
        if let Some((from, to)) = bounds {
            (one["FromPort"], one["ToPort"]) = (from.into(), to.into());
        }
        one
    };
    shown.into_iter().map(write).collect()
}

#[async_trait]
impl PermitLists for AwsCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        Ok(entries_of(&together(&self.groups_in_force(&at.site, &Uri::parse(uri)?).await?)))
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let _turn = self.turns.take(uri).await;
        let uri = Uri::parse(uri)?;
        let mut tries = 0;
        loop {
            let groups = self.groups_in_force(&at.site, &uri).await?;
            let changes = spread(&groups, &plan(&together(&groups), before, wanted)?);
            if changes.len() > groups.len() {
                self.further_group(&at.site, &uri).await?;
                continue;
            }
            match self.apply_all(&at.site, &uri, &groups, &changes).await {
                Ok(()) => return Ok(()),
                // Somebody else changed a group between the read and the change.
                Err(failure) if (failure.is(Class::Exists) || failure.is(Class::NotFound)) && tries < 3 => {
                    tries += 1
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }
}

impl AwsCloud {
    async fn apply_all(
        &self,
        site: &Site,
        uri: &Uri<'_>,
        groups: &[Group],
        changes: &[Change],
    ) -> std::result::Result<(), Failure> {
        for (group, change) in groups.iter().zip(changes) {
            if group.has_room_for(change) {
                self.apply(site, uri.region, uri.name, &group.id, change).await?;
            } else {
                let (first, then) = change.clone().revoking_first();
                self.apply(site, uri.region, uri.name, &group.id, &first).await?;
                self.apply(site, uri.region, uri.name, &group.id, &then).await?;
            }
        }
        Ok(())
    }

    /// Opens first, then describes, then closes: nothing that stays permitted is interrupted.
    pub(crate) async fn apply(
        &self,
        site: &Site,
        region: &str,
        name: &str,
        id: &str,
        change: &Change,
    ) -> std::result::Result<(), Failure> {
        let steps = [
            ("AuthorizeSecurityGroup", &change.authorize, true),
            ("UpdateSecurityGroupRuleDescriptions", &change.describe, true),
            ("RevokeSecurityGroup", &change.revoke, false),
        ];
        for (action, rules, described) in steps {
            for (direction, suffix) in [(Direction::Inbound, "Ingress"), (Direction::Outbound, "Egress")] {
                let part: Rules = rules
                    .iter()
                    .filter(|(rule, _)| rule.direction == direction)
                    .map(|(rule, text)| (rule.clone(), text.clone()))
                    .collect();
                if !part.is_empty() {
                    self.touch(site, &format!("group/{name}"));
                    let parameters = json!({"GroupId": id, "IpPermissions": permissions(&part, described)});
                    self.ec2.call(region, &format!("{action}{suffix}"), parameters).await?;
                }
            }
        }
        Ok(())
    }
}

/// What to change in a group so that the wanted entries are there, and those before them are not.
fn plan(current: &Rules, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result<Change> {
    let (ours, strange): (Vec<_>, Vec<_>) =
        entries_of(current).into_iter().partition(|entry| !entry.name.as_str().starts_with("not-ours "));
    let mut wanted = rules_of(&list_after(ours, before, wanted))?;
    // What others put there stays, word for word, until somebody asks for it to go.
    for entry in strange.iter().filter(|entry| !before.contains(entry)) {
        for (rule, description) in current.iter().filter(|(rule, _)| {
            entry.targets().contains(&rule.prefix)
                && entry.traffic.direction == rule.direction
                && entry.traffic.protocol == rule.protocol
                && entry.traffic.dst_ports == rule.ports
        }) {
            wanted.entry(rule.clone()).or_insert_with(|| description.clone());
        }
    }
    Ok(difference(current, &wanted))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{EntryName, Traffic};

    use super::*;

    fn entry(name: &str, target: &str) -> PermitEntry {
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(22)).unwrap();
        PermitEntry::new(
            EntryName::reported(name),
            traffic,
            [target.parse().unwrap()].into(),
            BTreeSet::new(),
        )
        .unwrap()
    }

    #[test]
    fn strange_rules_stay_until_they_are_asked_to_go() {
        let mut current = rules_of(&[entry("a", "10.0.0.1")]).unwrap();
        let strange = rules_of(&[entry("x", "0.0.0.0/0")]).unwrap().into_keys().next().unwrap();
        current.insert(strange.clone(), "by hand".to_owned());
        assert_eq!(plan(&current, &[], &[]).unwrap(), Change::default());
        let change = plan(&current, &[], &[entry("b", "10.0.0.2")]).unwrap();
        assert_eq!((change.authorize.len(), change.describe.len(), change.revoke.len()), (1, 0, 0));
        let seen = entries_of(&current)
            .into_iter()
            .find(|entry| entry.name.as_str().starts_with("not-ours"))
            .unwrap();
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
