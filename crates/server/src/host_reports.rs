//! What nodes that are connected here say of themselves as hosts: interfaces and addresses, and whether they refuse anything.
//!
//! In: reports of the nodes' own streams. Out: the newest of each, and who is waiting is told of changes. Holds: one report for
//! each name that ever connected here. What other controllers are told is not known here.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;
use wire::trestle::v1::{NodeHost, NodeInterface};

/// More of anything than this is left out: a report is kept as long as the controller lives.
const MAX_ITEMS: usize = 256;
/// Characters of a name, an address or a port.
const MAX_TEXT: usize = 64;

#[derive(Default)]
pub struct HostReports {
    newest: Mutex<BTreeMap<Arc<str>, NodeHost>>,
    changes: watch::Sender<u64>,
}

impl HostReports {
    pub fn told(&self, node: &Arc<str>, host: NodeHost) {
        let host = bounded(host);
        let mut newest = self.newest.lock();
        if newest.get(node) != Some(&host) {
            newest.insert(Arc::clone(node), host);
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub fn of(&self, node: &str) -> Option<NodeHost> {
        self.newest.lock().get(node).cloned()
    }

    /// Changes with every report that is not as the one before.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

fn bounded(host: NodeHost) -> NodeHost {
    let short = |text: String| text.chars().filter(|char| !char.is_control()).take(MAX_TEXT).collect();
    let interface = |one: NodeInterface| NodeInterface {
        name: short(one.name),
        addresses: one.addresses.into_iter().take(MAX_ITEMS).map(short).collect(),
    };
    NodeHost {
        interfaces: host.interfaces.into_iter().take(MAX_ITEMS).map(interface).collect(),
        fail_safes: host.fail_safes.into_iter().take(MAX_ITEMS).map(short).collect(),
        ..host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_bounded_and_the_same_is_no_news() {
        let reports = HostReports::default();
        let changes = reports.changes();
        let interface =
            NodeInterface { name: "e\u{1b}[2J".repeat(50), addresses: vec!["a".repeat(500); 999] };
        let host = NodeHost { interfaces: vec![interface; 999], ..NodeHost::default() };
        for _ in 0..2 {
            reports.told(&"n".into(), host.clone());
        }
        assert_eq!(*changes.borrow(), 1);
        let kept = reports.of("n").unwrap();
        assert_eq!((kept.interfaces.len(), kept.interfaces[0].addresses.len()), (MAX_ITEMS, MAX_ITEMS));
        assert!(kept.interfaces[0].name.len() <= MAX_TEXT && !kept.interfaces[0].name.contains('\u{1b}'));
        assert_eq!(reports.of("m"), None);
    }
}
