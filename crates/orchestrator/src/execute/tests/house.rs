//! A house with fake clouds, and what is looked up in the orchestrator's own memory.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use async_trait::async_trait;
use cloud_api::{Cloud, FakeCloud, reaches};
use model::{PermitRule, ResourceName, Segment, Site};
use store::Store;

pub use crate::testing::{PING, both, options, resource, rule};
use crate::{
    execute::{
        Deployments, DeploymentsError, Job, JobState, Options, OrchestratorError, facts, state::State,
    },
    testing,
};

pub struct Namespaces;

#[async_trait]
impl Deployments for Namespaces {
    async fn deployment(&self, site: &Site) -> Result<Option<String>, DeploymentsError> {
        Ok(Some(format!("projects/{site}")))
    }

    async fn namespaces(&self) -> Result<Vec<Segment>, DeploymentsError> {
        Ok(["ns", "other"].map(|name| name.parse().unwrap()).to_vec())
    }

    async fn has_namespace(&self, namespace: &Segment) -> Result<bool, DeploymentsError> {
        Ok(namespace.as_str() != "nowhere")
    }
}

pub struct House {
    house: testing::House,
    pub clouds: Vec<Arc<FakeCloud>>,
}

impl Deref for House {
    type Target = testing::House;

    fn deref(&self) -> &testing::House {
        &self.house
    }
}

impl DerefMut for House {
    fn deref_mut(&mut self) -> &mut testing::House {
        &mut self.house
    }
}

fn fakes(names: &[&str]) -> Vec<Arc<FakeCloud>> {
    names.iter().map(|name| Arc::new(crate::kinds::fake(name))).collect()
}

fn named(clouds: &[Arc<FakeCloud>], wrap: impl Fn(Arc<dyn Cloud>) -> Arc<dyn Cloud>) -> testing::Clouds {
    clouds.iter().map(|cloud| (cloud.name().clone(), wrap(Arc::clone(cloud) as _))).collect()
}

impl House {
    pub async fn new(clouds: &[&str]) -> Self {
        Self::with_options(clouds, options()).await
    }

    pub async fn with_options(clouds: &[&str], options: Options) -> Self {
        let clouds = fakes(clouds);
        let house = testing::House::new(Arc::new(Namespaces), options, named(&clouds, |cloud| cloud)).await;
        Self { house, clouds }
    }

    pub async fn in_store(store: Store, clouds: &[&str]) -> Self {
        let clouds = fakes(clouds);
        let named = named(&clouds, |cloud| cloud);
        let house = testing::House::in_store(store, Arc::new(Namespaces), options(), named).await;
        Self { house, clouds }
    }

    /// Kills the orchestrator and starts another on what it left. Store and clouds may be wrapped.
    pub async fn restart(&mut self, store: Store, wrap: impl Fn(Arc<dyn Cloud>) -> Arc<dyn Cloud>) {
        let clouds = named(&self.clouds, wrap);
        self.house.restart(store, clouds).await;
    }

    pub async fn create(&self, name: &str, region: &str) -> Result<Job, OrchestratorError> {
        let ask = || self.orchestrator.create_resource(resource(name), region.to_owned(), false, false);
        let outcome = match ask().await {
            // A write of an orchestrator that was killed may land after its successor has read the store.
            Err(OrchestratorError::Superseded) => ask().await?,
            asked => asked?,
        };
        self.finish(outcome).await
    }

    pub async fn delete(&self, name: &str) -> Job {
        let outcome = self.orchestrator.delete_resource(resource(name), false).await.unwrap();
        self.finish(outcome).await.unwrap()
    }

    pub async fn put(&self, name: &str, rules: Vec<PermitRule>) -> Result<Job, OrchestratorError> {
        let ask = || self.orchestrator.put_rules(resource(name), rules.clone(), false);
        let outcome = match ask().await {
            Err(OrchestratorError::Superseded) => ask().await?,
            asked => asked?,
        };
        self.finish(outcome).await
    }

    pub async fn join(&self, a: &str, b: &str) {
        for (one, other) in [(a, b), (b, a)] {
            assert_eq!(self.put(one, both(other)).await.unwrap().state, JobState::Done);
        }
    }

    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.passes(&resource(from), &resource(to))
    }

    pub fn passes(&self, from: &ResourceName, to: &ResourceName) -> bool {
        let clouds: Vec<&FakeCloud> = self.clouds.iter().map(|cloud| &**cloud).collect();
        reaches(&clouds, from, to, &PING)
    }

    /// Nothing left to do, and nobody waits.
    pub fn is_at_rest(&self) -> bool {
        let jobs = self.orchestrator.jobs();
        !*self.orchestrator.shared.in_doubt.borrow()
            && jobs.iter().all(|job| job.state != JobState::Running)
            && self.orchestrator.plan().unwrap().is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.clouds.iter().all(|cloud| cloud.is_empty())
    }
}

/// What is stored, read afresh.
pub async fn read(store: &Store) -> State {
    let mut state = State::default();
    for entry in store.list(&facts::prefix()).await.unwrap().entries {
        if entry.key != facts::mark() {
            state.take_in(&entry.key, Some(&entry.value), entry.modified);
        }
    }
    state
}
