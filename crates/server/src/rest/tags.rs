//! `/tags`.

use std::sync::Arc;

use ::tags::Request;
use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use drivers::{
    blocking,
    tags::{Tags, mapping, set},
};
use model::{Subscriber, TagName};
use orchestrator::execute::Orchestrator;
use serde::Serialize;
use tonic::Code;
use wire::{
    tags::{tag_members, tag_value},
    tagservicepb::TagMapping,
    trestle::v1::TagInfo,
};

use super::body::{Body, Done, Path};
use crate::{
    audit,
    changes::tag_changed,
    failure::{Failure, Problem},
    views,
};

/// All tags with their direct contents and what rules make of them, sorted by name; also those that rules name and that are
/// not there.
#[utoipa::path(get, path = "/tags", tag = "tags", responses(
    (status = 200, body = Vec<TagInfo>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list(State(orchestrator): State<Arc<Orchestrator>>) -> Result<Response, Failure> {
    json(move || {
        let tags = orchestrator.tags_in_use("")?;
        Ok(tags.into_iter().map(views::tag).collect::<Vec<_>>())
    })
    .await
}

/// One tag with its direct contents.
#[utoipa::path(get, path = "/tags/{tag}", tag = "tags", params(("tag" = String, Path)), responses(
    (status = 200, body = TagMapping),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(State(tags): State<Arc<Tags>>, Path(tag): Path<String>) -> Result<Response, Failure> {
    let tag = name(&tag)?;
    let snapshot = tags.snapshot()?;
    json(move || {
        let view = snapshot.graph.get(&tag).map_err(not_found)?;
        Ok(TagMapping::from((tag, view.to_value())))
    })
    .await
}

/// Delete a tag, its memberships in other tags and its subscriptions.
#[utoipa::path(delete, path = "/tags/{tag}", tag = "tags", params(("tag" = String, Path)), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(tags): State<Arc<Tags>>,
    Path(tag): Path<String>,
) -> Result<Json<Done>, Failure> {
    let tag = name(&tag)?;
    ask(&tags, Request::DeleteTag { tag }).await
}

/// Each distinct leaf and literal below a tag, once, sorted.
#[utoipa::path(post, path = "/tags/{tag}/resolveMembers", tag = "tags", params(("tag" = String, Path)), responses(
    (status = 200, body = Vec<TagMapping>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resolve_members(
    State(tags): State<Arc<Tags>>,
    Path(tag): Path<String>,
) -> Result<Response, Failure> {
    let tag = name(&tag)?;
    let snapshot = tags.snapshot()?;
    json(move || {
        let resolved = snapshot.graph.resolve(&tag).map_err(not_found)?;
        Ok(resolved.iter().map(mapping).collect::<Vec<_>>())
    })
    .await
}

/// Create or change a tag: a group's members are added to those it has, a leaf's value is replaced.
#[utoipa::path(post, path = "/tags/{tag}/applyMembers", tag = "tags", params(("tag" = String, Path)),
    request_body = TagMapping, responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn apply_members(
    State(tags): State<Arc<Tags>>,
    Path(tag): Path<String>,
    Body(mut body): Body<TagMapping>,
) -> Result<Json<Done>, Failure> {
    if !body.tag_name.is_empty() && body.tag_name != tag {
        let text = format!(
            "the path names tag {tag:?} and the body {:?}; leave the name out of the body",
            body.tag_name
        );
        return Err(Failure::new(Code::InvalidArgument, text));
    }
    body.tag_name = tag;
    let (tag, value) = tag_value(body).map_err(|err| Failure::invalid(&err))?;
    ask(&tags, set(tag, value)).await
}

/// Remove a member from a group. A prefix is written with `%2F` for its slash.
#[utoipa::path(delete, path = "/tags/{tag}/members/{member}", tag = "tags",
    params(("tag" = String, Path), ("member" = String, Path)), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_member(
    State(tags): State<Arc<Tags>>,
    Path((tag, member)): Path<(String, String)>,
) -> Result<Json<Done>, Failure> {
    let mapping = TagMapping { tag_name: tag, child_tags: vec![member], uri: None, ip: None };
    let (tag, members) = tag_members(mapping).map_err(|err| Failure::invalid(&err))?;
    ask(&tags, Request::DeleteMembers { tag, members }).await
}

/// Who is told when the tag changes.
#[utoipa::path(get, path = "/tags/{tag}/subscribers", tag = "tags", params(("tag" = String, Path)), responses(
    (status = 200, body = Vec<String>),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn subscribers(
    State(tags): State<Arc<Tags>>,
    Path(tag): Path<String>,
) -> Result<Json<Vec<String>>, Failure> {
    let snapshot = tags.snapshot()?;
    let tag = name(&tag)?;
    let subscribers = snapshot.graph.subscribers(&tag).map_err(not_found)?;
    Ok(Json(subscribers.map(ToString::to_string).collect()))
}

/// Tell a subscriber of the tag's changes.
#[utoipa::path(put, path = "/tags/{tag}/subscribers/{subscriber}", tag = "tags",
    params(("tag" = String, Path), ("subscriber" = String, Path)), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn subscribe(
    State(tags): State<Arc<Tags>>,
    Path((tag, subscriber)): Path<(String, String)>,
) -> Result<Json<Done>, Failure> {
    let (tag, subscriber) = (name(&tag)?, subscriber_name(&subscriber)?);
    ask(&tags, Request::Subscribe { tag, subscriber }).await
}

/// Tell it no more.
#[utoipa::path(delete, path = "/tags/{tag}/subscribers/{subscriber}", tag = "tags",
    params(("tag" = String, Path), ("subscriber" = String, Path)), responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn unsubscribe(
    State(tags): State<Arc<Tags>>,
    Path((tag, subscriber)): Path<(String, String)>,
) -> Result<Json<Done>, Failure> {
    let (tag, subscriber) = (name(&tag)?, subscriber_name(&subscriber)?);
    ask(&tags, Request::Unsubscribe { tag, subscriber }).await
}

async fn ask(tags: &Arc<Tags>, request: Request) -> Result<Json<Done>, Failure> {
    audit::changed(tag_changed(tags, request).await?);
    Ok(Json(Done {}))
}

/// Builds and encodes a reply that may be large away from the threads that serve others.
async fn json<T: Serialize>(
    build: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<Response, Failure> {
    let body = blocking(move || {
        let value = build()?;
        serde_json::to_vec(&value).map_err(|err| Failure::from_error(Code::Internal, &err))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Bytes::from(body.await?)).into_response())
}

fn name(text: &str) -> Result<TagName, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}

fn subscriber_name(text: &str) -> Result<Subscriber, Failure> {
    text.parse().map_err(|err: model::SubscriberError| Failure::invalid(&err))
}

fn not_found(error: ::tags::NotFound) -> Failure {
    Failure::from_error(Code::NotFound, &error)
}
