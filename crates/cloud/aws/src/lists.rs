//! Permit lists: read the group, plan, then at most one request per direction and kind of change.

use cloud_api::CloudError;
use cloud_http::{Class, Failure};
use model::{Direction, PermitEntry, Ports, Protocol, Site};
use serde_json::{Value, json};

use crate::{
    api::{items, text},
    cloud::{AwsCloud, Result},
    rules::{Change, Rule, Rules, difference, entries_of, rules_of},
};

/// `REGION/INSTANCE/GROUP`.
fn parse(uri: &str) -> Result<(&str, &str)> {
    match uri.split('/').collect::<Vec<_>>().as_slice() {
        [region, instance, group] if instance.starts_with("i-") && group.starts_with("sg-") => {
            Ok((*region, *group))
        }
        _ => Err(CloudError::not_found(format!("{uri} is no resource of AWS"))),
    }
}

/// The rules of a group as EC2 shows them. What Trestle never makes (other groups, IPv6, prefix lists) is left alone.
fn rules_in(group: &Value) -> Rules {
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

impl AwsCloud {
    async fn group(&self, site: &Site, uri: &str) -> Result<(String, String, Rules)> {
        let (region, id) = parse(uri)?;
        self.settle(site, &format!("group/{id}")).await;
        self.settle(site, "group").await;
        let mut filters = self.marks(site).filters(&[]);
        if let Some(filters) = filters.as_array_mut() {
            filters.push(json!({"Name": "group-id", "Value": [id]}));
        }
        let parameters = json!({"Filter": filters});
        let found = self.ec2.list(region, "DescribeSecurityGroups", "securityGroupInfo", parameters).await?;
        let group = found
            .first()
            .ok_or_else(|| CloudError::not_found(format!("there is no resource {uri} in {site}")))?;
        Ok((region.to_owned(), id.to_owned(), rules_in(group)))
    }

    pub(crate) async fn read_list(&self, site: &Site, uri: &str) -> Result<Vec<PermitEntry>> {
        Ok(entries_of(&self.group(site, uri).await?.2))
    }

    pub(crate) async fn change_list(
        &self,
        site: &Site,
        uri: &str,
        set: &[PermitEntry],
        unset: &[PermitEntry],
    ) -> Result<()> {
        let _turn = self.turns.take(uri).await;
        let mut tries = 0;
        loop {
            let (region, id, current) = self.group(site, uri).await?;
            let change = plan(&current, set, unset)?;
            match self.apply(site, &region, &id, &change).await {
                Ok(()) => return Ok(()),
                // Somebody else changed the group between the read and the change.
                Err(failure) if (failure.is(Class::Exists) || failure.is(Class::NotFound)) && tries < 3 => {
                    tries += 1
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Opens first, then describes, then closes: nothing that stays permitted is interrupted.
    async fn apply(
        &self,
        site: &Site,
        region: &str,
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
                    self.touch(site, &format!("group/{id}"));
                    let parameters = json!({"GroupId": id, "IpPermissions": permissions(&part, described)});
                    self.ec2.call(region, &format!("{action}{suffix}"), parameters).await?;
                }
            }
        }
        Ok(())
    }

    /// Revokes everything that is in a group.
    pub(crate) async fn clear(&self, site: &Site, region: &str, id: &str, group: &Value) -> Result<()> {
        let change = Change { revoke: rules_in(group), ..Change::default() };
        Ok(self.apply(site, region, id, &change).await?)
    }
}

/// What to change in a group so that some entries are there and others are not.
fn plan(current: &Rules, set: &[PermitEntry], unset: &[PermitEntry]) -> Result<Change> {
    let (ours, strange): (Vec<_>, Vec<_>) =
        entries_of(current).into_iter().partition(|entry| !entry.name.as_str().starts_with("not-ours "));
    let replaced = |entry: &PermitEntry| set.iter().any(|new| new.name == entry.name);
    let kept = ours.into_iter().filter(|entry| !replaced(entry) && !unset.contains(entry));
    let list: Vec<PermitEntry> = kept.chain(set.iter().cloned()).collect();
    let mut wanted = rules_of(&list)?;
    // What others put there stays, word for word, until somebody asks for it to go.
    for entry in strange.iter().filter(|entry| !unset.contains(entry)) {
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
        let change = plan(&current, &[entry("b", "10.0.0.2")], &[]).unwrap();
        assert_eq!((change.authorize.len(), change.describe.len(), change.revoke.len()), (1, 0, 0));
        let seen = entries_of(&current)
            .into_iter()
            .find(|entry| entry.name.as_str().starts_with("not-ours"))
            .unwrap();
        let change = plan(&current, &[], &[seen]).unwrap();
        assert_eq!(change.revoke.keys().collect::<Vec<_>>(), [&strange]);
    }

    #[test]
    fn uris_are_taken_apart() {
        assert_eq!(parse("us-east-1/i-1/sg-2").unwrap(), ("us-east-1", "sg-2"));
        for bad in ["", "no/such/uri", "i-1/sg-2", "us-east-1/sg-2/i-1", "a/i-1/sg-2/b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
