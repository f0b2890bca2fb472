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
use serde_json::{Value, json};

use crate::{
    adopt::{name_of, range, ranges},
    cloud::{GcpCloud, Ground, Result, Vpc},
    lists::named,
    names::{self, Mark, last, path},
    rules::{Change, Firewalls, closing, difference, opening},
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
    pub(crate) uri: String,
}

/// An instance that exists, with what it takes to attach it.
struct Found {
    vpc: Vpc,
    attachment: Attachment,
}

/// Zone and name of what a user writes: `ZONE/NAME`, or a path or URL as Google shows it.
pub(crate) fn parse<'i>(ground: &Ground, id: &'i str) -> Result<(&'i str, &'i str)> {
    let whole = id.find("projects/").map_or(id, |start| &id[start..]);
    let parts: Vec<&str> = whole.split('/').collect();
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
        true => Ok((zone, name)),
        false => Err(CloudError::invalid(format!(
            "{id:?} is nothing to attach: write ZONE/NAME, or projects/{}/zones/ZONE/instances/NAME, of an instance in the \
             project of {}",
            ground.project, ground.site
        ))),
    }
}

pub(crate) fn uri_of(ground: &Ground, zone: &str, name: &str) -> String {
    ground.zone(zone).object("instances", name)
}

/// The network tag of an attached instance.
pub(crate) fn tag_of(ground: &Ground, uri: &str) -> String {
    ground.names.of("att", uri)
}

fn tags(instance: &Value) -> Vec<&str> {
    instance["tags"]["items"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The interface of an instance that has one, with addresses that can be closed.
fn interface<'i>(uri: &str, instance: &'i Value) -> Result<&'i Value> {
    let [interface] = instance["networkInterfaces"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        return Err(CloudError::conflict(format!(
            "{uri} has several network interfaces, and could be reached by the others; a permit list is for one"
        )));
    };
    match interface["stackType"].as_str() {
        Some("IPV4_IPV6" | "IPV6_ONLY") => Err(CloudError::conflict(format!(
            "{uri} has IPv6 addresses, which permit lists in Google Cloud do not know, so it could not be closed"
        ))),
        _ => Ok(interface),
    }
}

impl GcpCloud {
    pub(crate) async fn inspect_instance(&self, ground: &Ground, id: &str) -> Result<Attachment> {
        Ok(self.find(ground, id, None).await?.attachment)
    }

    /// What there is to know about an instance that shall be attached, or is already under a name.
    async fn find(&self, ground: &Ground, id: &str, name: Option<&Segment>) -> Result<Found> {
        let (zone, instance_name) = parse(ground, id)?;
        let uri = uri_of(ground, zone, instance_name);
        let gone = || CloudError::not_found(format!("there is no instance {uri}"));
        let instance = self.compute.get(&ground.zone(zone), "instances", instance_name).await?;
        let instance = instance.ok_or_else(gone)?;
        if let Some(mark) = names::read(&instance) {
            return Err(CloudError::conflict(format!(
                "{uri} was made by Trestle ({}), so it is managed",
                mark.owner
            )));
        }
        let interface = interface(&uri, &instance)?;
        let vpc = Vpc { ground: ground.clone(), name: last(&interface["network"]).to_owned() };
        if path(&interface["network"]) != vpc.path() {
            return Err(CloudError::conflict(format!(
                "{uri} is in {}, a network of another project; attach it in a namespace of that project",
                path(&interface["network"])
            )));
        }
        let global = ground.global();
        let (network, subnets) = try_join!(
            self.compute.get(&global, "networks", &vpc.name),
            self.compute.list_all(&ground.project, "subnetworks", ""),
        )?;
        let network = network.ok_or_else(|| CloudError::not_found(format!("there is no {}", vpc.path())))?;
        if let Some(mark) = names::read(&network) {
            return Err(CloudError::conflict(format!(
                "{} is a network that Trestle ({}) made itself",
                vpc.path(),
                mark.owner
            )));
        }
        self.check_free(ground, &uri, &instance, name).await?;
        self.check_closable(ground, &uri, &instance, &network).await?;
        self.check_adopter(&vpc).await?;
        let attachment = attachment(&uri, interface, &vpc, &subnets)?;
        Ok(Found { vpc, attachment })
    }

