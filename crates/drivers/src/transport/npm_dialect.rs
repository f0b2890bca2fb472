//! Azure NPM's dialect: `pb.Events` with `google.protobuf.Struct` data. The keys are ours; docs/node-protocol.md lists
//! them and golden files hold them.

use std::{collections::BTreeSet, net::IpAddr};

use ::transport::{Dialect, Hash, Key, Members, Revision, Start, frame};
use bytes::{Buf as _, Bytes};
use prost::Message as _;
use prost_types::{ListValue, Struct, Value, value::Kind};
use wire::{
    pb::{
        Event, Events,
        events::{EventType, ObjectType},
    },
    trestle::v1::{
        NodePolicy, NodePortMatch, NodeProtocol, NodeRule, ObjectKind, SetMember, node_port_match, set_member,
    },
};

/// Members in one message: some hundred bytes each, far below what any gRPC client accepts.
const MEMBERS: usize = 2000;

pub struct NpmDialect;

impl Dialect for NpmDialect {
    fn whole(&self, key: &Key, _: Hash, payload: &Bytes) -> ::transport::Frames {
        if !is_known(key) {
            return [].into();
        }
        // A payload that does not decode was not made by `objects`; said without rules, it permits nothing.
        let policy = NodePolicy::decode(&payload[..]).unwrap_or_default();
        [say(EventType::Apply, key, vec![policy_struct(&key.name, &policy)])].into()
    }

    fn set(&self, key: &Key, _: Hash, members: &Members) -> ::transport::Frames {
        let members: Vec<_> = members.iter().map(member).collect();
        let pieces: Vec<_> =
            if members.is_empty() { vec![&members[..]] } else { members.chunks(MEMBERS).collect() };
        let parts = pieces.len();
        let piece = |(place, members): (usize, &&[Value])| {
            let mut fields = name(key);
            fields.extend([
                ("members", list(members.to_vec())),
                ("part", number(place + 1)),
                ("parts", number(parts)),
            ]);
            say(EventType::Apply, key, vec![object(fields)])
        };
        pieces.iter().enumerate().map(piece).collect()
    }

    fn delta(&self, _: &Key, _: Hash, _: &Members, _: &BTreeSet<Bytes>) -> Option<::transport::Frames> {
        None
    }

    fn removal(&self, key: &Key) -> Option<Bytes> {
        is_known(key).then(|| say(EventType::Remove, key, vec![object(name(key))]))
    }

    fn start(&self, _: &Start) -> Option<Bytes> {
        None
    }

    fn flush(&self, revision: Revision, first: bool) -> Bytes {
        frame(&Events { revision: revision.0, complete: first, ..Events::default() }.encode_to_vec())
    }

    fn wait(&self, _: &[String]) -> Option<Bytes> {
        None
    }

    fn sweeps(&self) -> bool {
        false
    }
}

/// Azure NPM has words for sets and policies, and for nothing else.
fn is_known(key: &Key) -> bool {
    i32::from(key.kind.0) <= ObjectKind::Policy as i32
}

fn say(event: EventType, key: &Key, data: Vec<Struct>) -> Bytes {
    let is_policy = i32::from(key.kind.0) == ObjectKind::Policy as i32;
    let object = if is_policy { ObjectType::Policy } else { ObjectType::Ipset };
    let event = Events {
        r#type: event.into(),
        object: object.into(),
        event: vec![Event { data }],
        ..Events::default()
    };
    frame(&event.encode_to_vec())
}

type Fields = Vec<(&'static str, Value)>;

/// What tells an object from others.
fn name(key: &Key) -> Fields {
    let kind = match ObjectKind::try_from(i32::from(key.kind.0)) {
        Ok(ObjectKind::AppliedToSet) => "applied-to",
        Ok(ObjectKind::AddressSet) => "addresses",
        Ok(ObjectKind::Policy) => "policy",
        Ok(
            ObjectKind::Unspecified | ObjectKind::NodeFacts | ObjectKind::EndpointSlice | ObjectKind::Service,
        )
        | Err(_) => "unknown",
    };
    vec![("name", text(&key.name)), ("type", text(kind))]
}

fn member((id, rest): (&Bytes, &Bytes)) -> Value {
    let member = SetMember::decode(id.clone().chain(rest.clone())).unwrap_or_default();
    let kind = match member.kind() {
        set_member::Kind::Pod => "pod",
        set_member::Kind::ExternalEntity => "external-entity",
        set_member::Kind::Node => "node",
        set_member::Kind::Service => "service",
        set_member::Kind::Unspecified => "unknown",
    };
    let mut fields =
        vec![("kind", text(kind)), ("namespace", text(&member.namespace)), ("name", text(&member.name))];
    if !member.addresses.is_empty() {
        fields.push(("addresses", texts(member.addresses.iter().map(|bytes| address(bytes)))));
    }
    if !member.node.is_empty() {
        fields.push(("node", text(&member.node)));
    }
    if !member.ports.is_empty() {
        let port = |port: &wire::trestle::v1::NodeNamedPort| {
            let protocol = protocol(port.protocol());
            value(vec![("name", text(&port.name)), ("port", number(port.port)), ("protocol", protocol)])
        };
        fields.push(("ports", list(member.ports.iter().map(port).collect())));
    }
    value(fields)
}

fn address(bytes: &[u8]) -> String {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    match four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)) {
        Ok(address) => address.to_string(),
        // Not an address of either family: matches nothing.
        Err(_) => String::new(),
    }
}

