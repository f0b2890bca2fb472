//! The agent's state on disk, after whatever happened to it: what is read is read again as the same, and what is damaged is
//! not mended by reading it.
#![no_main]

use agent::journal::{Finding, Journal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    std::fs::write(dir.path().join("state"), bytes).expect("it can be written");
    let first = Journal::open(dir.path());
    let (digest, finding) = (first.held.digest(), first.finding.clone());
    drop(first);
    let second = Journal::open(dir.path());
    assert_eq!(second.held.digest(), digest);
    assert_eq!(second.finding, finding);
    if finding == Finding::Whole && second.journal.length() > 0 {
        assert_eq!(second.dropped, 0, "what was cut off is gone");
    }
});
