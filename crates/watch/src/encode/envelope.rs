//! What is around an object: type and kind, length, the bytes that say "Kubernetes protobuf".

use bytes::Bytes;
use prost::encoding::{encode_varint, encoded_len_varint};
use serde::Serialize;

use super::{Encoding, EventType};
pub use crate::proto::API_VERSION;
use crate::proto::Transfer;

pub const GROUP: &str = "controlplane.antrea.io";
pub const VERSION: &str = "v1beta2";
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// An object with the two fields that say what it is, as JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Typed<'a, T> {
    kind: &'a str,
    api_version: &'a str,
    #[serde(flatten)]
    object: &'a T,
}

#[derive(Serialize)]
struct Event<'a, T> {
    #[serde(rename = "type")]
    event: &'a str,
    object: &'a T,
}

/// Appends one event of a watch.
pub fn frame<T: Transfer>(out: &mut Vec<u8>, encoding: Encoding, event: EventType, object: &T) {
    match encoding {
        Encoding::Protobuf => protobuf_frame(out, event, object),
        Encoding::Json | Encoding::Table => json_frame(out, event, &typed(object)),
    }
}

/// Appends one event of a watch in JSON.
pub fn json_frame<T: Serialize>(out: &mut Vec<u8>, event: EventType, object: &T) {
    let event = Event { event: event.as_str(), object };
    serde_json::to_writer(&mut *out, &event).expect("plain data, and writing to a Vec cannot fail");
    out.push(b'\n');
}

/// The body of a reply: one object.
pub fn document<T: Transfer>(encoding: Encoding, object: &T) -> Bytes {
    match encoding {
        Encoding::Protobuf => {
            let mut out = Vec::new();
            put_unknown(&mut out, object);
            out.into()
        }
        Encoding::Json | Encoding::Table => json(&typed(object)),
    }
}

pub fn json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("plain data, and writing to a Vec cannot fail").into()
}

fn typed<T: Transfer>(object: &T) -> Typed<'_, T> {
    Typed { kind: T::KIND, api_version: T::API_VERSION, object }
}

/// Lengths are worked out from the inside, so that a large object is written once and never moved.
fn protobuf_frame<T: Transfer>(out: &mut Vec<u8>, event: EventType, object: &T) {
    let event = event.as_str();
    let raw = MAGIC.len() + unknown_len(object);
    let extension = field_len(raw);
    let length = field_len(event.len()) + field_len(extension);
    out.reserve(4 + length);
    let prefix = u32::try_from(length).expect("groups are split long before 4 GiB");
    out.extend_from_slice(&prefix.to_be_bytes());
    put_bytes(out, 1, event.as_bytes());
    put_header(out, 2, extension);
    put_header(out, 1, raw);
    put_unknown(out, object);
}

fn put_unknown<T: Transfer>(out: &mut Vec<u8>, object: &T) {
    out.extend_from_slice(MAGIC);
    put_header(out, 1, type_meta_len::<T>());
    put_bytes(out, 1, T::API_VERSION.as_bytes());
    put_bytes(out, 2, T::KIND.as_bytes());
    put_header(out, 2, object.encoded_len());
    object.encode(out).expect("a Vec grows as needed");
}

fn unknown_len<T: Transfer>(object: &T) -> usize {
    field_len(type_meta_len::<T>()) + field_len(object.encoded_len())
}

fn type_meta_len<T: Transfer>() -> usize {
    field_len(T::API_VERSION.len()) + field_len(T::KIND.len())
}

/// A length-delimited field with a number below 16: one byte of key, the length, the content.
fn field_len(content: usize) -> usize {
    1 + encoded_len_varint(content as u64) + content
}

fn put_header(out: &mut Vec<u8>, number: u8, length: usize) {
    out.push(number << 3 | 2);
    encode_varint(length as u64, out);
}

fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    put_header(out, number, bytes.len());
    out.extend_from_slice(bytes);
}
