//! A client's certificate: a name is taken from it, or nobody is recognised. A request for one: its key is taken, or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|der: &[u8]| {
    if let Some((subject, serial)) = drivers::pki::identify(der) {
        assert!(!serial.is_empty());
        // The name stands for itself: whoever writes it down and reads it again means the same caller.
        assert_eq!(model::Subject::from_uri(&subject.uri()).ok(), Some(subject));
    }
    if let Ok(request) = drivers::pki::KeyRequest::read(der) {
        assert_eq!(request.fingerprint.as_str().len(), 64);
    }
    let _ = storage_nbd::fuzzing::consumer_of(der);
});
