//! Address spaces for plugins that choose for themselves.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use model::{Segment, Site};

use super::{Orchestrator, OrchestratorError, facts::Fact};
use crate::plan::Phase;

impl Orchestrator {
    /// Promises an address space that nobody uses; nobody else is promised it (B4).
    ///
    /// A plugin of the seed asks while it makes a resource. The network it makes is then the one whose record waits
    /// for it, and so its space is the answer; without such a record a new space is reserved.
    pub async fn find_unused_space(&self, namespace: &Segment) -> Result<Ipv4Net, OrchestratorError> {
        let _turn = self.choosing.lock().await;
        let (waiting, used) = {
            let state = self.state.lock();
            let mut making = state.inventory.resources.values().filter(|record| {
                record.phase == Phase::Making && record.network.site.namespace == *namespace
            });
            let waiting = match (making.next(), making.next()) {
                (Some(record), None) => {
                    state.inventory.networks.get(&record.network).map(|network| network.space)
                }
                _ => None,
            };
            (waiting, state.inventory.used_spaces().collect::<Vec<_>>())
        };
        if let Some(space) = waiting {
            return Ok(space);
        }
        let space = self.options.pools.find(used, &[0])?[0];
        self.commit(vec![Fact::Reserved(space, Some(()))]).await?;
        Ok(space)
    }

    /// The spaces in use by site; those of one namespace, or of all.
    pub fn used_spaces(&self, namespace: Option<&Segment>) -> BTreeMap<Site, Vec<Ipv4Net>> {
        let state = self.state.lock();
        let mut spaces: BTreeMap<Site, Vec<Ipv4Net>> = BTreeMap::new();
        for (name, record) in &state.inventory.networks {
            if namespace.is_none_or(|namespace| *namespace == name.site.namespace) {
                spaces.entry(name.site.clone()).or_default().push(record.space);
            }
        }
        spaces
    }
}
