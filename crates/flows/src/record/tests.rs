use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use tempfile::TempDir;

use super::*;
use crate::{Direction, End, Verdict};

const LIMITS: Limits = Limits { bytes: 1 << 20, age: 1_000_000_000 };

fn end(number: u8) -> Arc<End> {
    Arc::new(End {
        address: Some([10, 0, 0, number].into()),
        workload: format!("Pod shop/web-{number}"),
        labels: vec![("app".to_owned(), "web".to_owned()), ("zone".to_owned(), number.to_string())],
        tags: vec!["default.shop".to_owned()],
    })
}

fn flow(number: u8, port: u16, at: u64) -> Flow {
    let kind = Kind {
        node: "host-1".into(),
        verdict: if number.is_multiple_of(2) { Verdict::Allowed } else { Verdict::Denied },
        direction: Direction::In,
        from: end(number),
        to: end(200),
        protocol: 6,
        port: Some(port),
        service: number.is_multiple_of(3).then(|| "10.96.0.1:443".parse().unwrap()),
        rule: "ingress rule 0 of NetworkPolicy shop/web".into(),
    };
    Flow { kind, count: 1, bytes: (number > 4).then_some(100), first: at, last: at + 5 }
}

fn open(dir: &TempDir, limits: Limits) -> Record {
    Record::open(&dir.path().join("flows"), limits, 7).unwrap().record
}

fn all(record: &Record) -> Vec<Flow> {
    let ask = Ask::default();
    Reading::find(&record.readings(&ask), &ask, usize::MAX).unwrap().flows
}

fn counted(flows: &[Flow]) -> u64 {
    flows.iter().map(|flow| flow.count).sum()
}

fn files_of(dir: &TempDir) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(dir.path().join("flows")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == SUFFIX));
    files.sort();
    files
}

#[test]
fn what_is_recorded_is_read_as_it_was_also_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    let flows: Vec<Flow> = (0..10).map(|number| flow(number, 80, 1_000 + u64::from(number))).collect();
    record.append(&flows[..6], 2_000).unwrap();
    record.append(&flows[6..], 2_000).unwrap();
    let newest_first: Vec<Flow> = flows.iter().rev().cloned().collect();
    assert_eq!(all(&record), newest_first);
    drop(record);
    let mut record = open(&dir, LIMITS);
    assert_eq!(all(&record), newest_first);
    record.append(&[flow(1, 81, 9_000)], 9_000).unwrap();
    assert_eq!((all(&record).len(), files_of(&dir).len()), (11, 2), "an old file is not written to");
    for file in files_of(&dir) {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn questions_are_answered_by_time_and_filter() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    (0..100).for_each(|number| record.append(&[flow(number, 80, u64::from(number) * 1_000)], 0).unwrap());
    let find = |ask: &Ask, most| Reading::find(&record.readings(ask), ask, most).unwrap();
    let denied = Ask { verdict: Some(Verdict::Denied), ..Ask::default() };
    let found = find(&denied, 3);
    let froms: Vec<&str> = found.flows.iter().map(|flow| &*flow.kind.from.workload).collect();
    assert_eq!(froms, ["Pod shop/web-99", "Pod shop/web-97", "Pod shop/web-95"]);
    assert!(found.more && !find(&denied, 50).more);
    let times = Ask { since: 10_000, until: 12_000, ..Ask::default() };
    assert_eq!(find(&times, 99).flows.len(), 3);
    for (ask, expected) in [
        (Ask { from: "zone=7".parse().ok(), ..Ask::default() }, 1),
        (Ask { to: "zone=7".parse().ok(), ..Ask::default() }, 0),
        (Ask { end: "zone=7".parse().ok(), ..Ask::default() }, 1),
        (Ask { rule: "shop/web".to_owned(), ..Ask::default() }, 100),
        (Ask { rule: "shop/x".to_owned(), ..Ask::default() }, 0),
        (Ask { node: "host".to_owned(), ..Ask::default() }, 0),
        (Ask { port: Some(443), ..Ask::default() }, 34),
        (Ask { protocol: Some(17), ..Ask::default() }, 0),
    ] {
        assert_eq!(find(&ask, 1_000).flows.len(), expected, "{ask:?}");
    }
}

