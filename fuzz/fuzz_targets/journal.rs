//! The agent's state on disk, after whatever happened to it: what is read is written and read as the same.
#![no_main]

use agent::journal::Journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    std::fs::write(dir.path().join("state"), bytes).expect("it can be written");
    let Ok(first) = Journal::open(dir.path()) else { return };
    let digest = first.held.digest();
    drop(first);
    let second = Journal::open(dir.path()).expect("it was opened a moment ago");
    assert_eq!(second.held.digest(), digest);
    assert_eq!(second.dropped, 0, "what was cut off is gone");
});
