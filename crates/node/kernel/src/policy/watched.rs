//! nftables, and what others do to one table of it.

use std::os::fd::{AsFd, BorrowedFd};

use node_nft::{CurrentTable, Transaction};

use super::Tables;
use crate::{
    netlink::NetlinkError,
    nft::{Applied, CommitError, Monitor, Nft, ReadError, ReconcileError, TableId},
};

/// Knows that commits to other tables are no reason to read this one.
pub struct Watched {
    nft: Nft,
    monitor: Monitor,
    /// The generation when it listened again after a commit of its own.
    resumed: Option<u32>,
}

impl Watched {
    /// Acts in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self::new(Nft::open()?, Monitor::open()?))
    }

    pub fn new(nft: Nft, monitor: Monitor) -> Self {
        Self { nft, monitor, resumed: None }
    }

    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    fn listen_again(&mut self) -> Result<(), NetlinkError> {
        self.monitor.listen(true)?;
        self.resumed = Some(self.nft.generation()?);
        Ok(())
    }
}

impl AsFd for Watched {
    /// Readable when somebody has committed something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

impl Tables for Watched {
    fn generation(&mut self) -> Result<u32, NetlinkError> {
        self.nft.generation()
    }

    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft.glance(table)
    }

    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft.read(table)
    }

    /// Its own are not listened to: telling them would cost more than making them.
    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        let netlink = |source| CommitError::Netlink { table: table.clone(), source };
        self.monitor.listen(false).map_err(netlink)?;
        let applied = self.nft.commit(table, transaction);
        self.listen_again().map_err(netlink)?;
        applied
    }

    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        self.nft.delete(table)
    }

    fn is_ours(&mut self, table: &TableId) -> Result<Option<bool>, ReadError> {
        self.nft.is_ours(table)
    }

    fn counted(&mut self, table: &TableId, chain: &str) -> Result<u64, ReadError> {
        self.nft.counted(table, chain)
    }

    fn untouched_since(&mut self, tables: &[TableId], seen: u32) -> Result<Option<u32>, NetlinkError> {
        if self.resumed.take().is_some_and(|resumed| resumed != seen) {
            // What is told from now on begins after something that was not.
            self.monitor.read_changes(tables)?;
            return Ok(None);
        }
        self.monitor.untouched_since(&mut self.nft, tables, seen)
    }
}
