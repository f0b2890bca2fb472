//! The cloud itself: every call changes the state file first, then makes the kernel follow.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use async_trait::async_trait;
use cloud_api::{At, Cloud, CloudError, CloudErrorKind, Listing, PeeringSpec, ResourceSpec};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, EntryName, GatewayState, NetworkName, PermitEntry, Ports,
    Protocol, ResourceName, ResourceState, Segment, Site, Traffic,
};
use node_nft::{Limits, Live, Op, Plan, Transaction};
use parking_lot::{Mutex, RwLock};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::{
    attach::Attached,
    command::Ended,
    names::{self, Names},
    namespace,
    network::peering_interface,
    permit,
    shell::{delete_link, run},
    state::{Connection, Description, Resource, State},
    supervise,
    tables::Tables,
    underlay::{Underlay, Uplink},
};

/// The region of resources that name none.
const DEFAULT_REGION: &str = "local";
/// The region of what is attached, as the orchestrator has it.
const ATTACHED_REGION: &str = "attached";

/// What a cloud is opened with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub uplink: Uplink,
}

/// A cloud of network namespaces.
pub struct LinuxCloud {
    inner: Arc<Inner>,
    supervisor: JoinHandle<()>,
    /// Keeps other processes away from the same state.
    _lock: std::fs::File,
}

/// What the calls and the supervisor share.
pub(crate) struct Inner {
    pub(crate) names: Names,
    file: PathBuf,
    /// Replaced whole, after it was written.
    state: RwLock<Arc<State>>,
    /// Calls that change the state take turns: the kernel is made from the whole state of a network.
    turn: tokio::sync::Mutex<()>,
    /// Whoever works on a daemon holds its turn.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// When the lines of a tunnel that was down were last made anew.
    pub(crate) mended: Mutex<BTreeMap<String, tokio::time::Instant>>,
    /// Commands of resources that have ended.
    pub(crate) ended: Mutex<BTreeMap<ResourceName, Ended>>,
    pub(crate) tables: Tables,
    pub(crate) underlay: Underlay,
}

impl Drop for LinuxCloud {
    /// Daemons go on: traffic does not stop because the controller does.
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl LinuxCloud {
    /// Opens a cloud whose state is in a directory, and repairs what is not as the state says.
    pub async fn open(name: Segment, dir: PathBuf, options: Options) -> Result<Self, CloudError> {
        if !rustix::process::geteuid().is_root() {
            let message = "a Linux cloud makes network namespaces, which needs root; run the controller as root, or \
                           leave this cloud out";
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        run(&["ip", "-V"]).await?;
        let io =
            |err: std::io::Error| CloudError::unavailable(format!("cannot use {}: {err}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(io)?;
        let file = dir.join(format!("{name}.json"));
        let lock = std::fs::File::create(dir.join(format!("{name}.lock"))).map_err(io)?;
        lock.try_lock()
            .map_err(|_| CloudError::conflict(format!("another process uses {}", file.display())))?;
        let state = State::read(&file).map_err(io)?;
        let names = Names::new(&dir, name).map_err(io)?;
        let inner = Arc::new(Inner {
            underlay: Underlay::new(dir.clone(), names.clone(), options.uplink),
            names,
            file,
            state: RwLock::new(Arc::new(state)),
            turn: tokio::sync::Mutex::default(),
            turns: Mutex::default(),
            mended: Mutex::default(),
            ended: Mutex::default(),
            tables: Tables::default(),
        });
        inner.repair().await?;
        let supervisor = tokio::spawn(supervise::run(Arc::downgrade(&inner)));
        Ok(Self { inner, supervisor, _lock: lock })
    }
}

impl Inner {
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read())
    }

    pub(crate) fn turn_of(&self, what: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.turns.lock().entry(what.to_owned()).or_default())
    }

    /// Makes the kernel as the state says: removes what the state does not know, makes what is missing.
    async fn repair(&self) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let state = self.state();
        self.remove_strange_daemons(&state).await?;
        self.remove_strangers(&state).await?;
        for (name, space) in &state.networks {
            self.make_network(&state, name, *space).await?;
        }
        for (peering, number) in &state.peerings {
            self.make_peering(&state, peering, *number).await?;
        }
        for site in state.edges() {
            self.make_edge(&state, site).await?;
        }
        self.underlay.sweep(&self.tables, &state.edges()).await?;
        for (site, peers) in &state.connections {
            for peer in peers.keys() {
                // Without its programs a tunnel is down, and everything else works.
                if let Err(err) = self.make_connection(&state, site, peer).await {
                    warn!(%site, %peer, error = %err, "a connection could not be repaired; it is tried again");
                }
            }
        }
        Ok(())
    }