#[test]
fn a_file_that_was_cut_short_ends_with_its_last_whole_frame() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    record.append(&[flow(1, 80, 1), flow(2, 80, 2)], 0).unwrap();
    record.append(&[flow(3, 80, 3)], 0).unwrap();
    drop(record);
    let file = files_of(&dir).remove(0);
    let whole = fs::read(&file).unwrap();
    for cut in 0..whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let Opened { mut record, torn } = Record::open(&dir.path().join("flows"), LIMITS, 7).unwrap();
        let left = all(&record).len();
        assert!(left == 0 || left == 2, "cut at {cut}: {left}");
        assert_eq!(fs::metadata(&file).unwrap().len() + torn, cut as u64);
        record.append(&[flow(9, 80, 9)], 0).unwrap();
        assert_eq!(all(&record).len(), left + 1);
        drop(record);
        files_of(&dir).iter().skip(1).for_each(|file| fs::remove_file(file).unwrap());
    }
}

#[test]
fn damage_in_a_file_costs_what_is_behind_it_and_no_more() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    (0..5).for_each(|number| record.append(&[flow(number, 80, 1)], 0).unwrap());
    drop(record);
    let file = files_of(&dir).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&file, bytes).unwrap();
    assert_eq!(all(&open(&dir, LIMITS)).len(), 2);
}

#[test]
fn the_oldest_go_when_there_are_too_many_bytes_or_days() {
    let dir = TempDir::new().unwrap();
    let limits = Limits { bytes: 100_000, age: 50_000_000 };
    let mut record = open(&dir, limits);
    for number in 0..3_000_u64 {
        let at = number * 1_000;
        record.append(&[flow((number % 200) as u8, (number % 60_000) as u16, at)], at).unwrap();
        assert!(record.bytes() <= 110_000, "{}", record.bytes());
    }
    let on_disk: u64 = files_of(&dir).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(on_disk <= 110_000 && on_disk > 50_000, "{on_disk}");
    let oldest = record.first().unwrap();
    // What is older is gone, and it is said from when on all of it is there.
    let whole = record.uses().since;
    assert!(whole > 0 && whole <= oldest, "{whole} {oldest}");
    assert!(all(&record).len() > 100);
    record.append(&[flow(1, 1, 100_000_000)], 100_000_000).unwrap();
    record.append(&[flow(1, 1, 100_000_001)], 100_000_001).unwrap();
    assert_eq!(all(&record).len(), 2, "everything else is too old");
}

#[test]
fn a_sealed_file_has_one_row_for_what_is_the_same_in_a_minute() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, Limits { bytes: 16 << 20, ..LIMITS });
    for at in 0..600 {
        record.append(&[flow(1, 80, at * 1_000), flow(2, 80, at * 1_000)], at * 1_000).unwrap();
    }
    let before = all(&record);
    record.append(&[flow(1, 80, 4_000_000)], 4_000_000).unwrap();
    let after = all(&record);
    assert_eq!((before.len(), counted(&before)), (1_200, 1_200));
    assert!(after.len() <= 25, "{}", after.len());
    assert_eq!(counted(&after), 1_201);
    let ask = Ask::default();
    let top = Reading::top(&record.readings(&ask), &ask, 10).unwrap();
    let counts: Vec<u64> = top.flows.iter().map(|flow| flow.count).collect();
    assert_eq!((counts, top.more), (vec![601, 600], false));
    drop(record);
    assert_eq!(counted(&all(&open(&dir, LIMITS))), 1_201);
}

