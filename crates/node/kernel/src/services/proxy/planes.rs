//! How planes come and go: each begins with the whole store, and takes over what an earlier run or mode left.

use std::time::{Duration, Instant};

use node_nft::Family;
use node_services::{ipvs::guard, nftables};

use super::{IpvsProxy, Mode, NftablesProxy, Outcome, Proxy, Settings, SyncError};
use crate::{
    ipvs::Ipvs,
    nft::{Applied, Nft, TableId},
};

/// Connections through IPVS are waited for this long after the node has gone over to nftables.
const LEAVE: Duration = Duration::from_secs(15 * 60);

impl Proxy {
    pub(super) fn start_nftables(&mut self) -> Result<Applied, SyncError> {
        let Settings { rules, limits, .. } = &self.settings;
        let mut all = Applied::default();
        let mut proxies = Vec::new();
        for ipv6 in [false, true] {
            let (proxy, applied) = NftablesProxy::start(ipv6, rules.clone(), *limits, &self.store)?;
            all.join(applied);
            proxies.push(proxy);
        }
        self.nftables = proxies;
        // An earlier run may have ended while its IPVS was on its way out.
        if self.leaving.is_none() && ipvs_is_ours()? {
            let (proxy, _) = self.open_ipvs()?;
            self.leaving = Some((proxy, Instant::now()));
        }
        Ok(all)
    }

    pub(super) fn start_ipvs(&mut self) -> Result<Outcome, SyncError> {
        let (proxy, outcome) = match self.leaving.take() {
            // It is still there: it has only to catch up.
            Some((mut proxy, _)) => {
                let outcome = proxy.renew(&self.store)?;
                (proxy, outcome)
            }
            None => self.open_ipvs()?,
        };
        self.ipvs = Some(proxy);
        remove_tables()?;
        Ok(outcome)
    }

    fn open_ipvs(&self) -> Result<(IpvsProxy, Outcome), SyncError> {
        let Settings { rules, ipvs, timeouts, .. } = &self.settings;
        Ok(IpvsProxy::start_with(ipvs.clone(), rules.clone(), *timeouts, &self.store)?)
    }

    /// Removes what belongs to planes that do not run.
    pub(super) fn remove_other(&mut self) -> Result<(), SyncError> {
        if self.mode != Mode::Nftables {
            remove_tables()?;
        }
        if self.mode != Mode::Ipvs && self.leaving.is_none() && ipvs_is_ours()? {
            self.open_ipvs()?.0.stop()?;
        }
        Ok(())
    }

    pub(super) fn drain(&mut self, now: Instant) -> Result<(), SyncError> {
        if let Some(proxy) = self.ipvs.as_mut().filter(|proxy| proxy.is_draining()) {
            proxy.drain()?;
        }
        if let Some((mut proxy, since)) = self.leaving.take() {
            if now - since < LEAVE && proxy.connections()? > 0 {
                self.leaving = Some((proxy, since));
            } else {
                proxy.stop()?;
            }
        }
        Ok(())
    }
}

/// Removes the tables of the nftables plane, if they are ours.
fn remove_tables() -> Result<(), SyncError> {
    let mut nft = Nft::open().map_err(SyncError::Nft)?;
    for family in [Family::Ip, Family::Ip6] {
        let id = TableId::new(family, nftables::TABLE);
        if nft.glance(&id)?.is_some_and(|table| table.owned) {
            nft.delete(&id)?;
        }
    }
    Ok(())
}

/// Whether an earlier run has left servers in IPVS.
fn ipvs_is_ours() -> Result<bool, SyncError> {
    let mut nft = Nft::open().map_err(SyncError::Nft)?;
    for family in [Family::Ip, Family::Ip6] {
        let table = nft.glance(&TableId::new(family, guard::TABLE))?;
        if table.is_some_and(|table| table.owned) && Ipvs::open().is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}
