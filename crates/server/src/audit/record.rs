//! One line of the log, and its bounds.

use drivers::random;
use jiff::Timestamp;
use model::{Subject, change::Change};
use serde::{Deserialize, Serialize};

/// Changes in one line; a call that changes more has several.
const MAX_CHANGES: usize = 500;
/// Bytes of values in the lines of one call; the changes beyond have their names and digests only.
const MAX_VALUES: usize = 64 << 10;

/// What a line tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A call is about to be carried out.
    Intent,
    /// How it ended.
    #[default]
    Outcome,
    /// Further changes of a call whose outcome follows.
    Part,
    /// A call that was not carried out, because its caller may not make it.
    Refusal,
    /// Something that nobody called for: a start, a gap in the record.
    Event,
}

impl Phase {
    pub const ALL: [Self; 5] = [Self::Intent, Self::Outcome, Self::Part, Self::Refusal, Self::Event];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Outcome => "outcome",
            Self::Part => "part",
            Self::Refusal => "refusal",
            Self::Event => "event",
        }
    }
}

/// One line of the audit log. The lines of one call have the same id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Record {
    /// Empty in lines of early versions.
    #[serde(default)]
    #[schema(required = true)]
    pub id: String,
    #[schema(value_type = String)]
    pub time: Timestamp,
    #[serde(default)]
    #[schema(required = true)]
    pub phase: Phase,
    /// Who called; absent if the caller was not known.
    #[schema(value_type = Option<Object>)]
    pub caller: Option<Subject>,
    /// The address the call came from.
    pub peer: String,
    pub operation: String,
    /// What the call acts on, where the request names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The gRPC code, for example `OK`; of a call without outcome `RUNNING`, or `UNFINISHED` if the controller ended
    /// before it.
    #[serde(default)]
    #[schema(required = true)]
    pub result: String,
    /// What became of each object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<Change>,
    /// What else is to be known of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A name for a call, which no other call has.
pub fn new_id() -> String {
    common::hex(&random::bytes::<8>())
}

impl Record {
    /// Something that nobody called for.
    pub fn event(time: Timestamp, operation: &str, note: String) -> Self {
        Self {
            id: new_id(),
            time,
            phase: Phase::Event,
            caller: None,
            peer: String::new(),
            operation: operation.to_owned(),
            object: String::new(),
            result: "OK".to_owned(),
            changes: Vec::new(),
            note,
        }
    }

    /// The lines of an outcome: none is longer than [`MAX_CHANGES`], and values are shown up to [`MAX_VALUES`].
    pub fn lines(mut self) -> Vec<Self> {
        let mut room = MAX_VALUES;
        for change in &mut self.changes {
            match room.checked_sub(change.size()) {
                Some(left) => room = left,
                None => *change = std::mem::replace(change, Change::named("", change.what)).without_values(),
            }
        }
        let mut changes = std::mem::take(&mut self.changes);
        let mut lines = Vec::new();
        while changes.len() > MAX_CHANGES {
            let rest = changes.split_off(MAX_CHANGES);
            let phase = Phase::Part;
            lines.push(Self { phase, changes: std::mem::replace(&mut changes, rest), ..self.clone() });
        }
        if !lines.is_empty() {
            let further = format!("{} more changes are in lines before this one", lines.len() * MAX_CHANGES);
            self.add_note(&further);
        }
        lines.push(Self { changes, ..self });
        lines
    }

    pub fn add_note(&mut self, note: &str) {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
    }
}

#[cfg(test)]
mod tests {
    use model::change::What;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_that_changes_much_names_everything_in_bounded_lines() {
        let change = |n| Change::between(format!("pod/{n}"), None, Some(&json!({"a": "x".repeat(100)})));
        let mut record = Record::event(Timestamp::UNIX_EPOCH, "apply", String::new());
        (record.phase, record.changes) = (Phase::Outcome, (0..1800).map(change).collect());
        let lines = record.lines();
        assert_eq!(lines.iter().map(|line| line.changes.len()).collect::<Vec<_>>(), [500, 500, 500, 300]);
        assert_eq!(lines.iter().filter(|line| line.phase == Phase::Part).count(), 3);
        assert_eq!(lines[3].phase, Phase::Outcome);
        let changes: Vec<_> = lines.iter().flat_map(|line| &line.changes).collect();
        assert!(changes.iter().enumerate().all(|(n, change)| change.object == format!("pod/{n}")));
        assert!(changes.iter().all(|change| change.what == What::Created && change.after.is_some()));
        let values: usize = changes.iter().map(|change| change.fields.len() * 100).sum();
        assert!(values > 0 && values <= MAX_VALUES, "{values}");
        assert!(changes[1799].fields_left_out == 1);
    }
}
