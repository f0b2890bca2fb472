//! The cloud itself: every call changes the state file first, then makes the kernel follow.

use std::path::PathBuf;

use async_trait::async_trait;
use cloud_api::{At, Cloud, CloudError, CloudErrorKind, Listing, PeeringSpec, ResourceSpec};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, NetworkName, PermitEntry, ResourceName,
    ResourceState, Segment, Site,
};
use serde::Deserialize;
use tokio::sync::Mutex;
use tracing::warn;

use crate::{
    nft,
    shell::{delete_namespace, namespaces, run, run_with},
    state::{Resource, State},
};

/// The router of every resource, on the network's end of its veth.
const ROUTER: &str = "169.254.1.1";
/// The region of resources that name none.
const DEFAULT_REGION: &str = "local";

/// A description of a resource.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Description {
    region: Option<Segment>,
}

/// A cloud of network namespaces.
pub struct LinuxCloud {
    name: Segment,
    file: PathBuf,
    /// Calls take turns: the kernel is made from the whole state of a network.
    state: Mutex<State>,
    /// Keeps other processes away from the same state.
    _lock: std::fs::File,
}

impl LinuxCloud {
    /// Opens a cloud whose state is in a directory, and repairs what is not as the state says.
    pub async fn open(name: Segment, dir: PathBuf) -> Result<Self, CloudError> {
        if !rustix::process::geteuid().is_root() {
            let message = "a Linux cloud makes network namespaces, which needs root; run the controller as root, or \
                           leave this cloud out";
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        run(&["nft", "--version"]).await?;
        let io =
            |err: std::io::Error| CloudError::unavailable(format!("cannot use {}: {err}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(io)?;
        let file = dir.join(format!("{name}.json"));
        let lock = std::fs::File::create(dir.join(format!("{name}.lock"))).map_err(io)?;
        lock.try_lock()
            .map_err(|_| CloudError::conflict(format!("another process uses {}", file.display())))?;
        let state = State::read(&file).map_err(io)?;
        let cloud = Self { name, file, state: Mutex::new(state), _lock: lock };
        cloud.repair().await?;
        Ok(cloud)
    }

    /// Makes the kernel as the state says: removes what the state does not know, makes what is missing.
    async fn repair(&self) -> Result<(), CloudError> {
        let state = self.state.lock().await;
        let mut known: Vec<String> = state.networks.keys().map(network_namespace).collect();
        known.extend(state.resources.keys().map(resource_namespace));
        let (networks, resources) = (format!("trn.{}.", self.name), format!("trr.{}.", self.name));
        for there in namespaces().await? {
            let ours = there.starts_with(&networks) || there.starts_with(&resources);
            if ours && !known.contains(&there) {
                warn!(namespace = there, "a namespace that nobody knows is removed");
                delete_namespace(&there).await?;
            }
        }
        for (name, space) in &state.networks {
            self.make_network(&state, name, *space).await?;
        }
        for (name, resource) in &state.resources {
            self.make_resource(&state, name, resource).await?;
        }
        for (peering, number) in &state.peerings {
            self.make_peering(&state, peering, *number).await?;
        }
        Ok(())
    }

    fn save(&self, state: &State) -> Result<(), CloudError> {
        state
            .write(&self.file)
            .map_err(|err| CloudError::unavailable(format!("cannot write {}: {err}", self.file.display())))
    }

    async fn make_network(
        &self,
        state: &State,
        name: &NetworkName,
        space: Ipv4Net,
    ) -> Result<(), CloudError> {
        let namespace = network_namespace(name);
        if !namespaces().await?.contains(&namespace) {
            run(&["ip", "netns", "add", &namespace]).await?;
        }
        // Closed before anything is connected to it.
        self.load_rules(state, name).await?;
        let settings =
            ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"];
        for setting in settings {
            run(&["ip", "netns", "exec", &namespace, "sysctl", "-qw", setting]).await?;
        }
        // What nobody has in this space goes nowhere.
        run(&["ip", "-n", &namespace, "link", "set", "lo", "up"]).await?;
        run(&["ip", "-n", &namespace, "route", "replace", "blackhole", &space.to_string()]).await.map(drop)
    }

    async fn load_rules(&self, state: &State, name: &NetworkName) -> Result<(), CloudError> {
        let namespace = network_namespace(name);
        let rules = nft::ruleset(state, name);
        run_with(&["ip", "netns", "exec", &namespace, "nft", "-f", "-"], &rules).await.map(drop)
    }

    async fn make_resource(
        &self,
        state: &State,
        name: &ResourceName,
        resource: &Resource,
    ) -> Result<(), CloudError> {
        let network = NetworkName { site: Site::of(name), region: resource.region.clone() };
        let (inside, outside) = (resource_namespace(name), network_namespace(&network));
        self.load_rules(state, &network).await?;
        if !namespaces().await?.contains(&inside) {
            run(&["ip", "netns", "add", &inside]).await?;
        }
        let (address, port) = (resource.address, nft::interface(resource));
        let is_there = run(&["ip", "-n", &inside, "link", "show", "eth0"]).await.is_ok()
            && run(&["ip", "-n", &outside, "link", "show", &port]).await.is_ok();
        if !is_there {
            // A veth of which one end is missing is made anew.
            let _ = run(&["ip", "-n", &inside, "link", "delete", "eth0"]).await;
            let _ = run(&["ip", "-n", &outside, "link", "delete", &port]).await;
            run(&[
                "ip", "link", "add", "eth0", "netns", &inside, "type", "veth", "peer", "name", &port,
                "netns", &outside,
            ])
            .await?;
        }
        ip_in(
            &outside,
            &[
                format!("address replace {ROUTER}/32 dev {port}"),
                format!("link set {port} up"),
                format!("route replace {address}/32 dev {port}"),
            ],
        )
        .await?;
        ip_in(
            &inside,
            &[
                "link set lo up".to_owned(),
                format!("address replace {address}/32 dev eth0"),
                "link set eth0 up".to_owned(),
                format!("route replace {ROUTER} dev eth0 scope link"),
                format!("route replace default via {ROUTER} dev eth0"),
            ],
        )
        .await
    }

    async fn make_peering(
        &self,
        state: &State,
        name: &model::PeeringName,
        number: u16,
    ) -> Result<(), CloudError> {
        let [a, b] = name.ends();
        let gone = || CloudError::conflict(format!("a network of {name} does not exist"));
        let spaces = [*state.networks.get(a).ok_or_else(gone)?, *state.networks.get(b).ok_or_else(gone)?];
        let namespaces = [network_namespace(a), network_namespace(b)];
        let port = peering_interface(number);
        let is_there = run(&["ip", "-n", &namespaces[0], "link", "show", &port]).await.is_ok();
        if !is_there {
            let [a, b] = &namespaces;
            run(&["ip", "link", "add", &port, "netns", a, "type", "veth", "peer", "name", &port, "netns", b])
                .await?;
        }
        let addresses = peering_addresses(number);
        for (end, namespace) in namespaces.iter().enumerate() {
            let (own, other, space) = (addresses[end], addresses[1 - end], spaces[1 - end]);
            ip_in(
                namespace,
                &[
                    format!("address replace {own}/32 dev {port}"),
                    format!("link set {port} up"),
                    format!("route replace {space} via {other} dev {port} onlink"),
                ],
            )
            .await?;
        }
        Ok(())
    }

    fn not_yet(what: &str) -> CloudError {
        CloudError::new(CloudErrorKind::Unsupported, format!("the Linux cloud has no {what} yet"))
    }

    fn find(&self, state: &State, at: &At, uri: &str) -> Result<ResourceName, CloudError> {
        let found = state.resources.keys().find(|name| Site::of(name) == at.site && uri_of(name) == uri);
        found
            .cloned()
            .ok_or_else(|| CloudError::not_found(format!("there is no resource {uri} in {}", at.site)))
    }

    async fn change_list(
        &self,
        at: &At,
        uri: &str,
        change: impl FnOnce(&mut Resource),
    ) -> Result<(), CloudError> {
        let mut state = self.state.lock().await;
        let name = self.find(&state, at, uri)?;
        let mut next = state.clone();
        if let Some(resource) = next.resources.get_mut(&name) {
            change(resource);
        }
        if next == *state {
            return Ok(());
        }
        self.save(&next)?;
        *state = next;
        match state.network_of(&name) {
            Some(network) => self.load_rules(&state, &network).await,
            None => Ok(()),
        }
    }
}

/// Runs several `ip` commands in a namespace, in one process.
async fn ip_in(namespace: &str, lines: &[String]) -> Result<(), CloudError> {
    let text = lines.join("\n") + "\n";
    run_with(&["ip", "-n", namespace, "-batch", "-"], &text).await.map(drop)
}

fn network_namespace(name: &NetworkName) -> String {
    format!("trn.{}.{}.{}", name.site.cloud, name.site.namespace, name.region)
}

fn resource_namespace(name: &ResourceName) -> String {
    format!("trr.{}.{}.{}", name.cloud, name.namespace, name.name)
}

fn uri_of(name: &ResourceName) -> String {
    format!("netns:{}", resource_namespace(name))
}

fn peering_interface(number: u16) -> String {
    format!("p{number}")
}

/// A pair of link-local addresses of its own for each peering.
fn peering_addresses(number: u16) -> [std::net::Ipv4Addr; 2] {
    let base = u32::from(std::net::Ipv4Addr::new(169, 254, 128, 0)) + u32::from(number % 0x3fff) * 2;
    [base.into(), (base + 1).into()]
}

fn full(at: &At, name: &Segment) -> ResourceName {
    ResourceName { namespace: at.site.namespace.clone(), cloud: at.site.cloud.clone(), name: name.clone() }
}

fn network(at: &At, region: &Segment) -> NetworkName {
    NetworkName { site: at.site.clone(), region: region.clone() }
}

fn resource_state(name: &ResourceName, resource: &Resource) -> ResourceState {
    ResourceState { uri: uri_of(name), address: resource.address.into(), region: resource.region.clone() }
}

#[async_trait]
impl Cloud for LinuxCloud {
    async fn describe(&self) -> Result<CloudTraits, CloudError> {
        Ok(CloudTraits::default())
    }

    async fn inspect_resource(&self, _: &At, description: &str) -> Result<Segment, CloudError> {
        let read: Description = serde_json::from_str(description).map_err(|err| {
            CloudError::invalid(format!(
                "the description is not JSON like {{\"region\":\"west\"}}, without network settings: {err}"
            ))
        })?;
        Ok(read.region.unwrap_or_else(|| DEFAULT_REGION.parse().expect("it is a legal name")))
    }

    async fn list(&self, at: &At) -> Result<Listing, CloudError> {
        let state = self.state.lock().await;
        let there = namespaces().await?;
        let networks = state.networks.iter().filter(|(name, _)| name.site == at.site);
        let resources = state.resources.iter().filter(|(name, _)| Site::of(name) == at.site);
        let mut peerings = Vec::new();
        for (name, number) in &state.peerings {
            let end = network_namespace(name.ends()[0]);
            let of_site = name.ends().iter().any(|end| end.site == at.site);
            if of_site && run(&["ip", "-n", &end, "link", "show", &peering_interface(*number)]).await.is_ok()
            {
                peerings.push(name.clone());
            }
        }
        Ok(Listing {
            networks: networks
                .filter(|(name, _)| there.contains(&network_namespace(name)))
                .map(|(name, space)| (name.region.clone(), *space))
                .collect(),
            resources: resources
                .filter(|(name, _)| there.contains(&resource_namespace(name)))
                .map(|(name, resource)| (name.name.clone(), resource_state(name, resource)))
                .collect(),
            peerings,
            ..Listing::default()
        })
    }

    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<(), CloudError> {
        let mut state = self.state.lock().await;
        let name = network(at, region);
        match state.networks.get(&name) {
            Some(there) if *there != space => {
                return Err(CloudError::conflict(format!("network {name} is there with {there}")));
            }
            Some(_) => {}
            None => {
                let mut next = state.clone();
                next.networks.insert(name.clone(), space);
                self.save(&next)?;
                *state = next;
            }
        }
        self.make_network(&state, &name, space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let mut state = self.state.lock().await;
        let name = network(at, region);
        if state.residents(&name).next().is_some()
            || state.peerings.keys().any(|peering| peering.ends().contains(&&name))
        {
            return Err(CloudError::conflict(format!("network {name} is in use")));
        }
        delete_namespace(&network_namespace(&name)).await?;
        let mut next = state.clone();
        next.networks.remove(&name);
        self.save(&next)?;
        *state = next;
        Ok(())
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState, CloudError> {
        self.inspect_resource(at, &spec.description).await?;
        let mut state = self.state.lock().await;
        let (name, home) = (full(at, &spec.name), network(at, &spec.region));
        // The kernel's limit for the name of a file, which a namespace is.
        if resource_namespace(&name).len() > 255 {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let resource = match state.resources.get(&name) {
            Some(there) if there.description != spec.description => {
                return Err(CloudError::conflict(format!(
                    "resource {name} is there with another description"
                )));
            }
            Some(there) => there.clone(),
            None => {
                if !state.networks.contains_key(&home) {
                    return Err(CloudError::conflict(format!("there is no network {home}")));
                }
                let full = || CloudError::conflict(format!("network {home} is full"));
                let address = state.free_address(&home).ok_or_else(full)?;
                let description = spec.description.clone();
                let resource = Resource {
                    region: spec.region.clone(),
                    address,
                    description,
                    permit: Default::default(),
                };
                let mut next = state.clone();
                next.resources.insert(name.clone(), resource.clone());
                self.save(&next)?;
                *state = next;
                resource
            }
        };
        self.make_resource(&state, &name, &resource).await?;
        Ok(resource_state(&name, &resource))
    }

    async fn attach_resource(&self, _: &At, _: &Segment, _: &str) -> Result<ResourceState, CloudError> {
        Err(Self::not_yet("attaching"))
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<(), CloudError> {
        let mut state = self.state.lock().await;
        let name = full(at, name);
        let Some(home) = state.network_of(&name) else { return Ok(()) };
        stop_processes(&resource_namespace(&name)).await;
        delete_namespace(&resource_namespace(&name)).await?;
        let mut next = state.clone();
        next.resources.remove(&name);
        self.save(&next)?;
        *state = next;
        if namespaces().await?.contains(&network_namespace(&home)) {
            self.load_rules(&state, &home).await?;
        }
        Ok(())
    }

    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>, CloudError> {
        let state = self.state.lock().await;
        let name = self.find(&state, at, uri)?;
        Ok(state
            .resources
            .get(&name)
            .map(|resource| resource.permit.values().cloned().collect())
            .unwrap_or_default())
    }

    async fn add_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError> {
        let add = |resource: &mut Resource| {
            resource.permit.extend(entries.iter().map(|entry| (entry.name.clone(), entry.clone())));
        };
        self.change_list(at, uri, add).await
    }

    async fn delete_entries(&self, at: &At, uri: &str, entries: &[PermitEntry]) -> Result<(), CloudError> {
        self.change_list(at, uri, |resource| resource.permit.retain(|_, there| !entries.contains(there)))
            .await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        let mut state = self.state.lock().await;
        let number = match state.peerings.get(&spec.name) {
            Some(number) => *number,
            None => {
                let mut next = state.clone();
                let number = next.free_peering();
                next.peerings.insert(spec.name.clone(), number);
                self.save(&next)?;
                *state = next;
                number
            }
        };
        self.make_peering(&state, &spec.name, number).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        let mut state = self.state.lock().await;
        let Some(number) = state.peerings.get(&spec.name).copied() else { return Ok(()) };
        let end = network_namespace(spec.name.ends()[0]);
        // The other end, and the routes, go with it.
        if run(&["ip", "-n", &end, "link", "show", &peering_interface(number)]).await.is_ok() {
            run(&["ip", "-n", &end, "link", "delete", &peering_interface(number)]).await?;
        }
        let mut next = state.clone();
        next.peerings.remove(&spec.name);
        self.save(&next)?;
        *state = next;
        Ok(())
    }

    async fn ensure_nat(&self, _: &At, _: &Segment) -> Result<(), CloudError> {
        Err(Self::not_yet("NAT towards public addresses"))
    }

    async fn delete_nat(&self, _: &At, _: &Segment) -> Result<(), CloudError> {
        Ok(())
    }

    async fn create_gateway(&self, _: &At, _: u32) -> Result<GatewayState, CloudError> {
        Err(Self::not_yet("VPN gateway"))
    }

    async fn delete_gateway(&self, _: &At) -> Result<(), CloudError> {
        Ok(())
    }

    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<(), CloudError> {
        Err(Self::not_yet("VPN gateway"))
    }

    async fn create_connections(&self, _: &At, _: &ConnectionSpec) -> Result<(), CloudError> {
        Err(Self::not_yet("VPN gateway"))
    }

    async fn delete_connections(&self, _: &At, _: &Site) -> Result<(), CloudError> {
        Ok(())
    }

    async fn connection_status(&self, _: &At, _: &Site) -> Result<ConnectionStatus, CloudError> {
        Err(Self::not_yet("VPN gateway"))
    }
}

/// Ends what runs inside a namespace: told to first, made to after a second.
async fn stop_processes(namespace: &str) {
    for signal in ["-TERM", "-KILL"] {
        let Ok(listed) = run(&["ip", "netns", "pids", namespace]).await else { return };
        let pids: Vec<&str> = listed.split_whitespace().collect();
        if pids.is_empty() {
            return;
        }
        let mut words = vec!["kill", signal];
        words.extend(&pids);
        // One that has just ended makes the command fail; the others were told.
        let _ = run(&words).await;
        for _ in 0..20 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            if run(&["ip", "netns", "pids", namespace]).await.is_ok_and(|left| left.trim().is_empty()) {
                return;
            }
        }
    }
}
