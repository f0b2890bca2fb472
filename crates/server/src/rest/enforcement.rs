//! `/enforcement`.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::trestle::v1::EnforcementState;

use super::body::{Path, Query};
use crate::{
    enforcement::{Enforcement, WAIT},
    failure::{Failure, Problem},
};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Patience {
    /// `enforced`: answer when it is in force everywhere, within half a minute.
    #[param(inline)]
    wait: Option<Until>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Until {
    Enforced,
}

/// How far a change is, or several whose names are joined by commas: whether every node and every resource that they concern has
/// them in force. Replies to changes name them in headers `trestle-change`; with `?wait=enforced` they are answered like this.
#[utoipa::path(get, path = "/enforcement/{change}", tag = "policies", params(("change" = String, Path), Patience), responses(
    (status = 200, body = EnforcementState),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(enforcement): State<Arc<Enforcement>>,
    Path(change): Path<String>,
    Query(Patience { wait }): Query<Patience>,
) -> Result<Json<EnforcementState>, Failure> {
    let changes: Vec<String> = change.split(',').map(str::to_owned).collect();
    match wait {
        Some(Until::Enforced) => Ok(Json(enforcement.wait(changes, WAIT).await?)),
        None => Ok(Json(enforcement.state(&changes)?)),
    }
}
