//! Attaching: an instance that exists becomes a resource, in its own VPC.
//!
//! ```text
//!   instance   keeps its tags and gets one more, t-SITE-att-HASH
//!   its VPC    t-SITE-att-HASH-in, …-out   deny everything for that tag, before all firewalls of its owner; their
//!                                          descriptions say which instance it is, and what it is called
//!              t-SITE-fw-…                 the permit list, for the same tag, before these two
//! ```
//!
//! The two are there before the tag is, so the instance closes in one moment, both ways; it opens as it was when the tag
//! goes, and the firewalls go afterwards.

use cloud_api::{Attachment, CloudError};
use cloud_http::Class;
use futures::{future::try_join_all, try_join};
use ipnet::Ipv4Net;
use model::{ExistingNetwork, ResourceState, Segment};

use crate::{
    adopt::{self, check_adopter, name_of},
    ground::{Ground, Result, Vpc},
    link::Link,
    lists::{apply, named},
    mark::Mark,
    rules::{Change, Firewalls, closing, difference, opening},
    shapes::{Effective, Firewall, Instance, Interface, Subnet, Tags},
};

/// Google's bound on an instance's tags.
const MOST_TAGS: usize = 64;
/// How often an instance's tags are read again when somebody else changes them too.
const TRIES: usize = 5;

/// An instance that is attached, as its firewalls say.
pub(crate) struct Attached {
    pub(crate) name: Segment,
    /// The adopted network it is in.
    pub(crate) network: Segment,
    pub(crate) link: Link<Instance>,
}

/// An instance that exists, with what it takes to attach it.
struct Found {
    vpc: Vpc,
    attachment: Attachment,
}

/// What a user writes: `ZONE/NAME`, or a path or URL as Google shows it.
pub(crate) fn parse(ground: &Ground, id: &str) -> Result<Link<Instance>> {
    let whole: Link = id.into();
    let parts: Vec<&str> = whole.path().split('/').collect();
    let (zone, name) = match parts.as_slice() {
        ["projects", project, "zones", zone, "instances", name] if *project == ground.project => {
            (*zone, *name)
        }
        [zone, name] => (*zone, *name),
        _ => ("", ""),
    };
    let legal = |text: &str| {
        let mut letters = text.bytes();
        !text.is_empty()
            && text.len() <= 63
            && letters.all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-')
    };
    match legal(zone) && legal(name) && zone.matches('-').count() >= 2 {
        true => Ok(ground.zone(zone).object(name)),
        false => Err(CloudError::invalid(format!(
            "{id:?} is nothing to attach: write ZONE/NAME, or projects/{}/zones/ZONE/instances/NAME, of an instance in the \
             project of {}",
            ground.project, ground.site
        ))),
    }
}

/// The interface of an instance that has one, with addresses that can be closed.
fn interface<'i>(link: &Link<Instance>, instance: &'i Instance) -> Result<&'i Interface> {
    let [interface] = instance.network_interfaces.as_slice() else {
        return Err(CloudError::conflict(format!(
            "{link} has several network interfaces, and could be reached by the others; a permit list is for one"
        )));
    };
    match interface.stack_type.as_str() {
        "IPV4_IPV6" | "IPV6_ONLY" => Err(CloudError::conflict(format!(
            "{link} has IPv6 addresses, which permit lists in Google Cloud do not know, so it could not be closed"
        ))),
        _ => Ok(interface),
    }
}

pub(crate) async fn inspect(ground: &Ground, id: &str) -> Result<Attachment> {
    Ok(find(ground, &parse(ground, id)?, None).await?.attachment)
}

