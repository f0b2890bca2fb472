//! A network's permit lists as nftables.
//!
//! The whole table is replaced in one transaction, so there is no moment between two lists.

use std::fmt::Write as _;

use model::{Direction, NetworkName, PermitEntry, Ports, Protocol};

use crate::state::{Resource, State};

/// The table, in the network's namespace.
pub(crate) const TABLE: &str = "trestle";

/// The interface towards a resource, in its network's namespace.
pub(crate) fn interface(resource: &Resource) -> String {
    format!("r{:08x}", u32::from(resource.address))
}

/// Everything a network lets through.
pub(crate) fn ruleset(state: &State, network: &NetworkName) -> String {
    let residents: Vec<_> = state.residents(network).map(|(_, resource)| resource).collect();
    let mut text = format!("table inet {TABLE} {{\n}}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
    for resource in &residents {
        chain(&mut text, resource, Direction::Outbound);
        chain(&mut text, resource, Direction::Inbound);
    }
    let list = |item: &dyn Fn(&Resource) -> String| {
        residents.iter().map(|resource| item(resource)).collect::<Vec<_>>().join(", ")
    };
    map(&mut text, "egress", &list(&|r| format!("{} : jump out_{}", r.address, interface(r))));
    map(&mut text, "ingress", &list(&|r| format!("{} : jump in_{}", r.address, interface(r))));
    set(&mut text, "own", "ifname . ipv4_addr", &list(&|r| format!("\"{}\" . {}", interface(r), r.address)));
    set(&mut text, "local", "ipv4_addr", &list(&|r| r.address.to_string()));
    text.push_str(FORWARD);
    text.push_str("}\n");
    text
}

/// Replies to what was let through pass; whatever opens or carries on a connection is judged by the list of its
/// sender, then of its receiver, and passes only if each list that is here lets it.
const FORWARD: &str = r#"  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state invalid drop
    iifname "r*" iifname . ip saddr != @own drop
    ct direction reply ct state established accept
    ct state related accept
    ip saddr vmap @egress
    ip daddr vmap @ingress
    ip saddr @local accept
  }
  chain input {
    type filter hook input priority 0; policy accept;
    iifname "r*" drop
  }
"#;

fn chain(text: &mut String, resource: &Resource, direction: Direction) {
    let (name, verdict) = match direction {
        Direction::Outbound => ("out", "return"),
        Direction::Inbound => ("in", "accept"),
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "  chain {name}_{} {{", interface(resource));
    for entry in resource.permit.values().filter(|entry| entry.traffic.direction == direction) {
        if let Some(matches) = matches(entry) {
            let _ = writeln!(text, "    {matches} {verdict}");
        }
    }
    let _ = writeln!(text, "    drop\n  }}");
}

/// The match of an entry; none if it has nothing for IPv4, which is all this cloud carries.
fn matches(entry: &PermitEntry) -> Option<String> {
    let targets: Vec<String> = entry
        .targets()
        .iter()
        .filter(|target| target.net().addr().is_ipv4())
        .map(|target| target.net().to_string())
        .collect();
    if targets.is_empty() {
        return None;
    }
    let side = match entry.traffic.direction {
        Direction::Inbound => "saddr",
        Direction::Outbound => "daddr",
    };
    let mut text = format!("ip {side} {{ {} }}", targets.join(", "));
    if let Protocol::Number(number) = entry.traffic.protocol {
        let _ = write!(text, " meta l4proto {number}");
    }
    // "th" is the transport header of any protocol that begins with two ports.
    for (which, ports) in [("sport", entry.traffic.src_ports), ("dport", entry.traffic.dst_ports)] {
        if let Ports::Range { first, last } = ports {
            let _ = write!(text, " th {which} {first}-{last}");
        }
    }
    Some(text)
}

fn map(text: &mut String, name: &str, elements: &str) {
    let _ = writeln!(text, "  map {name} {{ type ipv4_addr : verdict\n    {} }}", elements_of(elements));
}

fn set(text: &mut String, name: &str, kind: &str, elements: &str) {
    let _ = writeln!(text, "  set {name} {{ type {kind}\n    {} }}", elements_of(elements));
}

fn elements_of(elements: &str) -> String {
    if elements.is_empty() { String::new() } else { format!("elements = {{ {elements} }}\n") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{EntryName, Traffic};

    use super::*;

    #[test]
    fn an_entry_matches_its_targets_protocol_and_ports() {
        let traffic =
            Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::Range { first: 80, last: 90 })
                .unwrap();
        let targets = ["10.0.0.0/24".parse().unwrap(), "2001:db8::1".parse().unwrap()].into();
        let entry = PermitEntry::new(EntryName::reported("x"), traffic, targets, BTreeSet::new()).unwrap();
        assert_eq!(matches(&entry).unwrap(), "ip saddr { 10.0.0.0/24 } meta l4proto 6 th dport 80-90");
        let six = ["2001:db8::1".parse().unwrap()].into();
        let entry = PermitEntry::new(EntryName::reported("x"), traffic, six, BTreeSet::new()).unwrap();
        assert_eq!(
            matches(&entry),
            None,
            "an entry without IPv4 targets must not become a match of everything"
        );
    }
}
