//! What nodes that are connected here say of themselves as hosts: interfaces and addresses, and whether they refuse anything.
//!
//! ```text
//!   node stream ─► newest report of each ─┬─► explain, node get
//!                                         └─► addresses of a host that has joined ─► its record, if they changed
//! ```
//!
//! In: reports of the nodes' own streams. Out: the newest of each; the records of hosts follow them. Holds: one report for each
//! name that ever connected here, and whose have not been taken over. What other controllers are told is not known here: so only
//! what has just been said is taken over, and never what was said before.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use drivers::hosts::{Hosts, HostsError};
use model::{Host, TagName};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::warn;
use wire::trestle::v1::{NodeHost, NodeInterface};

/// More of anything than this is left out: a report is kept as long as the controller lives.
const MAX_ITEMS: usize = 256;
/// Characters of a name, an address or a port.
const MAX_TEXT: usize = 64;
/// Pause before a record that could not be written is tried again.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct HostReports {
    reports: Mutex<Reports>,
    news: Notify,
}

#[derive(Default)]
struct Reports {
    newest: BTreeMap<Arc<str>, NodeHost>,
    /// Who has said something that is not in the records yet.
    unwritten: BTreeSet<Arc<str>>,
}

impl HostReports {
    pub fn told(&self, node: &Arc<str>, host: NodeHost) {
        let mut reports = self.reports.lock();
        // Also what was said before: meanwhile the host may have been at another controller with other addresses.
        reports.newest.insert(Arc::clone(node), bounded(host));
        reports.unwritten.insert(Arc::clone(node));
        drop(reports);
        self.news.notify_one();
    }

    pub fn of(&self, node: &str) -> Option<NodeHost> {
        self.reports.lock().newest.get(node).cloned()
    }

    /// Keeps the addresses of hosts that have joined as they say them, for ever. What one of them has now, one that is away has not.
    pub async fn keep_addresses(&self, hosts: &Hosts, is_away: impl Fn(&TagName) -> bool) {
        loop {
            let unwritten = std::mem::take(&mut self.reports.lock().unwritten);
            let mut failed = BTreeSet::new();
            for name in unwritten {
                if let Err(err) = self.write(hosts, &name, &is_away).await {
                    let error = common::chain(&err);
                    warn!(host = &*name, error, "the addresses of a host are not recorded yet; trying again");
                    failed.insert(name);
                }
            }
            if failed.is_empty() {
                self.news.notified().await;
            } else {
                self.reports.lock().unwritten.extend(failed);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn write(
        &self,
        hosts: &Hosts,
        name: &str,
        is_away: impl Fn(&TagName) -> bool,
    ) -> Result<(), HostsError> {
        // Other nodes have not joined, and there is nothing to keep of them.
        let (Ok(host), Some(report)) = (Host::parse_name(name), self.of(name)) else { return Ok(()) };
        let addresses = addresses(&report);
        match hosts.report_addresses(&host, addresses.clone()).await {
            Ok(_) => hosts.take_addresses(&host, &addresses, is_away).await,
            Err(HostsError::NotFound { .. }) => Ok(()),
            Err(err) => Err(err),
        }
    }
}

/// Those by which others reach the host or see it come.
fn addresses(report: &NodeHost) -> BTreeSet<IpAddr> {
    let all = report.interfaces.iter().flat_map(|interface| &interface.addresses);
    all.filter_map(|text| text.parse().ok()).filter(leads_somewhere).collect()
}

fn leads_somewhere(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !address.is_unspecified() && !address.is_multicast() && !is_link_local
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
    fn what_is_told_is_bounded() {
        let reports = HostReports::default();
        let interface =
            NodeInterface { name: "e\u{1b}[2J".repeat(50), addresses: vec!["a".repeat(500); 999] };
        reports.told(&"n".into(), NodeHost { interfaces: vec![interface; 999], ..NodeHost::default() });
        let kept = reports.of("n").unwrap();
        assert_eq!((kept.interfaces.len(), kept.interfaces[0].addresses.len()), (MAX_ITEMS, MAX_ITEMS));
        assert!(kept.interfaces[0].name.len() <= MAX_TEXT && !kept.interfaces[0].name.contains('\u{1b}'));
        assert_eq!(reports.of("m"), None);
    }

    #[test]
    fn only_addresses_that_lead_somewhere_are_a_hosts() {
        let said =
            ["10.0.0.1", "127.0.0.1", "169.254.1.1", "fe80::1", "::1", "0.0.0.0", "nonsense", "2001:db8::1"];
        let interface =
            NodeInterface { name: "eth0".to_owned(), addresses: said.map(str::to_owned).to_vec() };
        let report = NodeHost { interfaces: vec![interface], ..NodeHost::default() };
        let kept: Vec<String> = addresses(&report).iter().map(IpAddr::to_string).collect();
        assert_eq!(kept, ["10.0.0.1", "2001:db8::1"]);
    }
}
