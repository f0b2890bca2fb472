//! A log that somebody else may have changed: it is read to its end, and what does not hold is told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use server::audit::verify_file;

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    std::fs::write(file.path(), bytes).expect("it can be written");
    let report = verify_file(file.path()).expect("it can be read");
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert!(report.records <= lines);
    // Every whole line is a record, is told of, or stands with others like it before the first record.
    assert!(report.records == lines || !report.findings.is_empty());
});
