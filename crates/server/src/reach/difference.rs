//! What a change of objects would do to who reaches whom, before it is made.
//!
//! In: the engine as it is, and what would be done (`what_if`). Out: the pairs of groups between which something opens or
//! closes, counted in pairs of ends. Pure, but for the copy of the engine that it is tried on. Resources of clouds are not among
//! the ends: their permit lists are made of policies, but not at once.

use std::collections::BTreeMap;

use policy::{Engine, survey::TooManyPairs};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Cell, End, Group, Level, Traffic, ends, groups, matrix, parties};
use crate::what_if;

/// With more groups, places are compared.
const MOST_GROUPS: usize = 400;
/// Pairs that are told.
const MOST_TOLD: usize = 500;

/// What would differ between two groups.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ReachChange)]
pub struct Change {
    /// Ids of groups or places, as `/map` names them.
    pub from: String,
    pub to: String,
    pub before: Cell,
    pub after: Cell,
}

/// What would differ in who reaches whom, among Pods and external entities.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReachDifference)]
pub struct Difference {
    /// `group`, or `place` where there are many groups.
    pub level: &'static str,
    pub changes: Vec<Change>,
    /// Changes that are not told because there are too many.
    pub left_out: usize,
}

/// Tries a change on a copy of the engine.
pub fn difference(engine: Engine, tried: &what_if::Change) -> Result<Difference, TooManyPairs> {
    let level = match groups(&own_ends(&engine), Level::Group, None).len() {
        0..=MOST_GROUPS => Level::Group,
        _ => Level::Place,
    };
    let before = cells(&engine, level)?;
    let mut after = cells(&tried.on(engine), level)?;
    let mut changes: Vec<Change> = Vec::new();
    for (pair, before) in before {
        let after = after.remove(&pair).unwrap_or_default();
        push(&mut changes, pair, before, after);
    }
    for (pair, after) in after {
        push(&mut changes, pair, Cell::default(), after);
    }
    changes.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
    let left_out = changes.len().saturating_sub(MOST_TOLD);
    changes.truncate(MOST_TOLD);
    Ok(Difference { level: if level == Level::Group { "group" } else { "place" }, changes, left_out })
}

fn push(changes: &mut Vec<Change>, (from, to): (String, String), before: Cell, after: Cell) {
    let is_closed = |cell: &Cell| cell.open + cell.partly == 0;
    if before != after && !(is_closed(&before) && is_closed(&after)) {
        changes.push(Change { from, to, before, after });
    }
}

fn own_ends(engine: &Engine) -> Vec<End> {
    let is_resource = |workload: &policy::survey::Workload| {
        workload.member.node.as_ref().is_some_and(|key| drivers::span::is_cloud(key))
    };
    ends(engine.workloads().filter(|workload| !is_resource(workload)).collect(), Vec::new())
}

fn cells(engine: &Engine, level: Level) -> Result<BTreeMap<(String, String), Cell>, TooManyPairs> {
    let ends = own_ends(engine);
    let mut from: Vec<Group> = groups(&ends, level, None);
    let mut to = from.clone();
    let parties = parties(&ends, [&mut from, &mut to]);
    let rows = matrix(&engine.survey(&parties), &from, &to, Traffic { protocol: None, port: None })?;
    let named = from.iter().zip(rows).flat_map(|(from, row)| {
        to.iter().zip(row).map(move |(to, cell)| ((from.id.clone(), to.id.clone()), cell)).collect::<Vec<_>>()
    });
    Ok(named.collect())
}
