//! The controller as a whole, told over gRPC and REST alike.

use std::sync::Arc;

use drivers::{StoreKind, policy::Policy};
use jiff::Timestamp;
use orchestrator::execute::Orchestrator;
use store::Store;

use crate::{
    failure::{Failure, store_failure},
    serving::Serving,
};

/// What there is to tell of a controller.
#[derive(Clone)]
pub struct About {
    pub store: Store,
    pub kind: StoreKind,
    pub policy: Arc<Policy>,
    pub orchestrator: Arc<Orchestrator>,
    pub serving: Arc<Serving>,
    pub started_at: Timestamp,
}

/// How a controller is.
pub struct Told {
    pub version: &'static str,
    /// `embedded` or `etcd`.
    pub store: &'static str,
    pub revision: u64,
    pub started_at: Timestamp,
    /// Why it cannot serve; empty if it can.
    pub problems: Vec<String>,
    /// What is wrong although it serves.
    pub attention: Vec<String>,
}

impl About {
    pub async fn tell(&self) -> Result<Told, Failure> {
        let revision = self.store.revision().await.map_err(|err| store_failure::read(&err, &err))?;
        Ok(Told {
            version: env!("CARGO_PKG_VERSION"),
            store: match self.kind {
                StoreKind::Embedded => "embedded",
                StoreKind::Etcd(_) => "etcd",
            },
            revision: revision.0,
            started_at: self.started_at,
            problems: self.serving.not_ready().await,
            attention: self.attention(),
        })
    }

    /// What is stored and cannot be read.
    fn attention(&self) -> Vec<String> {
        let records = self.orchestrator.unreadable().into_iter();
        let told = records.map(|it| {
            let (record, reason) = (it.record, it.reason);
            format!(
                "a stored record cannot be read, so what it is about is left as it is: {record}: {reason}"
            )
        });
        self.policy.unreadable().into_iter().chain(told).collect()
    }
}
