//! The nftables plane of one family, kept equal to the kernel.
//!
//! What the kernel refuses is found by halving, and held back: the others go on, and each refused port is tried again
//! by itself ([`quarantine`](super::quarantine)).
//!
//! ```text
//!   patches ─► units ─► commit ─┬─► taken
//!                 ▲             └─► refused: halve; a single one goes back to what the kernel has, and is held
//!                 └── again, first right after a comparison of all, then with longer and longer pauses ◄──┘
//! ```

use std::{collections::BTreeSet, time::Instant};

use node_nft::{CurrentTable, Elements, Family, Limits, Live, Op, Plan, Transaction};
use node_services::{
    Operation, PortId, ServiceEndpointsPatch, Store,
    nftables::{Apart, Bond, Config, Forget, Plane, TABLE, Work},
};

use super::{
    Tables,
    affinity::{Sweeper, is_meant},
    halving,
    quarantine::{Held, Quarantine},
};
use crate::{
    netlink::NetlinkError,
    nft::{Applied, CommitError, Nft, ReadError, ReconcileError, TableId},
};

/// A client's entry may expire between reading and deleting; then it is read again.
const FORGET_ATTEMPTS: usize = 4;
const NO_ENTRY: i32 = 2;
/// Ports that are worked out at a time.
const FILL: usize = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("cannot reach nftables")]
    Open(#[source] NetlinkError),
    #[error(transparent)]
    Reconcile(#[from] ReconcileError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Owns table [`TABLE`] of one family.
pub struct NftablesProxy<N = Nft> {
    nft: N,
    id: TableId,
    plane: Plane,
    limits: Limits,
    /// The kernel may differ from the plane: the next update compares all.
    unsure: bool,
    quarantine: Quarantine,
    sweeper: Sweeper,
}

impl NftablesProxy {
    /// Takes over what an earlier run left, and repairs it. Writes nothing if nothing differs.
    pub fn start(
        ipv6: bool,
        config: Config,
        limits: Limits,
        store: &Store,
    ) -> Result<(Self, Applied), ProxyError> {
        Self::start_on(Nft::open().map_err(ProxyError::Open)?, ipv6, config, limits, store)
    }
}

impl<N: Tables> NftablesProxy<N> {
    /// As [`NftablesProxy::start`], on tables that are there already.
    pub fn start_on(
        nft: N,
        ipv6: bool,
        config: Config,
        limits: Limits,
        store: &Store,
    ) -> Result<(Self, Applied), ProxyError> {
        let id = TableId::new(if ipv6 { Family::Ip6 } else { Family::Ip }, TABLE);
        let (plane, quarantine) = (Plane::new(ipv6, config), Quarantine::default());
        let sweeper = Sweeper::new(id.clone(), Bond::ALL.map(|bond| (bond, plane.affinity(bond).1)));
        let mut proxy = Self { nft, id, plane, limits, unsure: false, quarantine, sweeper };
        let applied = match proxy.nft.glance(&proxy.id)? {
            None => proxy.fill(store)?,
            Some(current) => proxy.take_over(current, store)?,
        };
        Ok((proxy, applied))
    }

    /// From nothing, a few services at a time: each is complete when it appears, and little memory is needed.
    fn fill(&mut self, store: &Store) -> Result<Applied, ProxyError> {
        let mut applied = self.repair(store)?;
        let mut rest = store.all_as_new().peekable();
        while rest.peek().is_some() {
            let patches: Vec<_> = rest.by_ref().take(FILL).collect();
            applied.join(self.carry_out(&patches, store)?);
        }
        Ok(applied)
    }

    fn take_over(&mut self, current: CurrentTable, store: &Store) -> Result<Applied, ProxyError> {
        self.plane.adopt(&current);
        let mut rest = store.all_as_new().peekable();
        while rest.peek().is_some() {
            let patches: Vec<_> = rest.by_ref().take(FILL).collect();
            self.plane.apply(&patches);
        }
        self.plane.align(&current);
        self.repair_from(Some(current), store)
    }

    /// Carries out patches, which must be the store's latest. Ports that the kernel refuses are held back, and told by
    /// [`Self::refused`]. An error means that more is wrong than some ports: the next call compares all.
    pub fn update(
        &mut self,
        store: &Store,
        patches: &[ServiceEndpointsPatch],
    ) -> Result<Applied, ProxyError> {
        let told: Vec<_>;
        let mut mine = patches;
        if !self.quarantine.is_empty() {
            // What is held is not where its patches begin. One that goes is worth a try at once.
            for patch in patches.iter().filter(|patch| patch.service.op == Operation::Delete) {
                self.quarantine.hasten(&patch.id, Instant::now());
            }
            told = patches.iter().filter(|patch| !self.quarantine.contains(&patch.id)).cloned().collect();
            mine = &told;
        }
        let mut applied = if self.unsure {
            let work = self.plane.apply(mine);
            let mut applied = self.repair(store)?;
            applied.join(self.forget(&work.forget)?);
            applied
        } else {
            self.carry_out(mine, store)?
        };
        applied.join(self.retry(store, Instant::now())?);
        Ok(applied)
    }

    /// Compares the kernel's table with what it should be, and repairs what others did to it.
    pub fn reconcile(&mut self, store: &Store) -> Result<Applied, ProxyError> {
        self.repair(store)
    }

    /// Ports that are not as they should be, because the kernel refuses them.
    pub fn refused(&self) -> impl Iterator<Item = (&PortId, &Held)> {
        self.quarantine.iter()
    }

    /// Tries held ports again whose time has come.
    pub fn retry(&mut self, store: &Store, now: Instant) -> Result<Applied, ProxyError> {
        let mut applied = Applied::default();
        for id in self.quarantine.due(now) {
            applied.join(self.retry_one(&id, store, now)?);
        }
        Ok(applied)
    }

    /// Removes the table.
    pub fn stop(mut self) -> Result<(), ProxyError> {
        self.nft.delete(&self.id)?;
        Ok(())
    }

    fn carry_out(&mut self, patches: &[ServiceEndpointsPatch], store: &Store) -> Result<Applied, ProxyError> {
        let work = self.plane.apply(patches);
        let (mut applied, refused) = self.execute(work)?;
        if !refused.is_empty() {
            // Perhaps it is not the port: somebody may have changed the table. Compared once, each is tried alone.
            refused
                .iter()
                .for_each(|(id, why)| self.quarantine.refuse(id.clone(), why.clone(), Instant::now()));
            applied.join(self.repair(store)?);
            for (id, _) in refused {
                applied.join(self.retry_one(&id, store, Instant::now())?);
            }
        }
        Ok(applied)
    }

    fn retry_one(&mut self, id: &PortId, store: &Store, now: Instant) -> Result<Applied, ProxyError> {
        let patch = self.plane.toward(id, store.port(id));
        let mut work = self.plane.apply(&[patch]);
        let withdrawn = self.quarantine.is_withdrawn(id);
        if withdrawn {
            self.replace_leftovers(id, store, &mut work)?;
        }
        let (applied, refused) = self.execute(work)?;
        match refused.into_iter().next() {
            Some((_, why)) => self.quarantine.refuse(id.clone(), why, now),
            None => self.quarantine.release(id),
        }
        // If it is gone, nobody knows its leftovers: only a comparison finds them.
        self.unsure |= withdrawn && store.port(id).is_none();
        Ok(applied)
    }

    fn replace_leftovers(&mut self, id: &PortId, store: &Store, work: &mut Work) -> Result<(), ReadError> {
        let unit = work.units.iter_mut().find(|unit| unit.ports().any(|one| one == id));
        if let (Some(unit), Some((info, _))) = (unit, store.port(id))
            && let Some(current) = self.nft.read(&self.id)?
        {
            self.plane.replace_leftovers(unit, self.plane.leftovers(info, &current), &current);
        }
        Ok(())
    }

    /// Does all that the kernel takes. Returns the ports that it does not; the plane is back at what the kernel has.
    fn execute(&mut self, mut work: Work) -> Result<(Applied, Vec<(PortId, String)>), ProxyError> {
        // Until the end nobody knows how far it came.
        self.unsure = true;
        let mut units = std::mem::take(&mut work.units);
        let lists = units.iter_mut().map(|unit| std::mem::take(&mut unit.ops)).collect();
        let (mut applied, refusals) = self.commit(lists)?;
        let mut refused = Vec::new();
        let mut orphans = Vec::new();
        for (index, why) in refusals {
            orphans.push(self.plane.revert(&units[index]));
            refused.extend(units[index].ports().map(|id| (id.clone(), why.clone())));
        }
        let held: BTreeSet<_> = refused.iter().map(|(id, _)| id).collect();
        let sweeps = std::mem::take(&mut work.sweeps).into_iter();
        let sweeps = sweeps.filter(|sweep| !sweep.ports.iter().any(|id| held.contains(id)));
        let later =
            orphans.into_iter().chain(sweeps.map(|sweep| sweep.ops)).chain(self.plane.unshared(&work));
        let (swept, left) = self.commit(later.filter(|ops| !ops.is_empty()).collect())?;
        applied.join(swept);
        applied.join(self.forget(&work.forget)?);
        // What could not be swept is found by the next comparison.
        self.unsure = !left.is_empty();
        Ok((applied, refused))
    }

    fn commit(&mut self, lists: Vec<Vec<Op>>) -> Result<(Applied, Vec<(usize, String)>), CommitError> {
        halving::commit(&mut self.nft, &self.id, lists, self.limits)
    }

    fn repair(&mut self, store: &Store) -> Result<Applied, ProxyError> {
        let current = self.nft.glance(&self.id)?;
        self.repair_from(current, store)
    }

    /// Makes the table equal to the plane. Ports whose elements are refused are taken out of the plane and held.
    fn repair_from(&mut self, current: Option<CurrentTable>, store: &Store) -> Result<Applied, ProxyError> {
        self.unsure = true;
        let mut applied = Applied::default();
        let mut steps = self.compare(current.as_ref(), store)?;
        if current.is_some() && !steps.is_empty() {
            drop(current);
            // A glance is enough to see that nothing differs; not to say what.
            let current = self.nft.read(&self.id)?;
            steps = self.compare(current.as_ref(), store)?;
        }
        let mut all_taken = true;
        for mut transaction in steps.transactions {
            if !all_taken {
                drop(unmade(&mut transaction.ops));
            }
            match self.nft.commit(&self.id, &transaction) {
                Ok(done) => applied.join(done),
                Err(CommitError::Refused { .. }) => {
                    let (done, taken) = self.isolate(&transaction)?;
                    applied.join(done);
                    all_taken &= taken;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.unsure = false;
        Ok(applied)
    }

    fn compare(&self, current: Option<&CurrentTable>, store: &Store) -> Result<Plan, ReconcileError> {
        let mut desired = self.plane.table();
        // What the kernel has of a port that was withdrawn stays until it can be replaced.
        // And so do the chains that it leads to, of whatever names.
        desired.keeps_chains = self.quarantine.has_withdrawn();
        for (id, _) in self.quarantine.iter().filter(|(_, held)| held.withdrawn) {
            let (Some((info, _)), Some(current)) = (store.port(id), current) else { continue };
            for (set, (key, element)) in self.plane.leftovers(info, current) {
                desired.sets.entry(set.to_owned()).and_modify(|set| set.insert(key, element));
            }
        }
        Plan::new(&desired, current, Live::Chunked, self.limits)
            .map_err(|_| ReconcileError::Foreign(self.id.clone()))
    }

    /// Does a refused transaction of a comparison port by port, and withdraws those that are refused. Returns whether none was.
    fn isolate(&mut self, transaction: &Transaction) -> Result<(Applied, bool), ProxyError> {
        let Apart { mut frame, ports, nobodys } = self.plane.apart(&transaction.ops);
        let mut applied = Applied::default();
        let unmade = unmade(&mut frame);
        if !frame.is_empty() {
            applied.join(self.nft.commit(&self.id, &Transaction { ops: frame })?);
        }
        let (ids, lists): (Vec<_>, Vec<_>) = ports.into_iter().unzip();
        let (done, refused) = self.commit(lists)?;
        applied.join(done);
        let mut all_taken = refused.is_empty();
        for (index, why) in refused {
            self.plane.withdraw(&ids[index]);
            self.quarantine.withdraw(ids[index].clone(), why, Instant::now());
        }
        // An element of nobody's that cannot go does no harm; the next comparison tries it again.
        let (done, refused) = self.commit(nobodys.into_iter().map(|op| vec![op]).collect())?;
        applied.join(done);
        all_taken &= refused.is_empty();
        if all_taken && !unmade.is_empty() {
            applied.join(self.nft.commit(&self.id, &Transaction { ops: unmade })?);
        }
        Ok((applied, all_taken))
    }

    /// Unbinds clients from endpoints that are gone: O(clients that are bound to anything), beside other work if that can
    /// be.
    fn forget(&mut self, forget: &[Forget]) -> Result<Applied, ProxyError> {
        let mut applied = Applied::default();
        if forget.is_empty() {
            return Ok(applied);
        }
        if let Some(nft) = self.nft.aside() {
            self.sweeper.sweep(nft, forget);
            return Ok(applied);
        }
        for bond in Bond::ALL {
            applied.join(self.forget_in(bond, forget)?);
        }
        Ok(applied)
    }

    fn forget_in(&mut self, bond: Bond, forget: &[Forget]) -> Result<Applied, ProxyError> {
        let mut applied = Applied::default();
        let (set, schema) = self.plane.affinity(bond);
        for _ in 0..FORGET_ATTEMPTS {
            let clients = self.nft.read_set(&self.id, set, &schema)?;
            let elements = bound(clients, bond, forget);
            if elements.is_empty() {
                break;
            }
            let ops = vec![Op::DeleteElements { set: set.into(), schema: schema.clone(), elements }];
            match self.nft.commit(&self.id, &Transaction { ops }) {
                Err(CommitError::Refused { refusal, .. }) if refusal.errno == NO_ENTRY => {}
                done => applied.join(done?),
            }
        }
        Ok(applied)
    }
}

/// Takes out what unmakes chains that are not made anew: elements may still lead to them, of a port that cannot be changed.
fn unmade(ops: &mut Vec<Op>) -> Vec<Op> {
    let made: BTreeSet<String> = ops
        .iter()
        .filter_map(|op| match op {
            Op::AddChain { name, .. } | Op::AddRule { chain: name, .. } => Some(name.clone()),
            _ => None,
        })
        .collect();
    let unmakes = |op: &mut Op| match op {
        Op::FlushChain { name } | Op::DeleteChain { name } => !made.contains(name),
        _ => false,
    };
    ops.extract_if(.., unmakes).collect()
}

fn bound(clients: Elements, bond: Bond, forget: &[Forget]) -> Vec<(Box<[u8]>, node_nft::Element)> {
    clients.into_iter().filter(|(key, element)| is_meant(forget, bond, key, &element.data)).collect()
}

#[cfg(test)]
mod tests;
