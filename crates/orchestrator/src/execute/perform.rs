//! One step: the record says what is about to happen, the cloud does it, the record says that it happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use aws_lc_rs::rand;
use cloud_api::{CloudError, CloudErrorKind, PeeringSpec, ResourceSpec};
use futures::future::try_join;
use ipnet::{IpNet, Ipv4Net};
use model::{
    BgpPair, ConnectionSpec, EntryName, ExistingNetwork, GatewayState, Leaf, LinkName, NetworkName,
    PeeringName, PermitEntry, ResourceName, ResourceState, Secret, Segment, Site, TagName,
};
use tokio::time::Instant;
use tracing::debug;

use super::{Orchestrator, OrchestratorError, facts::Fact};
use crate::plan::{
    Action, GatewayRecord, LinkRecord, NetworkRecord, PermitChange, Phase, ResourceRecord, SimpleRecord,
};

/// Pause between two looks at a link that is not up yet.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

type Done = Result<(), OrchestratorError>;

impl Orchestrator {
    pub(super) async fn perform(&self, action: &Action) -> Done {
        match action {
            Action::CreateNetwork { network, space } => self.create_network(network, *space).await,
            Action::AdoptNetwork { network, existing } => self.adopt_network(network, existing).await,
            Action::DeleteNetwork { network } | Action::ReleaseNetwork { network } => {
                self.end_network(network).await
            }
            Action::CreateResource { resource, network } | Action::AttachResource { resource, network } => {
                self.make_resource(resource, network).await
            }
            Action::DeleteResource { resource } | Action::DetachResource { resource } => {
                self.remove_resource(resource).await
            }
            Action::Close { resource, change } | Action::Open { resource, change } => {
                self.change_list(resource, change).await
            }
            Action::CreatePeering { peering } => self.create_peering(peering).await,
            Action::DeletePeering { peering } => self.delete_peering(peering).await,
            Action::CreateNat { network } => self.create_nat(network).await,
            Action::DeleteNat { network } => self.delete_nat(network).await,
            Action::CreateGateway { gateway, asn } => self.create_gateway(gateway, *asn).await,
            Action::DeleteGateway { gateway } => self.delete_gateway(gateway).await,
            Action::CreateLink { link, bgp, spaces } => self.create_link(link, bgp, spaces).await,
            Action::DeleteLink { link } => self.delete_link(link).await,
        }
    }

    /// Waits for a cloud, but not for ever.
    pub(super) async fn call<T>(
        &self,
        cloud: &Segment,
        call: &'static str,
        answer: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, OrchestratorError> {
        let limit = self.options.call_timeout;
        let answer = match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map_err(|err| OrchestratorError::Cloud { cloud: cloud.clone(), err }),
            Err(_) => {
                Err(OrchestratorError::Timeout { cloud: cloud.clone(), call, seconds: limit.as_secs() })
            }
        };
        self.cloud_answered(cloud, &answer);
        answer
    }