/// What there is to know about an instance that shall be attached, or is already under a name.
async fn find(ground: &Ground, link: &Link<Instance>, name: Option<&Segment>) -> Result<Found> {
    let gone = || CloudError::not_found(format!("there is no instance {link}"));
    let instance = ground.get(link).await?.ok_or_else(gone)?;
    if let Some(mark) = instance.description.mark() {
        return Err(CloudError::conflict(format!(
            "{link} was made by Trestle ({}), so it is managed",
            mark.owner
        )));
    }
    let interface = interface(link, &instance)?;
    let vpc = Vpc { ground: ground.clone(), link: ground.global().object(interface.network.name()) };
    if interface.network != vpc.link {
        return Err(CloudError::conflict(format!(
            "{link} is in {}, a network of another project; attach it in a namespace of that project",
            interface.network
        )));
    }
    let compute = ground.compute();
    let (network, subnets) = try_join!(compute.get(&vpc.link), compute.list_all(&ground.project, ""))?;
    let network = network.ok_or_else(|| CloudError::not_found(format!("there is no {}", vpc.link)))?;
    if let Some(mark) = network.description.mark() {
        return Err(CloudError::conflict(format!(
            "{} is a network that Trestle ({}) made itself",
            vpc.link, mark.owner
        )));
    }
    check_free(ground, link, &instance.tags.items, name).await?;
    if let Some(what) = opening(&effective(ground, link, interface).await?, &network) {
        return Err(CloudError::conflict(format!("{link} could not be closed, because of {what}")));
    }
    check_adopter(&vpc).await?;
    let attachment = attachment(link, interface, &vpc, &subnets)?;
    Ok(Found { vpc, attachment })
}

/// Refuses what is attached already, by whomever, but for what is attached here under the given name.
async fn check_free(
    ground: &Ground,
    link: &Link<Instance>,
    tags: &[String],
    name: Option<&Segment>,
) -> Result {
    let own = ground.names.attached(link.path());
    for tag in tags.iter().filter(|tag| tag.starts_with("t-") && tag.contains("-att-")) {
        let firewalls = ground.firewalls(&format!("{tag}-")).await?;
        let mut marks = firewalls.iter().filter_map(|one| one.description.mark());
        let mark = marks.find(|mark| mark.instance.is_some());
        if let Some(mark) = mark.filter(|mark| *tag != own || mark.name.as_ref() != name) {
            let name = mark.name.map_or_else(|| "another resource".to_owned(), |name| name.to_string());
            return Err(CloudError::conflict(format!(
                "{link} is attached already, as {name} of {}",
                mark.site
            )));
        }
    }
    match tags.len() < MOST_TAGS || tags.contains(&own) {
        true => Ok(()),
        false => Err(CloudError::conflict(format!(
            "{link} has {MOST_TAGS} network tags, and no room for one of Trestle's; remove one"
        ))),
    }
}

/// The firewalls and policies that are in force for an instance.
async fn effective(ground: &Ground, link: &Link<Instance>, interface: &Interface) -> Result<Effective> {
    let name = if interface.name.is_empty() { "nic0" } else { &interface.name };
    let query = format!("?networkInterface={name}");
    Ok(ground.compute().ask(link, "getEffectiveFirewalls", &query).await?)
}

/// Firewalls of ours that are no entries of a list, by what their names begin with.
pub(crate) async fn closers(ground: &Ground, what: &str) -> Result<Firewalls> {
    Ok(named(ground.owned_firewalls(what).await?))
}

/// What is attached, or was about to be, by the firewalls that close it.
pub(crate) async fn attachments(ground: &Ground) -> Result<Vec<Attached>> {
    let closers = closers(ground, &ground.names.all("att")).await?;
    let mut found: Vec<Attached> = closers.values().filter_map(read).collect();
    found.dedup_by(|a, b| a.link == b.link);
    Ok(found)
}

/// An attached instance as it should be: there, with its tag, and closed.
async fn state(ground: &Ground, one: &Attached) -> Result<Option<ResourceState>> {
    let tag = ground.names.attached(one.link.path());
    let listed = format!("{tag}-");
    let (instance, closers) = try_join!(ground.get(&one.link), closers(ground, &listed))?;
    let Some(instance) = instance.filter(|instance| instance.tags.items.contains(&tag)) else {
        return Ok(None);
    };
    let Ok(interface) = interface(&one.link, &instance) else { return Ok(None) };
    let vpc = Vpc { ground: ground.clone(), link: ground.global().object(interface.network.name()) };
    let (network, effective) = try_join!(ground.get(&vpc.link), effective(ground, &one.link, interface))?;
    let is_closed = difference(&closers, &wanted(ground, &vpc, one)) == Change::default()
        && opening(&effective, &network.unwrap_or_default()).is_none();
    let state = |address| ResourceState { uri: one.link.to_string(), address, region: one.network.clone() };
    Ok(instance.address().map(state).filter(|_| is_closed))
}

