//! The security groups of a resource: one that is closed before the instance exists, and more when its rules are too
//! many for one.
//!
//! ```text
//!   instance ── interface ─┬─ trestle-HASH      the first 60 rules per direction
//!                          ├─ trestle-HASH-2    the next ones
//!                          └─ … up to five
//! ```
//!
//! A further group is put on the interface before it gets its first rule, so a rule that is in a group is in force.
//! Rules stay in the group they are in; an empty group stays until its resource goes.

use cloud_api::CloudError;
use cloud_http::Class;
use model::{Direction, Site};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    api::{items, text},
    cloud::{AwsCloud, Result},
    lists::{Uri, rules_in},
    rules::{Change, MOST, MOST_GROUPS, Rule, Rules},
};

/// 16 hexadecimal digits of SHA-256.
pub(crate) fn short(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a resource's nth group, counted from 0.
fn group_name(site: &Site, name: &str, place: usize) -> String {
    let first = format!("trestle-{}", short(&format!("{site}.{name}")));
    if place == 0 { first } else { format!("{first}-{}", place + 1) }
}

/// The group that a resource is known by, among those of its instance's interface.
pub(crate) fn first_group(instance: &Value) -> Option<&str> {
    let interface = items(&instance["networkInterfaceSet"]).next()?;
    let ours = items(&interface["groupSet"]).filter(|group| text(group, "groupName").starts_with("trestle-"));
    ours.min_by_key(|group| text(group, "groupName")).map(|group| text(group, "groupId"))
}

/// One of a resource's groups, with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) rules: Rules,
}

impl Group {
    /// Whether new rules fit beside those that are about to go.
    pub(crate) fn has_room_for(&self, change: &Change) -> bool {
        [Direction::Inbound, Direction::Outbound].into_iter().all(|direction| {
            let of = |rules: &Rules| rules.keys().filter(|rule| rule.direction == direction).count();
            of(&self.rules) + of(&change.authorize) <= MOST
        })
    }
}

/// All rules of all groups.
pub(crate) fn together(groups: &[Group]) -> Rules {
    groups.iter().rev().flat_map(|group| group.rules.clone()).collect()
}

/// A change of a list as changes of its groups. Further groups than there are have to be made.
pub(crate) fn spread(groups: &[Group], change: &Change) -> Vec<Change> {
    let mut spread = vec![Change::default(); groups.len()];
    for (place, group) in groups.iter().enumerate() {
        let elsewhere = |rule: &Rule| groups[..place].iter().any(|earlier| earlier.rules.contains_key(rule));
        for (rule, there) in &group.rules {
            // What is in two groups, after somebody's hand or a lost answer, needs to be in one only.
            if change.revoke.contains_key(rule) || elsewhere(rule) {
                spread[place].revoke.insert(rule.clone(), there.clone());
            } else if let Some(description) = change.describe.get(rule) {
                spread[place].describe.insert(rule.clone(), description.clone());
            }
        }
    }
    let held = |place: usize, direction: Direction| {
        let rules = groups.get(place).map(|group| &group.rules).into_iter().flatten();
        rules.filter(|(rule, _)| rule.direction == direction).count()
    };
    for direction in [Direction::Inbound, Direction::Outbound] {
        let mut new = change.authorize.iter().filter(|(rule, _)| rule.direction == direction).peekable();
        // While there are groups left, room counts before anything is revoked, since opening comes first.
        let mut place = 0;
        while new.peek().is_some() && place < MOST_GROUPS {
            let room = MOST.saturating_sub(held(place, direction));
            if room > 0 && spread.len() <= place {
                spread.resize(place + 1, Change::default());
            }
            let here = new.by_ref().take(room).map(|(rule, text)| (rule.clone(), text.clone()));
            if let Some(one) = spread.get_mut(place) {
                one.authorize.extend(here);
            }
            place += 1;
        }
        // The rest takes the room of what goes.
        for (rule, text) in new {
            let freed = |(place, one): &(usize, &mut Change)| {
                let of = |rules: &Rules| rules.keys().filter(|rule| rule.direction == direction).count();
                held(*place, direction) + of(&one.authorize) < MOST + of(&one.revoke)
            };
            let Some((_, one)) = spread.iter_mut().enumerate().find(freed) else { continue };
            one.authorize.insert(rule.clone(), text.clone());
        }
    }
    spread
}

