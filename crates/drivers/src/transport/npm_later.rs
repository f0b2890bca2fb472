//! The dialect of Azure NPM's later clients: `protos.Events` with Go values in the words of NPM's dataplane.
//!
//! In: sets and policies as nodes are told them. Out: NPM's sets and policies. A set here is a list there, of parts that
//! hold addresses, so that one of any size is told in messages that every client takes. What those clients have no word for
//! permits nothing: IPv6, named ports. Policies that deny, or rank in tiers, they cannot have at all, and are not told.

mod gob;

use std::{collections::BTreeSet, net::Ipv4Addr};

use ::transport::{Dialect, Hash, Key, Members, Revision, Start, frame};
use bytes::{Buf as _, Bytes};
use gob::{BOOL, INT, STRING, Type, Value, numbered, stream};
use prost::Message as _;
use wire::{
    protos::{Events, GoalState, events::EventType},
    trestle::v1::{
        NodePolicy, NodePortMatch, NodeProtocol, NodeRule, ObjectKind, SetMember,
        node_port_match::Port,
        node_rule::{Action, Direction},
    },
};

/// Members of one part: some hundred bytes each, far below the 4 MiB that clients take.
const PART: usize = 8192;

/// What is done with a payload.
const SET: &str = "IPSETAPPLY";
const NO_SET: &str = "IPSETREMOVE";
const POLICY: &str = "POLICYAPPLY";
const NO_POLICY: &str = "POLICYREMOVE";

/// Types of NPM's sets, with what their clients put before their names.
const ADDRESSES: (i64, &str) = (5, "podlabel-");
const LIST: (i64, &str) = (7, "nestedlabel-");
const BLOCKS: i64 = 8;

/// How a set is matched.
const SOURCE: i64 = 0;
const DESTINATION: i64 = 1;
const EITHER: i64 = 3;

pub struct NpmLaterDialect;

impl Dialect for NpmLaterDialect {
    fn whole(&self, key: &Key, _: Hash, payload: &Bytes) -> ::transport::Frames {
        if i32::from(key.kind.0) != ObjectKind::Policy as i32 {
            return [].into();
        }
        let policy = NodePolicy::decode(&payload[..]).unwrap_or_default();
        match policy.tier_priority {
            None => [say(POLICY, &POLICIES, vec![policy_value(&key.name, &policy)])].into(),
            Some(_) => [].into(),
        }
    }

    fn set(&self, key: &Key, _: Hash, members: &Members) -> ::transport::Frames {
        let addresses: Vec<_> = members.iter().flat_map(addresses).collect();
        let mut parts: Vec<_> = addresses.chunks(PART).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let count = parts.len();
        let name = set_name(key.kind.0 == APPLIED_TO, &key.name);
        let named = |place: usize| part(&name, count, place);
        let whole = |(place, part): (usize, &&[Address])| {
            let members = Value::Map(part.iter().map(Address::entry).collect());
            say(SET, &SETS, vec![set_value(&named(place), ADDRESSES.0, members, Value::Map(Vec::new()))])
        };
        let list = (0..count).map(|place| {
            let name = Value::Text(format!("{}{}", ADDRESSES.1, named(place)));
            (name, metadata(&named(place), ADDRESSES.0))
        });
        let list = set_value(&name, LIST.0, Value::Map(Vec::new()), Value::Map(list.collect()));
        // Parts before what names them.
        parts.iter().enumerate().map(whole).chain([say(SET, &SETS, vec![list])]).collect()
    }

    fn delta(&self, _: &Key, _: Hash, _: &Members, _: &BTreeSet<Bytes>) -> Option<::transport::Frames> {
        None
    }

