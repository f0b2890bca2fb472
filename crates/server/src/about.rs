//! The controller as a whole, told over gRPC and REST alike.

use std::sync::Arc;

use drivers::{StoreKind, clusters::Clusters, objects::Objects, policy::Policy, storage::Storage};
use jiff::Timestamp;
use orchestrator::execute::{CloudState, Orchestrator};
use store::Store;
use wire::trestle::v1::Status;

use crate::{
    enforcement::Enforcement,
    failure::{Failure, store_failure},
    serving::Serving,
    views::MOST_HALVES,
};

/// What there is to tell of a controller.
#[derive(Clone)]
pub struct About {
    pub store: Store,
    pub kind: StoreKind,
    pub policy: Arc<Policy>,
    pub objects: Objects,
    pub clusters: Arc<Clusters>,
    pub orchestrator: Arc<Orchestrator>,
    pub serving: Arc<Serving>,
    pub enforcement: Arc<Enforcement>,
    pub started_at: Timestamp,
    /// What is provided to other clusters, or why nothing is although it was asked for.
    pub storage: Option<Result<Arc<Storage>, String>>,
}

impl About {
    pub async fn tell(&self) -> Result<Status, Failure> {
        let revision = self.store.revision().await.map_err(|err| store_failure::read(&err, &err))?;
        let store = match self.kind {
            StoreKind::Embedded => "embedded",
            StoreKind::Etcd(_) => "etcd",
        };
        let problems = self.serving.not_ready().await;
        let (staged, unreadable) = match self.objects.staged().await {
            Ok(staged) => (u32::try_from(staged.len()).unwrap_or(u32::MAX), None),
            Err(err) => (0, Some(format!("what is staged cannot be read: {}", common::chain(&err)))),
        };
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: store.to_owned(),
            revision: revision.0,
            started_at: self.started_at.as_second(),
            ready: problems.is_empty(),
            problems,
            attention: self.attention().into_iter().chain(unreadable).collect(),
            storage: matches!(self.storage, Some(Ok(_))),
            storage_trouble: self.storage_trouble(),
            slowest_nodes: self.enforcement.slowest(),
            staged,
        })
    }

    fn storage_trouble(&self) -> Vec<String> {
        match &self.storage {
            None => Vec::new(),
            Some(Ok(storage)) => storage.attention(),
            Some(Err(why)) => {
                vec![format!("storage could not start, and will not before a restart: {why}")]
            }
        }
    }

    /// What is stored and cannot be read, clusters and clouds that cannot be asked, what is wanted and cannot be, and rules that only one
    /// end has.
    fn attention(&self) -> Vec<String> {
        let halves = self.orchestrator.halves(None, MOST_HALVES).into_iter().map(|half| half.to_string());
        let records = self.orchestrator.unreadable().into_iter();
        let told = records.map(|it| {
            let (record, reason) = (it.record, it.reason);
            format!(
                "a stored record cannot be read, so what it is about is left as it is: {record}: {reason}"
            )
        });
        let clouds = self.orchestrator.cloud_views().into_iter();
        let clouds = clouds.filter(|view| view.state != CloudState::Ready && !view.message.is_empty());
        let clouds = clouds.map(|view| {
            format!("cloud {} is {} since {}: {}", view.name, view.state, view.since, view.message)
        });
        let unmet = self.orchestrator.unmet().into_iter().map(|it| format!("{}: {}", it.object, it.what));
        let clusters = self.clusters.attention().into_iter();
        self.policy
            .unreadable()
            .into_iter()
            .chain(clusters)
            .chain(told)
            .chain(clouds)
            .chain(unmet)
            .chain(halves)
            .collect()
    }
}