pub(crate) async fn attached(ground: &Ground) -> Result<Vec<(Segment, ResourceState)>> {
    let all = attachments(ground).await?;
    let states = try_join_all(all.iter().map(|one| state(ground, one))).await?;
    let named = all.into_iter().zip(states);
    Ok(named.filter_map(|(one, state)| Some((one.name, state?))).collect())
}

pub(crate) async fn attach(ground: &Ground, name: &Segment, id: &str) -> Result<ResourceState> {
    let link = parse(ground, id)?;
    let _turn = ground.turn(link.path()).await;
    let all = attachments(ground).await?;
    if let Some(there) = all.iter().find(|one| one.link == link && one.name == *name)
        && let Some(state) = state(ground, there).await?
    {
        return Ok(state);
    }
    check_name(ground, name, &link, &all).await?;
    let found = find(ground, &link, Some(name)).await?;
    let network = found.attachment.region.clone();
    let space = found.attachment.network.as_ref().map(|network| network.space);
    match adopt::find(ground, network.as_str()).await? {
        Some(adopted) if Some(adopted.space) == space => {}
        Some(adopted) => {
            return Err(CloudError::conflict(format!(
                "instances are attached from {} of {network}, and {link} is in another subnet",
                adopted.space
            )));
        }
        None => {
            return Err(CloudError::conflict(format!("the network {network} of {link} is not adopted")));
        }
    }
    let one = Attached { name: name.clone(), network, link };
    let tag = ground.names.attached(one.link.path());
    let current = closers(ground, &format!("{tag}-")).await?;
    apply(ground, &difference(&current, &wanted(ground, &found.vpc, &one))).await?;
    retag(ground, &one.link, |tags| {
        if !tags.contains(&tag) {
            tags.push(tag.clone());
        }
    })
    .await?;
    let unseen = || CloudError::unavailable(format!("{} is not seen closed yet", one.link));
    state(ground, &one).await?.ok_or_else(unseen)
}

/// Refuses a name that something else has, and an instance that has another name.
async fn check_name(ground: &Ground, name: &Segment, link: &Link<Instance>, all: &[Attached]) -> Result {
    if let Some(other) = all.iter().find(|one| one.link == *link && one.name != *name) {
        return Err(CloudError::conflict(format!("{link} is attached already, as {}", other.name)));
    }
    let made: Vec<Instance> =
        ground.compute().list_all(&ground.project, &ground.names.instance(name)).await?;
    let is_taken = all.iter().any(|one| one.name == *name && one.link != *link) || !made.is_empty();
    match is_taken {
        true => Err(CloudError::conflict(format!(
            "resource {}.{name} is there and is something else",
            ground.site
        ))),
        false => Ok(()),
    }
}

/// Changes an instance's tags, whoever else does so meanwhile. One that is gone has none.
async fn retag(ground: &Ground, link: &Link<Instance>, change: impl Fn(&mut Vec<String>)) -> Result {
    for _ in 0..TRIES {
        let Some(Instance { tags: now, .. }) = ground.get(link).await? else { return Ok(()) };
        let mut new: Tags = now.clone();
        change(&mut new.items);
        if new == now {
            return Ok(());
        }
        match ground.compute().act(link, "setTags", Some(&new)).await {
            Err(failure) if failure.is(Class::Changed) => continue,
            Err(failure) if failure.is(Class::NotFound) => return Ok(()),
            outcome => return Ok(outcome?),
        }
    }
    Err(CloudError::unavailable(format!("somebody else keeps changing the tags of {link}")))
}

