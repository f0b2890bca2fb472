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

use cloud_api::{CloudError, Result};
use cloud_http::{Class, or_gone};
use model::{Direction, Site};
use sha2::{Digest as _, Sha256};

use crate::{
    account::Place,
    lists::{Uri, apply, rules_in},
    marks::Filter,
    resources,
    rules::{Change, MOST, MOST_GROUPS, Rule, Rules},
    shapes::{Instance, Interface, IpPermission, IpRange, Reservation, SecurityGroup, actions as ask},
};

/// 16 hexadecimal digits of SHA-256.
pub(crate) fn short(text: &str) -> String {
    common::hex(&Sha256::digest(text.as_bytes())[..8])
}

/// The name of a resource's nth group, counted from 0.
fn group_name(site: &Site, name: &str, place: usize) -> String {
    let first = format!("trestle-{}", short(&format!("{site}.{name}")));
    if place == 0 { first } else { format!("{first}-{}", place + 1) }
}

/// The group that a resource is known by, among those of its instance's interface.
pub(crate) fn first_of(instance: &Instance) -> Option<&str> {
    let on = instance.network_interface_set.first()?.group_set.iter();
    let ours = on.filter(|group| group.group_name.starts_with("trestle-"));
    ours.min_by_key(|group| &group.group_name).map(|group| group.group_id.as_str())
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

/// What changes of one resource's groups are remembered as.
pub(crate) fn memory(place: Place<'_>, name: &str) -> String {
    format!("{}/group/{name}", place.site)
}

/// The groups of a resource, the first one first.
pub(crate) async fn of_resource(place: Place<'_>, name: &str) -> Result<Vec<SecurityGroup>> {
    place.account.settle(&memory(place, name)).await;
    let mut found = place.own::<SecurityGroup>(&[("name", name)]).await?;
    found.sort_by(|a, b| a.group_name.cmp(&b.group_name));
    Ok(found)
}

/// Groups of whomever, by their ids.
pub(crate) async fn by_id(place: Place<'_>, ids: &[&str]) -> Result<Vec<SecurityGroup>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(place.list(&[Filter::new("group-id", ids.iter().copied())]).await?)
}

/// A group of a resource by its place, with nothing in it. Only for one that no instance is in.
pub(crate) async fn closed(
    place: Place<'_>,
    vpc: &str,
    name: &str,
    number: usize,
    more: &[(&str, &str)],
) -> Result<String> {
    let group_name = group_name(place.site, name, number);
    let mut tries = 0;
    let id = loop {
        let found = of_resource(place, name).await?;
        if let Some(group) = found.into_iter().find(|one| one.vpc_id == vpc && one.group_name == group_name) {
            let change = Change { revoke: rules_in(&group), ..Change::default() };
            apply(place, name, &group.group_id, &change).await?;
            return Ok(group.group_id);
        }
        let marks: Vec<(&str, &str)> = [("name", name)].into_iter().chain(more.iter().copied()).collect();
        let wanted = ask::CreateSecurityGroup {
            group_name: &group_name,
            group_description: format!("trestle: what {name} permits"),
            vpc_id: vpc,
            tag_specification: place.tags::<SecurityGroup>(name, &marks)?,
        };
        place.touch::<SecurityGroup>();
        match place.ask(&wanted).await {
            Ok(made) => break made.group_id,
            Err(failure) if failure.is(Class::Exists) && tries < 3 => tries += 1,
            Err(failure) => return Err(failure.into()),
        }
    };
    // EC2 lets everything out of a new group.
    let everywhere = IpRange { cidr_ip: "0.0.0.0/0".to_owned(), description: None };
    let all = IpPermission {
        ip_protocol: "-1".to_owned(),
        from_port: None,
        to_port: None,
        ip_ranges: vec![everywhere],
    };
    let revoked = ask::RevokeSecurityGroupEgress { group_id: &id, ip_permissions: vec![all] };
    or_gone(place.ask(&revoked).await)?;
    Ok(id)
}

fn gone(place: Place<'_>, uri: &Uri<'_>) -> CloudError {
    CloudError::not_found(format!("there is no resource {uri} in {}", place.site))
}

/// The groups that a resource's instance is in, with their rules.
pub(crate) async fn in_force(place: Place<'_>, uri: &Uri<'_>) -> Result<Vec<Group>> {
    let found = of_resource(place, uri.name).await?;
    if !found.iter().any(|group| group.group_id == uri.group) {
        return Err(gone(place, uri));
    }
    let mut groups: Vec<Group> =
        found.into_iter().map(|group| Group { rules: rules_in(&group), id: group.group_id }).collect();
    // The first one is there as long as the instance is; a further one may have been made and not put to use.
    if groups.len() > 1 {
        let interface = interface(place, uri).await?;
        groups.retain(|group| interface.group_ids().any(|id| id == group.id));
    }
    Ok(groups)
}

async fn interface(place: Place<'_>, uri: &Uri<'_>) -> Result<Interface> {
    let there = resources::by_id(place, &[uri.instance]).await?.into_iter().next();
    let interface = there.and_then(|instance| instance.network_interface_set.into_iter().next());
    interface.ok_or_else(|| gone(place, uri))
}

/// Puts one more group on a resource's interface, empty.
pub(crate) async fn add(place: Place<'_>, uri: &Uri<'_>) -> Result {
    let interface = interface(place, uri).await?;
    let on: Vec<&str> = interface.group_set.iter().map(|group| group.group_name.as_str()).collect();
    let free = (1..MOST_GROUPS).find(|number| {
        on.len() < MOST_GROUPS && !on.contains(&group_name(place.site, uri.name, *number).as_str())
    });
    let none = || {
        CloudError::conflict(format!(
            "the interface of {uri} is in {MOST_GROUPS} groups; take it out of those that are not Trestle's"
        ))
    };
    let group = closed(place, &interface.vpc_id, uri.name, free.ok_or_else(none)?, &[]).await?;
    let groups: Vec<&str> = interface.group_ids().chain([group.as_str()]).collect();
    set(place, &interface, &groups).await
}

/// Puts an interface into these groups and no others.
pub(crate) async fn set(place: Place<'_>, interface: &Interface, groups: &[&str]) -> Result {
    place.touch::<Reservation>();
    let wanted = ask::ModifyNetworkInterfaceAttribute {
        network_interface_id: &interface.network_interface_id,
        security_group_id: groups,
    };
    place.ask(&wanted).await?;
    Ok(())
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
        let on = |name: &str, id: &str| {
            format!("<item><groupName>{name}</groupName><groupId>{id}</groupId></item>")
        };
        let groups = [on("by-hand", "sg-0"), on(&format!("{name}-2"), "sg-2"), on(&name, "sg-1")].concat();
        let instance: Instance = quick_xml::de::from_str(&format!(
            "<item><instanceId>i-1</instanceId><instanceState><name>running</name></instanceState><networkInterfaceSet><item>\
             <networkInterfaceId>eni-1</networkInterfaceId><vpcId>vpc-1</vpcId><groupSet>{groups}</groupSet>\
             </item></networkInterfaceSet></item>"
        ))
        .unwrap();
        assert_eq!(first_of(&instance), Some("sg-1"));
    }
}
