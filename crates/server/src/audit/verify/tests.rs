//! Random edits of a log: each is found. What a crash leaves is no alarm.

use proptest::prelude::*;

use super::{super::chain, *};

/// The lines of some files, oldest first.
type Files = Vec<Vec<Vec<u8>>>;

fn files(sizes: &[usize]) -> (Files, Head) {
    let mut head = Head::default();
    let mut line = || {
        let record = format!(r#"{{"id":"id{}","operation":"x/Y","result":"OK"}}"#, head.count);
        let (line, next) = chain::link(&head, &record);
        head = next;
        line.into_bytes()
    };
    let files = sizes.iter().map(|size| (0..*size).map(|_| line()).collect()).collect();
    (files, head)
}

fn verify_with(files: &Files, head: Option<Head>, torn: usize) -> Report {
    let mut verifier = Verifier::new(Expected::Whole { head, is_rotated_out: false });
    let mut end = Place::default();
    for (n, lines) in files.iter().enumerate() {
        for (at, line) in lines.iter().enumerate() {
            end = Place { file: format!("file{n}"), line: at as u64 + 1 };
            // An edit may put newlines into a line.
            line.split(|byte| *byte == b'\n').for_each(|line| verifier.line(end.clone(), line));
        }
    }
    verifier.finish(end, torn)
}

fn verify(files: &Files, head: &Head) -> Report {
    verify_with(files, Some(head.clone()), 0)
}

fn found(report: &Report, file: usize, line: usize, text: &str) {
    let at = |finding: &Finding| {
        finding.place == Place { file: format!("file{file}"), line: line as u64 }
            && finding.text.contains(text)
    };
    assert!(report.findings.iter().any(|finding| finding.alarm && at(finding)), "{text}: {report:#?}");
}

#[test]
fn a_log_as_it_was_written_is_sound() {
    let (files, head) = files(&[3, 5, 0, 2]);
    let report = verify(&files, &head);
    assert_eq!((report.records, &report.head, report.findings), (10, &head, vec![]));
}

#[test]
fn each_kind_of_tampering_is_told_with_its_place() {
    let (whole, head) = files(&[4, 4]);

    let mut edited = whole.clone();
    edited[0].remove(1);
    found(&verify(&edited, &head), 0, 2, "record 2 is missing");

    let mut edited = whole.clone();
    edited[0].truncate(2);
    found(&verify(&edited, &head), 1, 1, "records 3 to 4 are missing");

    let mut edited = whole.clone();
    let text = String::from_utf8(edited[1][2].clone()).unwrap().replace("OK", "NO");
    edited[1][2] = text.into_bytes();
    let report = verify(&edited, &head);
    found(&report, 1, 3, "record 7 was changed");
    assert_eq!(report.findings[0].id, "id6");

    let mut edited = whole.clone();
    edited[0].swap(1, 2);
    found(&verify(&edited, &head), 0, 3, "moved or inserted");

    let mut edited = whole.clone();
    edited[1].insert(1, b"{\"free\":\"text\"}".to_vec());
    found(&verify(&edited, &head), 1, 2, "no record");

    let mut edited = whole.clone();
    edited[1].truncate(2);
    found(&verify(&edited, &head), 1, 2, "the newest records are gone");

    let mut edited = whole.clone();
    edited.remove(0);
    found(&verify(&edited, &head), 0, 1, "older ones were removed");

    // The last line has no line after it: only the head tells.
    let mut edited = whole.clone();
    edited[1][3].truncate(20);
    edited[1][3].extend_from_slice(br#"","id":"forged"}"#);
    assert!(!verify(&edited, &head).is_sound());

    assert!(!verify_with(&whole, None, 0).is_sound(), "a log without its head");
}

#[test]
fn what_a_crash_leaves_is_no_alarm() {
    let (mut whole, _) = files(&[4, 4]);
    let newest = Link::read(&whole[1][1]).unwrap().head(&whole[1][1]);
    let report = verify_with(&whole, Some(newest.clone()), 17);
    let told: Vec<_> = report.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert!(report.is_sound() && told.len() == 2, "{told:?}");
    assert!(told[0].contains("torn") && told[1].contains("2 records stand after the head"), "{told:?}");
    // A line that was on the disk is not torn by a crash.
    whole[1].truncate(1);
    assert!(!verify_with(&whole, Some(newest), 17).is_sound());
}

#[derive(Clone, Debug)]
enum Edit {
    Remove(usize),
    Flip(usize, usize, u8),
    Swap(usize, usize),
    Copy(usize, usize),
    /// A line with a right link is put in by somebody who knows how.
    Forge(usize),
    /// A record is replaced, and its link kept.
    Replace(usize),
    Cut(usize),
}

fn edits() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<usize>().prop_map(Edit::Remove),
        (any::<usize>(), any::<usize>(), 1u8..=255).prop_map(|(line, at, bits)| Edit::Flip(line, at, bits)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::Swap(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Edit::Copy(from, to)),
        any::<usize>().prop_map(Edit::Forge),
        any::<usize>().prop_map(Edit::Replace),
        any::<usize>().prop_map(Edit::Cut),
    ]
}

fn edit(lines: &mut Vec<Vec<u8>>, edit: &Edit) {
    let count = lines.len();
    match *edit {
        Edit::Remove(at) => drop(lines.remove(at % count)),
        Edit::Flip(line, at, bits) => {
            let line = &mut lines[line % count];
            let at = at % line.len();
            line[at] ^= bits;
        }
        Edit::Swap(a, b) => lines.swap(a % count, b % count),
        Edit::Copy(from, to) => {
            let line = lines[from % count].clone();
            lines.insert(to % (count + 1), line);
        }
        Edit::Forge(after) => {
            let after = after % count;
            let before = &lines[after];
            let Some(link) = Link::read(before) else { return };
            let (forged, _) = chain::link(&link.head(before), r#"{"id":"forged"}"#);
            lines.insert(after + 1, forged.into_bytes());
        }
        Edit::Replace(at) => {
            let Some(Link { n, prev, .. }) = Link::read(&lines[at % count]) else { return };
            lines[at % count] = format!(r#"{{"n":{n},"prev":"{prev}","id":"replaced"}}"#).into_bytes();
        }
        Edit::Cut(at) => lines.truncate(at % count),
    }
}

proptest! {
    #[test]
    fn every_edit_is_found(
        sizes in prop::collection::vec(0usize..12, 1..4),
        edits in prop::collection::vec(edits(), 1..4),
    ) {
        let (whole, head) = files(&sizes);
        let written: Vec<Vec<u8>> = whole.into_iter().flatten().collect();
        let mut lines = written.clone();
        for one in &edits {
            if !lines.is_empty() {
                edit(&mut lines, one);
            }
        }
        let report = verify(&vec![lines.clone()], &head);
        // What is only added at the end is no different from records written after the head was kept.
        if lines == written || !lines.starts_with(&written) {
            prop_assert_eq!(report.is_sound(), lines == written, "{:?}: {:#?}", edits, report);
        }
    }
}
