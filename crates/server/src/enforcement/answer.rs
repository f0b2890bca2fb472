//! How a change over REST is answered whose caller waits until it is in force.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};

use super::{Enforcement, HEADER, change::ENFORCED};

/// How long a caller is kept waiting at most.
pub const WAIT: Duration = Duration::from_secs(25);

/// Whether the caller of a change wants to be answered when it is in force.
pub fn waits(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair == "wait=enforced")
}

/// The answer to such a caller: 200 if it is in force everywhere, 202 with where to ask again if it is not yet. What changed
/// nothing, and is in force, is answered as without waiting.
pub async fn answer(enforcement: &Arc<Enforcement>, response: Response) -> Response {
    let names: Vec<HeaderValue> = response.headers().get_all(HEADER).iter().cloned().collect();
    if names.is_empty() || !response.status().is_success() {
        return response;
    }
    let changes: Vec<String> =
        names.iter().filter_map(|name| name.to_str().ok()).map(str::to_owned).collect();
    let location = format!("/enforcement/{}", changes.join(","));
    match enforcement.wait(changes, WAIT).await {
        Ok(state) => {
            let is_everywhere = state.state == ENFORCED;
            let status = if is_everywhere { StatusCode::OK } else { StatusCode::ACCEPTED };
            let mut response = (status, Json(state)).into_response();
            let headers = response.headers_mut();
            for name in names {
                headers.append(HEADER, name);
            }
            if let Ok(location) = HeaderValue::from_str(&location) {
                headers.insert(header::LOCATION, location);
            }
            response
        }
        Err(failure) => failure.into_response(),
    }
}