impl AwsCloud {
    pub(crate) async fn groups(&self, site: &Site, region: &str, name: &str) -> Result<Vec<Value>> {
        self.settle(site, "group").await;
        self.settle(site, &format!("group/{name}")).await;
        let filters = json!({"Filter": self.marks(site).filters(&[("name", name)])});
        let mut found = self.ec2.list(region, "DescribeSecurityGroups", "securityGroupInfo", filters).await?;
        found.sort_by_cached_key(|group| text(group, "groupName").to_owned());
        Ok(found)
    }

    /// A group by its place, with nothing in it. Only for one that no instance is in.
    pub(crate) async fn closed_group(
        &self,
        site: &Site,
        (region, vpc): (&str, &str),
        name: &str,
        place: usize,
        more: &[(&str, &str)],
    ) -> Result<String> {
        let group_name = group_name(site, name, place);
        let mut tries = 0;
        let id = loop {
            let found = self.groups(site, region, name).await?;
            let is_it = |group: &&Value| {
                text(group, "vpcId") == vpc && text(group, "groupName") == group_name.as_str()
            };
            if let Some(group) = found.iter().find(is_it) {
                let id = text(group, "groupId").to_owned();
                let change = Change { revoke: rules_in(group), ..Change::default() };
                self.apply(site, region, name, &id, &change).await?;
                return Ok(id);
            }
            let marks: Vec<(&str, &str)> = [("name", name)].into_iter().chain(more.iter().copied()).collect();
            let tags = self.marks(site).specification("security-group", name, &marks)?;
            let wanted = json!({"GroupName": group_name, "GroupDescription": format!("trestle: what {name} permits"), "VpcId": vpc, "TagSpecification": tags});
            self.touch(site, "group");
            match self.ec2.fresh(region, "CreateSecurityGroup", wanted).await {
                Ok(made) => break text(&made, "groupId").to_owned(),
                Err(failure) if failure.is(Class::Exists) && tries < 3 => tries += 1,
                Err(failure) => return Err(failure.into()),
            }
        };
        // EC2 lets everything out of a new group.
        let all = json!({"GroupId": id, "IpPermissions": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]});
        match self.ec2.fresh(region, "RevokeSecurityGroupEgress", all).await {
            Err(failure) if !failure.is(Class::NotFound) => Err(failure.into()),
            _ => Ok(id),
        }
    }

    /// The groups that a resource's instance is in, with their rules.
    pub(crate) async fn groups_in_force(&self, site: &Site, uri: &Uri<'_>) -> Result<Vec<Group>> {
        let found = self.groups(site, uri.region, uri.name).await?;
        let gone = || CloudError::not_found(format!("there is no resource {uri} in {site}"));
        if !found.iter().any(|group| text(group, "groupId") == uri.group) {
            return Err(gone());
        }
        let mut groups: Vec<Group> = found
            .iter()
            .map(|group| Group { id: text(group, "groupId").to_owned(), rules: rules_in(group) })
            .collect();
        // The first one is there as long as the instance is; a further one may have been made and not put to use.
        if groups.len() > 1 {
            let interface = self.interface(site, uri).await?.ok_or_else(gone)?;
            groups.retain(|group| ids_on(&interface).any(|id| id == group.id));
        }
        Ok(groups)
    }

    async fn interface(&self, site: &Site, uri: &Uri<'_>) -> Result<Option<Value>> {
        let there = self.instances_by_id(site, uri.region, &[uri.instance]).await?;
        Ok(there.first().and_then(|instance| items(&instance["networkInterfaceSet"]).next().cloned()))
    }

    /// Puts one more group on a resource's interface, empty.
    pub(crate) async fn further_group(&self, site: &Site, uri: &Uri<'_>) -> Result<()> {
        let gone = || CloudError::not_found(format!("there is no resource {uri} in {site}"));
        let interface = self.interface(site, uri).await?.ok_or_else(gone)?;
        let on = items(&interface["groupSet"]).map(|group| text(group, "groupName"));
        let on: Vec<&str> = on.collect();
        let free = (1..MOST_GROUPS).find(|place| {
            on.len() < MOST_GROUPS && !on.contains(&group_name(site, uri.name, *place).as_str())
        });
        let none = || {
            let message = format!(
                "the interface of {uri} is in {MOST_GROUPS} groups; take it out of those that are not Trestle's"
            );
            CloudError::conflict(message)
        };
        let place = free.ok_or_else(none)?;
        let home = (uri.region, text(&interface, "vpcId"));
        let group = self.closed_group(site, home, uri.name, place, &[]).await?;
        let groups: Vec<&str> = ids_on(&interface).chain([group.as_str()]).collect();
        self.set_groups(site, uri.region, &interface, &groups).await
    }

    pub(crate) async fn set_groups(
        &self,
        site: &Site,
        region: &str,
        interface: &Value,
        groups: &[&str],
    ) -> Result<()> {
        let wanted =
            json!({"NetworkInterfaceId": text(interface, "networkInterfaceId"), "SecurityGroupId": groups});
        self.touch(site, "instance");
        self.ec2.fresh(region, "ModifyNetworkInterfaceAttribute", wanted).await?;
        Ok(())
    }
}

