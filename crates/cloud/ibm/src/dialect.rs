//! How IBM's APIs refuse.

use cloud_http::{Answer, Class, Dialect, Reply};
use serde::Deserialize;

/// One refusal. The VPC and transit gateway APIs give a list of them; the Kubernetes Service gives one by itself, and
/// calls the message a description.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: Option<String>,
    message: Option<String>,
    description: Option<String>,
    errors: Vec<Refusal>,
}

pub(crate) struct IbmDialect;

impl Dialect for IbmDialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        if reply.status < 300 && (reply.body.is_empty() || reply.is_json()) {
            return None;
        }
        let mut refusal: Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
        if !refusal.errors.is_empty() {
            refusal = refusal.errors.swap_remove(0);
        }
        let (code, message) = (refusal.code, refusal.message.or(refusal.description));
        let class = class(reply.status, code.as_deref().unwrap_or_default());
        Some(match (code, message) {
            (None, None) => Answer::of_another(class, "no IBM answer", reply),
            (code, message) => {
                Answer { class, code: code.unwrap_or_default(), message: message.unwrap_or_default() }
            }
        })
    }
}

/// IBM lists no codes; the status decides unless the code is one of those that are known.
fn class(status: u16, code: &str) -> Class {
    match code {
        "over_quota" => Class::Limit,
        _ if code.contains("unique") => Class::Exists,
        _ if code.contains("not_ready") => Class::Busy,
        _ if code.contains("in_use") => Class::InUse,
        _ => match status {
            409 => Class::InUse,
            408 => Class::Failed,
            other => Class::of_status(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        assert_eq!(class(400, "validation_unique_failed"), Class::Exists);
        assert_eq!(class(409, "subnet_in_use_network_interface_exists"), Class::InUse);
        assert_eq!(class(409, "conflict_field"), Class::InUse);
        assert_eq!(class(400, "over_quota"), Class::Limit);
        assert_eq!(class(403, "not_authorized"), Class::Denied);
        assert_eq!(class(429, ""), Class::Throttled);
        assert_eq!(class(400, "validation_invalid"), Class::Invalid);
        for (status, body, class, code, message) in [
            (409, r#"{"code":"E0007","description":"exists"}"#, Class::InUse, "E0007", "exists"),
            (404, r#"{"errors":[{"code":"not_found","message":"no"}]}"#, Class::NotFound, "not_found", "no"),
            (400, r#"{"errors":[]}"#, Class::Invalid, "no IBM answer", r#"{"errors":[]}"#),
            (200, "<html>", Class::Failed, "no IBM answer", "<html>"),
        ] {
            let reply = Reply { status, headers: Default::default(), body: body.into() };
            let told = Answer { class, code: code.into(), message: message.into() };
            assert_eq!(IbmDialect.judge(&reply), Some(told), "{body}");
        }
    }
}