    /// Has a cloud do something, if that is this controller's to do. Whether it is, is found out before the call is made
    /// and after all that had to be waited for.
    async fn act<T>(
        &self,
        cloud: &Segment,
        call: &'static str,
        work: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, OrchestratorError> {
        self.may_act()?;
        self.call(cloud, call, work).await
    }

    async fn create_network(&self, name: &NetworkName, space: Ipv4Net) -> Done {
        let fact = |phase| Fact::Network(name.clone(), Some(NetworkRecord::made(phase, space)));
        self.commit(vec![fact(Phase::Making)]).await?;
        let (cloud, at) = (self.cloud(&name.site.cloud)?, self.at(&name.site).await?);
        self.act(&name.site.cloud, "ensure_network", cloud.ensure_network(&at, &name.region, space)).await?;
        self.commit(vec![fact(Phase::Ready)]).await
    }

    async fn adopt_network(&self, name: &NetworkName, existing: &ExistingNetwork) -> Done {
        let fact = |phase| Fact::Network(name.clone(), Some(NetworkRecord::adopted(phase, existing.clone())));
        self.commit(vec![fact(Phase::Making)]).await?;
        let (cloud, at) = (self.cloud(&name.site.cloud)?, self.at(&name.site).await?);
        let adopted = cloud.adopt_network(&at, &name.region, existing.space);
        self.act(&name.site.cloud, "adopt_network", adopted).await?;
        self.commit(vec![fact(Phase::Ready)]).await
    }

    /// Deletes a network that was made, lets go one that was adopted.
    async fn end_network(&self, name: &NetworkName) -> Done {
        let record = self.state.lock().inventory.networks.get(name).cloned();
        let Some(record) = record else { return Ok(()) };
        if !self.deletes(&name.site.cloud) {
            // The cloud keeps what it has; nobody here lives in it any more.
            return self.commit(vec![Fact::Network(name.clone(), None)]).await;
        }
        let is_adopted = record.adopted.is_some();
        let removing = NetworkRecord { phase: Phase::Removing, ..record };
        self.commit(vec![Fact::Network(name.clone(), Some(removing))]).await?;
        let (cloud, at) = (self.cloud(&name.site.cloud)?, self.at(&name.site).await?);
        if is_adopted {
            let released = cloud.release_network(&at, &name.region);
            self.act(&name.site.cloud, "release_network", released).await?;
        } else {
            self.act(&name.site.cloud, "delete_network", cloud.delete_network(&at, &name.region)).await?;
        }
        self.commit(vec![Fact::Network(name.clone(), None)]).await
    }

    async fn make_resource(&self, name: &ResourceName, network: &NetworkName) -> Done {
        let (wanted, there) = {
            let state = self.state.lock();
            (state.intent.resources.get(name).cloned(), state.inventory.resources.get(name).cloned())
        };
        // Not wanted any more since the plan was made.
        let Some(wanted) = wanted else { return Ok(()) };
        let mut record = there.unwrap_or_else(|| ResourceRecord {
            phase: Phase::Making,
            network: network.clone(),
            attached: wanted.attach,
            state: None,
            permit: Default::default(),
            changing: Default::default(),
        });
        record.phase = Phase::Making;
        self.commit(vec![Fact::MadeResource(name.clone(), Some(record.clone()))]).await?;
        let site = Site::of(name);
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(&site).await?);
        let state = if wanted.attach {
            let attached = cloud.attach_resource(&at, &name.name, &wanted.description);
            self.act(&site.cloud, "attach_resource", attached).await?
        } else {
            let spec = ResourceSpec {
                name: name.name.clone(),
                region: network.region.clone(),
                description: wanted.description,
            };
            self.act(&site.cloud, "create_resource", cloud.create_resource(&at, &spec)).await?
        };
        let chosen = self.traits(&site.cloud).is_some_and(|traits| traits.places_resources);
        let anywhere = (wanted.attach && wanted.adopts.is_none()) || chosen;
        self.validate_address(name, &record, &state, anywhere)?;
        let leaf = Leaf { uri: Some(state.uri.as_str().into()), ip: Some(state.address) };
        let tagged = self.tags.set_leaf(&tag_of(name), leaf).await;
        tagged.map_err(|err| OrchestratorError::Tags { message: common::chain(&err) })?;
        let mut facts = Vec::new();
        if chosen && let Some((home, network)) = self.found_home(name, &record.network, state.address).await?
        {
            facts.push(Fact::Network(home.clone(), Some(network)));
            record.network = home;
        }
        (record.phase, record.state) = (Phase::Ready, Some(state));
        facts.push(Fact::MadeResource(name.clone(), Some(record)));
        self.commit(facts).await
    }

    /// Refuses an address that is somebody else's or not of the resource's network: whoever permits the resource by
    /// its tag would permit others. What chose its network itself may be anywhere.
    fn validate_address(
        &self,
        name: &ResourceName,
        record: &ResourceRecord,
        told: &ResourceState,
        anywhere: bool,
    ) -> Done {
        let state = self.state.lock();
        let space = state.inventory.networks.get(&record.network).map(|network| network.space);
        let is_inside = space.is_some_and(|space| IpNet::from(space).contains(&told.address.net()));
        let mut others = state.inventory.resources.iter().filter(|(other, _)| *other != name);
        let is_held = |state: &ResourceState| state.address.overlaps(told.address);
        let holder = others.find(|(_, other)| other.state.as_ref().is_some_and(is_held));
        let why = match (holder, space) {
            // The cloud has given it back, and the record is about to go.
            (Some((other, record)), _) if record.phase == Phase::Removing => {
                let what = format!("the address {}, which {other} is giving back,", told.address);
                return Err(OrchestratorError::NotReady { what });
            }
            (Some((other, _)), _) => format!("that overlaps the address of {other}"),
            (None, Some(space)) if !is_inside && !anywhere => format!("its network has {space}"),
            _ => return Ok(()),
        };
        let what = format!("resource {name} has the address {}, but {why}", told.address);
        Err(OrchestratorError::Unbelievable { cloud: name.cloud.clone(), what })
    }

