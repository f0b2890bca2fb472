//! What sources publish: messages of the node protocol as keyed objects.

use ::transport::{Change, Key, Kind, Member, SpanChange};
use bytes::Bytes;
use prost::Message as _;
use wire::trestle::v1::{NodePolicy, ObjectKind, SetMember};

/// The key of an object.
pub fn key(kind: ObjectKind, name: &str) -> Key {
    Key::new(Kind(kind as u8), name)
}

/// Puts a policy, or replaces it.
pub fn put_policy(name: &str, policy: &NodePolicy, span: SpanChange) -> Change {
    Change::Put { key: key(ObjectKind::Policy, name), payload: policy.encode_to_vec().into(), span }
}

/// Puts another object that is one piece, or replaces it.
pub fn put(kind: ObjectKind, name: &str, message: &impl prost::Message, span: SpanChange) -> Change {
    put_encoded(kind, name, message.encode_to_vec(), span)
}

/// The same of one whose encoding is there.
pub fn put_encoded(kind: ObjectKind, name: &str, message: Vec<u8>, span: SpanChange) -> Change {
    Change::Put { key: key(kind, name), payload: message.into(), span }
}

/// Puts a set, or makes its members these.
pub fn put_set(kind: ObjectKind, name: &str, members: Vec<SetMember>, span: SpanChange) -> Change {
    let members = members.into_iter().map(|one| member(kind, one)).collect();
    Change::PutSet { key: key(kind, name), members, span }
}

/// Puts and takes members of a set; the set is made if there is none.
pub fn change_set(
    kind: ObjectKind,
    name: &str,
    put: Vec<SetMember>,
    removed: Vec<SetMember>,
    span: SpanChange,
) -> Change {
    let put = put.into_iter().map(|one| member(kind, one)).collect();
    let removed = removed.into_iter().map(|removed| member(kind, removed).id).collect();
    Change::Members { key: key(kind, name), put, removed, span }
}

pub fn remove(kind: ObjectKind, name: &str) -> Change {
    Change::Remove { key: key(kind, name) }
}

/// Says that an object was there once.
pub fn gone(kind: ObjectKind, name: &str) -> Change {
    Change::Gone { key: key(kind, name) }
}

/// A member as identity and rest, whose encodings, one after the other, are an encoding of the whole. Of whom a policy is
/// applied to, the addresses are no part of the identity.
fn member(kind: ObjectKind, mut member: SetMember) -> Member {
    let ports = std::mem::take(&mut member.ports);
    let addresses = match kind {
        ObjectKind::AppliedToSet => std::mem::take(&mut member.addresses),
        _ => Vec::new(),
    };
    let rest = SetMember { addresses, ports, ..SetMember::default() };
    Member { id: Bytes::from(member.encode_to_vec()), rest: Bytes::from(rest.encode_to_vec()) }
}

#[cfg(test)]
mod tests {
    use wire::trestle::v1::{NodeNamedPort, set_member};

    use super::*;

    #[test]
    fn identity_and_rest_together_are_the_member() {
        let whole = SetMember {
            kind: set_member::Kind::Pod.into(),
            namespace: "shop".into(),
            name: "web-1".into(),
            addresses: vec![vec![10, 0, 0, 1]],
            node: "n".into(),
            ports: vec![NodeNamedPort { name: "http".into(), port: 8080, protocol: 1 }],
        };
        let Member { id, rest } = member(ObjectKind::AddressSet, whole.clone());
        assert_eq!([id.clone(), rest].concat(), whole.encode_to_vec());
        let without = SetMember { ports: Vec::new(), ..whole.clone() };
        assert_eq!(id, without.encode_to_vec());
        let Member { id, rest } = member(ObjectKind::AppliedToSet, whole.clone());
        assert_eq!(SetMember::decode(&[id.clone(), rest].concat()[..]).unwrap(), whole);
        let without = SetMember { ports: Vec::new(), addresses: Vec::new(), ..whole };
        assert_eq!(id, without.encode_to_vec());
    }
}