/// A full disk, as a file that cannot grow: `/dev/full` in its place.
#[test]
fn on_a_full_disk_nothing_is_half_recorded_and_everything_can_be_read() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    record.append(&[flow(1, 80, 1)], 0).unwrap();
    let (segment, _, begun) = record.open.take().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    record.open = Some((segment, full, begun));
    let error = record.append(&[flow(2, 80, 2)], 0).unwrap_err();
    assert!(matches!(error, RecordError::Write { .. }), "{error}");
    assert_eq!(all(&record).len(), 1);
    record.append(&[flow(3, 80, 3)], 0).unwrap();
    assert_eq!(all(&record).len(), 2, "it goes on when there is room");
}

#[test]
fn what_is_recorded_after_a_question_was_asked_is_not_in_its_answer() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    record.append(&[flow(1, 80, 1)], 0).unwrap();
    let ask = Ask::default();
    let readings = record.readings(&ask);
    record.append(&[flow(2, 80, 2)], 0).unwrap();
    assert_eq!(Reading::find(&readings, &ask, 10).unwrap().flows, [flow(1, 80, 1)]);
    let odd = |flow: &Flow| flow.kind.port == Some(81);
    assert_eq!(Reading::find_by(&record.readings(&ask), &ask, odd, 10).unwrap().flows, []);
}

/// What has decided is counted once, whatever of the file beside the record a crash has cost.
#[test]
fn what_rules_have_decided_is_counted_once_and_outlives_the_flows() {
    const POLICY: &str = "NetworkPolicy shop/web";
    let dir = TempDir::new().unwrap();
    let limits = Limits { bytes: 1 << 20, age: 50_000_000 };
    let there = || [(POLICY.to_owned(), "1".to_owned())].into_iter();
    let count = |record: &Record| record.uses().of(POLICY).unwrap().all().count;
    let uses = dir.path().join("flows/uses.json");
    let mut record = open(&dir, limits);
    record.policies_are(there(), 60_010, 60_010);
    let mut told = 0;
    for number in 0..2_000_u64 {
        let now = 60_010 + number * 500;
        record.append(&[flow((number % 7) as u8, 80, now)], now).unwrap();
        told += 1;
        assert_eq!(count(&record), told);
        // What is in the file was written a while ago.
        if number % 300 == 299 {
            drop(record);
            record = open(&dir, limits);
            assert_eq!(count(&record), told, "after a crash");
        }
    }
    assert_eq!(record.uses().since, 7, "nothing was thrown away yet");
    record.append(&[flow(1, 80, 100_000_000)], 100_000_000).unwrap();
    record.append(&[flow(1, 80, 100_000_001)], 100_000_001).unwrap();
    assert!(all(&record).len() <= 3 && record.uses().since > 7, "the others are too old");
    assert_eq!(count(&record), told + 2);
    // Whatever it was, it is no reason not to record; and what was not counted is not said to be unused.
    drop(record);
    fs::write(&uses, "{").unwrap();
    let record = Record::open(&dir.path().join("flows"), limits, 200_000_000).unwrap().record;
    assert_eq!((record.uses().of(POLICY), record.uses().since), (None, 100_000_000));
}

#[test]
fn a_clock_that_jumps_loses_nothing_that_is_not_too_old_for_it() {
    let dir = TempDir::new().unwrap();
    let mut record = open(&dir, LIMITS);
    let times = [600_000_000, 601_000_000, 5_000, 6_000, 900_000_000, 900_000_001, 602_000_000];
    for (number, now) in times.into_iter().enumerate() {
        record.append(&[flow(number as u8, 80, now)], now).unwrap();
    }
    assert_eq!(all(&record).len(), times.len());
    let asked = Ask { since: 4_000, until: 7_000, ..Ask::default() };
    assert_eq!(Reading::find(&record.readings(&asked), &asked, 10).unwrap().flows.len(), 2);
    drop(record);
    assert_eq!(all(&open(&dir, LIMITS)).len(), times.len());
}
