//! The Pods that were attached, as they stand on disk.
#![no_main]

use agent::worker::fuzzing as disk;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    std::fs::write(file.path(), bytes).expect("it can be written");
    let Ok(endpoints) = disk::read_registry(file.path()) else { return };
    disk::write_registry(file.path(), &endpoints).expect("it can be written");
    assert_eq!(disk::read_registry(file.path()).expect("we wrote it"), endpoints);
});
