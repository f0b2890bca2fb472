//! A cloud in memory, with faults by seed.
//!
//! It keeps the contract when its faults are off, and breaks it in every way a real cloud does when they are on:
//! late, throttled, failed before or after the work was done, done by half, old answers to reads, and drift.

mod attach;
mod faults;
mod state;
mod wire;

use std::net::Ipv4Addr;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, ResourceName, ResourceState,
    Segment, Site,
};
use parking_lot::Mutex;

pub use attach::Machine;
use faults::Fate;
pub use faults::{Dice, Faults};
use state::State;
pub use wire::reaches;

use crate::{
    At, Attachment, Attachments, Cloud, CloudError, Links, Listing, Networks, PeeringSpec, PermitLists,
    ResourceSpec, Resources, Result, network_of_cluster,
};

/// A cloud in memory.
pub struct FakeCloud {
    name: Segment,
    traits: CloudTraits,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    /// The state before the last change, for old answers.
    old: State,
    faults: Faults,
    dice: Dice,
    calls: Vec<&'static str>,
}

impl FakeCloud {
    pub fn new(name: Segment) -> Self {
        let inner = Inner {
            state: State::default(),
            old: State::default(),
            faults: Faults::default(),
            dice: Dice::new(0),
            calls: Vec::new(),
        };
        Self { name, traits: CloudTraits::default(), inner: Mutex::new(inner) }
    }

    /// The same, with the bounds of another cloud. Its gateways have their addresses at once, whatever cloud it plays.
    pub fn playing(name: Segment, traits: CloudTraits) -> Self {
        Self { traits: CloudTraits { late_addresses: false, ..traits }, ..Self::new(name) }
    }

    pub fn name(&self) -> &Segment {
        &self.name
    }

    /// From now on calls fail as told.
    pub fn set_faults(&self, faults: Faults) {
        let mut inner = self.inner.lock();
        inner.dice = Dice::new(faults.seed);
        inner.faults = faults;
    }

    /// The calls made so far, by name, reads among them. Forgets them.
    pub fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.inner.lock().calls)
    }

    /// Somebody else changes the cloud: what is decided by `seed`. Says what was done; none if nothing could be.
    pub fn drift(&self, seed: u64) -> Option<String> {
        self.inner.lock().state.drift(&mut Dice::new(seed))
    }

    /// Somebody else makes a machine, in a network of their own.
    pub fn put_machine(&self, id: &str, machine: Machine) {
        self.inner.lock().state.machines.insert(id.to_owned(), machine);
    }

    /// Whether anything is left.
    pub fn is_empty(&self) -> bool {
        self.inner.lock().state.is_empty()
    }

    /// A resource's permit list and address as they truly are.
    pub fn truth(&self, resource: &ResourceName) -> Option<(ResourceState, Vec<PermitEntry>)> {
        self.inner.lock().state.resource(resource)
    }

    async fn write<T>(
        &self,
        call: &'static str,
        work: impl Fn(&mut State, &Segment) -> Result<T> + Send,
    ) -> Result<T> {
        let (latency, fate) = self.roll(call);
        tokio::time::sleep(latency).await;
        if fate == Fate::Hang {
            std::future::pending::<()>().await;
        }
        fate.before()?;
        let result = {
            let mut inner = self.inner.lock();
            let before = inner.state.clone();
            let result = work(&mut inner.state, &self.name);
            // A call that fails has changed nothing.
            if result.is_err() {
                inner.state = before.clone();
            }
            inner.old = before;
            result
        };
        fate.after()?;
        result
    }

    async fn read<T>(&self, call: &'static str, work: impl Fn(&State) -> Result<T> + Send) -> Result<T> {
        let (latency, fate) = self.roll(call);
        tokio::time::sleep(latency).await;
        fate.before()?;
        let inner = self.inner.lock();
        work(if fate == Fate::Old { &inner.old } else { &inner.state })
    }

    fn roll(&self, call: &'static str) -> (std::time::Duration, Fate) {
        let mut inner = self.inner.lock();
        inner.calls.push(call);
        let faults = inner.faults.clone();
        faults.roll(&mut inner.dice)
    }
}

#[async_trait]
impl Cloud for FakeCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(self.traits.clone())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        self.read("list", |state| Ok(state.list(&at.site))).await
    }
}

#[async_trait]
impl Networks for FakeCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        self.write("ensure_network", |state, _| state.ensure_network(&at.site, region, space)).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        self.write("delete_network", |state, _| state.delete_network(&at.site, region)).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        self.write("ensure_peering", |state, _| state.ensure_peering(&spec.name)).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        self.write("delete_peering", |state, _| state.delete_peering(&spec.name)).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        self.write("ensure_nat", |state, _| state.ensure_nat(&at.site, region)).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        self.write("delete_nat", |state, _| state.delete_nat(&at.site, region)).await
    }
}

#[async_trait]
impl Resources for FakeCloud {
    /// Descriptions are `region` or `region anything`; `network` in them is a network setting, `cluster` tells the kind.
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        let mut words = description.split_whitespace();
        let region = words.next().ok_or_else(|| CloudError::invalid("the description is empty"))?;
        let words: Vec<&str> = words.collect();
        if words.contains(&"network") {
            return Err(CloudError::invalid("the description carries network settings; leave them out"));
        }
        let region: Segment =
            region.parse().map_err(|err| CloudError::invalid(format!("the region is not legal: {err}")))?;
        match words.contains(&"cluster") {
            true => network_of_cluster(&region, name),
            false => Ok(region),
        }
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.inspect_resource(at, &spec.name, &spec.description).await?;
        self.write("create_resource", |state, _| state.create_resource(&at.site, spec)).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        self.write("delete_resource", |state, _| state.delete_resource(&at.site, name)).await
    }
}

#[async_trait]
impl Attachments for FakeCloud {
    async fn inspect_attachment(&self, _: &At, id: &str) -> Result<Attachment> {
        self.read("inspect_attachment", |state| state.inspect(id)).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        self.write("adopt_network", |state, _| state.adopt(&at.site, region, space)).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result {
        self.write("release_network", |state, _| state.release(&at.site, region)).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        self.write("attach_resource", |state, _| state.attach(&at.site, name, id)).await
    }
}

#[async_trait]
impl PermitLists for FakeCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        self.read("permit_list", |state| Ok(state.permit(&at.site, uri)?.values().cloned().collect())).await
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let half = self.inner.lock().half();
        self.write("put_list", |state, _| state.put_list(&at.site, uri, before, wanted, half)).await?;
        if half { Err(CloudError::unavailable("the connection broke half way")) } else { Ok(()) }
    }
}

#[async_trait]
impl Links for FakeCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        self.write("create_gateway", |state, cloud| Ok(state.create_gateway(&at.site, asn, cloud))).await
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        self.write("delete_gateway", |state, _| state.delete_gateway(&at.site)).await
    }

    async fn create_bgp_sessions(&self, _: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        self.write("create_bgp_sessions", |state, _| state.gateway(&spec.site).map(|_| Vec::new())).await
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        self.write("create_connections", |state, _| state.connect(&at.site, spec)).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        self.write("delete_connections", |state, _| state.disconnect(&at.site, peer)).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.read("connection_status", |state| state.connection_status(&at.site, peer)).await
    }
}

impl Inner {
    fn half(&mut self) -> bool {
        let chance = self.faults.half;
        self.dice.hits(chance)
    }
}
