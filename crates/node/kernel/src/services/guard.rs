//! The guard tables beside IPVS, kept equal to the kernel as far as the kernel lets them be.
//!
//! In: the store, and servers that are there though nobody wants them. Out: servers that lack an element because the
//! kernel refuses it; all others have theirs. A rule, a chain or a set that is refused is an error.

use std::collections::{BTreeMap, BTreeSet};

use node_nft::{CurrentTable, Family, Limits, Live, Op, Plan, Table, Transaction};
use node_services::{
    Store,
    ipvs::{
        ServerId,
        guard::{self, Place},
    },
    nftables::Config,
};

use super::{Tables, halving};
use crate::nft::{CommitError, ReadError, ReconcileError, TableId};

pub struct Guard<N> {
    nft: N,
    config: Config,
}

/// Elements that the kernel does not take, and why.
type Refused = BTreeMap<Place, String>;

impl<N: Tables> Guard<N> {
    pub fn new(nft: N, config: Config) -> Self {
        Self { nft, config }
    }

    /// The servers that an earlier run, or this one, has entered as its own.
    pub fn owned(&mut self) -> Result<BTreeSet<ServerId>, ReadError> {
        let mut owned = BTreeSet::new();
        for id in tables() {
            let table = self.nft.read(&id)?;
            owned.extend(table.iter().filter(|table| table.owned).flat_map(guard::owned));
        }
        Ok(owned)
    }

    /// Makes the tables what the store wants. `also` are entered as ours, `foreign` are not. Returns the servers that are
    /// not as they should be, and why.
    pub fn follow(
        &mut self,
        store: &Store,
        also: &BTreeSet<ServerId>,
        foreign: &BTreeSet<ServerId>,
    ) -> Result<BTreeMap<ServerId, String>, ReconcileError> {
        let mut refused = Refused::new();
        for ipv6 in [false, true] {
            let mut table = guard::table(ipv6, &self.config, store, also);
            guard::disown(&mut table, foreign);
            refused.extend(self.make_equal(&table)?);
        }
        if refused.is_empty() {
            return Ok(BTreeMap::new());
        }
        let lacking = refused.keys().cloned().collect();
        let servers = guard::servers_that_need(&self.config, store, &lacking);
        Ok(servers.into_iter().filter_map(|(id, place)| Some((id, refused.get(&place)?.clone()))).collect())
    }

    /// Removes the tables.
    pub fn stop(&mut self) -> Result<(), ReconcileError> {
        tables().into_iter().try_for_each(|id| self.nft.delete(&id).map(drop))
    }

    fn make_equal(&mut self, desired: &Table) -> Result<Refused, ReconcileError> {
        let id = TableId::of(desired);
        let plan = |current: Option<&CurrentTable>| {
            Plan::new(desired, current, Live::Chunked, Limits::default())
                .map_err(|_| ReconcileError::Foreign(id.clone()))
        };
        let current = self.nft.glance(&id)?;
        let mut steps = plan(current.as_ref())?;
        if current.is_some() && !steps.is_empty() {
            drop(current);
            // A glance is enough to see that nothing differs; not to say what.
            steps = plan(self.nft.read(&id)?.as_ref())?;
        }
        let mut refused = Refused::new();
        for transaction in steps.transactions {
            match self.nft.commit(&id, &transaction) {
                Ok(_) => {}
                Err(CommitError::Refused { .. }) => refused.extend(self.isolate(&id, transaction)?),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(refused)
    }

    /// Does a refused transaction element by element. What frames them is all or nothing.
    fn isolate(&mut self, id: &TableId, transaction: Transaction) -> Result<Refused, CommitError> {
        let (elements, frame): (Vec<_>, Vec<_>) =
            transaction.ops.into_iter().partition(|op| op.set().is_some_and(guard::is_of_servers));
        if !frame.is_empty() {
            self.nft.commit(id, &Transaction { ops: frame })?;
        }
        let single: Vec<_> = elements.into_iter().flat_map(Op::apart).collect();
        let place = |op: &Op| {
            let (set, (key, _)) = (op.set()?.to_owned(), op.elements().first()?);
            Some((set, key.clone()))
        };
        let places: Vec<_> = single.iter().map(place).collect();
        let lists = single.into_iter().map(|op| vec![op]).collect();
        let (_, refused) = halving::commit(&mut self.nft, id, lists, Limits::default())?;
        Ok(refused.into_iter().filter_map(|(index, why)| Some((places[index].clone()?, why))).collect())
    }
}

fn tables() -> [TableId; 2] {
    [Family::Ip, Family::Ip6].map(|family| TableId::new(family, guard::TABLE))
}

#[cfg(test)]
mod tests;
