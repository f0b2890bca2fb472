//! A backup file that somebody made or changed: read to its end, or refused with the line that is wrong.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::backup::BackupFile;

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    std::fs::write(file.path(), bytes).expect("it can be written");
    let Ok(backup) = BackupFile::verify(file.path()) else { return };
    // What was found whole is whole when it is read.
    let entries: Result<Vec<_>, _> = backup.entries().expect("it was read a moment ago").collect();
    let entries = entries.expect("every entry was read a moment ago");
    assert_eq!(entries.len() as u64, backup.trailer.entries);
    assert!(entries.is_sorted_by(|one, next| one.key < next.key));
});
