//! What is asked of the audit log, read from the wire.

use jiff::Timestamp;
use tonic::Code;
use wire::trestle::v1::ListAuditRequest;

use crate::{audit::Query, failure::Failure};

pub(super) fn query(request: ListAuditRequest) -> Result<Query, Failure> {
    let ListAuditRequest { limit: _, id, caller, object, operation, result, since, until } = request;
    let (since, until) = (time("since", &since)?, time("until", &until)?);
    Ok(Query { id, caller, object, operation, result, since, until })
}

/// An end of the time asked for; empty: open.
pub(crate) fn time(name: &str, text: &str) -> Result<Option<Timestamp>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |err| {
        let text = format!("`{name}` is not a time like 2026-01-31T12:00:00Z: {err}");
        Failure::new(Code::InvalidArgument, text)
    };
    text.parse().map(Some).map_err(wrong)
}