    /// Refuses what is attached already, by whomever, but for what is attached here under the given name.
    async fn check_free(
        &self,
        ground: &Ground,
        uri: &str,
        instance: &Value,
        name: Option<&Segment>,
    ) -> Result<()> {
        let own = tag_of(ground, uri);
        for tag in tags(instance).into_iter().filter(|tag| tag.starts_with("t-") && tag.contains("-att-")) {
            let firewalls = self.compute.list(&ground.global(), "firewalls", &format!("{tag}-")).await?;
            let mark = firewalls.iter().filter_map(names::read).find(|mark| mark.instance.is_some());
            if let Some(mark) = mark.filter(|mark| tag != own || mark.name.as_ref() != name) {
                let name = mark.name.map_or_else(|| "another resource".to_owned(), |name| name.to_string());
                return Err(CloudError::conflict(format!(
                    "{uri} is attached already, as {name} of {}",
                    mark.site
                )));
            }
        }
        match tags(instance).len() < MOST_TAGS || tags(instance).contains(&own.as_str()) {
            true => Ok(()),
            false => Err(CloudError::conflict(format!(
                "{uri} has {MOST_TAGS} network tags, and no room for one of Trestle's; remove one"
            ))),
        }
    }

    /// Refuses what no firewall of ours could close.
    async fn check_closable(
        &self,
        ground: &Ground,
        uri: &str,
        instance: &Value,
        network: &Value,
    ) -> Result<()> {
        match opening(&self.effective(ground, instance).await?, network) {
            Some(what) => Err(CloudError::conflict(format!("{uri} could not be closed, because of {what}"))),
            None => Ok(()),
        }
    }

    /// The firewalls and policies that are in force for an instance, in Google's own words.
    async fn effective(&self, ground: &Ground, instance: &Value) -> Result<Value> {
        let interface = instance["networkInterfaces"][0]["name"].as_str().unwrap_or("nic0");
        let (zone, name) = (last(&instance["zone"]), instance["name"].as_str().unwrap_or_default());
        let query = format!("?networkInterface={interface}");
        Ok(self.compute.ask(&ground.zone(zone), "instances", name, "getEffectiveFirewalls", &query).await?)
    }

    /// Firewalls of ours that are no entries of a list, by what their names begin with.
    pub(crate) async fn closers(&self, ground: &Ground, what: &str) -> Result<Firewalls> {
        let found = self.compute.list(&ground.global(), "firewalls", what).await?;
        Ok(named(found.into_iter().filter(|one| ground.names.owns(one)).collect()))
    }

    /// What is attached, or was about to be, by the firewalls that close it.
    pub(crate) async fn attachments(&self, ground: &Ground) -> Result<Vec<Attached>> {
        let closers = self.closers(ground, &format!("{}-att-", ground.names.prefix())).await?;
        let mut found: Vec<Attached> = closers.values().filter_map(read).collect();
        found.dedup_by(|a, b| a.uri == b.uri);
        Ok(found)
    }

    /// An attached instance as it should be: there, with its tag, and closed.
    pub(crate) async fn attached_state(
        &self,
        ground: &Ground,
        one: &Attached,
    ) -> Result<Option<ResourceState>> {
        let (zone, name) = parse(ground, &one.uri)?;
        let (tag, place) = (tag_of(ground, &one.uri), ground.zone(zone));
        let listed = format!("{tag}-");
        let (instance, closers) = try_join!(
            async { Ok(self.compute.get(&place, "instances", name).await?) },
            self.closers(ground, &listed),
        )?;
        let Some(instance) = instance.filter(|instance| tags(instance).contains(&tag.as_str())) else {
            return Ok(None);
        };
        let vpc = Vpc {
            ground: ground.clone(),
            name: last(&instance["networkInterfaces"][0]["network"]).to_owned(),
        };
        let (network, effective) = try_join!(
            async { Ok(self.compute.get(&ground.global(), "networks", &vpc.name).await?) },
            self.effective(ground, &instance),
        )?;
        let is_closed = difference(&closers, &wanted(ground, &vpc, one)) == Change::default()
            && interface(&one.uri, &instance).is_ok()
            && opening(&effective, &network.unwrap_or_default()).is_none();
        Ok(state(one, &instance).filter(|_| is_closed))
    }

