//! `/map`: everything there is and who can reach whom, small enough to be drawn at once; `/map/around`: what one part of it
//! can reach, and who can reach it.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::policy::Policy;
use orchestrator::execute::{Orchestrator, ResourceView};
use policy::survey::TooManyPairs;
use serde::{Deserialize, Serialize};
use tonic::Code;
use utoipa::{IntoParams, ToSchema};

use super::{
    body::Query,
    reachability::{ReachGroup, traffic},
};
use crate::{
    failure::{Failure, Problem},
    reach::{self, Cell, End, Group, Level, Sparse, Traffic, Word, Words, ends, groups, of_places, sparse},
    turns::in_turn,
};

/// With more groups, what is open is told between places only.
const MOST_GROUPS: usize = 1000;
/// Ways that are told of one level.
const MOST_WAYS: usize = 100_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MapQuery {
    /// `tcp`, `udp`, `sctp`, `icmp` or `other` (all others together). Absent: every protocol, or `tcp` if a port is given.
    #[serde(default)]
    protocol: String,
    /// Absent: all ports.
    port: Option<u32>,
}

/// Everything there is, and who can reach whom. Groups, places and words are named by their place in their lists.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Map {
    /// What it is about: `all` protocols, or one.
    protocol: String,
    words: Vec<Word>,
    /// Namespaces and sites.
    places: Vec<MapPlace>,
    /// By place, so that those of a place stand together.
    groups: Vec<MapGroup>,
    /// What is open between places.
    place_ways: MapWays,
    /// What is open between groups; absent if there are too many groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    group_ways: Option<MapWays>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MapPlace)]
pub(super) struct MapPlace {
    id: String,
    name: String,
    /// `namespace` (of Kubernetes) or `site` (a namespace in a cloud).
    kind: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MapGroup)]
pub(super) struct MapGroup {
    id: String,
    name: String,
    /// The place it is in.
    place: usize,
    /// Pods, external entities or resources, as `/explain` takes them.
    ends: Vec<String>,
}

/// What is open among places or groups: what is usual for each, and what is not as usual.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MapWays)]
pub(super) struct MapWays {
    /// For each, as a word: what most others in namespaces may do with it, and what most in sites may.
    usual: Vec<[usize; 2]>,
    /// For each, as a word: what its own ends may do with each other; null where there are no two.
    within: Vec<Option<usize>>,
    /// From, to, word: for each pair that has another word than is usual.
    ways: Vec<[usize; 3]>,
    /// Ways that are not told because there are too many.
    left_out: usize,
}

impl From<Sparse> for MapWays {
    fn from(Sparse { usual, within, ways, left_out }: Sparse) -> Self {
        Self { usual, within, ways, left_out }
    }
}

/// Everything there is, and who can reach whom.
#[utoipa::path(get, path = "/map", tag = "policies", params(MapQuery), responses(
    (status = 200, body = Map),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn map(
    State(policy): State<Arc<Policy>>,
    State(orchestrator): State<Arc<Orchestrator>>,
    Query(query): Query<MapQuery>,
) -> Result<Json<Map>, Failure> {
    let traffic = traffic(&query.protocol, query.port)?;
    Ok(Json(in_turn(move || drawn(&policy, orchestrator.resources(), traffic)).await?))
}

fn drawn(policy: &Policy, resources: Vec<ResourceView>, traffic: Traffic) -> Result<Map, TooManyPairs> {
    let ends = ends(policy.workloads(), resources);
    let all = groups(&ends, Level::Group, None);
    let mut places = groups(&ends, Level::Place, None);
    let mut words = Words::default();
    let listed = listed(&ends, &places, &all);
    let told_places = places.iter().map(place).collect();
    let mut told =
        |groups: &[Group], cells: &[Vec<Cell>]| sparse(groups, cells, MOST_WAYS, &mut words).into();
    let (place_ways, group_ways) = match all.len() <= MOST_GROUPS {
        true => {
            let mut all = all;
            let cells = among(policy, &ends, &mut all, traffic)?;
            let (places, sums) = of_places(&all, &cells);
            (told(&places, &sums), Some(told(&all, &cells)))
        }
        false => {
            let cells = among(policy, &ends, &mut places, traffic)?;
            (told(&places, &cells), None)
        }
    };
    Ok(Map {
        protocol: traffic.name(),
        words: words.into_list(),
        places: told_places,
        groups: listed,
        place_ways,
        group_ways,
    })
}

