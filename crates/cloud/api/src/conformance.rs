//! What any plugin must do, as one suite: run it against a cloud that is empty at the given site.
//!
//! In: a cloud, a site, and descriptions that the cloud understands. Out: the first promise that was broken.
//! It leaves the site as it found it, also when a promise was broken half way, as far as the cloud lets it.

mod attachments;

use std::fmt;

use ipnet::{IpNet, Ipv4Net};
use model::{
    ConnectionSpec, Direction, EntryName, NetworkName, PeeringName, PermitEntry, Ports, Protocol, Secret,
    Segment, Site, Traffic,
};

use crate::{At, Cloud, CloudError, CloudErrorKind, PeeringSpec, ResourceSpec};

/// What the suite needs to know of a cloud.
pub struct Subject<'c> {
    pub cloud: &'c dyn Cloud,
    pub at: At,
    /// A description of a resource in some region, and one in another.
    pub descriptions: [String; 2],
    /// A description that carries network settings.
    pub with_network: String,
    /// Spaces the two regions may have.
    pub spaces: [Ipv4Net; 2],
    /// Whether the cloud has NAT.
    pub has_nat: bool,
    /// A site in another cloud, for a link that is made at this end only; none where that cannot be.
    pub peer: Option<Site>,
    /// A machine that somebody else made; none where nothing can be attached to a network of its own.
    pub existing: Option<Existing>,
}

impl<'c> Subject<'c> {
    /// A cloud with NAT and links, and nothing that exists.
    pub fn new(cloud: &'c dyn Cloud, at: At, descriptions: [String; 2], with_network: String) -> Self {
        let spaces = [[10, 0, 0, 0], [10, 1, 0, 0]];
        let spaces = spaces.map(|first| Ipv4Net::new_assert(first.into(), 16));
        let peer = Some("ns.other".parse().expect("a legal name"));
        Self { cloud, at, descriptions, with_network, spaces, has_nat: true, peer, existing: None }
    }
}

/// A machine that exists, in an existing network.
pub struct Existing {
    /// As a user writes it.
    pub id: String,
    /// The space of its network.
    pub space: Ipv4Net,
}

/// A promise that was broken.
#[derive(Debug)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

type Verdict = Result<(), Violation>;

trait Promise<T> {
    fn promised(self, what: &str) -> Result<T, Violation>;
}

impl<T> Promise<T> for Result<T, CloudError> {
    fn promised(self, what: &str) -> Result<T, Violation> {
        self.map_err(|err| Violation(format!("{what}: {err}")))
    }
}

fn check(holds: bool, what: impl Into<String>) -> Verdict {
    if holds { Ok(()) } else { Err(Violation(what.into())) }
}

fn refused<T>(result: Result<T, CloudError>, kinds: &[CloudErrorKind], what: &str) -> Verdict {
    match result {
        Err(err) => check(kinds.contains(&err.kind), format!("{what}: refused as {:?}: {err}", err.kind)),
        Ok(_) => Err(Violation(format!("{what}: was accepted"))),
    }
}

/// Runs the whole suite.
pub async fn run(subject: &Subject<'_>) -> Verdict {
    let verdict = story(subject).await;
    let swept = sweep(subject).await;
    verdict.and(swept)
}

async fn story(subject: &Subject<'_>) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    cloud.describe().await.promised("describes itself")?;
    let empty = cloud.list(at).await.promised("lists an empty site")?;
    check(empty == crate::Listing::default(), format!("the site is empty at first, not {empty:?}"))?;
    let regions = inspections(subject).await?;
    if let Some(existing) = &subject.existing {
        attachments::run(subject, existing).await?;
    }
    networks(subject, &regions).await?;
    let uri = resources(subject, &regions[0]).await?;
    permit_lists(subject, &uri).await?;
    paths(subject, &regions).await?;
    Ok(())
}

async fn inspections(subject: &Subject<'_>) -> Result<[Segment; 2], Violation> {
    let (cloud, at) = (subject.cloud, &subject.at);
    let name = name();
    let inspect = |description| cloud.inspect_resource(at, &name, description);
    let first = inspect(&subject.descriptions[0]).await.promised("finds the region")?;
    let second = inspect(&subject.descriptions[1]).await.promised("finds the region")?;
    check(first != second, "the two descriptions are in two regions")?;
    let settings = inspect(&subject.with_network).await;
    refused(settings, &[CloudErrorKind::Invalid], "P6: a description with network settings")?;
    let nonsense = inspect("").await;
    refused(nonsense, &[CloudErrorKind::Invalid], "an empty description")?;
    Ok([first, second])
}

