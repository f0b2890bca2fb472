//! What Azure says when it refuses, and when work that it had begun failed.

use cloud_http::{Answer, Class, Dialect, Reply};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refusal {
    code: String,
    message: String,
    details: Option<Vec<Refusal>>,
}

impl Refusal {
    pub fn answer(self, status: u16) -> Answer {
        let Self { code, mut message, details } = self;
        let more = details.into_iter().flatten().next().map(|more| more.message).unwrap_or_default();
        if !message.contains(&more) {
            message = format!("{message} {more}");
        }
        Answer { class: class(status, &code), code, message }
    }
}

#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

pub struct ArmDialect;

impl Dialect for ArmDialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        if reply.status < 300 && (reply.body.is_empty() || reply.is_json()) {
            return None;
        }
        Some(match serde_json::from_slice::<Refused>(&reply.body) {
            Ok(refused) => refused.error.answer(reply.status),
            Err(_) => Answer::of_another(class(reply.status, ""), "no answer of Azure", reply),
        })
    }
}

fn class(status: u16, code: &str) -> Class {
    match code {
        "RetryableError"
        | "RetryableErrorDueToAnotherOperation"
        | "ReferencedResourceNotProvisioned"
        | "AnotherOperationInProgress"
        | "OperationPreempted"
        | "PreconditionFailed" => Class::Busy,
        "QuotaExceeded" | "OperationNotAllowed" | "SkuNotAvailable" | "SubnetIsFull" => Class::Limit,
        "ErrCode_InsufficientVCPUQuota" | "InsufficientSubnetSize" => Class::Limit,
        _ if code.ends_with("AllocationFailed") || code.ends_with("LimitReached") => Class::Limit,
        _ if code.starts_with("InUse") || code.ends_with("InUse") => Class::InUse,
        _ if code.ends_with("CannotBeDeleted") => Class::InUse,
        _ => Class::of_status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_classes() {
        for (status, code, expected) in [
            (429, "TooManyRequests", Class::Throttled),
            (429, "RetryableError", Class::Busy),
            (409, "AnotherOperationInProgress", Class::Busy),
            (400, "InUseSubnetCannotBeDeleted", Class::InUse),
            (400, "PublicIPAddressCannotBeDeleted", Class::InUse),
            (400, "NicInUse", Class::InUse),
            (400, "QuotaExceeded", Class::Limit),
            (400, "PublicIPCountLimitReached", Class::Limit),
            (409, "ZonalAllocationFailed", Class::Limit),
            (403, "AuthorizationFailed", Class::Denied),
            (401, "ExpiredAuthenticationToken", Class::Unauthenticated),
            (404, "ResourceGroupNotFound", Class::NotFound),
            (400, "SecurityRuleConflict", Class::Invalid),
            (500, "InternalServerError", Class::Failed),
            (502, "", Class::Failed),
        ] {
            assert_eq!(class(status, code), expected, "{code}");
        }
    }
}
