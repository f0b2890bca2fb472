//! Whom each publish concerned.
//!
//! In: who was touched by a publish. Out: who was touched between two revisions, and until which revision each must come to
//! have it. Holds: the last publishes, within bounds; of what is older nobody can say whom it concerned.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::key::Revision;

/// Publishes remembered.
const MAX_WAVES: usize = 4_096;
/// Nodes remembered in all of them.
const MAX_NODES: usize = 1 << 18;

/// Whom publishes concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// The last of them that concerned everyone.
    pub everyone: Option<Revision>,
    /// The last of them for each node that was meant by itself.
    pub nodes: BTreeMap<Arc<str>, Revision>,
}

#[derive(Debug)]
struct Wave {
    revision: Revision,
    everyone: bool,
    nodes: Box<[Arc<str>]>,
}

#[derive(Debug, Default)]
pub(super) struct Waves {
    kept: VecDeque<Wave>,
    /// Nodes in all that is kept.
    nodes: usize,
    /// The newest that is forgotten.
    horizon: Revision,
}

impl Waves {
    pub fn note(&mut self, revision: Revision, everyone: bool, nodes: Box<[Arc<str>]>) {
        self.nodes += nodes.len();
        self.kept.push_back(Wave { revision, everyone, nodes });
        while self.kept.len() > 1 && (self.kept.len() > MAX_WAVES || self.nodes > MAX_NODES) {
            let Some(wave) = self.kept.pop_front() else { break };
            self.nodes -= wave.nodes.len();
            self.horizon = wave.revision;
        }
    }

    /// Whom what came after `after`, up to `until`, concerned; none if that is forgotten.
    pub fn between(&self, after: Revision, until: Revision) -> Option<Concerned> {
        if after < self.horizon {
            return None;
        }
        let mut concerned = Concerned::default();
        let from = self.kept.partition_point(|wave| wave.revision <= after);
        for wave in self.kept.range(from..).take_while(|wave| wave.revision <= until) {
            if wave.everyone {
                concerned.everyone = Some(wave.revision);
            }
            let nodes = wave.nodes.iter().map(|node| (Arc::clone(node), wave.revision));
            concerned.nodes.extend(nodes);
        }
        Some(concerned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> Box<[Arc<str>]> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn each_node_is_named_with_the_last_that_concerned_it() {
        let mut waves = Waves::default();
        waves.note(Revision(1), false, nodes(&["a"]));
        waves.note(Revision(2), false, nodes(&["a", "b"]));
        waves.note(Revision(3), true, nodes(&["b"]));
        waves.note(Revision(4), false, nodes(&["c"]));
        let between = waves.between(Revision(1), Revision(3)).unwrap();
        assert_eq!(between.everyone, Some(Revision(3)));
        let told: Vec<_> = between.nodes.iter().map(|(name, revision)| (&**name, revision.0)).collect();
        assert_eq!(told, [("a", 2), ("b", 3)]);
        assert_eq!(waves.between(Revision(4), Revision(4)), Some(Concerned::default()));
    }

    #[test]
    fn what_is_forgotten_is_not_taken_for_nothing() {
        let mut waves = Waves::default();
        (1..=5_000).for_each(|revision| waves.note(Revision(revision), false, nodes(&["a"])));
        assert_eq!(waves.between(Revision(10), Revision(20)), None);
        assert!(waves.between(Revision(4_000), Revision(5_000)).is_some());
        let many: Vec<String> = (0..=MAX_NODES).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        waves.note(Revision(5_001), false, nodes(&many));
        // The newest stays, however large it is.
        assert_eq!(waves.between(Revision(5_000), Revision(5_001)).unwrap().nodes.len(), many.len());
        assert_eq!(waves.between(Revision(4_999), Revision(5_001)), None);
    }
}
