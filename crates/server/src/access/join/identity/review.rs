//! A Kubernetes token of which the cluster itself is asked: TokenReview of its API server, which also knows whether the Pod that has the
//! token is still there.
//!
//! In: a token as a stranger sent it. Out: what the cluster says of it, as claims: `sub` (the whole user name), `namespace` and
//! `service_account`, and below `extra` what it says beside (`authentication.kubernetes.io/node-name`).

use std::env;

use cloud_http::Request;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{IdentityConfig, keys, nothing, unavailable};
use crate::failure::Failure;

/// What a Pod is given to ask the API server of its own cluster.
pub const OUR_CLUSTERS_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
pub const OUR_CREDENTIAL: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Where that is; empty if this is no Pod, and then it cannot be asked.
pub fn our_clusters_server() -> String {
    let (host, port) = (env::var("KUBERNETES_SERVICE_HOST"), env::var("KUBERNETES_SERVICE_PORT"));
    match (host, port) {
        (Ok(host), Ok(port)) if host.contains(':') => format!("https://[{host}]:{port}"),
        (Ok(host), Ok(port)) => format!("https://{host}:{port}"),
        _ => String::new(),
    }
}

/// Longest token that is asked about.
const MAX_TOKEN: usize = 16 << 10;

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    audiences: Vec<String>,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

pub async fn ask(of: &IdentityConfig, token: &str) -> Result<Map<String, Value>, Failure> {
    let token = token.trim();
    if token.is_empty() || token.len() > MAX_TOKEN {
        return Err(nothing("it is no token of a service account"));
    }
    if of.server.is_empty() {
        return Err(unavailable(
            of,
            "no API server is named, and this controller is no Pod of a cluster",
            "",
        ));
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": { "token": token, "audiences": [of.audience] },
    });
    let url = format!("{}/apis/authentication.k8s.io/v1/tokenreviews", of.server.trim_end_matches('/'));
    let request =
        Request::new("a review of a token", Method::POST, url).body("application/json", body.to_string());
    let trouble = |error: String| unavailable(of, "the cluster cannot be asked", &error);
    let reply = keys::send(of, request).await.map_err(|err| trouble(common::chain(&err)))?;
    if !matches!(reply.status, 200 | 201) {
        let said: String = reply.text().chars().take(300).collect();
        return Err(trouble(format!("{} answers {}: {said}", of.server, reply.status)));
    }
    let review: Review = serde_json::from_slice(&reply.body).map_err(|err| trouble(err.to_string()))?;
    told(review.status, &of.audience).ok_or_else(|| {
        nothing(format!("the cluster does not know it as a token of a service account for {:?}", of.audience))
    })
}

/// What a review comes to (pure). A cluster that does not say for whom the token is has not looked at that.
fn told(status: Status, audience: &str) -> Option<Map<String, Value>> {
    let Status { authenticated, audiences, user: User { username, extra } } = status;
    if !authenticated || !audiences.iter().any(|one| one == audience) {
        return None;
    }
    let (namespace, account) = username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let extra: Map<String, Value> = extra
        .into_iter()
        .filter_map(|(name, values)| Some((name, Value::from(values.into_iter().next()?))))
        .collect();
    let claims =
        json!({ "sub": username, "namespace": namespace, "service_account": account, "extra": extra });
    match claims {
        Value::Object(claims) => Some(claims),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_account_that_the_cluster_knows_for_us_is_somebody() {
        let ask = |status: Value| {
            let review: Review = serde_json::from_value(json!({ "status": status })).unwrap();
            told(review.status, "trestle")
        };
        let user = json!({
            "username": "system:serviceaccount:shop:agents",
            "extra": { "authentication.kubernetes.io/node-name": ["node-1"], "empty": [] },
        });
        let good = json!({ "authenticated": true, "audiences": ["trestle"], "user": user });
        let claims = ask(good.clone()).unwrap();
        assert_eq!(
            (claims["namespace"].as_str(), claims["service_account"].as_str()),
            (Some("shop"), Some("agents"))
        );
        let path = "extra.authentication.kubernetes.io/node-name";
        assert_eq!(super::super::claim(&claims, path).as_deref(), Some("node-1"));
        for (key, value) in [
            ("authenticated", json!(false)),
            ("audiences", json!(["other"])),
            ("audiences", json!([])),
            ("user", json!({ "username": "admin" })),
            ("user", json!({ "username": "system:serviceaccount:shop" })),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert_eq!(ask(bad), None, "{key}");
        }
        assert_eq!(ask(json!({})), None);
    }
}