pub(crate) fn ids_on(interface: &Value) -> impl Iterator<Item = &str> {
    items(&interface["groupSet"]).map(|group| text(group, "groupId"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::difference;

    fn rules(hosts: impl IntoIterator<Item = u16>) -> Rules {
        let rule = |host: u16| Rule {
            direction: if host.is_multiple_of(2) { Direction::Inbound } else { Direction::Outbound },
            protocol: model::Protocol::Any,
            ports: model::Ports::Any,
            prefix: format!("10.0.{}.{}", host / 256, host % 256).parse().unwrap(),
        };
        hosts.into_iter().map(|host| (rule(host), format!("trestle;{host}=*="))).collect()
    }

    /// As `apply` does it, with EC2's bounds checked at every step.
    fn applied(mut groups: Vec<Group>, changes: Vec<Change>) -> Vec<Group> {
        let fits = |rules: &Rules| {
            [Direction::Inbound, Direction::Outbound]
                .into_iter()
                .all(|direction| rules.keys().filter(|rule| rule.direction == direction).count() <= MOST)
        };
        assert!(changes.len() <= MOST_GROUPS);
        groups.resize(groups.len().max(changes.len()), Group { id: String::new(), rules: Rules::new() });
        for (group, change) in groups.iter_mut().zip(changes) {
            if !group.has_room_for(&change) {
                group.rules.retain(|rule, _| !change.revoke.contains_key(rule));
            }
            group.rules.extend(change.authorize);
            assert!(fits(&group.rules));
            group.rules.extend(change.describe);
            group.rules.retain(|rule, _| !change.revoke.contains_key(rule));
        }
        groups
    }

    proptest! {
        /// Whatever the lists up to EC2's bound, the groups together hold exactly the wanted rules, each once.
        #[test]
        fn lists_of_any_size_fit(sizes in proptest::collection::vec((0u16..700, 1u16..600), 1..6)) {
            let mut groups = vec![Group { id: "sg-1".to_owned(), rules: Rules::new() }];
            for (start, length) in sizes {
                let wanted = rules(start..start + length);
                let change = difference(&together(&groups), &wanted);
                let changes = spread(&groups, &change);
                groups = applied(groups, changes);
                prop_assert!(together(&groups) == wanted, "{start} {length}");
                prop_assert_eq!(groups.iter().map(|group| group.rules.len()).sum::<usize>(), wanted.len());
            }
        }
    }

    #[test]
    fn what_is_in_two_groups_is_taken_out_of_one() {
        let twice = |id: &str| Group { id: id.to_owned(), rules: rules([2, 4]) };
        let changes = spread(&[twice("sg-1"), twice("sg-2")], &Change::default());
        assert_eq!((changes[0].revoke.len(), changes[1].revoke.len()), (0, 2));
    }

    #[test]
    fn a_resource_is_known_by_its_first_group() {
        let name = group_name(&"ns.aws".parse().unwrap(), "web", 0);
        let instance = json!({"networkInterfaceSet": [{"groupSet": [
            {"groupName": "by-hand", "groupId": "sg-0"},
            {"groupName": format!("{name}-2"), "groupId": "sg-2"},
            {"groupName": name, "groupId": "sg-1"},
        ]}]});
        assert_eq!(first_group(&instance), Some("sg-1"));
    }
}
