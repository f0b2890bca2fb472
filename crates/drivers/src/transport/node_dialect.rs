//! The node protocol's dialect: `trestle.v1.ToNode`, written around payloads that are encoded already.

use std::{borrow::Cow, collections::BTreeSet};

use ::transport::{Dialect, Hash, Key, Members, Revision, Start, StartMode, frame};
use bytes::{BufMut as _, Bytes};
use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};
use wire::trestle::v1::{
    NodeFlush, NodeRemove, NodeStart, NodeWait, ObjectKind, SetMember, ToNode, node_start::Mode, to_node,
};

/// Sets are said in messages of about this size, an eighth of what any gRPC client accepts.
const PIECE: usize = 512 << 10;

// Field numbers of the messages written by hand; a test reads them back with the generated code.
const TO_NODE_APPLY: u32 = 3;
const APPLY_KIND: u32 = 1;
const APPLY_NAME: u32 = 2;
const APPLY_HASH: u32 = 3;
const APPLY_SET: u32 = 4;
const APPLY_POLICY: u32 = 5;
const APPLY_FACTS: u32 = 6;
const APPLY_SLICE: u32 = 7;
const APPLY_SERVICE: u32 = 8;
const SET_REPLACE: u32 = 1;
const SET_PUT: u32 = 2;
const SET_REMOVED: u32 = 3;

pub struct NodeDialect;

impl Dialect for NodeDialect {
    fn whole(&self, key: &Key, hash: Hash, payload: &Bytes) -> ::transport::Frames {
        let field = match ObjectKind::try_from(i32::from(key.kind.0)) {
            Ok(ObjectKind::NodeFacts) => APPLY_FACTS,
            Ok(ObjectKind::EndpointSlice) => APPLY_SLICE,
            Ok(ObjectKind::Service) => APPLY_SERVICE,
            _ => APPLY_POLICY,
        };
        [apply(key, hash, field, payload)].into()
    }

    fn set(&self, key: &Key, hash: Hash, members: &Members) -> ::transport::Frames {
        let mut pieces = Pieces::new(key, hash, true);
        members.iter().for_each(|(id, rest)| pieces.add(SET_PUT, id, &told(key, rest)));
        pieces.finish()
    }

    fn delta(
        &self,
        key: &Key,
        hash: Hash,
        put: &Members,
        removed: &BTreeSet<Bytes>,
    ) -> Option<::transport::Frames> {
        let mut pieces = Pieces::new(key, hash, false);
        removed.iter().for_each(|id| pieces.add(SET_REMOVED, id, &[]));
        put.iter().for_each(|(id, rest)| pieces.add(SET_PUT, id, &told(key, rest)));
        Some(pieces.finish())
    }

    fn removal(&self, key: &Key) -> Option<Bytes> {
        let (kind, name) = (i32::from(key.kind.0), key.name.to_string());
        Some(say(to_node::Message::Remove(NodeRemove { kind, name })))
    }

    fn start(&self, start: &Start) -> Option<Bytes> {
        let (mode, buckets) = match start.mode {
            StartMode::Snapshot => (Mode::Snapshot, Vec::new()),
            StartMode::Buckets(buckets) => (Mode::Buckets, buckets.iter().collect()),
            StartMode::Resume => (Mode::Resume, Vec::new()),
        };
        let (epoch, mode) = (start.epoch, mode.into());
        Some(say(to_node::Message::Start(NodeStart { epoch, mode, buckets, tells_pods: true })))
    }

    fn flush(&self, revision: Revision, first: bool) -> Bytes {
        say(to_node::Message::Flush(NodeFlush { revision: revision.0, synced: first }))
    }

    fn wait(&self, sources: &[String]) -> Option<Bytes> {
        Some(say(to_node::Message::Wait(NodeWait { sources: sources.to_vec() })))
    }

    fn sweeps(&self) -> bool {
        true
    }
}

/// What is told of a member beside its identity: a node knows the addresses of its own workloads.
fn told<'a>(key: &Key, rest: &'a Bytes) -> Cow<'a, [u8]> {
    if i32::from(key.kind.0) != ObjectKind::AppliedToSet as i32 || rest.is_empty() {
        return Cow::Borrowed(rest);
    }
    let SetMember { ports, .. } = SetMember::decode(&rest[..]).unwrap_or_default();
    Cow::Owned(SetMember { ports, ..SetMember::default() }.encode_to_vec())
}

fn say(message: to_node::Message) -> Bytes {
    frame(&ToNode { message: Some(message) }.encode_to_vec())
}

/// `ToNode { apply { kind, name, hash, BODY } }` in a frame.
fn apply(key: &Key, hash: Hash, body_field: u32, body: &[u8]) -> Bytes {
    let kind = u64::from(key.kind.0);
    let length = key_len(APPLY_KIND)
        + encoded_len_varint(kind)
        + field_len(APPLY_NAME, key.name.len())
        + key_len(APPLY_HASH)
        + 8
        + field_len(body_field, body.len());
    let mut message = Vec::with_capacity(length + 16);
    encode_key(TO_NODE_APPLY, WireType::LengthDelimited, &mut message);
    encode_varint(length as u64, &mut message);
    encode_key(APPLY_KIND, WireType::Varint, &mut message);
    encode_varint(kind, &mut message);
    put_field(APPLY_NAME, &[key.name.as_bytes()], &mut message);
    encode_key(APPLY_HASH, WireType::SixtyFourBit, &mut message);
    message.put_u64_le(hash.short());
    put_field(body_field, &[body], &mut message);
    frame(&message)
}

