//! The record of the call that is running: what it acts on and what it changed, as its handler says.

use std::sync::Arc;

use jiff::Timestamp;
use model::{Subject, change::Change};
use parking_lot::Mutex;
use tonic::Code;

use super::{
    Audit, Position,
    record::{Phase, Record, new_id},
};
use crate::failure::{Failure, code_name};

/// Longest text that names what a call acts on.
const MAX_OBJECT: usize = 1024;

tokio::task_local! {
    static CALL: Arc<Call>;
}

/// One call, from its intent to its outcome.
pub struct Call {
    audit: Arc<Audit>,
    state: Mutex<State>,
}

struct State {
    record: Record,
    /// Where its intent is; none while it is not written.
    begun: Option<Position>,
}

impl Call {
    pub fn new(
        audit: Arc<Audit>,
        caller: Option<Subject>,
        peer: String,
        operation: &str,
        object: String,
    ) -> Arc<Self> {
        let record = Record {
            id: new_id(),
            time: Timestamp::now(),
            phase: Phase::Intent,
            caller,
            peer,
            operation: operation.to_owned(),
            object: cut(object),
            result: String::new(),
            changes: Vec::new(),
            note: String::new(),
        };
        Arc::new(Self { audit, state: Mutex::new(State { record, begun: None }) })
    }

    /// Writes the intent, if it is not written yet.
    pub fn begin(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if state.begun.is_none() {
            let record = Record { time: Timestamp::now(), ..state.record.clone() };
            state.begun = Some(self.audit.intend(record)?);
        }
        Ok(())
    }

    /// Runs a handler, which may say more of the call.
    pub async fn observe<T>(self: Arc<Self>, handler: impl Future<Output = T>) -> T {
        CALL.scope(self, handler).await
    }

    /// Writes the outcome; returns when the intent is on the disk, where that is asked for.
    pub async fn conclude(&self, code: Code, note: &str) {
        let (mut record, begun) = {
            let mut state = self.state.lock();
            let changes = std::mem::take(&mut state.record.changes);
            (Record { changes, ..state.record.clone() }, state.begun)
        };
        (record.time, record.result) = (Timestamp::now(), code_name(code).to_owned());
        if !note.is_empty() {
            record.add_note(note);
        }
        // A stranger who proved nothing has changed nothing.
        if begun.is_none() && record.caller.is_none() && code != Code::Ok {
            record.phase = Phase::Refusal;
            return self.audit.refused(record);
        }
        record.phase = Phase::Outcome;
        self.audit.conclude(record);
        if let Some(position) = begun {
            self.audit.durable(position).await;
        }
    }
}

/// Callers choose names, and some may be as long as a request may be.
fn cut(mut text: String) -> String {
    if text.len() > MAX_OBJECT {
        text.truncate(text.floor_char_boundary(MAX_OBJECT));
        text.push('…');
    }
    text
}

/// Outside a call, as in a unit test of a handler, there is no record to put anything in.
fn with(tell: impl FnOnce(&mut Record)) {
    let _ = CALL.try_with(|call| tell(&mut call.state.lock().record));
}

/// Says what the running call acts on, where its request does not.
pub fn object(name: impl std::fmt::Display) {
    with(|record| record.object = cut(name.to_string()));
}

/// Says what became of an object.
pub fn changed(change: Change) {
    with(|record| record.changes.push(change));
}

pub fn note(text: &str) {
    with(|record| record.add_note(text));
}

/// For calls that prove who makes them by what is in the request: says who it is, where that has a name, and writes the
/// intent. To be called before the first effect, which must not happen if this fails.
pub fn begin(caller: Option<&Subject>) -> Result<(), Failure> {
    let begun = CALL.try_with(|call| {
        if let Some(caller) = caller {
            call.state.lock().record.caller = Some(caller.clone());
        }
        call.begin()
    });
    begun.unwrap_or(Ok(()))
}
