//! Hosts: the records of machines that have joined, and the tags that follow them.
//!
//! ```text
//!   admission, renewal, removal ─ Transaction ─► store: hosts/NAME, host-keys/FINGERPRINT
//!        ▲ plans (`plan`)                          │ watch
//!        │                                         ▼
//!   report_addresses ───────────────────────────► mirror ─► keeper ─► tag host.NAME = addresses; member of the host's tags
//! ```
//!
//! In: transactions of whoever admits, addresses that agents report. Out: the hosts there are; tags; Nodes for the policy engine
//! (`nodes`). Holds: the mirror of the records. Tags are written after the record and follow it: what was not done when the controller fell is done by the keeper of the next.
//!
//! Not here: who is admitted and with which certificate (`server::access::join`); what a host enforces.

mod keeper;
mod nodes;
pub mod plan;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use life::Life;
use model::{Admission, Fingerprint, TagName, change::Change};
use serde::de::DeserializeOwned;
use store::{Key, ReadError, Revision, Store, TransactError, Transaction, follow::Progress};
use tokio::sync::watch;

pub use self::plan::{HostRecord, KeyRecord};
use crate::{
    mirror::Mirror,
    tags::{TagError, Tags},
};

/// Addresses of one host that are kept; an agent that reports more is told so little believed that the rest is left out.
pub const MAX_ADDRESSES: usize = 256;

/// Why hosts could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    #[error("there is no host {name}; `trestle host list` shows which there are")]
    NotFound { name: TagName },
    #[error("cannot read hosts from the store")]
    Read(#[source] ReadError),
    #[error("cannot write hosts to the store")]
    Write(#[source] TransactError),
    #[error("cannot bring the tags of host {name} in line with it")]
    Tags {
        name: TagName,
        #[source]
        err: TagError,
    },
}

/// The hosts of a store.
pub struct Hosts {
    store: Store,
    mirror: Arc<Mirror<HostRecord>>,
    tags: Arc<Tags>,
    /// Who writes a host's tag has read its newest record.
    keeping: tokio::sync::Mutex<()>,
}

impl Hosts {
    /// Starts to follow the records, and to keep the tags of hosts.
    pub fn start(store: Store, tags: Arc<Tags>, life: &Life) -> Arc<Self> {
        let mirror = Mirror::start(store.clone(), plan::hosts(), life);
        let hosts = Arc::new(Self { store, mirror, tags, keeping: tokio::sync::Mutex::default() });
        let kept = Arc::clone(&hosts);
        life.spawn("hosts: tags", async move { kept.keep_tags().await });
        hosts
    }

    /// All hosts, sorted by name.
    pub fn list(&self) -> Vec<Arc<HostRecord>> {
        let records = self.mirror.list().into_iter().map(|(_, record)| record);
        records.filter(|record| !record.leaving).collect()
    }

    pub fn get(&self, name: &TagName) -> Option<Arc<HostRecord>> {
        self.mirror.get(name.as_str()).filter(|record| !record.leaving)
    }

    /// Changes whenever a host comes, goes or changes.
    pub fn changes(&self) -> watch::Receiver<Option<Revision>> {
        self.mirror.changes()
    }

    /// How far this follows the store.
    pub fn progress(&self) -> Progress {
        self.mirror.progress()
    }

    /// The newest record of a name, also of a host that is being removed.
    pub async fn newest(&self, name: &TagName) -> Result<Option<(HostRecord, Revision)>, HostsError> {
        self.read(&plan::host_key(name)).await
    }

    /// Whose key this is or was.
    pub async fn of_key(&self, key: &Fingerprint) -> Result<Option<(KeyRecord, Revision)>, HostsError> {
        self.read(&plan::key_key(key)).await
    }

    /// Which host somebody became whose statement counts once.
    pub async fn of_identity(&self, by: &Admission) -> Result<Option<KeyRecord>, HostsError> {
        Ok(self.read(&plan::identity_key(by)).await?.map(|(record, _)| record))
    }

    /// Commits what a plan of this module came to. What is read afterwards shows it.
    pub async fn commit(&self, transaction: Transaction) -> Result<Revision, TransactError> {
        let committed = self.store.transact(transaction).await?;
        self.mirror.reach(committed.revision).await;
        Ok(committed.revision)
    }

    /// Takes in the addresses a host has now. Writes only if they are others than before; what that changed.
    pub async fn report_addresses(
        &self,
        name: &TagName,
        addresses: BTreeSet<IpAddr>,
    ) -> Result<Option<Change>, HostsError> {
        let addresses: BTreeSet<IpAddr> = addresses.into_iter().take(MAX_ADDRESSES).collect();
        if self.get(name).is_some_and(|record| record.host.addresses == addresses) {
            return Ok(None);
        }
        loop {
            let missing = || HostsError::NotFound { name: name.clone() };
            let (record, at) =
                self.newest(name).await?.filter(|(record, _)| !record.leaving).ok_or_else(missing)?;
            let mut moved = record.clone();
            moved.host.addresses.clone_from(&addresses);
            if moved == record {
                return Ok(None);
            }
            match self.commit(plan::replace(&moved, at)).await {
                Ok(_) => {
                    self.keep_tag(&moved).await?;
                    return Ok(Some(plan::changed(Some(&record), Some(&moved))));
                }
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(HostsError::Write(err)),
            }
        }
    }

    /// A host that is here has these addresses: those that are away do not have them any more, whatever they said last. Who is permitted
    /// something by such a tag would otherwise be whoever got the address next.
    pub async fn take_addresses(
        &self,
        of: &TagName,
        addresses: &BTreeSet<IpAddr>,
        is_away: impl Fn(&TagName) -> bool,
    ) -> Result<(), HostsError> {
        let has_one = |record: &&Arc<HostRecord>| {
            record.host.name != *of && !record.host.addresses.is_disjoint(addresses)
        };
        for record in self.list().iter().filter(has_one).filter(|record| is_away(&record.host.name)) {
            let left = record.host.addresses.difference(addresses).copied().collect();
            match self.report_addresses(&record.host.name, left).await {
                Ok(_) | Err(HostsError::NotFound { .. }) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }

    /// Removes a host: from the first transaction on it is nobody any more. `also` goes into that transaction: what was issued to
    /// it. A removal that was begun by a process that fell is finished by another.
    pub async fn remove(
        &self,
        name: &TagName,
        now: i64,
        also: impl Fn(&HostRecord) -> Transaction,
    ) -> Result<(HostRecord, Change), HostsError> {
        loop {
            let Some((record, at)) = self.newest(name).await? else {
                return Err(HostsError::NotFound { name: name.clone() });
            };
            match self.commit(plan::together(plan::leave(&record, at, now), also(&record))).await {
                Ok(_) => {
                    self.finish_removal(&record).await?;
                    let change = plan::changed(Some(&record), None);
                    return Ok((record, change));
                }
                Err(TransactError::Conflict { .. }) => {}
                Err(err) => return Err(HostsError::Write(err)),
            }
        }
    }

    async fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<(T, Revision)>, HostsError> {
        let Some(entry) = self.store.get(key).await.map_err(HostsError::Read)? else { return Ok(None) };
        match serde_json::from_slice(&entry.value) {
            Ok(value) => Ok(Some((value, entry.modified))),
            Err(err) => Err(HostsError::Read(ReadError::Parse { key: key.clone(), source: Arc::new(err) })),
        }
    }
}
