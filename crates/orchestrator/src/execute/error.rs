//! Why a request is refused or a step fails.

use cloud_api::CloudError;
use model::{LinkName, ResourceName, Segment, TagName};
use store::{ReadError, TransactError};

use crate::plan::{NoSpaceLeft, Problem, UnreadableRecord};

#[derive(Clone, Debug, thiserror::Error)]
pub enum OrchestratorError {
    #[error("there is no cloud {cloud}; `trestle status` names those that cannot be asked")]
    UnknownCloud { cloud: Segment },
    #[error("cloud {cloud} cannot be asked: {message}; `trestle status` shows since when")]
    CloudWaits { cloud: Segment, message: String },
    #[error("{message}")]
    NoNumbers { message: String },
    #[error("there is no namespace {namespace}; create it first")]
    UnknownNamespace { namespace: Segment },
    #[error("there is no resource {resource}")]
    UnknownResource { resource: ResourceName },
    #[error("resource {resource} exists already")]
    ResourceExists { resource: ResourceName },
    #[error("the tag {tag} exists already, so no resource can have that name")]
    TagExists { tag: TagName },
    #[error("there is no tag {tag}")]
    UnknownTag { tag: TagName },
    #[error("{on} has no rule {rule}")]
    UnknownRule { on: String, rule: Segment },
    #[error("there is no permission {permission}")]
    UnknownPermission { permission: Segment },
    #[error(
        "this would build {what}; to have it built, ask again with --yes (over the API, with `build`). Nothing was changed"
    )]
    WouldBuild { what: String },
    #[error("there is no link {link}")]
    UnknownLink { link: LinkName },
    #[error("there is no job {id}")]
    UnknownJob { id: String },
    #[error("job {id} has ended already: {state}")]
    JobEnded { id: String, state: String },
    #[error("resource {resource} is being deleted; wait until it is gone")]
    Leaving { resource: ResourceName },
    #[error("{0}")]
    Problem(Problem),
    #[error("cloud {cloud} refuses")]
    Cloud {
        cloud: Segment,
        #[source]
        err: CloudError,
    },
    #[error("cloud {cloud} says what cannot be: {what}; look at its plugin")]
    Unbelievable { cloud: Segment, what: String },
    #[error("no answer from cloud {cloud} to {call} within {seconds} s")]
    Timeout { cloud: Segment, call: &'static str, seconds: u64 },
    #[error(transparent)]
    NoSpace(#[from] NoSpaceLeft),
    #[error("cannot use the tags: {message}")]
    Tags { message: String },
    #[error("cannot read namespaces: {message}")]
    Namespaces { message: String },
    #[error("somebody changed the same thing meanwhile; look at it and try again")]
    Superseded,
    #[error("this controller follows and changes nothing; {}", leader_text(leader.as_deref()))]
    NotLeading { leader: Option<String> },
    #[error("cannot write to the store")]
    Write(#[source] TransactError),
    #[error("cannot read from the store")]
    Read(#[source] ReadError),
    #[error("the orchestrator is still loading; try again in a second")]
    NotLoaded,
    #[error("the orchestrator has ended; look at the list before trying again")]
    Ended,
    #[error("the stored record {record} cannot be read ({reason}); replace, mend or delete it first")]
    Unreadable { record: String, reason: String },
    #[error("the plugin panicked while it was told to {action}; see its log")]
    Panicked { action: String },
    #[error("{what} is not made yet")]
    NotReady { what: String },
}

impl OrchestratorError {
    /// Whether trying again without changing anything may help.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Cloud { err, .. } => err.is_passing(),
            Self::CloudWaits { .. }
            | Self::Timeout { .. }
            | Self::Tags { .. }
            | Self::Namespaces { .. }
            | Self::Superseded
            | Self::NotLeading { .. }
            | Self::Write(_)
            | Self::Read(_)
            | Self::NotLoaded
            | Self::Ended
            | Self::Panicked { .. }
            | Self::NotReady { .. } => true,
            _ => false,
        }
    }
}

fn leader_text(leader: Option<&str>) -> String {
    leader.map_or_else(
        || "who leads is being found out, try again in a few seconds".to_owned(),
        |leader| format!("ask the one that leads: {leader}"),
    )
}

impl From<&UnreadableRecord> for OrchestratorError {
    fn from(UnreadableRecord { record, reason }: &UnreadableRecord) -> Self {
        Self::Unreadable { record: record.clone(), reason: reason.clone() }
    }
}
