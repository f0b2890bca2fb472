//! `/staged`: changes that are kept beside what is in force. They are staged by `POST /objects` and `DELETE /objects`.

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use wire::trestle::v1::{
    Applied, ApplyObjectsResponse, DiscardStagedRequest, ListStagedRequest, ListStagedResponse, ObjectRef,
    PromoteStagedRequest,
};

use super::body::{Body, Query};
use crate::{
    audit,
    failure::{Failure, Problem},
    objects::Changing,
};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct StagedQuery {
    /// Also say who would reach whom that does not now, or no longer: by each alone, and by all together.
    reach: bool,
    /// Also hold the connections that nodes have told this controller of since then against each: a time as in RFC 3339, or how long
    /// ago, as in `7d`.
    since: String,
}

/// What is staged, sorted by kind, namespace and name.
#[utoipa::path(get, path = "/staged", tag = "policies", params(StagedQuery), responses(
    (status = 200, body = ListStagedResponse),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(changing): State<Changing>,
    Query(StagedQuery { reach, since }): Query<StagedQuery>,
) -> Result<Json<ListStagedResponse>, Failure> {
    Ok(Json(changing.list_staged(ListStagedRequest { reach, since }).await?))
}

/// The name of an object.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    kind: String,
    /// Empty: `default`, for kinds that have one.
    #[serde(default)]
    namespace: String,
    name: String,
}

/// As the record has them.
fn names(named: &[Named]) -> String {
    let name = |one: &Named| format!("{} {}/{}", one.kind, one.namespace, one.name);
    match named {
        [] => "all that is staged".to_owned(),
        named => named.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

fn refs(named: Vec<Named>) -> Vec<ObjectRef> {
    named.into_iter().map(|Named { kind, namespace, name }| ObjectRef { kind, namespace, name }).collect()
}

/// What is to be put in force.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Promotion {
    /// Empty: all that is staged.
    #[serde(default)]
    objects: Vec<Named>,
    #[serde(default)]
    dry_run: bool,
    /// Do it although a policy test fails then.
    #[serde(default)]
    despite_tests: bool,
    /// Only if no connection that nodes have told this controller of since then would be decided otherwise: a time as in RFC 3339, or
    /// how long ago, as in `7d`.
    #[serde(default)]
    if_clean: String,
}

/// Put staged changes in force: all or none of them.
#[utoipa::path(post, path = "/staged/promotion", tag = "policies", request_body = Promotion, responses(
    (status = 200, body = Vec<Applied>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn promote(
    State(changing): State<Changing>,
    Body(Promotion { objects, dry_run, despite_tests, if_clean }): Body<Promotion>,
) -> Result<Json<Vec<Applied>>, Failure> {
    audit::object(names(&objects));
    let request = PromoteStagedRequest { objects: refs(objects), dry_run, despite_tests, if_clean };
    let ApplyObjectsResponse { applied, .. } = changing.promote(request).await?;
    Ok(Json(applied))
}

/// What is to be forgotten.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Discard {
    /// Empty: all that is staged.
    #[serde(default)]
    objects: Vec<Named>,
}

/// Forget staged changes: all or none of them.
#[utoipa::path(post, path = "/staged/discard", tag = "policies", request_body = Discard, responses(
    (status = 200, body = Vec<ObjectRef>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn discard(
    State(changing): State<Changing>,
    Body(Discard { objects }): Body<Discard>,
) -> Result<Json<Vec<ObjectRef>>, Failure> {
    audit::object(names(&objects));
    let told = changing.discard(DiscardStagedRequest { objects: refs(objects) }).await?;
    Ok(Json(told.discarded))
}
