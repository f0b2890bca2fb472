//! What a node says to a controller: frames of gRPC, cut anywhere, with messages of either dialect in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::{Message as _, bytes::Bytes};
use transport::Deframer;
use wire::trestle::v1::FromNode;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let whole = messages(&[bytes]);
    let chunks: Vec<&[u8]> = bytes.chunks(usize::from(cut).max(1)).collect();
    assert_eq!(messages(&chunks), whole, "where it was cut must not matter");
    for message in whole.unwrap_or_default() {
        let _ = FromNode::decode(message.clone());
        let _ = wire::pb::DatapathPodMetadata::decode(message);
    }
});

/// None if it is no sequence of frames.
fn messages(chunks: &[&[u8]]) -> Option<Vec<Bytes>> {
    let (mut deframer, mut messages) = (Deframer::new(1 << 20), Vec::new());
    for chunk in chunks {
        deframer.push(&Bytes::copy_from_slice(chunk));
        while let Some(message) = deframer.next_message().ok()? {
            messages.push(message);
        }
    }
    Some(messages)
}
