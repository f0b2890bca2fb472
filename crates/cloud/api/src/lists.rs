//! What putting a permit list means, for all clouds.

use std::collections::BTreeSet;

use model::{EntryName, PermitEntry};

/// The list of a resource that has `there`, once `wanted` was put in place of `before`
/// ([`PermitLists::put_list`](crate::PermitLists::put_list)).
pub fn list_after(
    there: impl IntoIterator<Item = PermitEntry>,
    before: &[PermitEntry],
    wanted: &[PermitEntry],
) -> Vec<PermitEntry> {
    let names: BTreeSet<&EntryName> = wanted.iter().map(|entry| &entry.name).collect();
    let before: BTreeSet<&PermitEntry> = before.iter().collect();
    let stays = |entry: &PermitEntry| !names.contains(&entry.name) && !before.contains(entry);
    there.into_iter().filter(stays).chain(wanted.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use model::{Direction, Ports, Protocol, Traffic};

    use super::*;

    fn entry(name: &str, target: &str) -> PermitEntry {
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(22)).unwrap();
        let targets = [target.parse().unwrap()].into();
        PermitEntry::new(EntryName::reported(name), traffic, targets, BTreeSet::new()).unwrap()
    }

    #[test]
    fn a_list_is_put_whole_and_what_is_not_ours_stays() {
        let [a, b, theirs] = [entry("a", "10.0.0.1"), entry("b", "10.0.0.2"), entry("x", "0.0.0.0/0")];
        let there = || [a.clone(), theirs.clone()];
        let after = |before: &[&PermitEntry], wanted: &[&PermitEntry]| {
            let own = |list: &[&PermitEntry]| list.iter().map(|entry| (*entry).clone()).collect::<Vec<_>>();
            list_after(there(), &own(before), &own(wanted))
        };
        assert_eq!(after(&[], &[]), there());
        assert_eq!(after(&[&a], &[&a]), [theirs.clone(), a.clone()]);
        // What somebody took away comes back with the next put.
        assert_eq!(after(&[&a, &b], &[&a, &b]), [theirs.clone(), a.clone(), b.clone()]);
        assert_eq!(after(&[&a, &b], &[&b]), [theirs.clone(), b.clone()]);
        let changed = entry("a", "10.0.0.9");
        assert_eq!(after(&[&a], &[&changed]), [theirs.clone(), changed.clone()]);
        // Only what is exactly as given goes.
        assert_eq!(after(&[&changed], &[]), there());
        assert_eq!(after(&[&a, &theirs], &[&a]), std::slice::from_ref(&a));
    }
}
