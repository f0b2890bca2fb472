use std::fs;

use wire::trestle::v1::{
    NodeApply, NodeFlush, NodePolicy, NodeStart, SetMember, SetUpdate, node_apply::Body, node_start::Mode,
};

use super::*;

fn say(message: to_node::Message) -> ToNode {
    ToNode { message: Some(message) }
}

fn policy(name: &str, generation: i64) -> ToNode {
    let body = Some(Body::Policy(NodePolicy { generation, ..NodePolicy::default() }));
    say(to_node::Message::Apply(NodeApply { kind: 3, name: name.into(), hash: generation as u64, body }))
}

fn set(replace: bool, member: &str) -> ToNode {
    let put = vec![SetMember { name: member.into(), ..SetMember::default() }];
    let body = Some(Body::Set(SetUpdate { replace, put, removed: vec![] }));
    say(to_node::Message::Apply(NodeApply { kind: 2, name: "s".into(), hash: 1, body }))
}

fn start() -> ToNode {
    let mode = Mode::Snapshot.into();
    say(to_node::Message::Start(NodeStart { epoch: 9, mode, buckets: vec![], tells_pods: true }))
}

fn flush(revision: u64) -> ToNode {
    say(to_node::Message::Flush(NodeFlush { revision, synced: true }))
}

/// Takes a step in and writes it down, as the agent does.
fn step(journal: &mut Journal, held: &mut Held, messages: &[ToNode]) {
    for message in messages {
        if let Taken::Step(_, gathered) = held.take(message.clone()).unwrap() {
            journal.append(&gathered, held);
        }
    }
}

fn same(a: &Held, b: &Held) -> bool {
    a.token() == b.token() && a.objects().eq(b.objects())
}

#[test]
fn what_was_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    assert!(held.token().is_none());
    step(&mut journal, &mut held, &[start(), set(true, "a"), policy("p", 1), flush(1)]);
    step(&mut journal, &mut held, &[set(false, "b"), flush(2)]);
    let loaded = Journal::open(dir.path());
    assert!(same(&loaded.held, &held));
    assert_eq!((loaded.dropped, loaded.journal.length()), (0, journal.length()));
    // And goes on from there.
    let (mut journal, mut held) = (loaded.journal, loaded.held);
    held.begin();
    let resume = NodeStart { epoch: 9, mode: Mode::Resume.into(), buckets: vec![], tells_pods: true };
    step(&mut journal, &mut held, &[say(to_node::Message::Start(resume)), policy("p", 2), flush(3)]);
    assert!(same(&Journal::open(dir.path()).held, &held));
}

/// A crash may leave any beginning of the file; what is read is the state after some whole step.
#[test]
fn a_file_cut_anywhere_is_the_state_after_its_last_whole_step() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    let mut states = vec![(0, Held::default())];
    step(&mut journal, &mut held, &[start(), set(true, "a"), flush(1)]);
    states.push((journal.length(), held.clone()));
    for revision in 2..6 {
        let member = format!("m{revision}");
        step(&mut journal, &mut held, &[set(false, &member), policy("p", revision as i64), flush(revision)]);
        states.push((journal.length(), held.clone()));
    }
    let bytes = fs::read(dir.path().join("state")).unwrap();
    for cut in 0..bytes.len() {
        fs::write(dir.path().join("state"), &bytes[..cut]).unwrap();
        let mut loaded = Journal::open(dir.path());
        let (_, expected) = states.iter().rev().find(|(length, _)| *length <= cut as u64).unwrap();
        assert!(same(&loaded.held, expected), "cut at {cut}");
        // The next step fits behind what was read.
        let mut held = loaded.held;
        held.begin();
        step(&mut loaded.journal, &mut held, &[start(), set(true, "z"), flush(9)]);
        assert!(same(&Journal::open(dir.path()).held, &held), "continued after a cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_costs_the_steps_behind_it_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 1), flush(1)]);
    let (first, length) = (held.clone(), journal.length());
    step(&mut journal, &mut held, &[policy("p", 2), flush(2)]);
    let bytes = fs::read(dir.path().join("state")).unwrap();
    for at in length as usize..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        fs::write(dir.path().join("state"), bad).unwrap();
        let loaded = Journal::open(dir.path());
        assert!(same(&loaded.held, &first), "flipped at {at}");
        assert!(loaded.dropped > 0);
    }
    for garbage in [&b"garbage"[..], b"", b"trestle node state 1 9.9.9\n", &[0; 4096]] {
        fs::write(dir.path().join("state"), garbage).unwrap();
        assert!(Journal::open(dir.path()).held.is_empty());
    }
}