async fn networks(subject: &Subject<'_>, regions: &[Segment; 2]) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    for (region, space) in regions.iter().zip(subject.spaces) {
        for turn in ["makes a network", "P7: makes a network that is there"] {
            cloud.ensure_network(at, region, space).await.promised(turn)?;
        }
    }
    let other = cloud.ensure_network(at, &regions[0], subject.spaces[1]).await;
    refused(other, &[CloudErrorKind::Conflict], "a network that is there with another space")?;
    let mut listed = cloud.list(at).await.promised("lists")?.networks;
    listed.sort();
    let mut wanted: Vec<_> = regions.iter().cloned().zip(subject.spaces).collect();
    wanted.sort();
    check(listed == wanted, format!("P12: lists its networks with their spaces, not {listed:?}"))
}

async fn resources(subject: &Subject<'_>, region: &Segment) -> Result<String, Violation> {
    let (cloud, at) = (subject.cloud, &subject.at);
    let spec =
        ResourceSpec { name: name(), region: region.clone(), description: subject.descriptions[0].clone() };
    let made = cloud.create_resource(at, &spec).await.promised("makes a resource")?;
    let again = cloud.create_resource(at, &spec).await.promised("makes a resource that is there")?;
    check(made == again, "makes a resource once, whatever the number of calls")?;
    let inside = IpNet::from(subject.spaces[0]).contains(&made.address.net());
    check(inside, format!("the address {} is in the region's network", made.address))?;
    let list = cloud.permit_list(at, &made.uri).await.promised("reads a permit list")?;
    check(list.is_empty(), format!("P1: a new resource is closed, not {list:?}"))?;
    let listed = cloud.list(at).await.promised("lists")?.resources;
    check(listed == [(spec.name.clone(), made.clone())], format!("lists its resources, not {listed:?}"))?;
    let in_use = cloud.delete_network(at, region).await;
    refused(in_use, &[CloudErrorKind::Conflict], "deleting a network that resources live in")?;
    Ok(made.uri)
}

async fn permit_lists(subject: &Subject<'_>, uri: &str) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    let mut one = entry("one", &["10.99.0.1", "10.99.1.0/24"]);
    one.tags = ["some-tag".to_owned(), "10.99.1.0/24".to_owned()].into();
    let two = entry("two", &["10.99.0.2"]);
    let both = [one.clone(), two.clone()];
    for turn in ["puts a list", "puts a list that is there"] {
        cloud.put_list(at, uri, &[], &both).await.promised(turn)?;
    }
    same(subject, uri, &[&one, &two], "P2: reads back what was put, tags and all, in one piece").await?;
    let changed = entry("one", &["10.99.0.3"]);
    cloud.put_list(at, uri, &both, &[changed.clone(), two.clone()]).await.promised("replaces an entry")?;
    same(subject, uri, &[&changed, &two], "P3: an entry of the same name is replaced").await?;
    let three = entry("three", &["10.99.0.4"]);
    cloud.put_list(at, uri, &both[..1], std::slice::from_ref(&three)).await.promised("puts another list")?;
    same(subject, uri, &[&changed, &two, &three], "only what was put before exactly as given goes").await?;
    let list = [changed.clone(), two.clone(), three];
    for (before, turn) in [(&list[1..], "deletes entries"), (&list[..], "deletes what is not there any more")]
    {
        cloud.put_list(at, uri, before, &list[..1]).await.promised(turn)?;
        same(subject, uri, &[&changed], "what is wanted stays").await?;
    }
    cloud.put_list(at, uri, &list, &[]).await.promised("puts no list")?;
    same(subject, uri, &[], "nothing is left").await?;
    let mut elsewhere = at.clone();
    elsewhere.site.namespace = "elsewhere".parse().map_err(|_| Violation("a name".into()))?;
    let kinds = &[CloudErrorKind::NotFound, CloudErrorKind::Invalid];
    refused(cloud.permit_list(&elsewhere, uri).await, kinds, "P4: reading a list from another namespace")?;
    for [before, wanted] in [[&[][..], &both], [&both, &[]]] {
        let put = cloud.put_list(&elsewhere, uri, before, wanted).await;
        refused(put, kinds, "P4: putting a list from another namespace")?;
    }
    refused(cloud.permit_list(at, "no/such/uri").await, kinds, "P5: a resource that does not exist")
}

async fn same(subject: &Subject<'_>, uri: &str, wanted: &[&PermitEntry], what: &str) -> Verdict {
    let mut list = subject.cloud.permit_list(&subject.at, uri).await.promised(what)?;
    list.sort();
    let mut wanted: Vec<PermitEntry> = wanted.iter().map(|entry| (*entry).clone()).collect();
    wanted.sort();
    check(list == wanted, format!("{what}: {list:?} is not {wanted:?}"))
}

