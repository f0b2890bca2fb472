//! `/session` and `/whoami`: how a browser becomes somebody, and who it is.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Extension, Request, State},
    http::{HeaderMap, HeaderValue, Uri, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use model::{Role, Secret, Subject};
use serde::Deserialize;
use tonic::Code;
use utoipa::ToSchema;
use wire::trestle::v1::Identity;

use super::body::{Body, Done};
use crate::{
    access::{
        Caller, Credential, Credentials, NewToken, Proof, changes, identity,
        session::{SESSION, cookie, cookie_name},
    },
    audit,
    failure::{Failure, Problem},
};

/// What proves who the browser's user is: the code of a login link, or a bearer token.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    #[serde(default)]
    code: String,
    #[serde(default)]
    token: String,
}

/// Begin a session: answers with a cookie that ends by itself after half a day, and no later than what it was begun with.
#[utoipa::path(post, path = "/session", tag = "system", security(()), request_body = Login, responses(
    (status = 200, body = Identity),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn begin(
    State(credentials): State<Arc<Credentials>>,
    State(secure): State<Secure>,
    headers: HeaderMap,
    uri: Uri,
    Body(Login { code, token }): Body<Login>,
) -> Result<Response, Failure> {
    let proven = |subject: &Subject| audit::begin(Some(subject));
    let (subject, made) = match (code.is_empty(), token.is_empty()) {
        (false, true) => credentials.redeem_login(&Secret::new(code), proven).await?,
        (true, false) => {
            let token = Secret::new(token.trim());
            let (subject, id) = credentials.check_token(&token, Timestamp::now())?;
            for_people(&subject)?;
            proven(&subject)?;
            let made = credentials.create_session(subject.clone(), Some(&Credential::Token(id))).await?;
            (subject, made)
        }
        _ => return Err(Failure::new(Code::InvalidArgument, "give a `code` or a `token`")),
    };
    let NewToken { token, id, record } = made;
    audit::object(&subject);
    audit::changed(changes::token(&id, None, Some(&record)));
    let left = record
        .expires_at
        .map_or(SESSION, |end| end.duration_since(record.created_at).try_into().unwrap_or_default());
    let cookie = set_cookie(secure, &headers, &uri, token.expose(), left.as_secs());
    Ok(([(header::SET_COOKIE, cookie)], Json(identity(&subject, Proof::Session))).into_response())
}

/// End the session.
#[utoipa::path(delete, path = "/session", tag = "system", responses(
    (status = 200, body = Done),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn end(
    State(credentials): State<Arc<Credentials>>,
    State(secure): State<Secure>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Failure> {
    if let (Some(Credential::Token(id)), Some(_)) = (&caller.credential, cookie(&request, secure.0)) {
        audit::object(&caller.subject);
        let before = credentials.token(id);
        credentials.revoke_token(id).await?;
        audit::changed(changes::token(id, before.as_deref(), None));
    }
    let gone = set_cookie(secure, request.headers(), request.uri(), "", 0);
    Ok(([(header::SET_COOKIE, gone)], Json(Done {})).into_response())
}

/// Who calls.
#[utoipa::path(get, path = "/whoami", tag = "system", responses(
    (status = 200, body = Identity),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn whoami(Extension(caller): Extension<Caller>) -> Json<Identity> {
    Json(identity(&caller.subject, caller.proof))
}

/// Whether listeners speak TLS, and so cookies are only ever sent over it.
#[derive(Clone, Copy)]
pub struct Secure(pub bool);

fn for_people(subject: &Subject) -> Result<(), Failure> {
    match subject.role {
        Role::Admin | Role::Operator | Role::Viewer => Ok(()),
        Role::Node | Role::Plugin | Role::Consumer => {
            let text = format!("{subject} is a machine; the page is for people");
            Err(Failure::new(Code::PermissionDenied, text))
        }
    }
}

fn set_cookie(
    Secure(secure): Secure,
    headers: &HeaderMap,
    uri: &Uri,
    value: &str,
    seconds: u64,
) -> HeaderValue {
    let name = cookie_name(headers, uri, secure);
    let flag = if secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flag}");
    let mut value = HeaderValue::try_from(text).expect("names and tokens are plain ASCII");
    value.set_sensitive(true);
    value
}
