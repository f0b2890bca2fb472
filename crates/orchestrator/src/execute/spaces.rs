//! Address spaces for plugins that choose for themselves.
//!
//! A promise is stored, so that a restart keeps it. It ends when the plugin has made no network of it for a while; a
//! space that is in use in some cloud is kept, and so is every space as long as a cloud does not say what it uses.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use jiff::{SignedDuration, Timestamp};
use model::{Segment, Site};
use tracing::info;

use super::{Orchestrator, OrchestratorError, facts::Fact};
use crate::plan::{Phase, Reservation, overlap};

impl Orchestrator {
    /// Promises an address space that nobody uses; nobody else is promised it.
    ///
    /// A plugin of Paraglider asks while it makes a resource. The network it makes is then the one whose record waits
    /// for it, and so its space is the answer; without such a record a new space is reserved.
    pub async fn find_unused_space(&self, namespace: &Segment) -> Result<Ipv4Net, OrchestratorError> {
        let _turn = self.choosing.lock().await;
        self.settled().await;
        let waiting = {
            let state = self.state.lock();
            let mut making = state.inventory.resources.values().filter(|record| {
                record.phase == Phase::Making && record.network.site.namespace == *namespace
            });
            match (making.next(), making.next()) {
                (Some(record), None) => {
                    state.inventory.networks.get(&record.network).map(|network| network.space)
                }
                _ => None,
            }
        };
        if let Some(space) = waiting {
            return Ok(space);
        }
        let space = match self.free_space() {
            Err(OrchestratorError::NoSpace(_)) => {
                self.expire_promises().await?;
                self.free_space()?
            }
            found => found?,
        };
        let reservation = Reservation { namespace: namespace.clone(), promised_at: Timestamp::now() };
        self.commit(vec![Fact::Reserved(space, Some(reservation))]).await?;
        Ok(space)
    }

    fn free_space(&self) -> Result<Ipv4Net, OrchestratorError> {
        let inventory = self.state.lock().ahead();
        if let Some(record) = inventory.unreadable.hides_a_space() {
            return Err(record.into());
        }
        Ok(self.options.pools.find(inventory.used_spaces(), &[0])?[0])
    }

    /// Takes promises back that are old and that nobody made use of.
    pub async fn expire_promises(&self) -> Result<(), OrchestratorError> {
        let patience = SignedDuration::try_from(self.options.promise).unwrap_or(SignedDuration::MAX);
        let old: Vec<(Ipv4Net, Reservation)> = {
            let state = self.state.lock();
            let is_old = |reservation: &Reservation| {
                Timestamp::now().duration_since(reservation.promised_at) >= patience
            };
            let reserved = state.inventory.reserved.iter().filter(|(_, reservation)| is_old(reservation));
            reserved.map(|(space, reservation)| (*space, reservation.clone())).collect()
        };
        for (space, reservation) in old {
            if !self.may_be_used(space, &reservation.namespace).await {
                info!(%space, namespace = %reservation.namespace, "nobody uses a promised address space; it is free");
                self.commit(vec![Fact::Reserved(space, None)]).await?;
            }
        }
        Ok(())
    }

    /// Whether a network has the space, in the records or in a cloud. A cloud that cannot be asked may have it.
    async fn may_be_used(&self, space: Ipv4Net, namespace: &Segment) -> bool {
        let is_recorded = {
            let state = self.state.lock();
            state.inventory.networks.values().any(|network| network.blocks().any(|used| overlap(used, space)))
        };
        if is_recorded {
            return true;
        }
        for cloud_name in self.cloud_names() {
            let site = Site { namespace: namespace.clone(), cloud: cloud_name.clone() };
            let (Ok(cloud), Ok(at)) = (self.cloud(&cloud_name), self.at(&site).await) else { return true };
            match self.call(&cloud_name, "list", cloud.list(&at)).await {
                Ok(listing) if !listing.networks.iter().any(|(_, used)| overlap(*used, space)) => {}
                _ => return true,
            }
        }
        false
    }

    /// The spaces in use by site; those of one namespace, or of all. Refused if nobody knows all of them.
    pub fn used_spaces(
        &self,
        namespace: Option<&Segment>,
    ) -> Result<BTreeMap<Site, Vec<Ipv4Net>>, OrchestratorError> {
        let state = self.state.lock();
        if let Some(record) = state.inventory.unreadable.hides_a_space() {
            return Err(record.into());
        }
        let mut spaces: BTreeMap<Site, Vec<Ipv4Net>> = BTreeMap::new();
        for (name, record) in &state.inventory.networks {
            if namespace.is_none_or(|namespace| *namespace == name.site.namespace) {
                spaces.entry(name.site.clone()).or_default().extend(record.blocks());
            }
        }
        Ok(spaces)
    }
}
