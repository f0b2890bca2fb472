//! What rules have decided, for longer than single flows are kept.
//!
//! In: flows as they are recorded, and which policies there are, each as of a version. Out: of each policy, since when it is counted as
//! it is now, and of its rules how often and when last they decided. Holds: one row for each rule that has decided something, in a file
//! beside the record, with how far of the record it is counted: what a crash has cost is counted again from there, once.
//!
//! A policy that changes is another one: its third rule may say something else now, so it is counted anew. Nothing is said of a time
//! before somebody counted.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::Flow;

const FILE: &str = "uses.json";
/// Rules of one policy that are counted. A node names them, and it is not to fill the controller's memory.
const RULES: usize = 4_096;
/// Nodes that are remembered to have told something.
const NODES: usize = 65_536;
/// How long a policy that is gone is remembered, in milliseconds: a controller that has just started may not have read all of them.
const GONE: u64 = 24 * 3_600_000;
/// How late, in milliseconds, a new policy may be noticed without a decision of it being left out.
const LATE: u64 = 60_000;

/// How often a rule has decided, and when last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Connections that were opened, and packets that were denied.
    pub count: u64,
    /// Milliseconds since 1970.
    pub last: u64,
}

/// A policy as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Of what: another one begins anew.
    version: String,
    /// Since when, in milliseconds since 1970.
    pub since: u64,
    /// By what decided, as flows name it. What has decided nothing is not here.
    pub rules: BTreeMap<String, Use>,
    /// Since when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<u64>,
}

impl Counted {
    /// The last of all its rules, and all they decided.
    pub fn all(&self) -> Use {
        self.rules.values().fold(Use::default(), |all, one| Use {
            count: all.count.saturating_add(one.count),
            last: all.last.max(one.last),
        })
    }
}

/// A place in the record: a file by its number, and bytes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) file: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uses {
    /// When the record was begun, or from when on it is whole: the latest time of what was too old or too much.
    pub since: u64,
    /// What is before it is counted.
    pub(crate) counted: Place,
    /// By name, as in `NetworkPolicy shop/web`.
    policies: BTreeMap<String, Counted>,
    /// When each node has told something last.
    nodes: BTreeMap<String, u64>,
}

impl Uses {
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(FILE)) {
            // What cannot be read is begun anew, and says so by its beginning.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let content = serde_json::to_vec(self).map_err(io::Error::other)?;
        files::write(&dir.join(FILE), &content)
    }

    /// Those that there are, by name, each with its version, and when somebody looked before. One that is new since then has decided nothing
    /// before it was there, so what has been decided since that look is its own.
    pub(crate) fn policies_are(
        &mut self,
        there: impl Iterator<Item = (String, String)>,
        looked: u64,
        now: u64,
    ) {
        let mut before = std::mem::take(&mut self.policies);
        let looked = looked.clamp(now.saturating_sub(LATE), now);
        for (name, version) in there {
            let known = before.remove(&name);
            // What another version has decided meanwhile is not told apart.
            let since = if known.is_some() { now } else { looked };
            let known = known.filter(|known| known.version == version);
            let anew = || Counted { version, since, rules: BTreeMap::new(), gone: None };
            let known = known.unwrap_or_else(anew);
            // A clock that was put back.
            let since = known.since.min(now);
            self.policies.insert(name, Counted { gone: None, since, ..known });
        }
        for (name, mut gone) in before {
            let at = *gone.gone.get_or_insert(now);
            if now.saturating_sub(at) < GONE && !self.policies.contains_key(&name) {
                self.policies.insert(name, gone);
            }
        }
    }

    pub(crate) fn note(&mut self, flows: &[Flow]) {
        for flow in flows {
            let kind = &flow.kind;
            if let Some(last) = self.nodes.get_mut(&*kind.node) {
                *last = (*last).max(flow.last);
            } else if self.nodes.len() < NODES {
                self.nodes.insert(kind.node.to_string(), flow.last);
            }
            // A row that only has bytes is of a connection that was counted when it was opened.
            let Some(policy) = policy_of(&kind.rule).filter(|_| flow.count > 0) else { continue };
            // What an earlier version has decided is told late.
            let counted = self.policies.get_mut(policy).filter(|counted| flow.last >= counted.since);
            let Some(counted) = counted else { continue };
            if counted.rules.len() >= RULES && !counted.rules.contains_key(&*kind.rule) {
                continue;
            }
            let rule = counted.rules.entry(kind.rule.to_string()).or_default();
            rule.count = rule.count.saturating_add(flow.count);
            rule.last = rule.last.max(flow.last);
        }
    }

    /// None: nobody has begun to count it.
    pub fn of(&self, policy: &str) -> Option<&Counted> {
        self.policies.get(policy).filter(|counted| counted.gone.is_none())
    }

    /// Whether a node has told anything since then.
    pub fn has_told(&self, node: &str, since: u64) -> bool {
        self.nodes.get(node).is_some_and(|last| *last >= since)
    }
}

