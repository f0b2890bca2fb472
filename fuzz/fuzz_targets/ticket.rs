//! A ticket as it comes with a stranger's first call. Nobody without the key makes one that holds.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use storage_provider::{Capacity, CapacityForm, KeyRing, SigningKey, TicketText};

static KEYS: LazyLock<KeyRing> =
    LazyLock::new(|| KeyRing::new(Some(SigningKey::from_seed(&[7; 32]).expect("32 bytes")), Vec::new()));

fuzz_target!(|bytes: &[u8]| {
    let _ = Capacity::decode(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for form in [CapacityForm::Message, CapacityForm::Text] {
        let _ = Capacity::parse(text, form);
    }
    if let Ok(ticket) = TicketText::parse(text) {
        let verified = ticket.verify(&KEYS, 1_700_000_000);
        assert!(verified.is_err(), "a ticket that we did not sign: {text}");
    }
});