fn policy_struct(uid: &str, policy: &NodePolicy) -> Struct {
    let source = vec![
        ("kind", text(&policy.source_kind)),
        ("namespace", text(&policy.source_namespace)),
        ("name", text(&policy.source_name)),
    ];
    let mut fields = vec![
        ("name", text(uid)),
        ("type", text("policy")),
        ("generation", number(policy.generation as f64)),
        ("source", value(source)),
        ("appliedTo", texts(policy.applied_to.iter())),
        ("rules", list(policy.rules.iter().map(rule).collect())),
    ];
    fields.extend(policy.tier_priority.map(|priority| ("tierPriority", number(priority))));
    fields.extend(policy.priority.map(|priority| ("priority", number(priority))));
    object(fields)
}

fn rule(rule: &NodeRule) -> Value {
    use wire::trestle::v1::node_rule::{Action, Direction};
    let direction = match rule.direction() {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Unspecified => "unknown",
    };
    let action = match rule.action() {
        Action::Unspecified => "isolate",
        Action::Allow => "allow",
        Action::Drop => "drop",
        Action::Reject => "reject",
        Action::Pass => "pass",
    };
    let block = |block: &wire::trestle::v1::NodeIpBlock| {
        value(vec![("cidr", text(&block.cidr)), ("except", texts(block.except.iter()))])
    };
    value(vec![
        ("direction", text(direction)),
        ("action", text(action)),
        ("priority", number(rule.priority)),
        ("name", text(&rule.name)),
        ("appliedTo", texts(rule.applied_to.iter())),
        ("addressSets", texts(rule.address_sets.iter())),
        ("ipBlocks", list(rule.ip_blocks.iter().map(block).collect())),
        ("fqdns", texts(rule.fqdns.iter())),
        ("ports", list(rule.ports.iter().map(port_match).collect())),
        ("log", Value { kind: Some(Kind::BoolValue(rule.log)) }),
        ("logLabel", text(&rule.log_label)),
        ("untranslatable", texts(rule.untranslatable.iter())),
    ])
}

fn port_match(port: &NodePortMatch) -> Value {
    let mut fields = vec![("protocol", protocol(port.protocol()))];
    fields.extend(port.port.as_ref().map(|port| match port {
        node_port_match::Port::Number(port) => ("port", number(*port)),
        node_port_match::Port::Named(name) => ("port", text(name)),
    }));
    for (name, value) in [
        ("endPort", port.end_port),
        ("sourcePort", port.source_port),
        ("sourceEndPort", port.source_end_port),
        ("icmpType", port.icmp_type),
        ("icmpCode", port.icmp_code),
    ] {
        fields.extend(value.map(|value| (name, number(value))));
    }
    value(fields)
}

fn protocol(protocol: NodeProtocol) -> Value {
    text(match protocol {
        NodeProtocol::Tcp => "TCP",
        NodeProtocol::Udp => "UDP",
        NodeProtocol::Sctp => "SCTP",
        NodeProtocol::Icmp => "ICMP",
        NodeProtocol::Igmp => "IGMP",
        NodeProtocol::Unspecified => "unknown",
    })
}

fn object(fields: Fields) -> Struct {
    Struct { fields: fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
}

fn value(fields: Fields) -> Value {
    Value { kind: Some(Kind::StructValue(object(fields))) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

fn texts(texts: impl Iterator<Item = impl AsRef<str>>) -> Value {
    list(texts.map(|item| text(item.as_ref())).collect())
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn number(number: impl Number) -> Value {
    Value { kind: Some(Kind::NumberValue(number.to_f64())) }
}

/// Numbers of a Struct are doubles, which hold every number here but generations beyond 2^53.
trait Number {
    fn to_f64(self) -> f64;
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}

numbers!(f64, i32, u32, usize);

#[cfg(test)]
mod tests;