fn field_len(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

fn put_field(field: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(parts.iter().map(|part| part.len()).sum::<usize>() as u64, out);
    parts.iter().for_each(|part| out.put_slice(part));
}

/// A set update, cut into messages. Only the first may replace.
struct Pieces<'a> {
    key: &'a Key,
    hash: Hash,
    body: Vec<u8>,
    frames: Vec<Bytes>,
}

impl<'a> Pieces<'a> {
    fn new(key: &'a Key, hash: Hash, replace: bool) -> Self {
        let mut body = Vec::new();
        if replace {
            encode_key(SET_REPLACE, WireType::Varint, &mut body);
            body.put_u8(1);
        }
        Self { key, hash, body, frames: Vec::new() }
    }

    fn add(&mut self, field: u32, id: &[u8], rest: &[u8]) {
        if self.body.len() > PIECE {
            self.cut();
        }
        put_field(field, &[id, rest], &mut self.body);
    }

    fn cut(&mut self) {
        self.frames.push(apply(self.key, self.hash, APPLY_SET, &std::mem::take(&mut self.body)));
    }

    fn finish(mut self) -> ::transport::Frames {
        self.cut();
        self.frames.into()
    }
}

#[cfg(test)]
mod tests {
    use wire::trestle::v1::{
        NodeEndpointSlice, NodeFacts, NodePolicy, NodeService, SetMember, node_apply::Body,
    };

    use super::*;
    use crate::transport::objects::key;

    fn read(frame: &Bytes) -> ToNode {
        assert_eq!(frame[..5], [&[0][..], &(frame.len() as u32 - 5).to_be_bytes()].concat());
        ToNode::decode(&frame[5..]).unwrap()
    }

    fn applied(frame: &Bytes) -> (i32, String, u64, Body) {
        match read(frame).message {
            Some(to_node::Message::Apply(apply)) => (apply.kind, apply.name, apply.hash, apply.body.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_by_hand_is_read_by_the_generated_code() {
        let policy = NodePolicy { generation: 7, source_name: "p".into(), ..NodePolicy::default() };
        let frames =
            NodeDialect.whole(&key(ObjectKind::Policy, "uid"), Hash(9), &policy.encode_to_vec().into());
        assert_eq!(applied(&frames[0]), (3, "uid".into(), 9, Body::Policy(policy)));
        let whole = |kind, payload: Vec<u8>| NodeDialect.whole(&key(kind, "x"), Hash(9), &payload.into());
        let facts = NodeFacts { zone: "a".into(), ..NodeFacts::default() };
        let frames = whole(ObjectKind::NodeFacts, facts.encode_to_vec());
        assert_eq!(applied(&frames[0]), (4, "x".into(), 9, Body::Facts(facts)));
        let slice = NodeEndpointSlice { service: "web".into(), ..NodeEndpointSlice::default() };
        let frames = whole(ObjectKind::EndpointSlice, slice.encode_to_vec());
        assert_eq!(applied(&frames[0]), (5, "x".into(), 9, Body::Slice(slice)));
        let service = NodeService { namespace: "shop".into(), ..NodeService::default() };
        let frames = whole(ObjectKind::Service, service.encode_to_vec());
        assert_eq!(applied(&frames[0]), (6, "x".into(), 9, Body::Service(Box::new(service))));
        let member = |name: &str| SetMember { name: name.into(), ..SetMember::default() };
        let bytes = |name: &str| Bytes::from(member(name).encode_to_vec());
        let put: Members = [(bytes("a"), Bytes::new())].into_iter().collect();
        let frames = NodeDialect
            .delta(&key(ObjectKind::AddressSet, "s"), Hash(0), &put, &[bytes("b")].into())
            .unwrap();
        let (kind, name, hash, Body::Set(set)) = applied(&frames[0]) else { panic!() };
        assert_eq!((kind, name.as_str(), hash, set.replace), (2, "s", 1, false));
        assert_eq!((set.put, set.removed), (vec![member("a")], vec![member("b")]));
    }

    #[test]
    fn a_large_set_is_cut_into_pieces_any_client_accepts() {
        let member = |n: u32| SetMember { name: format!("{n:060}"), ..SetMember::default() }.encode_to_vec();
        let members: Members = (0..40_000).map(|n| (Bytes::from(member(n)), Bytes::new())).collect();
        let frames = NodeDialect.set(&key(ObjectKind::AddressSet, "s"), Hash(5), &members);
        assert!(frames.len() > 3);
        let mut count = 0;
        for (place, frame) in frames.iter().enumerate() {
            assert!(frame.len() < 1 << 20);
            let (_, _, 5, Body::Set(set)) = applied(frame) else { panic!() };
            assert_eq!(set.replace, place == 0);
            count += set.put.len();
        }
        assert_eq!(count, members.len());
    }
}