/// Lets an attached instance go: its tag, then what was for the tag.
pub(crate) async fn let_go(ground: &Ground, name: &Segment) -> Result {
    for one in attachments(ground).await?.iter().filter(|one| one.name == *name) {
        let _turn = ground.turn(one.link.path()).await;
        let tag = ground.names.attached(one.link.path());
        retag(ground, &one.link, |tags| tags.retain(|other| *other != tag)).await?;
        let list = closers(ground, &format!("{}-", ground.names.list(one.link.path()))).await?;
        let closers = closers(ground, &format!("{tag}-")).await?;
        // Those that say which instance it was come last, so that half of the work is found again.
        ground.delete_firewalls(list.keys().map(String::as_str)).await?;
        ground.delete_firewalls(closers.keys().map(String::as_str)).await?;
    }
    Ok(())
}

fn read(closer: &Firewall) -> Option<Attached> {
    let mark = closer.description.mark()?;
    Some(Attached { name: mark.name?, network: mark.region?, link: mark.instance?.as_str().into() })
}

/// The firewalls that close an attached instance.
fn wanted(ground: &Ground, vpc: &Vpc, one: &Attached) -> Firewalls {
    let mark = Mark {
        name: Some(one.name.clone()),
        region: Some(one.network.clone()),
        instance: Some(one.link.to_string()),
        ..ground.names.mark()
    };
    closing(&ground.names.attached(one.link.path()), &vpc.link, &mark.into())
}

fn attachment(
    link: &Link<Instance>,
    interface: &Interface,
    vpc: &Vpc,
    subnets: &[Subnet],
) -> Result<Attachment> {
    let nowhere = || CloudError::conflict(format!("{link} is in no subnet of {}", vpc.link));
    let inside = || subnets.iter().filter(|one| one.network == vpc.link);
    let home = inside().find(|one| one.self_link == interface.subnetwork).ok_or_else(nowhere)?;
    let space = home.ip_cidr_range.ok_or_else(nowhere)?;
    let mut beside: Vec<Ipv4Net> = inside().flat_map(Subnet::ranges).collect();
    beside.retain(|one| *one != space);
    beside.sort();
    beside.dedup();
    let unread = || CloudError::unavailable(format!("{link} has no address yet"));
    let address = interface.network_ip.ok_or_else(unread)?;
    let changes = vec![
        format!(
            "{link}: gets one more network tag, for which two firewalls deny everything until a rule permits it; without \
             the tag, when it is detached, everything is as before"
        ),
        format!(
            "VPC {}: gets firewalls that are for this tag only and, once a rule needs it, peerings; routes of linked clouds \
             are then imported, for all its instances",
            vpc.link.name()
        ),
        format!(
            "firewalls of {} that deny with priority 0, and policies that deny, stay in force, and come first",
            vpc.link.name()
        ),
        format!("{link}: nothing else changes; what is open now closes"),
    ];
    let network = Some(ExistingNetwork { space, beside });
    Ok(Attachment { region: name_of(home)?, network, address: Some(address), changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::for_tests;

    #[test]
    fn what_a_user_writes_is_an_instance_of_the_project() {
        let ground = for_tests("ns.gcp");
        for fine in [
            "us-west1-a/web",
            "projects/p/zones/us-west1-a/instances/web",
            "https://www.googleapis.com/compute/v1/projects/p/zones/us-west1-a/instances/web",
        ] {
            let path = "projects/p/zones/us-west1-a/instances/web";
            assert_eq!(parse(&ground, fine).unwrap().path(), path, "{fine}");
        }
        for bad in [
            "",
            "web",
            "no/such/machine",
            "us-west1/web",
            "projects/q/zones/us-west1-a/instances/web",
            "us-west1-a/We b",
        ] {
            assert!(parse(&ground, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_has_a_second_way_in_is_refused() {
        let refusal = |stacks: &[&str]| {
            let interface =
                |stack: &&str| Interface { stack_type: (*stack).to_owned(), ..Interface::default() };
            let network_interfaces = stacks.iter().map(interface).collect();
            let instance = Instance { network_interfaces, ..Instance::default() };
            interface_of(&instance)
        };
        assert_eq!(refusal(&["IPV4_ONLY"]), None);
        assert!(refusal(&["", ""]).unwrap().contains("several"));
        assert!(refusal(&["IPV4_IPV6"]).unwrap().contains("IPv6"));
    }

    fn interface_of(instance: &Instance) -> Option<String> {
        interface(&"i".into(), instance).err().map(|err| err.message)
    }
}