    pub(crate) async fn attached(&self, ground: &Ground) -> Result<Vec<(Segment, ResourceState)>> {
        let all = self.attachments(ground).await?;
        let states = try_join_all(all.iter().map(|one| self.attached_state(ground, one))).await?;
        let named = all.into_iter().zip(states);
        Ok(named.filter_map(|(one, state)| Some((one.name, state?))).collect())
    }

    pub(crate) async fn attach_instance(
        &self,
        ground: &Ground,
        name: &Segment,
        id: &str,
    ) -> Result<ResourceState> {
        let (zone, instance) = parse(ground, id)?;
        let uri = uri_of(ground, zone, instance);
        let _turn = self.turns.take(&uri).await;
        let all = self.attachments(ground).await?;
        if let Some(there) = all.iter().find(|one| one.uri == uri && one.name == *name)
            && let Some(state) = self.attached_state(ground, there).await?
        {
            return Ok(state);
        }
        self.check_name(ground, name, &uri, &all).await?;
        let found = self.find(ground, id, Some(name)).await?;
        let network = found.attachment.region.clone();
        let space = found.attachment.network.as_ref().map(|network| network.space);
        match self.adopted_as(ground, network.as_str()).await? {
            Some(adopted) if Some(adopted.space) == space => {}
            Some(adopted) => {
                return Err(CloudError::conflict(format!(
                    "instances are attached from {} of {network}, and {uri} is in another subnet",
                    adopted.space
                )));
            }
            None => {
                return Err(CloudError::conflict(format!("the network {network} of {uri} is not adopted")));
            }
        }
        let one = Attached { name: name.clone(), network, uri };
        let tag = tag_of(ground, &one.uri);
        let current = self.closers(ground, &format!("{tag}-")).await?;
        let change = difference(&current, &wanted(ground, &found.vpc, &one));
        self.apply(ground, &change).await?;
        self.retag(ground, &one.uri, |tags| {
            if !tags.contains(&tag) {
                tags.push(tag.clone());
            }
        })
        .await?;
        let unseen = || CloudError::unavailable(format!("{} is not seen closed yet", one.uri));
        self.attached_state(ground, &one).await?.ok_or_else(unseen)
    }

    /// Refuses a name that something else has, and an instance that has another name.
    async fn check_name(&self, ground: &Ground, name: &Segment, uri: &str, all: &[Attached]) -> Result<()> {
        if let Some(other) = all.iter().find(|one| one.uri == uri && one.name != *name) {
            return Err(CloudError::conflict(format!("{uri} is attached already, as {}", other.name)));
        }
        let made = self.compute.list_all(&ground.project, "instances", &ground.names.instance(name)).await?;
        let is_taken = all.iter().any(|one| one.name == *name && one.uri != uri) || !made.is_empty();
        match is_taken {
            true => Err(CloudError::conflict(format!(
                "resource {}.{name} is there and is something else",
                ground.site
            ))),
            false => Ok(()),
        }
    }

    /// Changes an instance's tags, whoever else does so meanwhile. One that is gone has none.
    async fn retag(&self, ground: &Ground, uri: &str, change: impl Fn(&mut Vec<String>)) -> Result<()> {
        let (zone, name) = parse(ground, uri)?;
        let place = ground.zone(zone);
        for _ in 0..TRIES {
            let Some(instance) = self.compute.get(&place, "instances", name).await? else { return Ok(()) };
            let now: Vec<String> = tags(&instance).into_iter().map(str::to_owned).collect();
            let mut new = now.clone();
            change(&mut new);
            if new == now {
                return Ok(());
            }
            let body = json!({"items": new, "fingerprint": instance["tags"]["fingerprint"]});
            match self.compute.act(&place, "instances", name, "setTags", &body).await {
                Err(failure) if failure.is(Class::Changed) => continue,
                Err(failure) if failure.is(Class::NotFound) => return Ok(()),
                outcome => return Ok(outcome?),
            }
        }
        Err(CloudError::unavailable(format!("somebody else keeps changing the tags of {uri}")))
    }

