//! Kubernetes clusters that are read, told over gRPC and REST alike.

use std::sync::Arc;

use drivers::clusters::{Clusters as Read, Counts};
use kubernetes::{ClusterState, KindState, Standing};
use wire::trestle::v1::{ClusterInfo, ClusterKind};

/// What there is to tell of them.
#[derive(Clone)]
pub struct Clusters(pub Arc<Read>);

impl Clusters {
    /// In the order of the configuration.
    pub fn list(&self) -> Vec<ClusterInfo> {
        self.0.list().into_iter().map(|(state, counts)| info(state, &counts)).collect()
    }
}

fn info(state: ClusterState, counts: &Counts) -> ClusterInfo {
    let known = state.is_known();
    let kind = |state: &KindState| {
        let (word, message) = match &state.standing {
            Standing::Reading => ("reading", ""),
            Standing::InSync => ("in sync", ""),
            Standing::Absent => ("not installed", ""),
            Standing::Failed(why) => ("failed", why.as_str()),
        };
        ClusterKind {
            kind: state.kind.as_str().to_owned(),
            state: word.to_owned(),
            since: state.since.as_second(),
            known: state.known,
            objects: counts.get(&state.kind).copied().unwrap_or_default() as u64,
            message: message.to_owned(),
        }
    };
    ClusterInfo {
        kinds: state.kinds.iter().map(kind).collect(),
        name: state.name,
        server: state.server,
        version: state.version,
        known,
        trouble: state.trouble.unwrap_or_default(),
    }
}
