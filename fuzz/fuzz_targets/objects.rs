//! Objects as they are applied, one per line: what is accepted is read again as the same, and the engine bears it.
#![no_main]

use drivers::objects::{Document, Validation};
use libfuzzer_sys::fuzz_target;
use policy::{Engine, Event};

fuzz_target!(|bytes: &[u8]| {
    let mut engine = Engine::new();
    let mut accepted = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(document) = Document::read(line, Validation::Warn) else { continue };
        let again = Document::read(document.json().to_string().as_bytes(), Validation::Warn)
            .expect("it was accepted");
        assert_eq!(document.id(), again.id());
        assert_eq!(document.object(), again.object());
        engine.handle_event(Event::Apply(document.object()));
        while engine.poll_update().is_some() {}
        accepted.push(document);
    }
    for document in accepted {
        engine.handle_event(Event::Delete(document.id()));
        while engine.poll_update().is_some() {}
    }
});
