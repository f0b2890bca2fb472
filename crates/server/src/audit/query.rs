//! Which records are asked for (pure): one for each call, newest first.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use super::record::{Phase, Record};

/// The operation of the event that a start leaves.
pub const START: &str = "controller start";
/// Clocks are put right now and then: records this much older may still be followed by newer ones.
const SLACK: SignedDuration = SignedDuration::from_mins(10);

/// What is asked for; empty and absent: all.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// All lines of one call, its intent too.
    pub id: String,
    /// A name, or a role and a name as in `admin/alice`.
    pub caller: String,
    /// A part of an object's name, in the request or among what changed.
    pub object: String,
    /// A part of the operation's name.
    pub operation: String,
    pub result: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Query {
    fn matches(&self, record: &Record) -> bool {
        let caller = record.caller.as_ref();
        let by = |text: &str| {
            caller.is_some_and(|caller| caller.name.as_str() == text || caller.to_string() == text)
                || (caller.is_none() && text == "unknown")
        };
        let on = |part: &str| {
            record.object.contains(part) || record.changes.iter().any(|change| change.object.contains(part))
        };
        (self.id.is_empty() || record.id == self.id)
            && (self.caller.is_empty() || by(&self.caller))
            && (self.object.is_empty() || on(&self.object))
            && (self.operation.is_empty() || record.operation.contains(&self.operation))
            && (self.result.is_empty() || record.result.eq_ignore_ascii_case(&self.result))
            && self.since.is_none_or(|since| record.time >= since)
            && self.until.is_none_or(|until| record.time <= until)
    }

    /// Whether records older than this one need not be looked at.
    fn is_past(&self, record: &Record) -> bool {
        self.since.is_some_and(|since| since.duration_since(record.time) > SLACK)
    }
}

/// Goes through lines, newest first.
pub struct Search {
    query: Query,
    /// Calls whose outcome was seen and whose intent is still to come.
    ended: HashSet<String>,
    /// A start was seen: what is older is of another process.
    is_of_another: bool,
    /// The first line of the one call that is asked for was seen.
    is_done: bool,
}

/// What came of one line.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Record(Box<Record>),
    Nothing,
    /// No older line can be asked for.
    End,
}

impl Search {
    pub fn new(query: Query) -> Self {
        Self { query, ended: HashSet::new(), is_of_another: false, is_done: false }
    }

    pub fn line(&mut self, mut record: Record) -> Found {
        if self.is_done || self.query.is_past(&record) {
            return Found::End;
        }
        let whole_call = !self.query.id.is_empty();
        // Outcomes and parts have an intent before them.
        self.is_done =
            whole_call && record.id == self.query.id && !matches!(record.phase, Phase::Outcome | Phase::Part);
        match record.phase {
            Phase::Outcome => {
                self.ended.insert(record.id.clone());
            }
            Phase::Intent => {
                let has_outcome = self.ended.remove(&record.id);
                if has_outcome && !whole_call {
                    return Found::Nothing;
                }
                if !has_outcome {
                    record.result = if self.is_of_another { "UNFINISHED" } else { "RUNNING" }.to_owned();
                }
            }
            // Its outcome stands for it, unless something in it is looked for.
            Phase::Part if self.query.object.is_empty() && !whole_call => return Found::Nothing,
            Phase::Event if record.operation == START => self.is_of_another = true,
            Phase::Part | Phase::Event | Phase::Refusal => {}
        }
        if self.query.matches(&record) { Found::Record(Box::new(record)) } else { Found::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use model::{
        Role, Subject,
        change::{Change, What},
    };

    use super::*;

    fn record(id: &str, phase: Phase, second: i64) -> Record {
        let time = Timestamp::from_second(second).unwrap();
        let result = if phase == Phase::Intent { "" } else { "OK" }.to_owned();
        Record { id: id.into(), phase, result, ..Record::event(time, "x/Write", String::new()) }
    }

    fn find(query: Query, lines: &[Record]) -> Vec<(String, String)> {
        let mut search = Search::new(query);
        let mut found = Vec::new();
        for line in lines.iter().rev() {
            match search.line(line.clone()) {
                Found::Record(record) => found.push((record.id, record.result)),
                Found::Nothing => {}
                Found::End => break,
            }
        }
        found
    }

    fn told(found: &[(String, String)]) -> Vec<(&str, &str)> {
        found.iter().map(|(id, result)| (id.as_str(), result.as_str())).collect()
    }

    #[test]
    fn a_call_is_told_once_and_one_without_outcome_says_so() {
        let mut start = record("s", Phase::Event, 30);
        start.operation = START.into();
        let lines = [
            record("lost", Phase::Intent, 1),
            record("a", Phase::Intent, 2),
            record("a", Phase::Part, 3),
            record("a", Phase::Outcome, 3),
            start,
            record("b", Phase::Intent, 31),
            record("c", Phase::Refusal, 32),
        ];
        let found = find(Query::default(), &lines);
        let expected = [("c", "OK"), ("b", "RUNNING"), ("s", "OK"), ("a", "OK"), ("lost", "UNFINISHED")];
        assert_eq!(told(&found), expected);
        let found = find(Query { id: "a".into(), ..Query::default() }, &lines);
        assert_eq!(told(&found), [("a", "OK"), ("a", "OK"), ("a", "")]);
    }

    #[test]
    fn each_filter_leaves_out_what_it_does_not_name() {
        let mut wanted = record("a", Phase::Outcome, 5000);
        wanted.caller = Some(Subject { role: Role::Operator, name: "alice".parse().unwrap() });
        wanted.changes = vec![Change::named("Pod default/web", What::Created)];
        let mut other = record("b", Phase::Outcome, 9000);
        (other.operation, other.result) = ("y/Read".into(), "NOT_FOUND".into());
        let lines = [record("old", Phase::Outcome, 100), wanted, other];
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let all = Query::default;
        for query in [
            Query { caller: "alice".into(), ..all() },
            Query { caller: "operator/alice".into(), ..all() },
            Query { object: "default/web".into(), ..all() },
            Query { operation: "Write".into(), since: at(4000), ..all() },
            Query { result: "ok".into(), since: at(4000), ..all() },
            Query { since: at(4000), until: at(6000), ..all() },
        ] {
            assert_eq!(told(&find(query.clone(), &lines)), [("a", "OK")], "{query:?}");
        }
        assert_eq!(find(Query { caller: "bob".into(), ..all() }, &lines), []);
        assert_eq!(find(Query { caller: "unknown".into(), ..all() }, &lines).len(), 2);
    }
}
