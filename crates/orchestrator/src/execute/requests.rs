//! What users ask for: resources, and what all requests have in common.

use std::{collections::BTreeSet, sync::Arc};

use cloud_api::{CloudError, CloudErrorKind};
use model::{PermitEntry, ResourceName, Segment, Site};
use serde::Serialize;
use store::{Expected, Key};
use tracing::info;

use super::{
    Job, Orchestrator, OrchestratorError,
    facts::Fact,
    perform::tag_of,
    state::{self, State},
};
use crate::plan::{Inventory, Phase, Plan, Problem, ResourceIntent, Subject, adoptable, plan};

/// What came of a request: work under way, or what the work would be.
#[derive(Clone, Debug)]
pub enum JobOrPlan {
    Job(Box<Job>),
    Plan(Box<Plan>),
}

impl JobOrPlan {
    pub fn job(self) -> Option<Job> {
        match self {
            Self::Job(job) => Some(*job),
            Self::Plan(_) => None,
        }
    }
}

/// A resource as users see it.
#[derive(Clone, Debug, Serialize)]
pub struct ResourceView {
    pub name: ResourceName,
    pub region: Segment,
    /// `making`, `ready`, `removing`, `wanted`, or `unreadable`: what is stored of it says nothing.
    pub state: &'static str,
    pub uri: Option<String>,
    pub ip: Option<String>,
    /// The permit list as it was last set.
    pub permit_list: Vec<PermitEntry>,
    /// The last trouble with it.
    pub message: String,
}

/// A request that was checked: what it changes, and what puts it back.
pub(super) struct Asked {
    pub what: String,
    pub resources: BTreeSet<ResourceName>,
    pub objects: BTreeSet<String>,
    pub facts: Vec<Fact>,
    pub undo: Vec<Fact>,
    /// What was there, or was not, when the request was judged, beside what it deletes: that was there. If it is otherwise
    /// when the request is stored, the request is refused.
    pub judged_on: Vec<(Key, Expected)>,
}

impl Orchestrator {
    /// Makes a request come true, or says what it would do.
    pub(super) async fn ask(&self, asked: Asked, dry_run: bool) -> Result<JobOrPlan, OrchestratorError> {
        if dry_run {
            let (intent, inventory) = {
                let mut state = self.state.lock();
                (Arc::clone(&state.intent), state.ahead())
            };
            let mut intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
            let mut inventory = Inventory::clone(&inventory);
            asked.facts.into_iter().for_each(|fact| state::try_out(&mut intent, &mut inventory, fact));
            return Ok(JobOrPlan::Plan(Box::new(plan(&intent, &inventory))));
        }
        let job = Job::new(asked.what, asked.resources, asked.objects, asked.undo);
        let mut facts = asked.facts;
        facts.push(job.fact());
        let deleted = facts.iter().filter(|fact| fact.value().is_none());
        let mut judged_on = asked.judged_on;
        judged_on.extend(deleted.map(|fact| (fact.key(), Expected::Present)));
        let as_seen = |state: &State| {
            // Memory may have gone on since it was judged; the store may have gone on since memory.
            let sharpened = |(key, found): (Key, Expected)| match state.revisions.get(&key) {
                Some(revision) if found == Expected::Present => (key, Expected::ModifiedAt(*revision)),
                _ => (key, found),
            };
            judged_on.into_iter().map(sharpened).collect()
        };
        self.commit_if(facts, as_seen).await?;
        info!(job = job.id, what = job.what, "a job begins");
        Ok(JobOrPlan::Job(Box::new(job)))
    }

    pub(super) async fn check_site(&self, site: &Site) -> Result<(), OrchestratorError> {
        self.cloud(&site.cloud)?;
        let known = self.deployments.has_namespace(&site.namespace).await;
        match known.map_err(|err| OrchestratorError::Namespaces { message: common::chain(&err) })? {
            true => Ok(()),
            false => Err(OrchestratorError::UnknownNamespace { namespace: site.namespace.clone() }),
        }
    }

    /// A name that is taken is refused before anything happens.
    pub async fn create_resource(
        &self,
        name: ResourceName,
        description: String,
        attach: bool,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        let site = Site::of(&name);
        self.check_site(&site).await?;
        {
            let state = self.state.lock();
            if state.intent.resources.contains_key(&name) {
                return Err(OrchestratorError::ResourceExists { resource: name });
            }
            let subjects = [Subject::Wanted(name.clone()), Subject::Resource(name.clone())];
            if let Some(record) = subjects.into_iter().find_map(|subject| state.unreadable(subject)) {
                return Err(record.into());
            }
            if state.inventory.resources.contains_key(&name) {
                return Err(OrchestratorError::Leaving { resource: name });
            }
        }
        let graph = self.tags.graph().ok_or(OrchestratorError::NotLoaded)?;
        let tag = tag_of(&name);
        if graph.get(&tag).is_ok() {
            return Err(OrchestratorError::TagExists { tag });
        }
        let (cloud, at) = (self.cloud(&site.cloud)?, self.at(&site).await?);
        let mut notes = Vec::new();
        let (region, adopts) = match attach {
            true => {
                let inspected = cloud.inspect_attachment(&at, &description);
                let found = self.call(&site.cloud, "inspect_attachment", inspected).await?;
                notes = found.changes;
                (found.region, found.network)
            }
            false => {
                let inspected = cloud.inspect_resource(&at, &name.name, &description);
                (self.call(&site.cloud, "inspect_resource", inspected).await?, None)
            }
        };
        let intent = ResourceIntent { region, description, attach, adopts };
        self.check_adoption(&name, &intent)?;
        let asked = Asked {
            judged_on: vec![(Fact::Resource(name.clone(), None).key(), Expected::Absent)],
            what: format!("{} resource {name}", if attach { "attach" } else { "create" }),
            resources: [name.clone()].into(),
            objects: BTreeSet::new(),
            facts: vec![Fact::Resource(name.clone(), Some(intent))],
            undo: vec![Fact::Resource(name.clone(), None)],
        };
        let mut outcome = match self.ask(asked, dry_run).await {
            Err(OrchestratorError::Superseded) if self.state.lock().wants(&name) => {
                return Err(OrchestratorError::ResourceExists { resource: name });
            }
            asked => asked?,
        };
        if let JobOrPlan::Plan(plan) = &mut outcome {
            plan.notes = notes;
        }
        Ok(outcome)
    }

