//! What the policy engine tells its consumers: groups, their members, policies over groups, and spans.
//!
//! ```text
//!  NetworkPolicy ──applied_to_groups──► AppliedToGroup ──members──► (span key, Pod | entity | Node | Service)
//!       └─────────rules.address_groups──► AddressGroup ──members──► (Pod | entity | Node, addresses)
//!
//!  span(AppliedToGroup) = span keys of its members
//!  span(NetworkPolicy)  = union over its AppliedToGroups
//!  span(AddressGroup)   = union over the NetworkPolicies that name it
//! ```

mod member;
mod rule;

use std::{fmt, ops, sync::Arc};

use uuid::Uuid;

pub use member::{Addresses, Member, MemberKind, NamedPort};
pub use rule::{Action, Detail, Direction, IpBlock, PortRef, Protocol, Rule, RuleDetail, Service};

use super::{Kind, ObjectId};

/// A UUID in its 16 bytes, or any other text. Names of groups and UIDs of policies are nearly always UUIDs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identifier {
    Uuid(Uuid),
    Text(Arc<str>),
}

impl Identifier {
    /// Only the canonical spelling becomes 16 bytes, so that `to_string` gives back what was read.
    pub fn parse(text: &str) -> Self {
        match Uuid::try_parse(text) {
            Ok(uuid) if is_canonical(text) => Identifier::Uuid(uuid),
            _ => Identifier::Text(text.into()),
        }
    }
}

fn is_canonical(text: &str) -> bool {
    text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase())
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identifier::Uuid(uuid) => uuid.as_hyphenated().fmt(f),
            Identifier::Text(text) => f.write_str(text),
        }
    }
}

/// Names of span keys in ascending order: Node names, `namespace/name` of ExternalNodes, or words like `cloud`.
///
/// Nothing, which is what most updates say, has no counter that writer and readers would count at the same time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span(Option<Arc<[Arc<str>]>>);

impl ops::Deref for Span {
    type Target = [Arc<str>];
    fn deref(&self) -> &[Arc<str>] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromIterator<Arc<str>> for Span {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(names: I) -> Self {
        let mut names: Arc<[Arc<str>]> = names.into_iter().collect();
        Arc::get_mut(&mut names).expect("nobody else has it yet").sort_unstable();
        Span((!names.is_empty()).then_some(names))
    }
}

/// The policy as a node enforces it. Its name on the wire is its UID.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPolicy {
    pub uid: Identifier,
    pub generation: i64,
    pub source: PolicySource,
    /// Absent for Kubernetes policies, which rank between the application and the baseline tier.
    pub tier_priority: Option<i32>,
    pub priority: Option<f64>,
    pub rules: Vec<Rule>,
    /// All groups the policy is applied to, ascending. When `applied_to_per_rule` is set the rules carry their own
    /// and this list only explains the span.
    pub applied_to_groups: Vec<Identifier>,
    pub applied_to_per_rule: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySource {
    pub kind: Kind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The UID of the source object. It differs from the policy's own only while two objects claim one UID.
    pub uid: Identifier,
}

/// One step of the consumer's state. Updates come in an order in which every group is present, on each node, before a
/// policy that names it, and stays until after the last one that does.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    AppliedToGroup(GroupUpdate),
    AddressGroup(GroupUpdate),
    NetworkPolicy(PolicyUpdate),
    Status(StatusUpdate),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Updated,
    Removed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GroupUpdate {
    pub name: Identifier,
    pub uid: Identifier,
    pub change: Change,
    /// Put or replace, by the member's key for this kind of group.
    pub added: Vec<Arc<Member>>,
    /// Take away, by key. A key is never in both lists.
    pub removed: Vec<Arc<Member>>,
    /// Members of an AppliedToGroup of which nothing but the addresses are others now. Whoever tells no addresses of
    /// those has nothing to tell.
    pub readdressed: Vec<Arc<Member>>,
    pub span_added: Span,
    pub span_removed: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PolicyUpdate {
    pub uid: Identifier,
    pub change: Change,
    /// The whole policy; what it was when `Removed`, because consumers are told the source of what went.
    pub policy: Arc<NetworkPolicy>,
    /// False when only the span moved: nodes that stay have nothing to learn.
    pub content_changed: bool,
    pub span_added: Span,
    pub span_removed: Span,
}

/// Everything wrong with one policy or group at this time; empty when it is whole again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusUpdate {
    pub object: ObjectId,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path of the field, as in `spec.ingress[0].from[1].ipBlock.cidr`.
    pub path: String,
    /// What is wrong, and what is done about it.
    pub message: String,
}
