//! Requests, and why one is refused.

use std::{collections::BTreeSet, fmt};

use model::{Leaf, Member, Subscriber, TagName};

/// What a user asks of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Create a leaf, or replace the value of one.
    SetLeaf {
        tag: TagName,
        leaf: Leaf,
    },
    /// Create a group, or add members to one.
    SetGroup {
        tag: TagName,
        members: BTreeSet<Member>,
    },
    DeleteMembers {
        tag: TagName,
        members: BTreeSet<Member>,
    },
    /// Delete a tag with its memberships, on both sides, and its subscriptions.
    DeleteTag {
        tag: TagName,
    },
    Subscribe {
        tag: TagName,
        subscriber: Subscriber,
    },
    Unsubscribe {
        tag: TagName,
        subscriber: Subscriber,
    },
}

/// The tag does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tag {tag}; list the tags to see which there are")]
pub struct NotFound {
    pub tag: TagName,
}

/// Why a request is refused. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error("cannot add {member} to {tag}: there is no tag {member}; create it first")]
    MemberNotFound { tag: TagName, member: TagName },
    #[error("{member} is not a direct member of {tag}, so nothing was removed; get {tag} to see its members")]
    NotAMember { tag: TagName, member: Member },
    #[error(
        "{tag} is a {current}, and the request treats it as a {requested}; to change its kind delete it first"
    )]
    Kind { tag: TagName, current: Kind, requested: Kind },
    #[error("{member} cannot be a member of {tag}, because {tag} would then contain itself: {cycle}")]
    Cycle { tag: TagName, member: TagName, cycle: Cycle },
    #[error("the leaf {tag} has neither a URI nor an address; give it one or both")]
    EmptyLeaf { tag: TagName },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Leaf,
    Group,
}

/// The way a tag would contain itself: from the tag, member by member, back to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub path: Vec<TagName>,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leaf => "leaf",
            Self::Group => "group",
        })
    }
}

/// Names printed at each end of a longer cycle.
const ENDS: usize = 4;

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let omitted = self.path.len().saturating_sub(2 * ENDS);
        for (place, name) in self.path.iter().enumerate() {
            match place {
                0 => write!(f, "{name}")?,
                _ if omitted > 1 && place == ENDS => write!(f, " > ({omitted} more)")?,
                _ if omitted > 1 && (ENDS..ENDS + omitted).contains(&place) => {}
                _ => write!(f, " > {name}")?,
            }
        }
        Ok(())
    }
}
