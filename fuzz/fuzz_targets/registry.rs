//! The Pods that were attached, as they stand on disk.
#![no_main]

use agent::registry::Registry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(registry) = Registry::decode(bytes) else { return };
    let written = registry.encode().expect("it can be written");
    assert_eq!(Registry::decode(&written).expect("we wrote it"), registry);
});