#[test]
fn a_long_history_is_shortened() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 0), flush(0)]);
    for revision in 1..40_000 {
        step(&mut journal, &mut held, &[policy("p", revision), flush(revision as u64)]);
    }
    assert!(journal.length() < 2 * SMALL, "{}", journal.length());
    assert!(same(&Journal::open(dir.path()).held, &held));
}

/// What was safe on the disk once and cannot be read any more is missed: wherever the file is cut, whichever bit is flipped.
#[test]
fn whatever_is_missing_of_what_was_safe_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, finding, .. } = Journal::open(dir.path());
    assert_eq!(finding, Finding::Nothing);
    step(&mut journal, &mut held, &[start(), set(true, "a"), policy("p", 1), flush(1)]);
    for revision in 2..6 {
        step(
            &mut journal,
            &mut held,
            &[set(false, &format!("m{revision}")), policy("p", revision), flush(revision as u64)],
        );
    }
    journal.finish(&held);
    let (path, bytes) = (dir.path().join("state"), fs::read(dir.path().join("state")).unwrap());
    assert_eq!(Journal::open(dir.path()).finding, Finding::Whole);
    let is_damaged = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        let loaded = Journal::open(dir.path());
        let again = Journal::open(dir.path());
        assert_eq!(loaded.finding, again.finding, "reading it does not mend it");
        assert!(loaded.finding != Finding::Whole || same(&loaded.held, &held));
        loaded.finding != Finding::Whole
    };
    assert!((0..bytes.len()).all(|cut| is_damaged(&bytes[..cut])));
    let version = MAGIC.len()..header().len() - 1;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            // Which version wrote it does not change what it says.
            assert!(is_damaged(&bad) || version.contains(&at), "bit {bit} at {at}");
        }
    }
    // A step that was never safe is no loss, and what comes behind the last whole step neither.
    assert!(!is_damaged(&[&bytes[..], &bytes[bytes.len() - 20..]].concat()));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(Journal::open(dir.path()).finding, Finding::Damaged(_)), "unreadable");
}

/// Between two syncs too: whoever takes a step away while the machine runs takes what was in force. Only after another start
/// of the machine it may be that power failed, and that it never came to the disk.
#[test]
fn a_step_that_was_written_is_missed_until_the_machine_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 1), flush(1)]);
    let first = journal.length();
    step(&mut journal, &mut held, &[policy("p", 2), flush(2)]);
    let path = dir.path().join("state");
    let bytes = fs::read(&path).unwrap();
    let after_a_cut = |bytes: &[u8]| {
        fs::write(&path, &bytes[..first as usize]).unwrap();
        Journal::open(dir.path()).finding
    };
    assert!(matches!(after_a_cut(&bytes), Finding::Damaged(_)));
    let mut earlier = bytes.clone();
    let at = header().len() + SEAL;
    earlier[at..at + WRITTEN].copy_from_slice(&seals(journal.length(), [7; 16])[SEAL..]);
    assert_eq!(after_a_cut(&earlier), Finding::Whole);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(Journal::open(dir.path()).finding, Finding::Whole);
}

