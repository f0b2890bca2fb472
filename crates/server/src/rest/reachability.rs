//! `/reachability`: who can reach whom, groups against groups.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::{blocking, policy::Policy};
use orchestrator::execute::{Orchestrator, ResourceView};
use serde::{Deserialize, Serialize};
use tonic::Code;
use utoipa::{IntoParams, ToSchema};

use super::body::Query;
use crate::{
    explain,
    failure::{Failure, Problem},
    reach::{Cell, Group, Level, MOST_ENDS, MOST_GROUPS, Matrix, PlaceKind, Traffic, ends, groups, overview},
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
    /// `tcp` (default), `udp`, `sctp` or `icmp`.
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
    sources: Vec<ReachGroup>,
    destinations: Vec<ReachGroup>,
    /// A row for each source.
    cells: Vec<Vec<ReachCell>>,
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

/// What is so between two groups.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReachCell {
    /// Pairs of different ends.
    pairs: u64,
    /// Pairs that are open on all ports asked about.
    open: u64,
    /// Pairs that are open on some of them.
    partly: u64,
    /// The open ports, such as `80, 8000-8010` or `all but 22`; absent if none, or if pairs differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<String>,
}

impl From<&Group> for ReachGroup {
    fn from(group: &Group) -> Self {
        Self {
            id: group.id.clone(),
            name: group.name.clone(),
            place_kind: match group.place.0 {
                PlaceKind::Namespace => "namespace",
                PlaceKind::Site => "site",
            },
            place: group.place.1.clone(),
            ends: group.len(),
        }
    }
}

impl From<Cell> for ReachCell {
    fn from(cell: Cell) -> Self {
        let Cell { pairs, open, partly, ports } = cell;
        Self { pairs, open, partly, ports: ports.map(|ports| ports.to_string()) }
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
    let traffic = Traffic { protocol: explain::protocol(&query.protocol)?, port: explain::port(query.port)? };
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
    Ok(Json(blocking(move || matrix(&policy, orchestrator.resources(), &query, level, traffic)).await))
}

fn matrix(
    policy: &Policy,
    resources: Vec<ResourceView>,
    query: &ReachabilityQuery,
    level: Option<Level>,
    traffic: Traffic,
) -> Reachability {
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
    let (sources, destinations) = (side(query.source.as_ref()), side(query.destination.as_ref()));
    let mut matrix = policy.ask(|engine| Matrix::new(engine, &ends, traffic, &[&sources, &destinations]));
    // The engine is let go between rows, so that changes do not wait for the whole matrix.
    let row = |from: &Group| {
        policy.ask(|engine| {
            destinations.iter().map(|to| ReachCell::from(matrix.cell(engine, from, to))).collect()
        })
    };
    let cells = sources.iter().map(row).collect();
    Reachability {
        level: match level {
            Level::Place => "place",
            Level::Group => "group",
            Level::End => "end",
        },
        sources: sources.iter().map(Into::into).collect(),
        destinations: destinations.iter().map(Into::into).collect(),
        cells,
        left_out,
    }
}
