//! The kernel's answers: a kernel of another version, or another program's table, must not make us fall.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| node_kernel::fuzzing::replies(bytes));