#[test]
fn a_file_with_one_seal_is_read_and_gets_both() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 1), flush(1)]);
    let path = dir.path().join("state");
    let new = fs::read(&path).unwrap();
    let old_header = format!("{ONE_SEAL_MAGIC}0.0.9\n");
    let steps = &new[header().len() + SEAL + WRITTEN..];
    let length = old_header.len() + SEAL + steps.len();
    let old = [old_header.as_bytes(), &seal(length as u64), steps].concat();
    fs::write(&path, &old[..old.len() - 1]).unwrap();
    assert!(matches!(Journal::open(dir.path()).finding, Finding::Damaged(_)));
    fs::write(&path, &old).unwrap();
    let Loaded { mut journal, held: mut read, finding, is_old, .. } = Journal::open(dir.path());
    assert!(finding == Finding::Whole && !is_old && same(&read, &held));
    read.begin();
    step(&mut journal, &mut read, &[start(), policy("p", 1), flush(1)]);
    assert_eq!(fs::read(&path).unwrap(), new);
}

#[test]
fn a_file_without_a_seal_is_read_and_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 1), flush(1)]);
    let path = dir.path().join("state");
    let new = fs::read(&path).unwrap();
    let old =
        [format!("{UNSEALED_MAGIC}0.0.9\n").as_bytes(), &new[header().len() + SEAL + WRITTEN..]].concat();
    fs::write(&path, &old[..old.len() - 1]).unwrap();
    assert!(matches!(Journal::open(dir.path()).finding, Finding::Damaged(_)));
    fs::write(&path, &old).unwrap();
    let Loaded { mut journal, held: mut read, finding, is_old, .. } = Journal::open(dir.path());
    assert!(finding == Finding::Whole && is_old && same(&read, &held));
    read.begin();
    step(&mut journal, &mut read, &[start(), policy("p", 1), flush(1)]);
    assert_eq!(fs::read(&path).unwrap(), new);
}

/// What is sealed as safe is what was written when the disk was asked, whatever came while it was at it.
#[test]
fn what_is_synced_is_sealed_when_it_is_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 1), flush(1)]);
    step(&mut journal, &mut held, &[policy("p", 2), flush(2)]);
    let safe = || {
        let bytes = fs::read(dir.path().join("state")).unwrap();
        unseal(*bytes[header().len()..].first_chunk().unwrap()).unwrap()
    };
    let (asked, before) = (journal.length(), safe());
    assert!(before < asked);
    journal.tend(&held, Instant::now() + SYNC);
    assert!(journal.syncing.is_some());
    step(&mut journal, &mut held, &[policy("p", 3), flush(3)]);
    assert_eq!(safe(), before, "nobody has heard yet that it is done");
    while journal.syncing.is_some() {
        std::thread::sleep(Duration::from_millis(1));
        journal.tend(&held, Instant::now());
    }
    assert_eq!((safe(), journal.failure()), (asked, None));
    journal.finish(&held);
    assert_eq!(safe(), journal.length());
    assert!(same(&Journal::open(dir.path()).held, &held));
}

/// A directory that takes no files stands for a full disk; a small file system is in the labs.
#[test]
fn a_refused_write_is_reported_and_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let Loaded { mut journal, mut held, .. } = Journal::open(dir.path());
    step(&mut journal, &mut held, &[start(), policy("p", 1), flush(1)]);
    let obstacle = dir.path().join("state.new");
    fs::create_dir(&obstacle).unwrap();
    journal.file = None;
    step(&mut journal, &mut held, &[policy("p", 2), flush(2)]);
    assert!(journal.failure().unwrap().contains("state"), "{:?}", journal.failure());
    step(&mut journal, &mut held, &[policy("p", 3), flush(3)]);
    assert_eq!(Journal::open(dir.path()).held.token().unwrap().revision, 1, "the old state stays");
    fs::remove_dir(&obstacle).unwrap();
    journal.tend(&held, Instant::now() + RETRY);
    assert_eq!(journal.failure(), None);
    assert!(same(&Journal::open(dir.path()).held, &held));
}
