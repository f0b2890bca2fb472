//! What was counted of policies, as `kubectl get antreanetworkpolicystats` reads it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use drivers::peers::millis;
use tonic::Code;
use watch::{Cache, StatsResource, proto::STATS_GROUP};

use super::resources::{Pairs, accepted, not_synced, reply};
use crate::failure::Failure;

/// `namespace` and `name`, as far as the path has them.
pub(super) type Place = Path<BTreeMap<String, String>>;

pub(super) async fn list(
    resource: StatsResource,
    State(watch): State<Arc<Cache>>,
    Path(place): Place,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Query(pairs) = pairs.map_err(|err| Failure::invalid(&err))?;
    if pairs.iter().any(|(key, value)| key == "watch" && value != "false" && value != "0") {
        let text = format!("{} can be listed, not watched", resource.plural());
        return Err(Failure::new(Code::Unimplemented, text).with_status(StatusCode::METHOD_NOT_ALLOWED));
    }
    let encoding = accepted(&headers)?;
    let namespace = place.get("namespace").map(String::as_str);
    let body = watch.statistics(resource, namespace, millis(), encoding).map_err(not_synced)?;
    Ok(reply(encoding, body))
}

pub(super) async fn get(
    resource: StatsResource,
    State(watch): State<Arc<Cache>>,
    Path(place): Place,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let encoding = accepted(&headers)?;
    let part = |key: &str| place.get(key).map(String::as_str).unwrap_or_default();
    let found = watch
        .statistics_of(resource, part("namespace"), part("name"), millis(), encoding)
        .map_err(not_synced)?;
    let body = found.ok_or_else(|| {
        let name: String = part("name").chars().take(256).collect();
        Failure::new(Code::NotFound, format!("{}.{STATS_GROUP} {name:?} not found", resource.plural()))
    })?;
    Ok(reply(encoding, body))
}
