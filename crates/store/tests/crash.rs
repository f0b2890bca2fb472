//! Kill -9 at random moments, many times over: nothing acknowledged is lost, no transaction is halved, no revision
//! goes back, and the history after a restart leads to the state.
//!
//! The test runs itself again as the victim, which writes concurrently and prints each acknowledgement.
//! `TRESTLE_CRASH_SEED` repeats a run's delays; `TRESTLE_CRASH_ROUNDS` changes their number.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "in a test a panic is the report")]

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::StreamExt as _;
use store::{Event, Key, Prefix, Revision, Store, Transaction, WatchFrom, embedded};

const WRITERS: usize = 6;
const ROUNDS: usize = 60;
const VICTIM_DIR: &str = "TRESTLE_CRASH_VICTIM_DIR";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Some(dir) = env::var_os(VICTIM_DIR) {
        runtime.block_on(write_until_killed(PathBuf::from(dir)));
        return;
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = number("TRESTLE_CRASH_SEED").unwrap_or(now);
    let rounds = number("TRESTLE_CRASH_ROUNDS").map_or(ROUNDS, |rounds| rounds as usize);
    println!("running {rounds} crashes, TRESTLE_CRASH_SEED={seed}");
    runtime.block_on(crash_repeatedly(seed | 1, rounds));
    println!("nothing acknowledged was lost in {rounds} crashes ... ok");
}

async fn write_until_killed(dir: PathBuf) {
    let store = embedded::open(dir).unwrap();
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer)));
    futures::future::join_all(writers).await;
}

async fn write(store: Store, writer: usize) {
    let mut number = stored_number(&store, writer).await;
    loop {
        number += 1;
        let text = number.to_string();
        let put = keys(writer).into_iter().fold(Transaction::new(), |put, key| put.put(key, text.clone()));
        let committed = store.transact(put).await.unwrap();
        // One write call: a line is printed whole or not at all.
        let line = format!("{writer} {number} {}\n", committed.revision);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

fn keys(writer: usize) -> [Key; 3] {
    ["a", "b", "c"].map(|name| format!("w/{writer}/{name}").parse().unwrap())
}

async fn stored_number(store: &Store, writer: usize) -> u64 {
    let mut held = Vec::new();
    for key in keys(writer) {
        let entry = store.get(&key).await.unwrap();
        held.push(entry.map_or(0, |entry| str::from_utf8(&entry.value).unwrap().parse().unwrap()));
    }
    assert!(held.iter().all(|number| *number == held[0]), "writer {writer} has half a transaction: {held:?}");
    held[0]
}

async fn crash_repeatedly(seed: u64, rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = seed;
    let mut known = Known::default();
    let mut acknowledged = 0;
    for round in 0..rounds {
        // Every fifth crash may hit the opening itself.
        let wait_for_first = round % 5 != 4;
        let delay = Duration::from_micros(draw(&mut random) % 40_000);
        let acknowledgements = crash_once(dir.path(), wait_for_first, delay);
        acknowledged += acknowledgements.len();
        for (writer, number, revision) in acknowledgements {
            let promised = known.numbers.entry(writer).or_default();
            *promised = number.max(*promised);
            known.revision = revision.max(known.revision);
        }
        check(dir.path(), round, &mut known).await;
    }
    println!("{acknowledged} transactions were acknowledged");
    assert!(acknowledged > rounds, "the victims wrote");
}

fn crash_once(dir: &Path, wait_for_first: bool, delay: Duration) -> Vec<(usize, u64, Revision)> {
    let mut victim = Command::new(env::current_exe().unwrap())
        .env(VICTIM_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let (lines_tx, lines_rx) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in output.lines() {
            lines_tx.send(line.unwrap()).unwrap();
        }
    });
    let mut lines = Vec::new();
    if wait_for_first {
        lines.push(lines_rx.recv_timeout(Duration::from_secs(20)).expect("the victim writes"));
    }
    thread::sleep(delay);
    victim.kill().unwrap();
    victim.wait().unwrap();
    lines.extend(lines_rx.iter());
    reader.join().unwrap();
    lines.iter().map(|line| parse(line)).collect()
}

fn parse(line: &str) -> (usize, u64, Revision) {
    let mut words = line.split(' ');
    let mut next = || words.next().unwrap().parse::<u64>().unwrap();
    (next() as usize, next(), Revision(next()))
}

#[derive(Default)]
struct Known {
    numbers: BTreeMap<usize, u64>,
    revision: Revision,
    /// The state as the last check left it, with its revision: where the next one resumes the history.
    state: BTreeMap<String, String>,
    at: Revision,
}

async fn check(dir: &Path, round: usize, known: &mut Known) {
    let store = embedded::open(dir).unwrap();
    let revision = store.revision().await.unwrap();
    assert!(revision >= known.revision, "round {round}: revision {revision} after {}", known.revision);
    known.revision = revision;
    for writer in 0..WRITERS {
        let found = stored_number(&store, writer).await;
        let promised = known.numbers.get(&writer).copied().unwrap_or(0);
        assert!(found >= promised, "round {round}: writer {writer} was promised {promised}, found {found}");
    }
    let mut watch = store.watch(&Prefix::all(), WatchFrom::After(known.at));
    while known.at < revision {
        let event = watch.next().await.unwrap().unwrap();
        assert!(event.revision() >= known.at, "round {round}: history goes back");
        known.at = event.revision();
        let Event::Apply(entry) = event else { panic!("round {round}: {event:?}") };
        known.state.insert(entry.key.to_string(), String::from_utf8(entry.value.to_vec()).unwrap());
        if entry.key.as_str().ends_with('c') {
            continue;
        }
        // The transaction's other keys follow under the same revision.
        known.at = Revision(known.at.0 - 1);
    }
    let listing = store.list(&Prefix::all()).await.unwrap();
    let listed: BTreeMap<_, _> = listing
        .entries
        .into_iter()
        .map(|entry| (entry.key.to_string(), String::from_utf8(entry.value.to_vec()).unwrap()))
        .collect();
    assert_eq!(known.state, listed, "round {round}: the history does not lead to the state");
}

fn draw(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 20
}