async fn paths(subject: &Subject<'_>, regions: &[Segment; 2]) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    let peering = peering(at, regions)?;
    for turn in ["peers", "peers again"] {
        cloud.ensure_peering(&peering).await.promised(turn)?;
    }
    if subject.has_nat {
        for turn in ["P9: makes NAT", "makes NAT again"] {
            cloud.ensure_nat(at, &regions[0]).await.promised(turn)?;
        }
        let nats = cloud.list(at).await.promised("lists")?.nats;
        check(nats == [regions[0].clone()], "lists its NAT once")?;
    }
    let listed = cloud.list(at).await.promised("lists")?;
    check(listed.peerings == [peering.name.clone()], "lists its peering once")?;
    let Some(peer) = &subject.peer else { return Ok(()) };
    let gateway = cloud.create_gateway(at, 64_999).await.promised("makes a gateway")?;
    let again = cloud.create_gateway(at, 64_998).await.promised("makes a gateway that is there")?;
    check(gateway == again, "B15: a gateway that is there keeps its AS number and addresses")?;
    let late = cloud.describe().await.promised("describes itself")?.late_addresses;
    check(late == gateway.addresses.is_empty(), "a gateway has an address, or its links have")?;
    let spec = ConnectionSpec {
        bgp: true,
        site: at.site.clone(),
        peer: peer.clone(),
        peer_asn: 64_997,
        peer_addresses: vec![
            "203.0.113.251".parse().expect("an address"),
            "203.0.113.252".parse().expect("an address"),
        ],
        local_bgp: vec![[169, 254, 21, 241].into(), [169, 254, 21, 245].into()],
        peer_bgp: vec![[169, 254, 21, 242].into(), [169, 254, 21, 246].into()],
        peer_spaces: vec![],
        shared_key: Secret::new("k123456789abcdef0123456789abcdef"),
    };
    for turn in ["connects", "connects again"] {
        cloud.create_bgp_sessions(at, &spec).await.promised(turn)?;
        cloud.create_connections(at, &spec).await.promised(turn)?;
    }
    let listed = cloud.list(at).await.promised("lists")?;
    check(listed.connections == std::slice::from_ref(peer), "lists its connection once")?;
    cloud.connection_status(at, peer).await.promised("says how a connection is")?;
    let addresses = cloud.connection_addresses(at, peer).await.promised("says its addresses")?;
    check(!late || addresses.len() == spec.local_bgp.len(), "each tunnel has an address")?;
    let in_use = cloud.delete_gateway(at).await;
    refused(in_use, &[CloudErrorKind::Conflict], "deleting a gateway that has connections")
}

/// Deletes everything twice, and looks whether it is gone.
async fn sweep(subject: &Subject<'_>) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    let regions = inspections(subject).await?;
    for _ in 0..2 {
        if let Some(peer) = &subject.peer {
            cloud.delete_connections(at, peer).await.promised("deletes a connection")?;
            cloud.delete_gateway(at).await.promised("deletes a gateway")?;
        }
        cloud.delete_peering(&peering(at, &regions)?).await.promised("deletes a peering")?;
        cloud.delete_nat(at, &regions[0]).await.promised("deletes NAT")?;
        cloud.delete_resource(at, &name()).await.promised("deletes a resource")?;
        for region in &regions {
            cloud.delete_network(at, region).await.promised("deletes a network")?;
        }
    }
    let left = cloud.list(at).await.promised("lists")?;
    check(left == crate::Listing::default(), format!("nothing is left, not {left:?}"))
}

/// Of the resource that is made.
fn name() -> Segment {
    "conf-1".parse().expect("a legal name")
}

fn entry(name: &str, targets: &[&str]) -> PermitEntry {
    let traffic =
        Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::Range { first: 80, last: 90 });
    let targets = targets.iter().map(|target| target.parse().expect("an address")).collect();
    PermitEntry::new(EntryName::reported(name), traffic.expect("tcp has ports"), targets, Default::default())
        .expect("there are targets")
}

fn peering(at: &At, regions: &[Segment; 2]) -> Result<PeeringSpec, Violation> {
    let network = |region: &Segment| NetworkName { site: at.site.clone(), region: region.clone() };
    let name = PeeringName::new(network(&regions[0]), network(&regions[1]))
        .map_err(|err| Violation(err.to_string()))?;
    Ok(PeeringSpec { name, deployments: [at.deployment.clone(), at.deployment.clone()] })
}
