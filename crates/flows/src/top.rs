//! Flows added up over all their time.

use rustc_hash::FxHashMap;

use crate::{Flow, Kind};

/// One flow of each kind: with the largest count first, then the newest.
pub fn top(flows: impl IntoIterator<Item = Flow>) -> Vec<Flow> {
    let mut rows: FxHashMap<Kind, Flow> = FxHashMap::default();
    for flow in flows {
        match rows.get_mut(&flow.kind) {
            Some(row) => row.join(&flow),
            None => drop(rows.insert(flow.kind.clone(), flow)),
        }
    }
    let mut rows: Vec<Flow> = rows.into_values().collect();
    rows.sort_by(|a, b| (b.count, b.last, &a.kind).cmp(&(a.count, a.last, &b.kind)));
    rows
}