    /// Removes namespaces of this cloud that the state does not know, with the daemons in them.
    async fn remove_strangers(&self, state: &State) -> Result<(), CloudError> {
        let mut known: BTreeSet<String> =
            state.networks.keys().map(|name| self.names.network(name)).collect();
        let made = state.resources.iter().filter(|(_, resource)| resource.attached.is_none());
        known.extend(made.map(|(name, _)| self.names.resource(name)));
        known.extend(state.edges().into_iter().map(|site| self.names.edge(site)));
        for (site, peers) in &state.connections {
            let interfaces = peers.values().flat_map(|peer| &peer.local_bgp).map(|bgp| names::inside(*bgp));
            known.extend(interfaces.map(|interface| self.names.tunnel(site, &interface)));
        }
        for there in namespace::all() {
            if self.names.is_ours(&there) && !known.contains(&there) {
                warn!(namespace = there, "a namespace that nobody knows is removed");
                namespace::delete(&there).await?;
            }
        }
        Ok(())
    }

    /// Writes a state, and then holds it.
    fn keep(&self, next: State) -> Result<Arc<State>, CloudError> {
        let failed = |err| CloudError::unavailable(format!("cannot write {}: {err}", self.file.display()));
        let next = Arc::new(next);
        if **self.state.read() != *next {
            next.write(&self.file).map_err(failed)?;
            *self.state.write() = Arc::clone(&next);
        }
        Ok(next)
    }

    fn find(&self, state: &State, at: &At, uri: &str) -> Result<ResourceName, CloudError> {
        let is_it = |(name, resource): &(&ResourceName, &Resource)| {
            Site::of(name) == at.site && self.uri(name, resource) == uri
        };
        state
            .resources
            .iter()
            .find(is_it)
            .map(|(name, _)| name.clone())
            .ok_or_else(|| CloudError::not_found(format!("there is no resource {uri} in {}", at.site)))
    }

    fn uri(&self, name: &ResourceName, resource: &Resource) -> String {
        match &resource.attached {
            Some(attached) => attached.uri(),
            None => format!("netns:{}", self.names.resource(name)),
        }
    }

    fn resource_state(&self, name: &ResourceName, resource: &Resource) -> ResourceState {
        ResourceState {
            uri: self.uri(name, resource),
            address: resource.address.into(),
            region: resource.region.clone(),
        }
    }

