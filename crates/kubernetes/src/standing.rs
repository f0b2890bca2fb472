//! How the watches of a cluster's kinds stand, and since when.
//!
//! In: what each watch says of itself. Out: the state of each kind, for `status`. Not here: reading ([`crate::follow`]).

use jiff::Timestamp;
use model::policy::Kind;
use parking_lot::Mutex;

use crate::resource::RESOURCES;

/// How the watch of a kind stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has never been whole.
    Reading,
    InSync,
    /// The cluster has no such kind.
    Absent,
    /// What is known stays, and nothing new is heard, for this reason.
    Failed(String),
}

/// How a kind stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindState {
    pub kind: Kind,
    pub standing: Standing,
    /// It was whole at some time: what is known of it is what there was.
    pub known: bool,
    pub since: Timestamp,
}

/// How kinds stand, as their watches say.
pub(crate) struct Standings {
    cluster: String,
    kinds: Mutex<Vec<KindState>>,
}

impl Standings {
    pub(crate) fn new(cluster: &str) -> Self {
        let since = Timestamp::now();
        let state = |kind| KindState { kind, standing: Standing::Reading, known: false, since };
        let kinds = RESOURCES.iter().map(|resource| state(resource.kind)).collect();
        Self { cluster: cluster.to_owned(), kinds: Mutex::new(kinds) }
    }

    pub(crate) fn kinds(&self) -> Vec<KindState> {
        self.kinds.lock().clone()
    }

    /// `since` stays while only the words of a failure change.
    pub(crate) fn set(&self, kind: Kind, standing: Standing) {
        let mut kinds = self.kinds.lock();
        let Some(state) = kinds.iter_mut().find(|state| state.kind == kind) else { return };
        if std::mem::discriminant(&state.standing) != std::mem::discriminant(&standing) {
            state.since = Timestamp::now();
            if matches!(state.standing, Standing::Failed(_)) {
                tracing::info!(cluster = self.cluster, kind = kind.as_str(), "the watch is whole again");
            }
        }
        state.known |= matches!(standing, Standing::InSync | Standing::Absent);
        state.standing = standing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_when_it_began_and_what_was_known_stays_known() {
        let standings = Standings::new("a");
        let pod = || standings.kinds().into_iter().find(|state| state.kind == Kind::Pod).unwrap();
        standings.set(Kind::Pod, Standing::Failed("refused".to_owned()));
        assert!(!pod().known, "it has never been whole");
        standings.set(Kind::Pod, Standing::InSync);
        standings.set(Kind::Pod, Standing::Failed("refused".to_owned()));
        let since = pod().since;
        standings.set(Kind::Pod, Standing::Failed("no route".to_owned()));
        assert!(pod().known && pod().since == since);
    }
}
