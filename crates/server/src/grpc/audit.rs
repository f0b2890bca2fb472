//! The audit log on the wire.

use jiff::Timestamp;
use model::change::{Change, What};
use tonic::Code;
use wire::trestle::v1::{
    self, AuditChange, AuditField, AuditFinding, AuditRecord, ListAuditRequest, VerifyAuditResponse,
    audit_change,
};

use crate::{
    audit::{Finding, Head, Phase, Query, Record, Report},
    failure::Failure,
};

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

pub(super) fn record(record: Record) -> AuditRecord {
    let role = record.caller.as_ref().map_or(v1::Role::Unspecified, |caller| caller.role.into());
    AuditRecord {
        time: record.time.to_string(),
        role: role as i32,
        name: record.caller.map(|caller| caller.name.to_string()).unwrap_or_default(),
        peer: record.peer,
        operation: record.operation,
        object: record.object,
        result: record.result,
        id: record.id,
        phase: phase(record.phase).to_owned(),
        changes: record.changes.into_iter().map(change).collect(),
        note: record.note,
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Intent => "intent",
        Phase::Outcome => "outcome",
        Phase::Part => "part",
        Phase::Refusal => "refusal",
        Phase::Event => "event",
    }
}

fn change(change: Change) -> AuditChange {
    let what = match change.what {
        What::Created => audit_change::What::Created,
        What::Changed => audit_change::What::Changed,
        What::Unchanged => audit_change::What::Unchanged,
        What::Deleted => audit_change::What::Deleted,
    };
    let fields = change.fields.into_iter();
    AuditChange {
        object: change.object,
        what: what as i32,
        before: change.before.unwrap_or_default(),
        after: change.after.unwrap_or_default(),
        fields: fields
            .map(|field| AuditField { path: field.path, before: field.before, after: field.after })
            .collect(),
        fields_left_out: change.fields_left_out as u64,
    }
}

pub(super) fn head(head: Head) -> VerifyAuditResponse {
    VerifyAuditResponse { count: head.count, hash: head.hash, ..VerifyAuditResponse::default() }
}

pub(super) fn report(report: Report) -> VerifyAuditResponse {
    let finding = |finding: Finding| AuditFinding {
        alarm: finding.alarm,
        file: finding.place.file,
        line: finding.place.line,
        id: finding.id,
        text: finding.text,
    };
    let findings = report.findings.into_iter().map(finding).collect();
    VerifyAuditResponse { records: report.records, findings, ..head(report.head) }
}
