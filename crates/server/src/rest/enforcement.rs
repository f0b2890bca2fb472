//! `/enforcement`, and how a change is answered that its caller waits for.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::trestle::v1::EnforcementState;

use super::body::{Path, Query};
use crate::{
    enforcement::{self, Enforcement},
    failure::{Failure, Problem},
};

/// How long a caller is kept waiting at most.
const WAIT: Duration = Duration::from_secs(25);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Patience {
    /// `enforced`: answer when it is in force everywhere, within half a minute.
    wait: Option<Until>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Until {
    Enforced,
}

/// How far a change is: whether every node and every resource that it concerns has it in force. Replies to changes name them
/// in the header `trestle-change`; with `?wait=enforced` they are answered like this.
#[utoipa::path(get, path = "/enforcement/{change}", tag = "policies", params(("change" = String, Path), Patience), responses(
    (status = 200, body = EnforcementState),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(enforcement): State<Arc<Enforcement>>,
    Path(change): Path<String>,
    Query(Patience { wait }): Query<Patience>,
) -> Result<Json<EnforcementState>, Failure> {
    let changes = vec![change];
    match wait {
        Some(Until::Enforced) => Ok(Json(enforcement.wait(changes, WAIT).await?)),
        None => Ok(Json(enforcement.state(&changes)?)),
    }
}

/// Whether the caller of a change wants to be answered when it is in force.
pub fn waits(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair == "wait=enforced")
}

/// The answer to such a caller: 200 if it is in force everywhere, 202 with where to ask again if it is not yet. What changed
/// nothing is answered as without waiting.
pub async fn answer(enforcement: &Arc<Enforcement>, response: Response) -> Response {
    let name = response.headers().get(enforcement::HEADER).cloned();
    let Some(name) = name.filter(|_| response.status().is_success()) else { return response };
    let change = name.to_str().unwrap_or_default().to_owned();
    let location = format!("/enforcement/{change}");
    match enforcement.wait(vec![change], WAIT).await {
        Ok(state) => {
            let is_everywhere = state.state == "enforced";
            let status = if is_everywhere { StatusCode::OK } else { StatusCode::ACCEPTED };
            let mut response = (status, Json(state)).into_response();
            let headers = response.headers_mut();
            headers.insert(enforcement::HEADER, name);
            if let Ok(location) = HeaderValue::from_str(&location) {
                headers.insert(header::LOCATION, location);
            }
            response
        }
        Err(failure) => failure.into_response(),
    }
}