    /// Lets an attached instance go: its tag, then what was for the tag.
    pub(crate) async fn let_go(&self, ground: &Ground, name: &Segment) -> Result<()> {
        for one in self.attachments(ground).await?.iter().filter(|one| one.name == *name) {
            let _turn = self.turns.take(&one.uri).await;
            let tag = tag_of(ground, &one.uri);
            self.retag(ground, &one.uri, |tags| tags.retain(|other| *other != tag)).await?;
            let prefix = format!("{}-", self.list_prefix(ground, &one.uri));
            let list = self.closers(ground, &prefix).await?;
            let closers = self.closers(ground, &format!("{tag}-")).await?;
            let global = ground.global();
            let delete = |name: &String| {
                let (global, name) = (global.clone(), name.clone());
                async move { self.compute.delete(&global, "firewalls", &name).await }
            };
            // Those that say which instance it was come last, so that half of the work is found again.
            try_join_all(list.keys().map(delete)).await?;
            try_join_all(closers.keys().map(delete)).await?;
        }
        Ok(())
    }
}

fn read(closer: &Value) -> Option<Attached> {
    let mark = names::read(closer)?;
    Some(Attached { name: mark.name?, network: mark.region?, uri: mark.instance? })
}

/// The firewalls that close an attached instance.
fn wanted(ground: &Ground, vpc: &Vpc, one: &Attached) -> Firewalls {
    let mark = Mark {
        name: Some(one.name.clone()),
        region: Some(one.network.clone()),
        instance: Some(one.uri.clone()),
        ..ground.names.mark()
    };
    closing(&tag_of(ground, &one.uri), &vpc.path(), &names::write(mark))
}

fn state(one: &Attached, instance: &Value) -> Option<ResourceState> {
    let address = instance["networkInterfaces"][0]["networkIP"].as_str()?.parse().ok()?;
    Some(ResourceState { uri: one.uri.clone(), address, region: one.network.clone() })
}

fn attachment(uri: &str, interface: &Value, vpc: &Vpc, subnets: &[Value]) -> Result<Attachment> {
    let nowhere = || CloudError::conflict(format!("{uri} is in no subnet of {}", vpc.path()));
    let inside: Vec<&Value> = subnets.iter().filter(|one| path(&one["network"]) == vpc.path()).collect();
    let home = inside.iter().find(|one| path(&one["selfLink"]) == path(&interface["subnetwork"]));
    let home = home.copied().ok_or_else(nowhere)?;
    let space = range(home).ok_or_else(nowhere)?;
    let mut beside: Vec<Ipv4Net> = inside.iter().flat_map(|one| ranges(one)).collect();
    beside.retain(|one| *one != space);
    beside.sort();
    beside.dedup();
    let unread = || CloudError::unavailable(format!("{uri} has no address yet"));
    let address = interface["networkIP"].as_str().and_then(|text| text.parse().ok()).ok_or_else(unread)?;
    let changes = vec![
        format!(
            "{uri}: gets one more network tag, for which two firewalls deny everything until a rule permits it; without \
             the tag, when it is detached, everything is as before"
        ),
        format!(
            "VPC {}: gets firewalls that are for this tag only and, once a rule needs it, peerings; routes of linked clouds \
             are then imported, for all its instances",
            vpc.name
        ),
        format!(
            "firewalls of {} that deny with priority 0, and policies that deny, stay in force, and come first",
            vpc.name
        ),
        format!("{uri}: nothing else changes; what is open now closes"),
    ];
    let network = Some(ExistingNetwork { space, beside });
    Ok(Attachment { region: name_of(home)?, network, address: Some(address), changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn what_a_user_writes_is_an_instance_of_the_project() {
        let site: model::Site = "ns.gcp".parse().unwrap();
        let ground = Ground { names: Names::new("o", &site), site, project: "p".to_owned() };
        for fine in [
            "us-west1-a/web",
            "projects/p/zones/us-west1-a/instances/web",
            "https://www.googleapis.com/compute/v1/projects/p/zones/us-west1-a/instances/web",
        ] {
            assert_eq!(parse(&ground, fine).unwrap(), ("us-west1-a", "web"), "{fine}");
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
        let one = json!({"networkInterfaces": [{"name": "nic0", "stackType": "IPV4_ONLY"}]});
        assert!(interface("i", &one).is_ok());
        let two = json!({"networkInterfaces": [{"name": "nic0"}, {"name": "nic1"}]});
        assert!(interface("i", &two).unwrap_err().message.contains("several"));
        let six = json!({"networkInterfaces": [{"name": "nic0", "stackType": "IPV4_IPV6"}]});
        assert!(interface("i", &six).unwrap_err().message.contains("IPv6"));
    }
}