    fn removal(&self, key: &Key) -> Option<Bytes> {
        match ObjectKind::try_from(i32::from(key.kind.0)) {
            Ok(ObjectKind::Policy) => Some(say(NO_POLICY, &NAMES, vec![Value::Text(policy_key(&key.name))])),
            // Parts of a set that had several stay behind, in no list.
            Ok(ObjectKind::AppliedToSet | ObjectKind::AddressSet) => {
                let name = set_name(key.kind.0 == APPLIED_TO, &key.name);
                let names = [(LIST, name.clone()), (ADDRESSES, part(&name, 1, 0))];
                let names = names.map(|((_, prefix), name)| Value::Text(format!("{prefix}{name}")));
                Some(say(NO_SET, &NAMES, names.into()))
            }
            _ => None,
        }
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

    /// Its word for that, a hydration, is one message, and drops whatever is not in it.
    fn sweeps(&self) -> bool {
        false
    }
}

fn say(what: &str, types: &[Type], items: Vec<Value>) -> Bytes {
    let data = stream(types, &Value::List(items));
    let payload = [(what.to_owned(), GoalState { data })].into();
    let event_type = EventType::GoalState.into();
    frame(&Events { event_type, payload, ..Events::default() }.encode_to_vec())
}

/// A list of names.
const NAMES: [Type; 1] = [Type::Slice { name: "", of: STRING }];

/// A list of sets.
const SETS: [Type; 6] = [
    Type::Slice { name: "", of: numbered(1) },
    Type::Struct {
        name: "ControllerIPSets",
        fields: &[
            ("IPSetMetadata", numbered(2)),
            ("IPPodMetadata", numbered(3)),
            ("MemberIPSets", numbered(5)),
        ],
    },
    Type::Struct { name: "IPSetMetadata", fields: &[("Name", STRING), ("Type", INT)] },
    Type::Map { name: "", from: STRING, to: numbered(4) },
    Type::Struct {
        name: "PodMetadata",
        fields: &[("PodKey", STRING), ("PodIP", STRING), ("NodeName", STRING)],
    },
    Type::Map { name: "", from: STRING, to: numbered(2) },
];

/// A list of policies.
const POLICIES: [Type; 11] = [
    Type::Slice { name: "", of: numbered(1) },
    Type::Struct {
        name: "NPMNetworkPolicy",
        fields: &[
            ("Namespace", STRING),
            ("PolicyKey", STRING),
            ("PodSelectorIPSets", numbered(2)),
            ("PodSelectorList", numbered(6)),
            ("RuleIPSets", numbered(2)),
            ("ACLs", numbered(8)),
        ],
    },
    Type::Slice { name: "", of: numbered(3) },
    Type::Struct { name: "TranslatedIPSet", fields: &[("Metadata", numbered(4)), ("Members", numbered(5))] },
    Type::Struct { name: "IPSetMetadata", fields: &[("Name", STRING), ("Type", INT)] },
    Type::Slice { name: "", of: STRING },
    Type::Slice { name: "", of: numbered(7) },
    Type::Struct {
        name: "SetInfo",
        fields: &[("IPSet", numbered(4)), ("Included", BOOL), ("MatchType", INT)],
    },
    Type::Slice { name: "", of: numbered(9) },
    Type::Struct {
        name: "ACLPolicy",
        fields: &[
            ("Comment", STRING),
            ("SrcList", numbered(6)),
            ("DstList", numbered(6)),
            ("Target", STRING),
            ("Direction", STRING),
            ("DstPorts", numbered(10)),
            ("Protocol", STRING),
        ],
    },
    Type::Struct { name: "Ports", fields: &[("Port", INT), ("EndPort", INT)] },
];

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn metadata(name: &str, kind: i64) -> Value {
    Value::Struct(vec![text(name), Value::Int(kind)])
}

fn set_value(name: &str, kind: i64, addresses: Value, sets: Value) -> Value {
    Value::Struct(vec![metadata(name, kind), addresses, sets])
}

const APPLIED_TO: u8 = ObjectKind::AppliedToSet as u8;

/// Two sets may have one name here: whom a policy is applied to, and whom a rule permits, selected alike.
fn set_name(is_applied_to: bool, name: &str) -> String {
    match is_applied_to {
        true => format!("to-{name}"),
        false => format!("of-{name}"),
    }
}

/// The name of a part. It says how many there are: with more of them, all are others.
fn part(set: &str, count: usize, place: usize) -> String {
    format!("{set}-{count}-{place}")
}

/// An address of a member, and whose it is.
struct Address {
    address: String,
    pod: String,
    node: String,
}

fn addresses((id, rest): (&Bytes, &Bytes)) -> Vec<Address> {
    let member = SetMember::decode(id.clone().chain(rest.clone())).unwrap_or_default();
    let pod = format!("{}/{}", member.namespace, member.name);
    let fours = member.addresses.iter().filter_map(|bytes| <[u8; 4]>::try_from(&bytes[..]).ok());
    let of = |four| Address {
        address: Ipv4Addr::from(four).to_string(),
        pod: pod.clone(),
        node: member.node.clone(),
    };
    fours.map(of).collect()
}

impl Address {
    fn entry(&self) -> (Value, Value) {
        let pod = Value::Struct(vec![text(&self.pod), text(&self.address), text(&self.node)]);
        (text(&self.address), pod)
    }
}

/// Under which name clients keep a policy. It is removed by its UID alone.
fn policy_key(uid: &str) -> String {
    format!("trestle/{uid}")
}

fn policy_value(uid: &str, policy: &NodePolicy) -> Value {
    let sets: Vec<_> = policy.applied_to.iter().map(|set| set_name(true, set)).collect();
    let selected = sets.iter().map(|set| translated(set, LIST.0, Vec::new())).collect();
    let selectors = sets.iter().map(|set| matched(set, LIST.0, EITHER)).collect();
    let mut making = Making { uid, sets: Vec::new(), acls: Vec::new() };
    for direction in [Direction::In, Direction::Out] {
        let rules: Vec<_> = policy.rules.iter().filter(|rule| rule.direction() == direction).collect();
        for rule in rules.iter().filter(|rule| rule.action() == Action::Allow) {
            making.allow(rule, direction);
        }
        if !rules.is_empty() {
            making.acls.push(acl("DROP", direction, None, (UNSPECIFIED, 0, 0)));
        }
    }
    Value::Struct(vec![
        text(&policy.source_namespace),
        text(&policy_key(uid)),
        Value::List(selected),
        Value::List(selectors),
        Value::List(making.sets),
        Value::List(making.acls),
    ])
}

struct Making<'a> {
    uid: &'a str,
    sets: Vec<Value>,
    acls: Vec<Value>,
}