    /// One transaction on the chains of one resource. What does not fit the kernel is made to by reading it.
    async fn change_list(
        &self,
        at: &At,
        uri: &str,
        change: impl FnOnce(&mut Resource),
    ) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let before = self.state();
        let name = self.find(&before, at, uri)?;
        let mut next = State::clone(&before);
        let Some(resource) = next.resources.get_mut(&name) else { return Ok(()) };
        change(resource);
        let (old, new) = (permit::list_of(&before.resources[&name]), permit::list_of(resource));
        let is_same = next == *before;
        let state = self.keep(next)?;
        let Some(network) = state.network_of(&name) else { return Ok(()) };
        let namespace = self.names.network(&network);
        let planned = Plan::new(&new, Some(&permit::as_committed(&old)), Live::Atomic, Limits::default());
        let committed = match planned {
            Ok(plan) if !is_same => self.tables.commit(&namespace, plan).await,
            // Asked for what the state has: the kernel may have something else.
            _ => Err(CloudError::unavailable("nothing to commit")),
        };
        match committed {
            Ok(()) => Ok(()),
            Err(_) => self.tables.reconcile(&namespace, permit::table(&state, &network)).await,
        }
    }

    /// Takes the lists of a resource out of its network, and then the chains.
    async fn unlist(
        &self,
        state: &State,
        network: &NetworkName,
        resource: &Resource,
    ) -> Result<(), CloudError> {
        let namespace = self.names.network(network);
        if !namespace::exists(&namespace) {
            return Ok(());
        }
        let mut transaction = Transaction::default();
        for (set, element) in permit::places(resource.address) {
            let (schema, elements) = (permit::schema(set), vec![element]);
            transaction.push(Op::DeleteElements { set: set.to_owned(), schema, elements });
        }
        let list = permit::list_of(resource);
        for name in list.chains.keys() {
            transaction.push(Op::FlushChain { name: name.clone() });
            transaction.push(Op::DeleteChain { name: name.clone() });
        }
        for name in list.sets.keys() {
            transaction.push(Op::DeleteSet { name: name.clone() });
        }
        match self.tables.commit_one(&namespace, transaction).await {
            Ok(()) => Ok(()),
            Err(_) => self.tables.reconcile(&namespace, permit::table(state, network)).await,
        }
    }
}

fn full(at: &At, name: &Segment) -> ResourceName {
    ResourceName { namespace: at.site.namespace.clone(), cloud: at.site.cloud.clone(), name: name.clone() }
}

fn network(at: &At, region: &Segment) -> NetworkName {
    NetworkName { site: at.site.clone(), region: region.clone() }
}

/// Stands for rules in the kernel that nobody asked for.
fn stranger() -> Option<PermitEntry> {
    let traffic = Traffic::new(model::Direction::Inbound, Protocol::Any, Ports::Any, Ports::Any).ok()?;
    let anybody = ["0.0.0.0/0".parse().ok()?].into();
    PermitEntry::new(EntryName::reported("rules-changed-by-hand"), traffic, anybody, BTreeSet::new())
}

#[async_trait]
impl Cloud for LinuxCloud {
    async fn describe(&self) -> Result<CloudTraits, CloudError> {
        // Below and above are the addresses of lines inside a site.
        Ok(CloudTraits {
            bgp_first: [169, 254, 4, 0].into(),
            bgp_last: [169, 254, 127, 252].into(),
            ..CloudTraits::default()
        })
    }

    async fn inspect_resource(&self, _: &At, description: &str) -> Result<Segment, CloudError> {
        let read: Description = serde_json::from_str(description).map_err(|err| {
            CloudError::invalid(format!(
                "the description is not JSON like {{\"region\":\"west\",\"command\":\"sleep 1000\"}}, without network \
                 settings: {err}"
            ))
        })?;
        if let Some(why) = read.command.as_ref().and_then(|command| command.refusal()) {
            return Err(CloudError::invalid(format!("the description cannot be used: {why}")));
        }
        Ok(read.region.unwrap_or_else(|| DEFAULT_REGION.parse().expect("it is a legal name")))
    }

