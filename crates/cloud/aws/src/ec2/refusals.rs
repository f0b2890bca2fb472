//! EC2's refusals, and what class each is. Pure.

use cloud_http::{Answer, Class, Dialect, Reply};
use serde::Deserialize;

use super::answers::root;

pub(super) struct Ec2Dialect;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    errors: Errors,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Errors {
    error: Error,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Error {
    code: String,
    #[serde(default)]
    message: String,
}

impl Dialect for Ec2Dialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        let text = reply.text();
        if reply.status < 300 && root(&text).is_some() {
            return None;
        }
        Some(match quick_xml::de::from_str::<Refusal>(&text) {
            Ok(Refusal { errors: Errors { error: Error { code, message } } }) => {
                Answer { class: class(reply.status, &code), code, message }
            }
            Err(_) => Answer::of_another(class(reply.status, ""), "no EC2 answer", reply),
        })
    }
}

fn class(status: u16, code: &str) -> Class {
    match code {
        "RequestLimitExceeded" | "EC2ThrottledException" | "Throttling" | "ThrottlingException" => {
            Class::Throttled
        }
        "IncorrectState" | "IncorrectInstanceState" | "InvalidStateTransition" => Class::Busy,
        "DependencyViolation" | "InvalidIPAddress.InUse" | "CannotDelete" => Class::InUse,
        "AuthFailure"
        | "RequestExpired"
        | "ExpiredToken"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch" => Class::Unauthenticated,
        "UnauthorizedOperation" | "OptInRequired" => Class::Denied,
        "RouteAlreadyExists" | "Resource.AlreadyAssociated" | "DuplicateTransitGatewayAttachment" => {
            Class::Exists
        }
        "NatGatewayNotFound" | "Gateway.NotAttached" => Class::NotFound,
        _ if code.ends_with(".Duplicate") => Class::Exists,
        _ if code.ends_with(".NotFound") => Class::NotFound,
        _ if code.ends_with("LimitExceeded") || code.starts_with("Insufficient") => Class::Limit,
        _ if status == 429 => Class::Throttled,
        _ if status >= 500 || code.is_empty() => Class::Failed,
        _ => Class::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_classes() {
        for (status, code, expected) in [
            (503, "RequestLimitExceeded", Class::Throttled),
            (400, "InvalidGroup.Duplicate", Class::Exists),
            (400, "InvalidVpcID.NotFound", Class::NotFound),
            (400, "DependencyViolation", Class::InUse),
            (400, "RulesPerSecurityGroupLimitExceeded", Class::Limit),
            (403, "UnauthorizedOperation", Class::Denied),
            (401, "AuthFailure", Class::Unauthenticated),
            (500, "InternalError", Class::Failed),
            (502, "", Class::Failed),
            (400, "MissingParameter", Class::Invalid),
        ] {
            assert_eq!(class(status, code), expected, "{code}");
        }
    }

    #[test]
    fn a_page_of_html_is_no_answer() {
        let html = |status| Reply { status, headers: Default::default(), body: "<html><p>x</html>".into() };
        assert_eq!(Ec2Dialect.judge(&html(200)).map(|answer| answer.class), Some(Class::Failed));
        assert_eq!(Ec2Dialect.judge(&html(502)).map(|answer| answer.class), Some(Class::Failed));
    }
}
