//! A cloud that answers late, twice, or not what is so; and dies in the midst of a call.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_api::{
    At, Attachment, CloudError, FakeCloud, Listing, PeeringSpec, ResourceSpec, Result, prelude::*,
};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, ResourceState, Segment, Site,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::kinds::fake;

/// What is done to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Meddling {
    Nothing,
    /// The work is done twice, and both times well.
    Twice,
    /// The work is done, but after nobody waits any more.
    Late(Duration),
    /// The process ends when half the work is done: the caller hears that the connection broke.
    Dies,
    /// New resources are said to have this address.
    Address(model::Address),
    /// Lists are empty.
    Empty,
    /// A description is looked at until somebody says that it is time to go on.
    Ponders,
}

pub struct Meddler {
    inner: Arc<FakeCloud>,
    pub meddling: Mutex<Meddling>,
    /// The deployments calls were made in, with the site.
    pub seen: Mutex<Vec<At>>,
    /// Somebody ponders, and waits to be told to go on.
    pub pondering: Notify,
    pub go_on: Notify,
}

impl Meddler {
    pub fn new(name: &str) -> Arc<Self> {
        let inner = Arc::new(fake(name));
        let meddling = Mutex::new(Meddling::Nothing);
        Arc::new(Self {
            inner,
            meddling,
            seen: Mutex::default(),
            pondering: Notify::new(),
            go_on: Notify::new(),
        })
    }

    pub fn cloud(&self) -> &Arc<FakeCloud> {
        &self.inner
    }

    pub fn set(&self, meddling: Meddling) {
        *self.meddling.lock() = meddling;
    }

    async fn change<T, F>(
        &self,
        at: Option<&At>,
        call: impl Fn(Arc<FakeCloud>) -> F + Send + Sync,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.seen.lock().extend(at.cloned());
        let meddling = self.meddling.lock().clone();
        match meddling {
            Meddling::Twice => {
                call(Arc::clone(&self.inner)).await?;
            }
            Meddling::Late(pause) => {
                let work = call(Arc::clone(&self.inner));
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    let _ = work.await;
                });
                return std::future::pending().await;
            }
            Meddling::Dies => {
                call(Arc::clone(&self.inner)).await?;
                return Err(CloudError::unavailable("the connection broke"));
            }
            Meddling::Nothing | Meddling::Address(_) | Meddling::Empty | Meddling::Ponders => {}
        }
        call(Arc::clone(&self.inner)).await
    }
}

/// One change, carried out on clones, because it may outlive the call.
macro_rules! change {
    ($self:ident, $at:ident, $method:ident($($name:ident),*)) => {{
        let at = $at.clone();
        $(let $name = $name.to_owned();)*
        $self
            .change(Some($at), move |inner| {
                let at = at.clone();
                $(let $name = $name.clone();)*
                async move { inner.$method(&at, $(&$name),*).await }
            })
            .await
    }};
}

#[async_trait]
impl Cloud for Meddler {
    async fn describe(&self) -> Result<CloudTraits> {
        self.inner.describe().await
    }
    async fn list(&self, at: &At) -> Result<Listing> {
        if *self.meddling.lock() == Meddling::Empty {
            return Ok(Listing::default());
        }
        self.inner.list(at).await
    }
}

#[async_trait]
impl Networks for Meddler {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        let (at, region) = (at.clone(), region.clone());
        let here = at.clone();
        self.change(Some(&here), move |inner| {
            let (at, region) = (at.clone(), region.clone());
            async move { inner.ensure_network(&at, &region, space).await }
        })
        .await
    }
    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        change!(self, at, delete_network(region))
    }
    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        let spec = spec.clone();
        self.change(None, move |inner| {
            let spec = spec.clone();
            async move { inner.ensure_peering(&spec).await }
        })
        .await
    }
    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        let spec = spec.clone();
        self.change(None, move |inner| {
            let spec = spec.clone();
            async move { inner.delete_peering(&spec).await }
        })
        .await
    }
    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        change!(self, at, ensure_nat(region))
    }
    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        change!(self, at, delete_nat(region))
    }
}

#[async_trait]
impl Resources for Meddler {
    async fn inspect_resource(&self, at: &At, name: &Segment, description: &str) -> Result<Segment> {
        let ponders = *self.meddling.lock() == Meddling::Ponders;
        if ponders {
            self.pondering.notify_one();
            self.go_on.notified().await;
        }
        self.inner.inspect_resource(at, name, description).await
    }
    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        let made = change!(self, at, create_resource(spec))?;
        Ok(match *self.meddling.lock() {
            Meddling::Address(address) => ResourceState { address, ..made },
            _ => made,
        })
    }
    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        change!(self, at, delete_resource(name))
    }
}

#[async_trait]
impl Attachments for Meddler {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        self.inner.inspect_attachment(at, id).await
    }
    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        self.inner.attach_resource(at, name, id).await
    }
}

#[async_trait]
impl PermitLists for Meddler {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        if *self.meddling.lock() == Meddling::Empty {
            return Ok(Vec::new());
        }
        self.inner.permit_list(at, uri).await
    }
    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        change!(self, at, put_list(uri, before, wanted))
    }
}

#[async_trait]
impl Links for Meddler {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let at = at.clone();
        let here = at.clone();
        self.change(Some(&here), move |inner| {
            let at = at.clone();
            async move { inner.create_gateway(&at, asn).await }
        })
        .await
    }
    async fn delete_gateway(&self, at: &At) -> Result {
        change!(self, at, delete_gateway())
    }
    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        change!(self, at, create_bgp_sessions(spec))
    }
    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        change!(self, at, create_connections(spec))
    }
    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        change!(self, at, delete_connections(peer))
    }
    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.inner.connection_status(at, peer).await
    }
}