    /// What is there in the kernel, of what the state says.
    async fn list(&self, at: &At) -> Result<Listing, CloudError> {
        let inner = &self.inner;
        let state = inner.state();
        let mut listing = Listing::default();
        for (name, space) in state.networks_of(&at.site) {
            if namespace::exists(&inner.names.network(name)) {
                listing.networks.push((name.region.clone(), space));
            }
        }
        for (name, resource) in state.resources.iter().filter(|(name, _)| Site::of(name) == at.site) {
            let home = NetworkName { site: at.site.clone(), region: resource.region.clone() };
            let inside = match &resource.attached {
                None => namespace::exists(&inner.names.resource(name)),
                Some(Attached::Namespace(name)) => namespace::exists(name),
                Some(Attached::Link(_)) => true,
            };
            let is_there = inside
                && namespace::has_link(&inner.names.network(&home), &names::port(resource.address)).await;
            if is_there {
                listing.resources.push((name.name.clone(), inner.resource_state(name, resource)));
            }
        }
        for (name, number) in &state.peerings {
            let end = inner.names.network(name.ends()[0]);
            let of_site = name.ends().iter().any(|end| end.site == at.site);
            if of_site && namespace::has_link(&end, &peering_interface(*number)).await {
                listing.peerings.push(name.clone());
            }
        }
        if namespace::exists(&inner.names.edge(&at.site)) {
            let nats = state.nats.iter().filter(|nat| nat.site == at.site);
            listing.nats = nats.map(|nat| nat.region.clone()).collect();
            let block = inner.underlay.block(&at.site)?;
            let gateway = state.gateways.get(&at.site).zip(block);
            listing.gateway =
                gateway.map(|(asn, block)| GatewayState { asn: *asn, addresses: block.tunnels() });
            listing.connections = state
                .connections
                .get(&at.site)
                .map(|peers| peers.keys().cloned().collect())
                .unwrap_or_default();
        }
        Ok(listing)
    }

    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let name = network(at, region);
        if !names::fits(&inner.names.network(&name)) {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let mut next = State::clone(&inner.state());
        if let Some(there) = next.networks.insert(name.clone(), space).filter(|there| *there != space) {
            return Err(CloudError::conflict(format!("network {name} is there with {there}")));
        }
        let state = inner.keep(next)?;
        inner.make_network(&state, &name, space).await?;
        // Peers are told of it.
        if state.connections.contains_key(&at.site) {
            inner.settle_bird(&state, &at.site).await?;
        }
        Ok(())
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let name = network(at, region);
        let mut next = State::clone(&inner.state());
        if next.residents(&name).next().is_some()
            || next.nats.contains(&name)
            || next.peerings.keys().any(|peering| peering.ends().contains(&&name))
        {
            return Err(CloudError::conflict(format!("network {name} is in use")));
        }
        let namespace = inner.names.network(&name);
        inner.tables.forget(&namespace);
        namespace::delete(&namespace).await?;
        next.networks.remove(&name);
        let state = inner.keep(next)?;
        if state.connections.contains_key(&at.site) {
            inner.settle_bird(&state, &at.site).await?;
        }
        Ok(())
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState, CloudError> {
        self.inspect_resource(at, &spec.description).await?;
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let (name, home) = (full(at, &spec.name), network(at, &spec.region));
        if !names::fits(&inner.names.resource(&name)) {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let mut next = State::clone(&inner.state());
        let resource = match next.resources.get(&name) {
            Some(there) if there.description != spec.description => {
                return Err(CloudError::conflict(format!(
                    "resource {name} is there with another description"
                )));
            }
            Some(there) => there.clone(),
            None => {
                if !next.networks.contains_key(&home) {
                    return Err(CloudError::conflict(format!("there is no network {home}")));
                }
                let full = || CloudError::conflict(format!("network {home} is full"));
                let address = next.free_address(&home).ok_or_else(full)?;
                let description = spec.description.clone();
                let permit = BTreeMap::new();
                Resource { region: spec.region.clone(), address, description, permit, attached: None }
            }
        };
        next.resources.insert(name.clone(), resource.clone());
        let state = inner.keep(next)?;
        inner.make_resource(&state, &name, &resource).await?;
        Ok(inner.resource_state(&name, &resource))
    }

    async fn inspect_attachment(&self, _: &At, id: &str) -> Result<Vec<String>, CloudError> {
        self.inner.inspect_attachment(&self.inner.state(), id).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState, CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let region: Segment = ATTACHED_REGION.parse().expect("it is a legal name");
        let (name, home) = (full(at, name), network(at, &region));
        let attached = Attached::parse(id)?;
        let mut next = State::clone(&inner.state());
        let resource = match next.resources.get(&name) {
            Some(there) if there.attached.as_ref() != Some(&attached) => {
                return Err(CloudError::conflict(format!("resource {name} is there and is something else")));
            }
            Some(there) => there.clone(),
            None => {
                inner.inspect_attachment(&next, id).await?;
                let full = || CloudError::conflict(format!("network {home} is full or not there"));
                let address = next.free_address(&home).ok_or_else(full)?;
                Resource {
                    region,
                    address,
                    description: id.to_owned(),
                    permit: BTreeMap::new(),
                    attached: Some(attached),
                }
            }
        };
        next.resources.insert(name.clone(), resource.clone());
        let state = inner.keep(next)?;
        inner.make_resource(&state, &name, &resource).await?;
        Ok(inner.resource_state(&name, &resource))
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let name = full(at, name);
        let mut next = State::clone(&inner.state());
        let Some(home) = next.network_of(&name) else { return Ok(()) };
        let Some(gone) = next.resources.remove(&name) else { return Ok(()) };
        match &gone.attached {
            Some(attached) => inner.detach(attached, &inner.names.network(&home), &gone).await?,
            None => {
                inner.stop_command(&name).await;
                namespace::delete(&inner.names.resource(&name)).await?;
            }
        }
        let state = inner.keep(next)?;
        inner.unlist(&state, &home, &gone).await
    }

    /// What the kernel enforces: entries whose rules are not there are not in force.
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>, CloudError> {
        let inner = &self.inner;
        // Not while a list is being changed.
        let _turn = inner.turn.lock().await;
        let state = inner.state();
        let name = inner.find(&state, at, uri)?;
        let resource = &state.resources[&name];
        let Some(network) = state.network_of(&name) else { return Ok(Vec::new()) };
        let Some(current) = inner.tables.read(&inner.names.network(&network)).await? else {
            return Ok(stranger().into_iter().collect());
        };
        let (mut entries, strange) = permit::enforced(resource, &current);
        entries.extend(stranger().filter(|_| strange));
        Ok(entries)
    }

    async fn add_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError> {
        let add = |resource: &mut Resource| {
            resource.permit.extend(entries.iter().map(|entry| (entry.name.clone(), entry.clone())));
        };
        self.inner.change_list(at, uri, add).await
    }

    async fn delete_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError> {
        let delete = |resource: &mut Resource| resource.permit.retain(|_, there| !entries.contains(there));
        self.inner.change_list(at, uri, delete).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let mut next = State::clone(&inner.state());
        let free = next.free_peering();
        let number = *next.peerings.entry(spec.name.clone()).or_insert(free);
        let state = inner.keep(next)?;
        inner.make_peering(&state, &spec.name, number).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let mut next = State::clone(&inner.state());
        let Some(number) = next.peerings.remove(&spec.name) else { return Ok(()) };
        let (end, port) = (inner.names.network(spec.name.ends()[0]), peering_interface(number));
        delete_link(&end, &port).await?;
        inner.keep(next).map(drop)
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let name = network(at, region);
        if !inner.underlay.has_uplink() {
            let message = format!("{at} has no way to public addresses: its uplink is `none`", at = at.site);
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        let mut next = State::clone(&inner.state());
        if !next.networks.contains_key(&name) {
            return Err(CloudError::conflict(format!("there is no network {name}")));
        }
        next.nats.insert(name);
        let state = inner.keep(next)?;
        inner.make_edge(&state, &at.site).await.map(drop)
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let mut next = State::clone(&inner.state());
        if !next.nats.remove(&network(at, region)) {
            return Ok(());
        }
        let state = inner.keep(next)?;
        inner.settle_edge(&state, &at.site).await
    }

    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState, CloudError> {
        crate::vpn::charon::require_programs()?;
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let mut next = State::clone(&inner.state());
        let asn = *next.gateways.entry(at.site.clone()).or_insert(asn);
        let state = inner.keep(next)?;
        let block = inner.make_edge(&state, &at.site).await?;
        Ok(GatewayState { asn, addresses: block.tunnels() })
    }

    async fn delete_gateway(&self, at: &At) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let mut next = State::clone(&inner.state());
        if next.connections.contains_key(&at.site) {
            return Err(CloudError::conflict(format!("the gateway of {} has connections", at.site)));
        }
        if next.gateways.remove(&at.site).is_none() {
            return Ok(());
        }
        let state = inner.keep(next)?;
        inner.settle_edge(&state, &at.site).await
    }

    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<(), CloudError> {
        let state = self.inner.state();
        if !state.gateways.contains_key(&at.site) {
            return Err(CloudError::conflict(format!("site {} has no gateway", at.site)));
        }
        let others =
            state.connections.get(&at.site).into_iter().flatten().filter(|(peer, _)| **peer != spec.peer);
        let used: BTreeSet<_> = others.flat_map(|(_, connection)| &connection.local_bgp).collect();
        match spec.local_bgp.iter().find(|bgp| used.contains(bgp)) {
            Some(bgp) => Err(CloudError::conflict(format!("{bgp} is in use at {}", at.site))),
            None => Ok(()),
        }
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<(), CloudError> {
        self.create_bgp_sessions(at, spec).await?;
        let inner = &self.inner;
        let (state, tunnels, is_rotation) = {
            let _turn = inner.turn.lock().await;
            let before = inner.state();
            let old = inner.tunnels_of(&before, &at.site, Some(&spec.peer))?;
            let mut next = State::clone(&before);
            let connection = Connection::from(spec);
            let there = next.connections.entry(at.site.clone()).or_default();
            let replaced = there.insert(spec.peer.clone(), connection.clone());
            let is_rotation = replaced.is_some_and(|old| old.shared_key != connection.shared_key);
            let state = inner.keep(next)?;
            let new = inner.tunnels_of(&state, &at.site, Some(&spec.peer))?;
            // Those that lead elsewhere now are made anew.
            let moved = |tunnel: &crate::vpn::tunnel::Tunnel| {
                !new.iter().any(|new| {
                    (new.local_bgp, new.local, new.remote) == (tunnel.local_bgp, tunnel.local, tunnel.remote)
                })
            };
            let gone: Vec<_> = old.into_iter().filter(moved).collect();
            inner.remove_tunnels(&at.site, &gone).await?;
            if !namespace::exists(&inner.names.edge(&at.site)) {
                inner.make_edge(&state, &at.site).await?;
            }
            (state, new, is_rotation)
        };
        // Others need not wait while daemons start.
        inner.make_connection(&state, &at.site, &spec.peer).await?;
        if is_rotation {
            inner.until_rotated(&tunnels).await;
        }
        Ok(())
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<(), CloudError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let mut next = State::clone(&inner.state());
        let tunnels = inner.tunnels_of(&next, &at.site, Some(peer))?;
        let Some(peers) = next.connections.get_mut(&at.site) else { return Ok(()) };
        if peers.remove(peer).is_none() {
            return Ok(());
        }
        if peers.is_empty() {
            next.connections.remove(&at.site);
        }
        // The supervisor looks at the state: it must not bring back what is being removed. What a crash leaves in
        // between is unknown to the state, and removed when the cloud is opened.
        let state = inner.keep(next)?;
        inner.settle_bird(&state, &at.site).await?;
        inner.remove_tunnels(&at.site, &tunnels).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus, CloudError> {
        self.inner.status(&at.site, peer).await
    }
}