fn place(group: &Group) -> MapPlace {
    MapPlace { id: group.id.clone(), name: group.name.clone(), kind: group.place.0.as_str() }
}

/// Both are sorted by place.
fn listed(ends: &[End], places: &[Group], groups: &[Group]) -> Vec<MapGroup> {
    let mut at = 0;
    let mut listed = Vec::with_capacity(groups.len());
    for group in groups {
        while places[at].place != group.place {
            at += 1;
        }
        listed.push(MapGroup {
            id: group.id.clone(),
            name: group.name.clone(),
            place: at,
            ends: group.names(ends).map(str::to_owned).collect(),
        });
    }
    listed
}

/// All groups against all.
fn among(
    policy: &Policy,
    ends: &[End],
    groups: &mut Vec<Group>,
    traffic: Traffic,
) -> Result<Vec<Vec<Cell>>, TooManyPairs> {
    let mut others = groups.clone();
    let parties = reach::parties(ends, [groups, &mut others]);
    reach::matrix(&policy.survey(&parties), groups, &others, traffic)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AroundQuery {
    /// The place, group or end that is looked at, as `/map` names it.
    id: String,
    /// As for `/map`.
    #[serde(default)]
    protocol: String,
    /// Absent: all ports.
    port: Option<u32>,
}

/// What one part of the map can reach, and who can reach it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Around {
    /// What is looked at.
    this: ReachGroup,
    /// `place`, `group` or `end`.
    level: &'static str,
    /// Who can reach it: places if it is one, else groups, but for those that cannot at all.
    into: Vec<AroundWay>,
    /// Whom it can reach.
    out: Vec<AroundWay>,
    /// How many there are that might have been: places, or groups.
    others: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AroundWay {
    peer: ReachGroup,
    cell: Cell,
}

/// What one part of the map can reach, and who can reach it.
#[utoipa::path(get, path = "/map/around", tag = "policies", params(AroundQuery), responses(
    (status = 200, body = Around),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn around(
    State(policy): State<Arc<Policy>>,
    State(orchestrator): State<Arc<Orchestrator>>,
    Query(query): Query<AroundQuery>,
) -> Result<Json<Around>, Failure> {
    let traffic = traffic(&query.protocol, query.port)?;
    let id = query.id.clone();
    let found = in_turn(move || surrounding(&policy, orchestrator.resources(), &query.id, traffic)).await?;
    let unknown =
        || Failure::new(Code::NotFound, format!("there is no place, group or end {id:?} on the map"));
    Ok(Json(found.ok_or_else(unknown)?))
}

fn surrounding(
    policy: &Policy,
    resources: Vec<ResourceView>,
    id: &str,
    traffic: Traffic,
) -> Result<Option<Around>, TooManyPairs> {
    let ends = ends(policy.workloads(), resources);
    let levels = [(Level::Place, "place"), (Level::Group, "group"), (Level::End, "end")];
    let found = levels.into_iter().find_map(|(level, name)| {
        let this = groups(&ends, level, Some(id)).into_iter().find(|group| group.id == id)?;
        Some((level, name, this))
    });
    let Some((level, name, this)) = found else { return Ok(None) };
    let others: Vec<Group> = groups(&ends, level.min(Level::Group), None)
        .into_iter()
        .map(|other| other.without(&this))
        .filter(|other| other.len() > 0)
        .collect();
    let (told, count) = (ReachGroup::from(&this), others.len());
    let (mut this, mut others) = (vec![this], others);
    let parties = reach::parties(&ends, [&mut this, &mut others]);
    let survey = policy.survey(&parties);
    let way = |(peer, cell): (&Group, Cell)| {
        (cell.open + cell.partly > 0).then(|| AroundWay { peer: peer.into(), cell })
    };
    let out = reach::matrix(&survey, &this, &others, traffic)?.remove(0);
    let into = reach::matrix(&survey, &others, &this, traffic)?.into_iter().map(|mut row| row.remove(0));
    Ok(Some(Around {
        this: told,
        level: name,
        into: others.iter().zip(into).filter_map(way).collect(),
        out: others.iter().zip(out).filter_map(way).collect(),
        others: count,
    }))
}
