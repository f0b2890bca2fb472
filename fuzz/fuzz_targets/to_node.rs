//! What a controller says to a node, message after message. The state that is held is the state that would be told.
#![no_main]

use agent::held::Held;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use wire::trestle::v1::ToNode;

fuzz_target!(|bytes: &[u8]| {
    let (mut rest, mut held) = (bytes, Held::default());
    while !rest.is_empty() {
        let Ok(message) = ToNode::decode_length_delimited(&mut rest) else { return };
        if held.take(message).is_err() {
            // The stream ends here; what is held is told anew by the next one.
            held.begin();
        }
    }
    let Some(messages) = held.messages() else { return };
    let mut again = Held::default();
    for message in messages {
        again.take(message).expect("we said it ourselves");
    }
    assert_eq!(again.len(), held.len());
    assert_eq!(again.digest(), held.digest());
});
