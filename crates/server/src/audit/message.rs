//! The log on the wire, both ways: what a controller tells, and what the command line prints of it.

use jiff::Timestamp;
use model::{
    NameError, Subject,
    change::{Change, Field, What},
};
use wire::{
    access::{UnknownRole, role},
    trestle::v1::{
        self, AuditChange, AuditField, AuditFinding, AuditRecord, VerifyAuditResponse, audit_change,
    },
};

use super::{
    chain::Head,
    record::{Phase, Record},
    verify::{Finding, Place, Report},
};

/// Why what a controller tells is no record.
#[derive(Debug, thiserror::Error)]
pub enum AuditMessageError {
    #[error("the controller sent an audit record without a time")]
    Time(#[source] jiff::Error),
    #[error("the controller sent an audit record of a phase that is not known: {0:?}")]
    Phase(String),
    #[error("the controller sent an audit record of a caller that is not known")]
    Role(#[source] UnknownRole),
    #[error("the controller sent an audit record of a caller without a legal name")]
    Name(#[source] NameError),
}

impl From<Record> for AuditRecord {
    fn from(record: Record) -> Self {
        let role = record.caller.as_ref().map_or(v1::Role::Unspecified, |caller| caller.role.into());
        Self {
            time: record.time.to_string(),
            role: role as i32,
            name: record.caller.map(|caller| caller.name.to_string()).unwrap_or_default(),
            peer: record.peer,
            operation: record.operation,
            object: record.object,
            result: record.result,
            id: record.id,
            phase: record.phase.as_str().to_owned(),
            changes: record.changes.into_iter().map(told_change).collect(),
            note: record.note,
        }
    }
}

impl TryFrom<AuditRecord> for Record {
    type Error = AuditMessageError;

    fn try_from(message: AuditRecord) -> Result<Self, AuditMessageError> {
        let caller = match message.name.as_str() {
            "" => None,
            name => Some(Subject {
                role: role(message.role).map_err(AuditMessageError::Role)?,
                name: name.parse().map_err(AuditMessageError::Name)?,
            }),
        };
        let phase = Phase::ALL.into_iter().find(|phase| phase.as_str() == message.phase);
        Ok(Self {
            id: message.id,
            time: message.time.parse::<Timestamp>().map_err(AuditMessageError::Time)?,
            phase: phase.ok_or(AuditMessageError::Phase(message.phase))?,
            caller,
            peer: message.peer,
            operation: message.operation,
            object: message.object,
            result: message.result,
            changes: message.changes.into_iter().map(heard_change).collect(),
            note: message.note,
        })
    }
}

fn told_change(change: Change) -> AuditChange {
    let what = match change.what {
        What::Created => audit_change::What::Created,
        What::Changed => audit_change::What::Changed,
        What::Unchanged => audit_change::What::Unchanged,
        What::Deleted => audit_change::What::Deleted,
    };
    let field = |Field { path, before, after }| AuditField { path, before, after };
    AuditChange {
        object: change.object,
        what: what as i32,
        before: change.before.unwrap_or_default(),
        after: change.after.unwrap_or_default(),
        fields: change.fields.into_iter().map(field).collect(),
        fields_left_out: change.fields_left_out as u64,
    }
}

fn heard_change(message: AuditChange) -> Change {
    let what = match message.what() {
        audit_change::What::Created => What::Created,
        audit_change::What::Changed => What::Changed,
        audit_change::What::Unchanged | audit_change::What::Unspecified => What::Unchanged,
        audit_change::What::Deleted => What::Deleted,
    };
    let digest = |text: String| Some(text).filter(|text| !text.is_empty());
    let field = |AuditField { path, before, after }| Field { path, before, after };
    Change {
        object: message.object,
        what,
        before: digest(message.before),
        after: digest(message.after),
        fields: message.fields.into_iter().map(field).collect(),
        fields_left_out: usize::try_from(message.fields_left_out).unwrap_or(usize::MAX),
    }
}

impl From<Head> for VerifyAuditResponse {
    fn from(head: Head) -> Self {
        Self { count: head.count, hash: head.hash, ..Self::default() }
    }
}

impl From<Report> for VerifyAuditResponse {
    fn from(report: Report) -> Self {
        let finding = |Finding { alarm, place: Place { file, line }, id, text }| AuditFinding {
            alarm,
            file,
            line,
            id,
            text,
        };
        let findings = report.findings.into_iter().map(finding).collect();
        Self { records: report.records, findings, ..report.head.into() }
    }
}

impl From<VerifyAuditResponse> for Report {
    fn from(reply: VerifyAuditResponse) -> Self {
        let finding = |AuditFinding { alarm, file, line, id, text }| Finding {
            alarm,
            place: Place { file, line },
            id,
            text,
        };
        let findings = reply.findings.into_iter().map(finding).collect();
        Self { records: reply.records, head: Head { count: reply.count, hash: reply.hash }, findings }
    }
}
