//! From a policy as it was written to rules over groups. Pure: the same inputs give the same rules, in any process.
//!
//! In: a policy and a view of the other objects it depends on ([`World`]). Out: [`Translation`]: rules whose peers are
//! [`GroupRef`]s, and every problem found. Holds: nothing. Not here: who the members are, and where (`engine`).
//!
//! What cannot be translated fails closed: a faulty peer or port of a permitting rule permits nothing; a faulty rule
//! that denies, denies everything in its direction; and the problem is reported with the path of its field.

mod antrea;
mod group;
mod kubernetes;
mod peers;

use std::{borrow::Cow, sync::Arc};

use model::policy::{
    Labels,
    antrea::{GroupSpec, NamespacedName},
    output::{Action, Detail, Direction, IpBlock, Problem},
};

use smallvec::SmallVec;

pub use antrea::antrea_policy;
pub use group::{Resolved, resolve};
pub use kubernetes::kubernetes_policy;

use crate::selection::{GroupRef, Selection};

/// The other objects a translation looks at.
pub trait World {
    fn tier_priority(&self, name: &str) -> Option<i32>;
    /// A Group, or a ClusterGroup when the namespace is empty.
    fn group(&self, name: &NamespacedName) -> Option<&GroupSpec>;
    fn service_selector(&self, name: &NamespacedName) -> Option<&Labels>;
    /// Namespaces whose object is known, ascending by name.
    fn namespaces(&self) -> Vec<(Arc<str>, Labels)>;
}

/// Nearly always one.
pub type GroupRefs<'a> = SmallVec<[GroupRef<'a>; 1]>;

#[derive(Debug, Clone, PartialEq)]
pub struct Translation<'a> {
    pub tier_priority: Option<i32>,
    pub priority: Option<f64>,
    pub applied_to_per_rule: bool,
    /// Where rules without their own `applied_to` apply.
    pub applied_to: GroupRefs<'a>,
    pub rules: SmallVec<[TranslatedRule<'a>; 2]>,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TranslatedRule<'a> {
    pub direction: Direction,
    pub action: Option<Action>,
    pub priority: i32,
    pub enable_logging: bool,
    pub applied_to: GroupRefs<'a>,
    pub groups: GroupRefs<'a>,
    pub detail: Detail,
}

/// The peers of one rule while they are gathered.
#[derive(Debug, Default)]
struct Peers<'a> {
    groups: GroupRefs<'a>,
    ip_blocks: Vec<IpBlock>,
    fqdns: Vec<String>,
}

impl<'a> Peers<'a> {
    fn select(&mut self, selection: Selection<'a>) {
        self.add(GroupRef::Selection(selection));
    }

    fn add(&mut self, group: GroupRef<'a>) {
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.ip_blocks.is_empty() && self.fqdns.is_empty()
    }
}

fn name_in<'a>(namespace: &str, name: &str) -> Cow<'a, NamespacedName> {
    Cow::Owned(NamespacedName { namespace: namespace.into(), name: name.into() })
}
