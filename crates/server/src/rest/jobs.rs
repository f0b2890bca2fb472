//! `/jobs`, and how every route answers that starts one.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use model::change::{Change, What};
use orchestrator::execute::{Job, JobOrPlan, JobState, Orchestrator};
use serde::{Deserialize, Deserializer, de::Error as _};
use tonic::Code;
use utoipa::IntoParams;
use wire::trestle::v1::JobInfo;

use super::body::{Path, Query, is_bare};
use crate::{
    audit,
    failure::{Failure, Problem},
    views,
};

/// How long a caller that asked for it is kept waiting.
const WAIT: Duration = Duration::from_secs(25);

/// How a change is to be answered.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
pub(super) struct How {
    /// Answer with the plan, and change nothing.
    pub dry_run: bool,
    /// `true`: answer when it is done, within half a minute; `enforced`: when it is in force everywhere, as
    /// `/enforcement/{change}` answers. Requests that name no type of their content, as Paraglider's clients
    /// make them, are answered so unless they say otherwise.
    #[serde(deserialize_with = "until_done")]
    #[param(value_type = String)]
    pub wait: bool,
    /// Of rules: whether each is reason enough for a link to another cloud, whether or not the other end permits anything.
    /// Default: it is, as for Paraglider.
    pub build: Option<bool>,
}

/// Whoever waits until a change is in force is answered by another, once it is under way.
fn until_done<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match &*String::deserialize(deserializer)? {
        "true" => Ok(true),
        "false" | "enforced" => Ok(false),
        other => Err(D::Error::custom(format!("{other:?} is neither true, false nor enforced"))),
    }
}

/// How a change is to be answered, from the request. Clients of Paraglider's know no jobs: they are answered when it is done.
pub(super) struct Asked(pub How);

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Query(mut how) = Query::<How>::from_request_parts(parts, state).await?;
        let mut asked = parts.uri.query().unwrap_or_default().split('&');
        let says = asked.any(|pair| pair.split('=').next() == Some("wait"));
        how.wait |= !says && is_bare(&parts.headers);
        Ok(Self(how))
    }
}

/// Answers 202 with the job; 200 with the plan of a dry run; 200 with `done` for a caller that waited.
pub(super) async fn answer(
    orchestrator: &Arc<Orchestrator>,
    outcome: JobOrPlan,
    wait: bool,
    done: impl FnOnce() -> Result<Response, Failure>,
) -> Result<Response, Failure> {
    let job = match outcome {
        JobOrPlan::Plan(plan) => return Ok(Json(views::plan(&plan)).into_response()),
        JobOrPlan::Job(job) => *job,
    };
    if !wait {
        return Ok(accepted(&job));
    }
    match tokio::time::timeout(WAIT, orchestrator.wait(&job.id)).await {
        Err(_) => Ok(accepted(&job)),
        Ok(ended) => {
            let ended = ended?;
            match ended.state {
                JobState::Done => done(),
                _ => {
                    Err(Failure::new(Code::FailedPrecondition, format!("{}: {}", ended.what, ended.message)))
                }
            }
        }
    }
}

fn accepted(job: &Job) -> Response {
    let location = format!("/jobs/{}", job.id);
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(views::job(job))).into_response()
}

/// All jobs, oldest first.
#[utoipa::path(get, path = "/jobs", tag = "jobs", responses((status = 200, body = Vec<JobInfo>)))]
pub(super) async fn list(State(orchestrator): State<Arc<Orchestrator>>) -> Json<Vec<JobInfo>> {
    Json(orchestrator.jobs().iter().map(views::job).collect())
}

/// One job; with `wait`, when it has ended.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path), How), responses(
    (status = 200, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(id): Path<String>,
    Query(how): Query<How>,
) -> Result<Json<JobInfo>, Failure> {
    if how.wait
        && let Ok(job) = tokio::time::timeout(WAIT, orchestrator.wait(&id)).await
    {
        return Ok(Json(views::job(&job?)));
    }
    Ok(Json(views::job(&orchestrator.job(&id)?)))
}

/// Cancel a job: what it wanted is taken back.
#[utoipa::path(delete, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path)), responses(
    (status = 200, body = JobInfo),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn cancel(
    State(orchestrator): State<Arc<Orchestrator>>,
    Path(id): Path<String>,
) -> Result<Json<JobInfo>, Failure> {
    let job = orchestrator.cancel(&id).await?;
    audit::changed(Change::named(format!("job {}: {}", job.id, job.what), What::Changed));
    Ok(Json(views::job(&job)))
}
