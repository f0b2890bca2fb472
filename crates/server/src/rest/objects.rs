//! `/objects`: documents as users write them: listed, stored, deleted, and what that would do tried before.

use std::sync::Arc;

use axum::{Json, extract::State};
use drivers::{
    objects::{Document, Objects, ObjectsError, manifests, read_entry},
    policy::Policy,
};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::Code;
use utoipa::{IntoParams, ToSchema};
use wire::trestle::v1::{
    Applied, ApplyObjectsRequest, ApplyObjectsResponse, DeleteObjectsRequest, DeleteObjectsResponse,
    ObjectRef, Outcome, Validation,
};

use super::body::Query;
use crate::{
    audit,
    failure::{Failure, Problem},
    objects::{Changing, documents, kind, object_id},
    reach::{Difference, difference},
    turns::in_turn,
    what_if::Change,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// `Service`, `NetworkPolicy`, `Pod` … as `trestle get` lists them.
    kind: String,
}

/// The stored documents of a kind, as users wrote them.
#[utoipa::path(get, path = "/objects", tag = "policies", params(ListQuery), responses(
    (status = 200, body = Vec<Value>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(objects): State<Objects>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<Value>>, Failure> {
    let mut snapshot = objects.snapshot(Some(kind(&query.kind)?)).await?;
    let mut documents = Vec::new();
    while let Some(page) = snapshot.pages.next().await {
        let page = page.map_err(ObjectsError::Read)?;
        documents.extend(page.iter().filter_map(read_entry).map(|stored| stored.document.json().clone()));
    }
    Ok(Json(documents))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ApplyQuery {
    /// Say what would be done, and do nothing.
    dry_run: bool,
    /// With `dry_run`: also say who would reach whom that does not now, or no longer.
    reach: bool,
    /// The set these objects belong to.
    set: String,
    /// What becomes of documents with fields or of a version that are not known: `strict` (they are refused, the default),
    /// `warn` (stored, and told) or `ignore` (stored).
    validate: String,
    /// Keep them beside what is in force instead.
    stage: bool,
    /// Store them although a policy test fails then.
    despite_tests: bool,
}

/// What became, or would become, of each document.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AppliedObjects {
    applied: Vec<Applied>,
    /// What of the documents is not known, where that was asked for.
    warnings: Vec<String>,
    /// Who would reach whom that does not now, or no longer; only where it was asked for. Permission lists of resources, and what
    /// `allow` gives to a Pod that is itself among the documents, are not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    reach: Option<Difference>,
}

/// Store documents: YAML (several, and lists, as `kubectl get -o yaml` writes them) or JSON. All are stored or none; every
/// problem of every document is told.
#[utoipa::path(post, path = "/objects", tag = "policies", params(ApplyQuery),
    request_body(content = String, content_type = "application/yaml"), responses(
    (status = 200, body = AppliedObjects),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn apply(
    State(changing): State<Changing>,
    State(policy): State<Arc<Policy>>,
    Query(query): Query<ApplyQuery>,
    text: String,
) -> Result<Json<AppliedObjects>, Failure> {
    let validation = match query.validate.as_str() {
        "" | "strict" => Validation::Strict,
        "warn" => Validation::Warn,
        "ignore" => Validation::Ignore,
        other => {
            let text = format!("{other:?} is not one of strict, warn, ignore");
            return Err(Failure::new(Code::InvalidArgument, text));
        }
    };
    if query.reach && !query.dry_run {
        let text = "who would reach whom is told before something is done: ask for it with dry_run";
        return Err(Failure::new(Code::InvalidArgument, text));
    }
    let texts = drivers::blocking(move || texts(&text)).await?;
    audit::object(audit::of_documents(&texts));
    let request = ApplyObjectsRequest {
        documents: texts.clone(),
        dry_run: query.dry_run,
        set: query.set,
        validation: validation as i32,
        stage: query.stage,
        despite_tests: query.despite_tests,
        ..ApplyObjectsRequest::default()
    };
    let ApplyObjectsResponse { applied, warnings } = changing.apply(request).await?;
    let reach = match query.reach {
        true => {
            let read = crate::objects::validation(validation as i32)?;
            let changed = changed(documents(&texts, read)?, &applied);
            Some(in_turn(move || tried(&policy, &changed)).await?)
        }
        false => None,
    };
    Ok(Json(AppliedObjects { applied, warnings, reach }))
}

/// The documents of a text, each as JSON.
pub(super) fn texts(text: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let manifests = manifests::read(text).map_err(|err| Failure::invalid(&err))?;
    if manifests.is_empty() {
        return Err(Failure::new(Code::InvalidArgument, "there is no document in the body"));
    }
    Ok(manifests.into_iter().map(|(_, json)| json).collect())
}

/// What is the same already is not tried.
fn changed(documents: Vec<Document>, applied: &[Applied]) -> Change {
    let is_same = |document: &Document| {
        let id = crate::objects::object_ref(document.id());
        applied.iter().any(|one| one.object.as_ref() == Some(&id) && one.outcome == Outcome::Unchanged as i32)
    };
    Change::of_documents(documents.iter().filter(|document| !is_same(document)))
}

fn tried(policy: &Policy, change: &Change) -> Result<Difference, policy::survey::TooManyPairs> {
    // Changes wait while the engine is copied, but not for the answer.
    difference(policy.ask(Clone::clone), change)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    kind: String,
    /// Empty: `default`, for kinds that have one.
    #[serde(default)]
    namespace: String,
    name: String,
    /// Say what would be done, and do nothing.
    #[serde(default)]
    dry_run: bool,
    /// With `dry_run`: also say who would reach whom that does not now, or no longer.
    #[serde(default)]
    reach: bool,
    /// Keep the deletion beside what is in force instead.
    #[serde(default)]
    stage: bool,
    /// Delete it although a policy test fails then.
    #[serde(default)]
    despite_tests: bool,
}

/// Delete an object.
#[utoipa::path(delete, path = "/objects", tag = "policies", params(DeleteQuery), responses(
    (status = 200, body = AppliedObjects),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(changing): State<Changing>,
    State(policy): State<Arc<Policy>>,
    Query(query): Query<DeleteQuery>,
) -> Result<Json<AppliedObjects>, Failure> {
    let DeleteQuery { kind, namespace, name, dry_run, reach, stage, despite_tests } = query;
    let object = ObjectRef { kind, namespace, name };
    let id = object_id(object.clone())?;
    audit::object(&id);
    let request = DeleteObjectsRequest { objects: vec![object], dry_run, stage, despite_tests };
    let DeleteObjectsResponse { applied } = changing.delete(request).await?;
    let reach = match reach && dry_run {
        true => Some(in_turn(move || tried(&policy, &Change::of_deletion(vec![id]))).await?),
        false => None,
    };
    Ok(Json(AppliedObjects { applied, warnings: Vec::new(), reach }))
}
