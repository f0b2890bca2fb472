//! Whether somebody else may have touched the tables of services in nftables.
//!
//! In: what the kernel tells of commits, and how many of them are ours. Out: yes or no. Holds: the generation up to which
//! everything is known. Not here: what to do about it.
//!
//! Commits to other tables are no reason to read ours. Ours are not listened to, since telling them costs the kernel more
//! than making them; they are counted instead: if the generation is another one than their number explains, somebody
//! else committed meanwhile, and nobody knows what.

use node_nft::Family;
use node_services::nftables::TABLE;

use crate::{
    netlink::NetlinkError,
    nft::{Monitor, Nft, TableId, next_generation},
};

pub struct Watch {
    nft: Nft,
    monitor: Monitor,
    tables: [TableId; 2],
    /// The generation in which the tables were as they should be, and since which nobody else touched them.
    seen: Option<u32>,
}

impl Watch {
    /// In the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        let tables = [Family::Ip, Family::Ip6].map(|family| TableId::new(family, TABLE));
        Ok(Self { nft: Nft::open()?, monitor: Monitor::open()?, tables, seen: None })
    }

    /// Whether the tables are as they were left.
    pub fn is_untouched(&mut self) -> Result<bool, NetlinkError> {
        if let Some(seen) = self.seen {
            self.seen = self.monitor.untouched_since(&mut self.nft, &self.tables, seen)?;
        }
        Ok(self.seen.is_some())
    }

    /// Before all is compared: what others did until now will be found.
    pub fn begin_comparison(&mut self) -> Result<(), NetlinkError> {
        let now = self.nft.generation()?;
        // What was told before is in what is read now.
        self.monitor.untouched_since(&mut self.nft, &self.tables, now)?;
        self.seen = Some(now);
        self.monitor.listen(false)
    }

    /// Before commits of our own.
    pub fn begin_commits(&mut self) -> Result<(), NetlinkError> {
        self.is_untouched()?;
        self.monitor.listen(false)
    }

    /// After so many commits of our own; `None`: nobody knows how many.
    pub fn end(&mut self, commits: Option<usize>) -> Result<(), NetlinkError> {
        self.monitor.listen(true)?;
        let now = self.nft.generation()?;
        let expected = self.seen.zip(commits);
        let expected = expected.map(|(seen, commits)| (0..commits).fold(seen, |one, _| next_generation(one)));
        self.seen = expected.filter(|expected| *expected == now);
        Ok(())
    }
}