/// `NetworkPolicy shop/web` of `ingress rule 0 of NetworkPolicy shop/web` and of `isolated by NetworkPolicy shop/web`.
pub fn policy_of(rule: &str) -> Option<&str> {
    rule.strip_prefix("isolated by ").or_else(|| rule.rsplit_once(" of ").map(|(_, policy)| policy))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Direction, End, Kind, Verdict};

    fn flow(rule: &str, count: u64, last: u64) -> Flow {
        let end = Arc::new(End::default());
        let kind = Kind {
            node: "n1".into(),
            verdict: Verdict::Allowed,
            direction: Direction::In,
            from: Arc::clone(&end),
            to: end,
            protocol: 6,
            port: Some(80),
            service: None,
            rule: rule.into(),
        };
        Flow { kind, count, bytes: None, first: last, last }
    }

    fn there(version: &str) -> impl Iterator<Item = (String, String)> {
        [("NetworkPolicy shop/web".to_owned(), version.to_owned())].into_iter()
    }

    const RULE: &str = "ingress rule 0 `a of b` of NetworkPolicy shop/web";

    #[test]
    fn a_policy_that_changes_is_counted_anew() {
        let mut uses = Uses::default();
        uses.policies_are(there("1"), 100, 100);
        uses.note(&[
            flow(RULE, 2, 150),
            flow("isolated by NetworkPolicy shop/web", 3, 160),
            flow("", 9, 170),
        ]);
        uses.note(&[flow("ingress rule 0 of NetworkPolicy shop/nobody", 1, 150), flow(RULE, 0, 500)]);
        let counted = uses.of("NetworkPolicy shop/web").unwrap();
        assert_eq!((counted.since, counted.all()), (100, Use { count: 5, last: 160 }));
        assert_eq!(counted.rules[RULE], Use { count: 2, last: 150 });
        assert_eq!(uses.of("NetworkPolicy shop/nobody"), None, "a node cannot make policies up");
        uses.policies_are(there("1"), 200, 200);
        assert_eq!(uses.of("NetworkPolicy shop/web").unwrap().all().count, 5);
        uses.policies_are(there("2"), 300, 300);
        // Told late, of the version before.
        uses.note(&[flow(RULE, 4, 250), flow(RULE, 1, 350)]);
        let counted = uses.of("NetworkPolicy shop/web").unwrap();
        assert_eq!((counted.since, counted.all()), (300, Use { count: 1, last: 350 }));
        // As a controller that has not read all of them yet.
        uses.policies_are(std::iter::empty(), 400, 400);
        assert_eq!(uses.of("NetworkPolicy shop/web"), None);
        uses.policies_are(there("2"), 500, 500);
        assert_eq!(uses.of("NetworkPolicy shop/web").unwrap().all().count, 1);
        // The clock was ahead, and is put back: what comes now counts.
        uses.policies_are(there("2"), 200, 200);
        uses.note(&[flow(RULE, 2, 210)]);
        let counted = uses.of("NetworkPolicy shop/web").unwrap();
        assert_eq!((counted.since, counted.all().count), (200, 3));
        assert!(uses.has_told("n1", 350) && !uses.has_told("n1", 600) && !uses.has_told("n2", 0));
    }

    #[test]
    fn what_a_new_policy_decides_before_it_is_noticed_is_counted() {
        let mut uses = Uses::default();
        uses.policies_are(there("1"), 1_000, 4_000);
        uses.note(&[flow(RULE, 2, 3_000)]);
        assert_eq!(uses.of("NetworkPolicy shop/web").unwrap().all().count, 2);
        // Of one that has changed it is not known which of the two it was.
        uses.policies_are(there("2"), 4_000, 9_000);
        uses.note(&[flow(RULE, 2, 8_000), flow(RULE, 1, 9_500)]);
        assert_eq!(uses.of("NetworkPolicy shop/web").unwrap().all().count, 1);
        let mut late = Uses::default();
        late.policies_are(there("1"), 1_000, 1_000_000);
        assert_eq!(late.of("NetworkPolicy shop/web").unwrap().since, 940_000, "nobody looked for long");
    }

    #[test]
    fn a_node_that_makes_rules_up_is_bounded() {
        let mut uses = Uses::default();
        uses.policies_are(there("1"), 0, 0);
        let made_up: Vec<Flow> = (0..2 * RULES)
            .map(|number| flow(&format!("ingress rule {number} of NetworkPolicy shop/web"), 1, 1))
            .collect();
        uses.note(&made_up);
        assert_eq!(uses.of("NetworkPolicy shop/web").unwrap().rules.len(), RULES);
    }
}