    /// Refuses what lives in a network that cannot be adopted. The plan looks again: others may be quicker.
    fn check_adoption(&self, name: &ResourceName, intent: &ResourceIntent) -> Result<(), OrchestratorError> {
        let Some(existing) = &intent.adopts else { return Ok(()) };
        let inventory = self.state.lock().ahead();
        adoptable(&inventory, [], &intent.network(name), existing)
            .map_err(|kind| OrchestratorError::Problem(Problem { resource: name.clone(), rule: None, kind }))
    }

    /// Deletes a resource with its rules; what was attached is let go.
    pub async fn delete_resource(
        &self,
        name: ResourceName,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        // Asked before its rules go: what cannot be deleted stays as it is.
        if self.traits(&name.cloud).is_some_and(|traits| !traits.deletes) {
            let message = format!("{name} cannot be deleted: its plugin cannot take down what it made");
            let err = CloudError::new(CloudErrorKind::Unsupported, message);
            return Err(OrchestratorError::Cloud { cloud: name.cloud, err });
        }
        let facts = {
            let state = self.state.lock();
            if !state.wants(&name) {
                return Err(OrchestratorError::UnknownResource { resource: name });
            }
            let mut facts = state.rules_off(&name);
            facts.push(Fact::Resource(name.clone(), None));
            facts
        };
        let asked = Asked {
            judged_on: Vec::new(),
            what: format!("delete resource {name}"),
            resources: [name].into(),
            objects: BTreeSet::new(),
            facts,
            undo: Vec::new(),
        };
        self.ask(asked, dry_run).await
    }

    /// The last trouble with each object that has one.
    pub fn troubles(&self) -> Vec<(String, String)> {
        let failures = self.failures.lock();
        failures.iter().map(|(object, failure)| (object.clone(), failure.message.clone())).collect()
    }

    /// What the last plan could not do for a resource.
    fn problem_of(&self, name: &ResourceName) -> Option<String> {
        let standing = Arc::clone(&self.standing.borrow());
        let told: Vec<String> = standing
            .problems
            .iter()
            .filter(|problem| problem.resource == *name)
            .map(|Problem { rule, kind, .. }| match rule {
                Some(rule) => format!("rule {rule}: {kind}"),
                None => kind.to_string(),
            })
            .collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    pub fn resources(&self) -> Vec<ResourceView> {
        let names: BTreeSet<ResourceName> = {
            let state = self.state.lock();
            let unreadable = state.inventory.unreadable.iter().filter_map(|(subject, _)| match subject {
                Subject::Wanted(name) | Subject::Resource(name) => Some(name),
                _ => None,
            });
            let known = state.intent.resources.keys().chain(state.inventory.resources.keys());
            known.chain(unreadable).cloned().collect()
        };
        names.iter().filter_map(|name| self.resource(name).ok()).collect()
    }

    pub fn resource(&self, name: &ResourceName) -> Result<ResourceView, OrchestratorError> {
        let state = self.state.lock();
        let (wanted, made) = (state.intent.resources.get(name), state.inventory.resources.get(name));
        let region = wanted.map(|wanted| &wanted.region).or_else(|| made.map(|made| &made.network.region));
        let unreadable = [Subject::Wanted(name.clone()), Subject::Resource(name.clone())];
        let unreadable = unreadable.into_iter().find_map(|subject| state.unreadable(subject));
        let nowhere: Segment = "unknown".parse().expect("it is a legal segment");
        let region = region.or(unreadable.map(|_| &nowhere));
        let region = region.ok_or_else(|| OrchestratorError::UnknownResource { resource: name.clone() })?;
        let made_state = made.and_then(|made| made.state.as_ref());
        let failure =
            self.failures.lock().get(&format!("resource/{name}")).map(|failure| failure.message.clone());
        Ok(ResourceView {
            name: name.clone(),
            region: region.clone(),
            state: match (wanted, made) {
                _ if unreadable.is_some() => "unreadable",
                (None, _) => "removing",
                (Some(_), made) => made.map_or("wanted", |made| phase_text(made.phase)),
            },
            uri: made_state.map(|state| state.uri.clone()),
            ip: made_state.map(|state| state.address.to_string()),
            permit_list: made.map(|made| made.permit.values().cloned().collect()).unwrap_or_default(),
            message: failure
                .or_else(|| unreadable.map(|record| OrchestratorError::from(record).to_string()))
                .or_else(|| self.problem_of(name))
                .unwrap_or_default(),
        })
    }
}

pub(super) fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Making => "making",
        Phase::Ready => "ready",
        Phase::Removing => "removing",
    }
}
