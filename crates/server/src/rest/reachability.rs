//! `/reachability`: who can reach whom, groups against groups.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::policy::Policy;
use model::ProtocolClass;
use orchestrator::execute::{Orchestrator, ResourceView};
use policy::survey::TooManyPairs;
use serde::{Deserialize, Serialize};
use tonic::Code;
use utoipa::{IntoParams, ToSchema};

use super::body::Query;
use crate::{
    explain,
    failure::{Failure, Problem},
    reach::{self, Cell, Group, Level, MOST_ENDS, MOST_GROUPS, Traffic, ends, groups, overview},
    turns::in_turn,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ReachabilityQuery {
    /// `place` (namespaces and sites), `group` (apps and regions) or `end`; default: groups while they are few.
    #[serde(default)]
    level: String,
    /// Only what is inside this place or group.
    source: Option<String>,
    destination: Option<String>,
    /// Only groups whose id contains this text.
    search: Option<String>,
    /// `tcp`, `udp`, `sctp`, `icmp` or `other` (all others together). Absent: every protocol, or `tcp` if a port is given.
    #[serde(default)]
    protocol: String,
    /// Absent: all ports.
    port: Option<u32>,
}

/// A matrix.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reachability {
    /// `place`, `group` or `end`.
    level: &'static str,
    /// What the cells are about: `all` protocols, or one.
    protocol: String,
    sources: Vec<ReachGroup>,
    destinations: Vec<ReachGroup>,
    /// A row for each source.
    cells: Vec<Vec<Cell>>,
    /// Groups that were left out because there are too many.
    left_out: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReachGroup {
    /// At level `end`: what `/explain` takes. Else: what `source` and `destination` take.
    id: String,
    name: String,
    /// `namespace` (of Kubernetes) or `site` (a namespace in a cloud).
    place_kind: &'static str,
    place: String,
    ends: usize,
}

impl From<&Group> for ReachGroup {
    fn from(group: &Group) -> Self {
        Self {
            id: group.id.clone(),
            name: group.name.clone(),
            place_kind: group.place.0.as_str(),
            place: group.place.1.clone(),
            ends: group.len(),
        }
    }
}

/// Who can reach whom.
#[utoipa::path(get, path = "/reachability", tag = "policies", params(ReachabilityQuery), responses(
    (status = 200, body = Reachability),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn reachability(
    State(policy): State<Arc<Policy>>,
    State(orchestrator): State<Arc<Orchestrator>>,
    Query(query): Query<ReachabilityQuery>,
) -> Result<Json<Reachability>, Failure> {
    let traffic = traffic(&query.protocol, query.port)?;
    let level = match query.level.as_str() {
        "" => None,
        "place" => Some(Level::Place),
        "group" => Some(Level::Group),
        "end" => Some(Level::End),
        other => {
            let text = format!("{other:?} is not one of place, group, end");
            return Err(Failure::new(Code::InvalidArgument, text));
        }
    };
    let found = in_turn(move || matrix(&policy, orchestrator.resources(), &query, level, traffic));
    Ok(Json(found.await?))
}

/// What is asked about, from the words of a query.
pub(super) fn traffic(protocol: &str, port: Option<u32>) -> Result<Traffic, Failure> {
    let port = explain::port(port)?;
    let protocol = match protocol {
        "" => port.map(|_| ProtocolClass::Tcp),
        text => Some(explain::protocol(text)?),
    };
    // What has no ports is open or not, whichever is asked about.
    Ok(Traffic { protocol, port: port.filter(|_| protocol.is_some_and(ProtocolClass::has_ports)) })
}

fn matrix(
    policy: &Policy,
    resources: Vec<ResourceView>,
    query: &ReachabilityQuery,
    level: Option<Level>,
    traffic: Traffic,
) -> Result<Reachability, TooManyPairs> {
    let ends = ends(policy.workloads(), resources);
    let level = level.unwrap_or_else(|| overview(&ends));
    let most = if level == Level::End { MOST_ENDS } else { MOST_GROUPS };
    let mut left_out = 0;
    let mut side = |inside: Option<&String>| {
        let mut groups = groups(&ends, level, inside.map(String::as_str));
        if let Some(search) = &query.search {
            groups.retain(|group| group.id.contains(search.as_str()));
        }
        left_out += groups.len().saturating_sub(most);
        groups.truncate(most);
        groups
    };
    let (mut sources, mut destinations) = (side(query.source.as_ref()), side(query.destination.as_ref()));
    let parties = reach::parties(&ends, [&mut sources, &mut destinations]);
    let cells = reach::matrix(&policy.survey(&parties), &sources, &destinations, traffic)?;
    Ok(Reachability {
        protocol: traffic.name(),
        level: match level {
            Level::Place => "place",
            Level::Group => "group",
            Level::End => "end",
        },
        sources: sources.iter().map(Into::into).collect(),
        destinations: destinations.iter().map(Into::into).collect(),
        cells,
        left_out,
    })
}
