//! nftables, and what others do to one table of it.

use std::{thread, time::Duration};

use node_nft::{CurrentTable, Transaction};

use super::{Tables, next_generation};
use crate::{
    netlink::NetlinkError,
    nft::{Applied, CommitError, Monitor, Nft, ReadError, ReconcileError, TableId},
};

/// A transaction is told after it is in force: this often it is waited for what is being told.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

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

    /// Generations are counted: one that was not told of is one of which nothing is known.
    fn untouched_since(&mut self, table: &TableId, seen: u32) -> Result<Option<u32>, NetlinkError> {
        let mut known = seen;
        let missed = self.resumed.take().is_some_and(|resumed| resumed != seen);
        for _ in 0..ATTEMPTS {
            let heard = self.monitor.hear(table)?;
            let mut gap = false;
            for generation in heard.generations {
                gap |= generation != next_generation(known);
                known = generation;
            }
            if missed || heard.lost || heard.touched || gap {
                return Ok(None);
            }
            if self.nft.generation()? == known {
                return Ok(Some(known));
            }
            thread::sleep(PAUSE);
        }
        Ok(None)
    }
}
