//! What Azure's clients ask before they come to objects: tokens, the endpoints of a cloud, subscriptions, groups.

use serde_json::json;

use super::{Done, Outcome, groups::group, is, refuse};
use crate::{rest::parameter, server::Ask};

pub(super) fn is_for(path: &str) -> bool {
    path == "/metadata/endpoints"
        || path == "/metadata/identity/oauth2/token"
        || path.ends_with("/oauth2/v2.0/token")
        || path.ends_with("/oauth2/token")
        || path.ends_with("/.well-known/openid-configuration")
        || path == "/common/discovery/instance"
}

/// Pages that take no token. A secret is right unless it is `wrong`.
pub(super) fn page(ask: &Ask<'_>) -> Option<Outcome> {
    let (path, origin) = (ask.uri.path(), &ask.origin);
    if !is_for(path) {
        return None;
    }
    if path == "/metadata/endpoints" {
        let login = json!({"loginEndpoint": origin, "audiences": ["https://management.azure.com/"], "tenant": "common", "identityProvider": "AAD"});
        let cloud = json!({"name": "AzureCloud", "portal": origin, "authentication": login, "resourceManager": origin, "graph": origin, "gallery": origin, "suffixes": {"storage": "core.windows.net"}});
        // Once it was a list of all clouds; now it is the one that was asked.
        let version = parameter(ask.uri, "api-version").unwrap_or_default();
        let answer = if version.as_str() < "2022-09-01" { json!([cloud]) } else { cloud };
        return Some(Ok(Done::now(answer)));
    }
    if path.ends_with("openid-configuration") {
        let tenant = path.trim_matches('/').split('/').next().unwrap_or("common");
        return Some(Ok(Done::now(json!({
            "token_endpoint": format!("{origin}/{tenant}/oauth2/v2.0/token"),
            "authorization_endpoint": format!("{origin}/{tenant}/oauth2/v2.0/authorize"),
            "device_authorization_endpoint": format!("{origin}/{tenant}/oauth2/v2.0/devicecode"),
            "issuer": format!("{origin}/{tenant}/v2.0"),
        }))));
    }
    let managed = path.starts_with("/metadata/identity");
    if managed && ask.headers.get("metadata").is_none() {
        return Some(Err(refuse(400, "invalid_request", "Required metadata header not specified")));
    }
    if String::from_utf8_lossy(ask.body).contains("client_secret=wrong") {
        let body = json!({"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."});
        return Some(Ok(Done { status: 401, body, headers: Vec::new() }));
    }
    let ends = ask.now + 3600;
    Some(Ok(Done::now(match managed {
        true => {
            json!({"access_token": "sim", "expires_in": "3600", "expires_on": ends.to_string(), "token_type": "Bearer", "resource": "https://management.azure.com/"})
        }
        false => {
            json!({"access_token": "sim", "expires_in": 3600, "ext_expires_in": 3600, "token_type": "Bearer"})
        }
    })))
}

fn image(path: &str, location: &str, version: &str) -> serde_json::Value {
    let disk = json!({"operatingSystem": "Linux"});
    let about =
        json!({"osDiskImage": disk, "dataDiskImages": [], "hyperVGeneration": "V2", "architecture": "x64"});
    json!({"id": format!("{}/{version}", path.trim_end_matches(&format!("/{version}"))), "location": location, "name": version, "properties": about})
}

/// Subscriptions, resource groups and images: all that are asked for are there.
pub(super) fn place(ask: &Ask<'_>) -> Option<Outcome> {
    let parts: Vec<&str> = ask.uri.path().trim_matches('/').split('/').collect();
    let subscription = |id: &str| json!({"id": format!("/subscriptions/{id}"), "subscriptionId": id, "tenantId": "00000000-0000-0000-0000-000000000001", "displayName": id, "state": "Enabled"});
    let body = match parts.as_slice() {
        [s] if is(s, "subscriptions") => {
            json!({"value": [subscription("00000000-0000-0000-0000-000000000002")], "count": {"type": "Total", "value": 1}})
        }
        [s, id] if is(s, "subscriptions") => subscription(id),
        [s, id, g, name] if is(s, "subscriptions") && is(g, "resourceGroups") => group(id, name),
        [s, _, "providers", c, "locations", location, "publishers", .., "versions"]
            if is(s, "subscriptions") && is(c, "Microsoft.Compute") =>
        {
            json!([image(ask.uri.path(), location, "1.0.0")])
        }
        [s, _, "providers", c, "locations", location, "publishers", .., "versions", version]
            if is(s, "subscriptions") && is(c, "Microsoft.Compute") =>
        {
            image(ask.uri.path(), location, version)
        }
        _ => return None,
    };
    Some(Ok(Done::now(body)))
}
