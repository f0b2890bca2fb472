//! Kubernetes clusters: what their API servers have, told to the policy engine's driver. The API server is its truth, and nothing of it
//! is stored.
//!
//! ```text
//!   API server ─ kubernetes::Cluster ─► Intake: read, trimmed, labelled, compared ─► Policy::observe
//! ```
//!
//! In: what a cluster tells. Out: observations, and the word that all that there is has been told, which nodes wait for. Holds: which
//! objects each cluster has, by name. Not here: how an API server is asked (`kubernetes`), what becomes of objects (`policy`).

mod intake;

use std::{collections::BTreeMap, sync::Arc};

use kubernetes::{Access, Cluster, ClusterState, Standing};
use life::Life;
use model::policy::{Kind, ObjectId};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{config::ClusterConfig, policy::Policy};
use intake::Intake;

/// How many objects of each kind a cluster has.
pub type Counts = BTreeMap<Kind, usize>;

/// The clusters that are read.
#[derive(Default)]
pub struct Clusters(Vec<Watched>);

struct Watched {
    cluster: Arc<Cluster>,
    heard: Arc<Mutex<Heard>>,
}

/// What is remembered of what a cluster has told.
#[derive(Default)]
struct Heard {
    counts: Counts,
    /// What its policies say has become of them, of the kinds that do.
    statuses: Statuses,
}

/// Statuses, as they are in a cluster.
pub type Statuses = BTreeMap<ObjectId, Value>;

/// Clusters that have not told everything yet.
struct Outstanding(Mutex<usize>);

impl Outstanding {
    /// One has; whether it was the last.
    fn is_last(&self) -> bool {
        let mut left = self.0.lock();
        *left = left.saturating_sub(1);
        *left == 0
    }
}

impl Clusters {
    pub fn start(configs: &[ClusterConfig], policy: &Arc<Policy>, life: &Life) -> Arc<Self> {
        let outstanding = Arc::new(Outstanding(Mutex::new(configs.len())));
        let watched = configs.iter().map(|config| {
            let access = Access { kubeconfig: config.kubeconfig.clone(), context: config.context.clone() };
            let (cluster, told) = Cluster::start(config.name.as_str(), access, life);
            let heard = Arc::<Mutex<Heard>>::default();
            let intake = Intake::new(config.name.as_str(), Arc::clone(&heard));
            let (policy, outstanding) = (Arc::clone(policy), Arc::clone(&outstanding));
            life.spawn(format!("cluster {}: objects", config.name), intake.run(told, policy, outstanding));
            Watched { cluster, heard }
        });
        Arc::new(Self(watched.collect()))
    }

    /// How each stands, in the order of the configuration.
    pub fn list(&self) -> Vec<(ClusterState, Counts)> {
        self.0.iter().map(|one| (one.cluster.state(), one.heard.lock().counts.clone())).collect()
    }

    /// Looks at the statuses that each cluster has; changes of them wait meanwhile.
    pub fn with_statuses<T>(&self, mut look: impl FnMut(&Arc<Cluster>, &Statuses) -> T) -> Vec<T> {
        self.0.iter().map(|one| look(&one.cluster, &one.heard.lock().statuses)).collect()
    }

    /// What is wrong with them, for people: one line each.
    pub fn attention(&self) -> Vec<String> {
        self.0.iter().filter_map(|one| attention(&one.cluster.state())).collect()
    }
}

fn attention(state: &ClusterState) -> Option<String> {
    let name = &state.name;
    if let Some(trouble) = &state.trouble {
        return Some(format!(
            "cluster {name} cannot be asked, and nodes are told nothing before it is: {trouble}"
        ));
    }
    let failed = |kind: &kubernetes::KindState| match &kind.standing {
        Standing::Failed(why) => Some((kind.kind, kind.known, kind.since, why.clone())),
        Standing::Reading | Standing::InSync | Standing::Absent => None,
    };
    let failures: Vec<_> = state.kinds.iter().filter_map(failed).collect();
    let since = failures.iter().map(|(_, _, since, _)| since).min()?;
    let (kind, _, _, why) = failures.first()?;
    let heard = match failures.len() {
        all if all == state.kinds.len() => "nothing is heard".to_owned(),
        1 => format!("nothing new is heard of {}s", kind.as_str()),
        more => format!("nothing new is heard of {}s and {} more kinds", kind.as_str(), more - 1),
    };
    let stays = match failures.iter().all(|(_, known, ..)| *known) {
        true => "what is known stays in force",
        false => "nodes are told nothing before it is",
    };
    Some(format!("cluster {name}: {heard} since {since:.0}; {stays}: {why}"))
}

#[cfg(test)]
mod tests {
    use kubernetes::KindState;

    use super::*;

    fn state(kinds: &[(Kind, Standing, bool)]) -> ClusterState {
        let since = "2026-01-01T00:00:05Z".parse().unwrap();
        let kinds = kinds.iter().map(|(kind, standing, known)| KindState {
            kind: *kind,
            standing: standing.clone(),
            known: *known,
            since,
        });
        ClusterState {
            name: "prod".to_owned(),
            server: String::new(),
            version: String::new(),
            trouble: None,
            kinds: kinds.collect(),
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_time_and_what_that_means() {
        let failed = || Standing::Failed("refused".to_owned());
        assert_eq!(
            attention(&state(&[(Kind::Pod, Standing::InSync, true), (Kind::Tier, Standing::Absent, true)])),
            None
        );
        assert_eq!(
            attention(&state(&[(Kind::Pod, failed(), true), (Kind::Tier, failed(), true)])).unwrap(),
            "cluster prod: nothing is heard since 2026-01-01T00:00:05Z; what is known stays in force: refused"
        );
        assert_eq!(
            attention(&state(&[(Kind::Pod, Standing::InSync, true), (Kind::Node, failed(), false)])).unwrap(),
            "cluster prod: nothing new is heard of Nodes since 2026-01-01T00:00:05Z; nodes are told nothing before it is: refused"
        );
    }
}