impl Making<'_> {
    /// One entry for each peer and port: any peer, by any port.
    fn allow(&mut self, rule: &NodeRule, direction: Direction) {
        let is_whole = rule.untranslatable.is_empty() && rule.fqdns.is_empty();
        let ports: Vec<_> = match rule.ports.is_empty() {
            true => vec![(UNSPECIFIED, 0, 0)],
            false => rule.ports.iter().filter_map(port).collect(),
        };
        if !is_whole || ports.is_empty() {
            return;
        }
        let side = if direction == Direction::In { SOURCE } else { DESTINATION };
        let mut peers = Vec::new();
        for set in &rule.address_sets {
            let set = set_name(false, set);
            self.sets.push(translated(&set, LIST.0, Vec::new()));
            peers.push((set, LIST.0));
        }
        for block in &rule.ip_blocks {
            let members = blocks(&block.cidr, &block.except);
            if !members.is_empty() {
                let name = format!("{}-{}", self.uid, self.sets.len());
                self.sets.push(translated(&name, BLOCKS, members));
                peers.push((name, BLOCKS));
            }
        }
        for (name, kind) in &peers {
            for port in &ports {
                self.acls.push(acl("ALLOW", direction, Some(matched(name, *kind, side)), *port));
            }
        }
    }
}

const UNSPECIFIED: &str = "unspecified";

/// Protocol, first and last port; none for what has no word.
fn port(port: &NodePortMatch) -> Option<(&'static str, i64, i64)> {
    let protocol = match port.protocol() {
        NodeProtocol::Tcp => "TCP",
        NodeProtocol::Udp => "UDP",
        NodeProtocol::Sctp => "SCTP",
        NodeProtocol::Icmp | NodeProtocol::Igmp | NodeProtocol::Unspecified => return None,
    };
    if port.source_port.is_some() {
        return None;
    }
    match &port.port {
        None => Some((protocol, 0, 0)),
        Some(Port::Number(first)) => {
            Some((protocol, (*first).into(), port.end_port.unwrap_or(*first).into()))
        }
        Some(Port::Named(_)) => None,
    }
}

/// Members of a set of blocks. The kernel takes no block of all addresses: it is said in two halves.
fn blocks(cidr: &str, except: &[String]) -> Vec<Value> {
    let is_four = |cidr: &str| !cidr.contains(':');
    if !is_four(cidr) {
        return Vec::new();
    }
    let halves = |cidr: &str| match cidr.ends_with("/0") {
        true => vec!["0.0.0.0/1".to_owned(), "128.0.0.0/1".to_owned()],
        false => vec![cidr.to_owned()],
    };
    let (taken, left_out) = (halves(cidr), except.iter().filter(|cidr| is_four(cidr)));
    let left_out: Vec<_> = left_out.flat_map(|cidr| halves(cidr)).collect();
    let taken = taken.into_iter().filter(|cidr| !left_out.contains(cidr));
    taken.map(Value::Text).chain(left_out.iter().map(|cidr| Value::Text(format!("{cidr} nomatch")))).collect()
}

fn translated(name: &str, kind: i64, members: Vec<Value>) -> Value {
    Value::Struct(vec![metadata(name, kind), Value::List(members)])
}

fn matched(name: &str, kind: i64, side: i64) -> Value {
    Value::Struct(vec![metadata(name, kind), Value::Bool(true), Value::Int(side)])
}

fn acl(
    target: &str,
    direction: Direction,
    peer: Option<Value>,
    (protocol, first, last): (&str, i64, i64),
) -> Value {
    let nobody = || Value::List(Vec::new());
    let peer = peer.map_or_else(nobody, |peer| Value::List(vec![peer]));
    let (source, destination, word) = match direction {
        Direction::Out => (nobody(), peer, "OUT"),
        Direction::In | Direction::Unspecified => (peer, nobody(), "IN"),
    };
    let ports = Value::Struct(vec![Value::Int(first), Value::Int(last)]);
    Value::Struct(vec![
        Value::Text(String::new()),
        source,
        destination,
        text(target),
        text(word),
        ports,
        text(protocol),
    ])
}

#[cfg(test)]
mod tests;
