//! The nftables plane of one family, kept equal to the kernel.

use node_nft::{CurrentTable, Data, Elements, Family, Limits, Live, Op, Transaction};
use node_services::{
    ServiceEndpointsPatch, Store,
    nftables::{Config, Forget, Plane, TABLE, Work},
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
pub struct NftablesProxy {
    nft: Nft,
    id: TableId,
    plane: Plane,
    limits: Limits,
    /// The kernel may differ from the plane: the next update compares all.
    unsure: bool,
}

impl NftablesProxy {
    /// Takes over what an earlier run left, and repairs it. Writes nothing if nothing differs.
    pub fn start(
        ipv6: bool,
        config: Config,
        limits: Limits,
        store: &Store,
    ) -> Result<(Self, Applied), ProxyError> {
        let nft = Nft::open().map_err(ProxyError::Open)?;
        let id = TableId::new(if ipv6 { Family::Ip6 } else { Family::Ip }, TABLE);
        let mut proxy = Self { nft, id, plane: Plane::new(ipv6, config), limits, unsure: false };
        let applied = match proxy.nft.glance(&proxy.id)? {
            None => proxy.fill(store)?,
            Some(current) => proxy.take_over(current, store)?,
        };
        Ok((proxy, applied))
    }

    /// From nothing, a few services at a time: each is complete when it appears, and little memory is needed.
    fn fill(&mut self, store: &Store) -> Result<Applied, ProxyError> {
        let mut applied = self.nft.reconcile_from(&self.plane.table(), None, Live::Chunked, self.limits)?;
        for patches in store.all_as_new().chunks(FILL) {
            let work = self.plane.apply(patches, self.limits);
            applied.join(self.commit(&work)?);
        }
        Ok(applied)
    }

    fn take_over(&mut self, current: CurrentTable, store: &Store) -> Result<Applied, ProxyError> {
        self.plane.adopt(&current);
        for patches in store.all_as_new().chunks(FILL) {
            self.plane.apply(patches, self.limits);
        }
        self.plane.align(&current);
        Ok(self.nft.reconcile_from(&self.plane.table(), Some(current), Live::Chunked, self.limits)?)
    }

    /// Carries out patches. If the kernel refuses, or an earlier call failed, the whole table is compared and
    /// repaired; an error means that this failed too, and that the next call will try again.
    pub fn update(&mut self, patches: &[ServiceEndpointsPatch]) -> Result<Applied, ProxyError> {
        let work = self.plane.apply(patches, self.limits);
        if self.unsure {
            return self.repair(&work);
        }
        self.unsure = true;
        let applied = match self.commit(&work) {
            Ok(applied) => applied,
            Err(CommitError::Refused { .. }) => return self.repair(&work),
            Err(error) => return Err(error.into()),
        };
        self.forget(&work.forget)?;
        self.unsure = false;
        Ok(applied)
    }

    /// Compares the kernel's table with what it should be, and repairs what others did to it.
    pub fn reconcile(&mut self) -> Result<Applied, ProxyError> {
        self.repair(&Work::default())
    }

    /// Removes the table.
    pub fn stop(mut self) -> Result<(), ProxyError> {
        self.nft.delete(&self.id)?;
        Ok(())
    }

    fn repair(&mut self, work: &Work) -> Result<Applied, ProxyError> {
        self.unsure = true;
        let applied = self.nft.reconcile(&self.plane.table(), Live::Chunked, self.limits)?;
        self.forget(&work.forget)?;
        self.unsure = false;
        Ok(applied)
    }

    fn commit(&mut self, work: &Work) -> Result<Applied, CommitError> {
        let mut applied = Applied::default();
        for transaction in &work.transactions {
            applied.join(self.nft.commit(&self.id, transaction)?);
        }
        Ok(applied)
    }

    /// Unbinds clients from endpoints that are gone. O(clients that are bound to anything).
    fn forget(&mut self, forget: &[Forget]) -> Result<(), ProxyError> {
        if forget.is_empty() {
            return Ok(());
        }
        let (set, schema) = self.plane.affinity();
        for _ in 0..FORGET_ATTEMPTS {
            let clients = self.nft.read_set(&self.id, set, &schema)?;
            let elements = bound(clients, forget);
            if elements.is_empty() {
                return Ok(());
            }
            let ops = vec![Op::DeleteElements { set: set.into(), schema: schema.clone(), elements }];
            match self.nft.commit(&self.id, &Transaction { ops }) {
                Err(CommitError::Refused { refusal, .. }) if refusal.errno == NO_ENTRY => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}

fn bound(clients: Elements, forget: &[Forget]) -> Vec<(Box<[u8]>, node_nft::Element)> {
    let is_meant = |key: &[u8], data: &Data| {
        forget.iter().any(|one| {
            let endpoint = one.endpoint.as_deref();
            key.ends_with(&one.frontend)
                && endpoint.is_none_or(|gone| matches!(data, Data::Value(value) if **value == *gone))
        })
    };
    clients.into_iter().filter(|(key, element)| is_meant(key, &element.data)).collect()
}
