//! Entries of permit lists, and short lists that meet: for what plugins make of them.

use std::collections::{BTreeMap, BTreeSet};

use model::{Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};
use proptest::{collection, prelude::*};

/// An entry for traffic to some ports.
pub fn entry<T: AsRef<str>, G: AsRef<str>>(
    name: &str,
    direction: Direction,
    (protocol, ports): (Protocol, Ports),
    targets: &[T],
    tags: &[G],
) -> PermitEntry {
    let traffic = Traffic::new(direction, protocol, Ports::Any, ports).unwrap();
    let targets = targets.iter().map(|text| text.as_ref().parse().unwrap()).collect();
    let tags: BTreeSet<String> = tags.iter().map(|tag| tag.as_ref().to_owned()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, tags).unwrap()
}

/// In the order of their names: of any traffic or to a few ports, from and to a few hosts, by a tag or by one or all of them.
pub fn any() -> impl Strategy<Value = Vec<PermitEntry>> {
    let ports = prop_oneof![Just(None), (80u16..83, 0u16..3).prop_map(Some)];
    let one = (proptest::bool::ANY, ports, collection::btree_set(1u8..6, 1..4), 0u8..3);
    collection::btree_map("[a-z]{1,2}", one, 0..5).prop_map(|map: BTreeMap<String, _>| {
        let entry = |(name, (is_inbound, ports, hosts, literal)): (String, (bool, _, BTreeSet<u8>, u8))| {
            let direction = if is_inbound { Direction::Inbound } else { Direction::Outbound };
            let traffic = match ports {
                None => (Protocol::Any, Ports::Any),
                Some((first, more)) => (Protocol::TCP, Ports::Range { first, last: first + more }),
            };
            let targets: Vec<String> = hosts.iter().map(|host| format!("10.0.0.{host}")).collect();
            let tags = match literal {
                0 => vec!["some.tag".to_owned()],
                1 => targets[..1].to_vec(),
                _ => targets.clone(),
            };
            self::entry(&name, direction, traffic, &targets, &tags)
        };
        map.into_iter().map(entry).collect()
    })
}