    async fn remove_resource(&self, name: &ResourceName) -> Done {
        let record = self.state.lock().inventory.resources.get(name).cloned();
        let Some(mut record) = record else { return Ok(()) };
        let site = Site::of(name);
        if record.state.is_none() && !self.deletes(&site.cloud) {
            // Making it has failed, and such a plugin cannot be asked to take back what it may have begun.
            return self.commit(vec![Fact::MadeResource(name.clone(), None)]).await;
        }
        record.phase = Phase::Removing;
        self.commit(vec![Fact::MadeResource(name.clone(), Some(record))]).await?;
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(&site).await?);
        // The tag goes first: nothing may name an address that is about to be free.
        let untagged = self.tags.delete(&tag_of(name)).await;
        untagged.map_err(|err| OrchestratorError::Tags { message: common::chain(&err) })?;
        self.act(&site.cloud, "delete_resource", cloud.delete_resource(&at, &name.name)).await?;
        self.commit(vec![Fact::MadeResource(name.clone(), None)]).await
    }

    async fn change_list(&self, name: &ResourceName, change: &PermitChange) -> Done {
        let record = self.state.lock().inventory.resources.get(name).cloned();
        let Some(mut record) = record else { return Ok(()) };
        let not_ready = || OrchestratorError::NotReady { what: format!("resource {name}") };
        let uri = record.state.as_ref().map(|state| state.uri.clone()).ok_or_else(not_ready)?;
        let (before, wanted) = lists_of(&record, change);
        for entry in change.set.iter().chain(&change.unset) {
            let there = record.permit.get(&entry.name).cloned();
            record
                .changing
                .entry(entry.name.clone())
                .or_default()
                .extend(there.into_iter().chain([entry.clone()]));
        }
        self.commit(vec![Fact::MadeResource(name.clone(), Some(record.clone()))]).await?;
        let site = Site::of(name);
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(&site).await?);
        let put = cloud.put_list(&at, &uri, &before, &wanted);
        self.act(&site.cloud, "put_list", put).await?;
        record.permit = change.apply(record.permit);
        settle(&mut record.changing, change);
        self.commit(vec![Fact::MadeResource(name.clone(), Some(record))]).await
    }

    async fn peering_spec(&self, name: &PeeringName) -> Result<PeeringSpec, OrchestratorError> {
        let [a, b] = name.ends();
        let deployments = [self.at(&a.site).await?.deployment, self.at(&b.site).await?.deployment];
        Ok(PeeringSpec { name: name.clone(), deployments })
    }

    async fn create_peering(&self, name: &PeeringName) -> Done {
        let fact = |phase| Fact::Peering(name.clone(), Some(SimpleRecord { phase }));
        self.commit(vec![fact(Phase::Making)]).await?;
        let (cloud, spec) = (self.cloud(name.cloud())?, self.peering_spec(name).await?);
        self.act(name.cloud(), "ensure_peering", cloud.ensure_peering(&spec)).await?;
        self.commit(vec![fact(Phase::Ready)]).await
    }

    async fn delete_peering(&self, name: &PeeringName) -> Done {
        let removing = SimpleRecord { phase: Phase::Removing };
        self.commit(vec![Fact::Peering(name.clone(), Some(removing))]).await?;
        let (cloud, spec) = (self.cloud(name.cloud())?, self.peering_spec(name).await?);
        self.act(name.cloud(), "delete_peering", cloud.delete_peering(&spec)).await?;
        self.commit(vec![Fact::Peering(name.clone(), None)]).await
    }

    async fn create_nat(&self, name: &NetworkName) -> Done {
        let fact = |phase| Fact::Nat(name.clone(), Some(SimpleRecord { phase }));
        self.commit(vec![fact(Phase::Making)]).await?;
        let (cloud, at) = (self.cloud(&name.site.cloud)?, self.at(&name.site).await?);
        self.act(&name.site.cloud, "ensure_nat", cloud.ensure_nat(&at, &name.region)).await?;
        self.commit(vec![fact(Phase::Ready)]).await
    }

    async fn delete_nat(&self, name: &NetworkName) -> Done {
        self.commit(vec![Fact::Nat(name.clone(), Some(SimpleRecord { phase: Phase::Removing }))]).await?;
        let (cloud, at) = (self.cloud(&name.site.cloud)?, self.at(&name.site).await?);
        self.act(&name.site.cloud, "delete_nat", cloud.delete_nat(&at, &name.region)).await?;
        self.commit(vec![Fact::Nat(name.clone(), None)]).await
    }

    async fn create_gateway(&self, site: &Site, asn: u32) -> Done {
        let making = GatewayRecord { phase: Phase::Making, asn, state: None };
        self.commit(vec![Fact::Gateway(site.clone(), Some(making))]).await?;
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(site).await?);
        let state = self.act(&site.cloud, "create_gateway", cloud.create_gateway(&at, asn)).await?;
        // A gateway that was there has the last word on its number.
        let ready = GatewayRecord { phase: Phase::Ready, asn: state.asn, state: Some(state) };
        self.commit(vec![Fact::Gateway(site.clone(), Some(ready))]).await
    }

    async fn delete_gateway(&self, site: &Site) -> Done {
        let record = self.state.lock().inventory.gateways.get(site).cloned();
        let Some(record) = record else { return Ok(()) };
        let removing = GatewayRecord { phase: Phase::Removing, ..record };
        self.commit(vec![Fact::Gateway(site.clone(), Some(removing))]).await?;
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(site).await?);
        self.act(&site.cloud, "delete_gateway", cloud.delete_gateway(&at)).await?;
        self.commit(vec![Fact::Gateway(site.clone(), None)]).await
    }

    async fn create_link(&self, name: &LinkName, bgp: &[BgpPair], spaces: &[Vec<Ipv4Net>; 2]) -> Done {
        let there = self.state.lock().inventory.links.get(name).cloned();
        let stood = there.as_ref().is_some_and(LinkRecord::stands);
        let shared_key = there.map_or_else(new_key, |record| record.shared_key);
        let (bgp, spaces) = (bgp.to_vec(), spaces.clone());
        let mut record = LinkRecord { phase: Phase::Making, bgp, spaces, shared_key, stood };
        self.commit(vec![Fact::MadeLink(name.clone(), Some(record.clone()))]).await?;
        let [a, b] = name.ends();
        let (mut spec_a, mut spec_b) =
            (self.connection(name, a, &record)?, self.connection(name, b, &record)?);
        let chosen = try_join(self.prepare(&spec_a), self.prepare(&spec_b)).await?;
        if let Some(bgp) = chosen_pairs(&record.bgp, chosen) {
            record.bgp = bgp;
            self.commit(vec![Fact::MadeLink(name.clone(), Some(record.clone()))]).await?;
            (spec_a, spec_b) = (self.connection(name, a, &record)?, self.connection(name, b, &record)?);
        }
        // One after the other: the second may ask for a number that the first has not.
        let mut has_changed = false;
        for spec in [&spec_a, &spec_b] {
            has_changed |= self.settle_gateway(spec).await?;
        }
        if has_changed {
            (spec_a, spec_b) = (self.connection(name, a, &record)?, self.connection(name, b, &record)?);
        }
        let started = Instant::now();
        // An end whose addresses come with its connections goes first; the planner links no two of them.
        match (spec_b.peer_addresses.is_empty(), spec_a.peer_addresses.is_empty()) {
            (true, _) => {
                self.connect_end(&spec_a).await?;
                spec_b.peer_addresses = self.addresses_of(&spec_a).await?;
                self.connect_end(&spec_b).await?;
            }
            (false, true) => {
                self.connect_end(&spec_b).await?;
                spec_a.peer_addresses = self.addresses_of(&spec_b).await?;
                self.connect_end(&spec_a).await?;
            }
            (false, false) => {
                try_join(self.connect_end(&spec_a), self.connect_end(&spec_b)).await?;
            }
        }
        let connected = started.elapsed().as_secs_f64();
        try_join(self.until_up(name, &spec_a), self.until_up(name, &spec_b)).await?;
        let up = started.elapsed().as_secs_f64() - connected;
        debug!(link = %name, connected, up, "a link carries packets");
        let ready = LinkRecord { phase: Phase::Ready, stood: false, ..record };
        self.commit(vec![Fact::MadeLink(name.clone(), Some(ready))]).await
    }

    /// One end of a link, as its cloud is told.
    fn connection(
        &self,
        name: &LinkName,
        site: &Site,
        record: &LinkRecord,
    ) -> Result<ConnectionSpec, OrchestratorError> {
        let is_a = name.ends()[0] == site;
        let peer = name.peer_of(site);
        let gateway = self.gateway_of(peer)?;
        let own: Vec<_> = record.bgp.iter().map(|pair| if is_a { pair.a } else { pair.b }).collect();
        let other: Vec<_> = record.bgp.iter().map(|pair| if is_a { pair.b } else { pair.a }).collect();
        let bgp = self.has_bgp(name);
        let addresses: Vec<IpAddr> = gateway.addresses.iter().cycle().take(own.len()).copied().collect();
        Ok(ConnectionSpec {
            bgp,
            site: site.clone(),
            peer: peer.clone(),
            peer_asn: gateway.asn,
            peer_addresses: addresses,
            local_bgp: own,
            peer_bgp: other,
            peer_spaces: record.spaces[usize::from(is_a)].clone(),
            shared_key: record.shared_key.clone(),
        })
    }

    fn has_bgp(&self, link: &LinkName) -> bool {
        link.ends().iter().all(|end| self.traits(&end.cloud).is_some_and(|traits| traits.bgp))
    }

    /// Whether what was made in a cloud can be taken down.
    fn deletes(&self, cloud: &Segment) -> bool {
        self.traits(cloud).is_none_or(|traits| traits.deletes)
    }

    fn gateway_of(&self, site: &Site) -> Result<GatewayState, OrchestratorError> {
        let state = self.state.lock();
        let found = state.inventory.gateways.get(site).and_then(|record| record.state.clone());
        found.ok_or_else(|| OrchestratorError::NotReady { what: format!("the gateway of {site}") })
    }

    /// Answers the addresses that this end chose by itself; none if it takes those it was given.
    async fn prepare(&self, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>, OrchestratorError> {
        let (cloud, at) = (self.cloud(&spec.site.cloud)?, self.at(&spec.site).await?);
        self.act(&spec.site.cloud, "create_bgp_sessions", cloud.create_bgp_sessions(&at, spec)).await
    }

    /// The gateway as its cloud has made it for this link. Says whether it is another than was on record.
    async fn settle_gateway(&self, spec: &ConnectionSpec) -> Result<bool, OrchestratorError> {
        let (cloud, at) = (self.cloud(&spec.site.cloud)?, self.at(&spec.site).await?);
        let made = cloud.gateway_towards(&at, spec);
        let Some(made) = self.act(&spec.site.cloud, "gateway_towards", made).await? else { return Ok(false) };
        if self.gateway_of(&spec.site)? == made {
            return Ok(false);
        }
        let record = GatewayRecord { phase: Phase::Ready, asn: made.asn, state: Some(made) };
        self.commit(vec![Fact::Gateway(spec.site.clone(), Some(record))]).await?;
        Ok(true)
    }

    /// The public addresses that a link's end was given when it was made.
    async fn addresses_of(&self, spec: &ConnectionSpec) -> Result<Vec<IpAddr>, OrchestratorError> {
        let (cloud, at) = (self.cloud(&spec.site.cloud)?, self.at(&spec.site).await?);
        let addresses = cloud.connection_addresses(&at, &spec.peer);
        let addresses = self.act(&spec.site.cloud, "connection_addresses", addresses).await?;
        if addresses.len() == spec.local_bgp.len() {
            Ok(addresses)
        } else {
            Err(OrchestratorError::NotReady {
                what: format!("the addresses of {} towards {}", spec.site, spec.peer),
            })
        }
    }

    async fn connect_end(&self, spec: &ConnectionSpec) -> Done {
        let (cloud, at) = (self.cloud(&spec.site.cloud)?, self.at(&spec.site).await?);
        self.act(&spec.site.cloud, "create_connections", cloud.create_connections(&at, spec)).await
    }

    /// Waits until packets can pass at this end, if its cloud says how it is: a link that is ready works.
    async fn until_up(&self, name: &LinkName, spec: &ConnectionSpec) -> Done {
        let (cloud, at) = (self.cloud(&spec.site.cloud)?, self.at(&spec.site).await?);
        let has_bgp = spec.bgp;
        let end = Instant::now() + self.options.link_patience;
        loop {
            let status = cloud.connection_status(&at, &spec.peer);
            match self.act(&spec.site.cloud, "connection_status", status).await {
                Ok(status) if status.tunnels_up > 0 && (status.bgp_established > 0 || !has_bgp) => {
                    return Ok(());
                }
                Err(OrchestratorError::Cloud { err, .. }) if err.kind == CloudErrorKind::Unsupported => {
                    return Ok(());
                }
                _ if Instant::now() > end => {
                    let what = format!("link {name}: at {} no tunnel is up, so it", spec.site);
                    return Err(OrchestratorError::NotReady { what });
                }
                _ => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    async fn delete_link(&self, name: &LinkName) -> Done {
        let record = self.state.lock().inventory.links.get(name).cloned();
        let Some(record) = record else { return Ok(()) };
        let removing = LinkRecord { phase: Phase::Removing, ..record };
        self.commit(vec![Fact::MadeLink(name.clone(), Some(removing))]).await?;
        let [a, b] = name.ends();
        try_join(self.disconnect_end(a, b), self.disconnect_end(b, a)).await?;
        self.commit(vec![Fact::MadeLink(name.clone(), None)]).await
    }

    async fn disconnect_end(&self, site: &Site, peer: &Site) -> Done {
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(site).await?);
        self.act(&site.cloud, "delete_connections", cloud.delete_connections(&at, peer)).await
    }
}

/// The pairs of a link one of whose ends, or both, chose addresses by itself; none if all is as planned. An end that
/// takes what it is given gets the other address of the /30.
fn chosen_pairs(planned: &[BgpPair], (a, b): (Vec<Ipv4Addr>, Vec<Ipv4Addr>)) -> Option<Vec<BgpPair>> {
    let other = |ip: &Ipv4Addr| Ipv4Addr::from(u32::from(*ip) ^ 3);
    let pair = |(a, b): (&Ipv4Addr, &Ipv4Addr)| BgpPair { a: *a, b: *b };
    let pairs: Vec<BgpPair> = match (a.is_empty(), b.is_empty()) {
        (true, true) => return None,
        (false, true) => a.iter().map(|a| BgpPair { a: *a, b: other(a) }).collect(),
        (true, false) => b.iter().map(|b| BgpPair { a: other(b), b: *b }).collect(),
        (false, false) => a.iter().zip(&b).map(pair).collect(),
    };
    (pairs != planned).then_some(pairs)
}

/// The tag that stands for a resource.
pub(super) fn tag_of(name: &ResourceName) -> TagName {
    // Three segments of at most 128 bytes may be longer than a tag name; requests refuse that.
    name.to_string().parse().expect("requests refuse names that are no tag names")
}

/// The list that a change takes the place of, and the one that it makes. Of entries that an interrupted change has touched
/// nobody knows what is there: they are in neither, but as the change has them.
fn lists_of(record: &ResourceRecord, change: &PermitChange) -> (Vec<PermitEntry>, Vec<PermitEntry>) {
    let mut sure = record.permit.clone();
    sure.retain(|name, _| !record.changing.contains_key(name));
    let before: BTreeSet<PermitEntry> = sure.values().chain(&change.unset).cloned().collect();
    (before.into_iter().collect(), change.apply(sure).into_values().collect())
}

/// What is sure after a change: what was set is there, and what was unset is not.
fn settle(changing: &mut BTreeMap<EntryName, BTreeSet<PermitEntry>>, change: &PermitChange) {
    for entry in &change.unset {
        if let Some(versions) = changing.get_mut(&entry.name) {
            versions.remove(entry);
        }
    }
    for entry in &change.set {
        changing.remove(&entry.name);
    }
    changing.retain(|_, versions| !versions.is_empty());
}

/// 40 letters and digits, each from six random bits. All public clouds take letters and digits.
/// The first letter is no digit: AWS takes no key that starts with 0, IBM none that starts with 0x.
pub(super) fn new_key() -> Secret {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789xy";
    let mut bytes = [0u8; 40];
    rand::fill(&mut bytes).expect("the system's random source works");
    let [first, rest @ ..] = bytes;
    let letter = |byte: u8, among: u8| char::from(ALPHABET[usize::from(byte % among)]);
    let key = std::iter::once(letter(first, 52)).chain(rest.iter().map(|byte| letter(*byte, 64)));
    Secret::new(key.collect::<String>())
}
