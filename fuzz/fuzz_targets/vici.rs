//! What the IKE daemon says.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cloud_linux::fuzzing::vici(bytes));
