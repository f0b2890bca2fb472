//! The log over a real directory: what is written, held, refused and left out.

use std::fs;

use model::{
    Role, Subject,
    change::{Change, What},
};

use super::{files::log_path, record::new_id, *};

fn open(dir: &Path, when_unwritable: WhenUnwritable) -> Audit {
    let options = AuditConfig { when_unwritable, sync: Sync::Call };
    Audit::open(dir, options, Metrics::new()).unwrap()
}

fn record(phase: Phase, id: &str) -> Record {
    let result = if phase == Phase::Intent { "" } else { "OK" }.to_owned();
    Record { phase, id: id.to_owned(), result, ..Record::event(Timestamp::now(), "x/Y", String::new()) }
}

fn eve() -> Subject {
    Subject { role: Role::Viewer, name: "eve".parse().unwrap() }
}

fn told(audit: &Audit) -> Vec<(String, String)> {
    let records = audit.find(Query::default(), 1000).unwrap();
    records.into_iter().map(|record| (record.id, record.result)).collect()
}

#[tokio::test]
async fn a_call_is_on_the_disk_before_its_reply_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let audit = open(dir.path(), WhenUnwritable::Refuse);
    let position = audit.intend(record(Phase::Intent, "a")).unwrap();
    assert_eq!(told(&audit), [("a".into(), "RUNNING".into())]);
    let mut outcome = record(Phase::Outcome, "a");
    outcome.changes = vec![Change::named("tag b", What::Created)];
    audit.conclude(outcome);
    audit.durable(position).await;
    assert_eq!(told(&audit), [("a".into(), "OK".into())]);
    let head = audit.head();
    drop(audit);
    let audit = open(dir.path(), WhenUnwritable::Refuse);
    assert_eq!(audit.head(), head);
    let report = audit.verify().unwrap();
    assert_eq!((report.records, report.findings), (2, vec![]));
}

#[test]
fn what_nobody_waits_for_is_on_the_disk_soon_and_its_head_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let audit = Audit::open(dir.path(), AuditConfig::default(), Metrics::new()).unwrap();
    for n in 0..3 {
        audit.intend(record(Phase::Intent, &n.to_string())).unwrap();
        let kept = || files::read_head(dir.path()).unwrap();
        wait_for("the head is not kept", || kept() == Some(audit.head()));
    }
    assert_eq!(audit.head().count, 3);
}

/// A log that cannot be written: its file is a directory.
fn obstruct(dir: &Path) {
    fs::create_dir(log_path(dir)).unwrap();
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{what}");
}

#[test]
fn an_intent_that_cannot_be_written_is_refused_and_outcomes_are_held() {
    let dir = tempfile::tempdir().unwrap();
    obstruct(dir.path());
    let audit = open(dir.path(), WhenUnwritable::Refuse);
    audit.start();
    let refused = audit.intend(record(Phase::Intent, "a")).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("audit.log"), "{}", refused.message);
    audit.conclude(record(Phase::Outcome, "late"));
    assert!(audit.trouble().unwrap().contains("writes are refused"));
    fs::remove_dir(log_path(dir.path())).unwrap();
    wait_for("it recovers by itself", || audit.trouble().is_none());
    audit.intend(record(Phase::Intent, "b")).unwrap();
    let records = audit.find(Query::default(), 9).unwrap();
    let ids: Vec<_> = records.iter().map(|record| record.id.as_str()).collect();
    assert_eq!((ids[0], ids[2]), ("b", "late"), "what was held comes first: {records:?}");
    assert!(records[1].note.contains("1 calls were refused"), "{:?}", records[1]);
    assert!(audit.verify().unwrap().is_sound());
}

#[test]
fn where_calls_go_on_without_a_record_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    obstruct(dir.path());
    let audit = open(dir.path(), WhenUnwritable::Continue);
    audit.intend(record(Phase::Intent, "a")).unwrap();
    assert_eq!(audit.trouble(), None);
}

#[test]
fn refusals_of_one_caller_are_bounded_and_strangers_have_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let audit = open(dir.path(), WhenUnwritable::Refuse);
    for n in 0..10_000 {
        let mut refusal = record(Phase::Refusal, &new_id());
        refusal.caller = (n % 2 == 0).then(eve);
        audit.refused(refusal);
    }
    let lines = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap().lines().count();
    assert_eq!((lines("audit.log"), lines("strangers.log")), (30, 60));
    assert!(told(&audit).len() == 30);
    // The minute is over.
    let later = Timestamp::now() + jiff::SignedDuration::from_secs(61);
    let mut refusal = record(Phase::Refusal, "later");
    refusal.caller = Some(eve());
    audit.shared.tick_at(later);
    audit.shared.refused(refusal, later);
    let records = audit.find(Query::default(), 2).unwrap();
    assert_eq!(records[0].id, "later");
    assert!(records[1].note.contains("4970 more refusals of viewer/eve"), "{:?}", records[1]);
    assert_eq!((lines("audit.log"), lines("strangers.log")), (32, 61));
}
