//! The cloud itself: every call changes the state file first, then makes the kernel follow.
//!
//! Here is what the calls share; the calls are below, by what they are about.

mod gateways;
mod listing;
mod lists;
mod networks;
mod repair;
mod resources;

use std::{collections::BTreeMap, fs::TryLockError, path::PathBuf, sync::Arc};

use cloud_api::{At, CloudError, CloudErrorKind, Result};
use model::{NetworkName, ResourceName, ResourceState, Segment, Site};
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    command::Ended,
    names::Names,
    shell::run,
    state::{Resource, State},
    supervise,
    tables::Tables,
    underlay::{Underlay, Uplink},
};

/// The region of resources that name none.
const DEFAULT_REGION: &str = "local";
/// The region of what is attached, as the orchestrator has it.
pub(crate) const ATTACHED_REGION: &str = "attached";

/// What a cloud is opened with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub uplink: Uplink,
}

/// A cloud of network namespaces.
pub struct LinuxCloud {
    inner: Arc<Inner>,
    supervisor: JoinHandle<()>,
    /// Closed when the supervisor is gone.
    supervised: watch::Receiver<()>,
    /// Keeps other processes away from the same state.
    _lock: files::Lock,
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
    pub async fn open(name: Segment, dir: PathBuf, options: Options) -> Result<Self> {
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
        let lock = files::Lock::take(&dir.join(format!("{name}.lock"))).map_err(|err| match err {
            TryLockError::WouldBlock => {
                CloudError::conflict(format!("another process uses {}", file.display()))
            }
            TryLockError::Error(err) => io(err),
        })?;
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
        let (runs, supervised) = watch::channel(());
        let supervising = supervise::run(Arc::downgrade(&inner));
        let supervisor = tokio::spawn(async move {
            supervising.await;
            drop(runs);
        });
        Ok(Self { inner, supervisor, supervised, _lock: lock })
    }

    /// Returns when nobody looks after the daemons any more: the cloud was dropped, or its supervisor panicked.
    pub fn unsupervised(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut supervised = self.supervised.clone();
        async move { while supervised.changed().await.is_ok() {} }
    }
}

impl Inner {
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read())
    }

    pub(crate) fn turn_of(&self, what: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        // What nobody holds or waits for is forgotten.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(what.to_owned()).or_default())
    }

    /// Writes a state, and then holds it.
    fn keep(&self, next: State) -> Result<Arc<State>> {
        let failed = |err| CloudError::unavailable(format!("cannot write {}: {err}", self.file.display()));
        let next = Arc::new(next);
        if **self.state.read() != *next {
            next.write(&self.file).map_err(failed)?;
            *self.state.write() = Arc::clone(&next);
        }
        Ok(next)
    }

    fn find(&self, state: &State, at: &At, uri: &str) -> Result<ResourceName> {
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
            address: std::net::IpAddr::from(resource.address).into(),
            region: resource.region.clone(),
        }
    }
}

pub(super) fn full(at: &At, name: &Segment) -> ResourceName {
    ResourceName { namespace: at.site.namespace.clone(), cloud: at.site.cloud.clone(), name: name.clone() }
}

pub(super) fn network(at: &At, region: &Segment) -> NetworkName {
    NetworkName { site: at.site.clone(), region: region.clone() }
}
