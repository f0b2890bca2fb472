//! What is committed in this network namespace, by anybody, as the kernel tells it.
//!
//! The kernel says what became of each object, and after each transaction its generation. It writes all that down while
//! it holds its lock, so whoever is about to commit much of his own stops listening meanwhile.

use std::{
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::Duration,
};

use node_services::nftables::Bond;

use super::{FIXED, NETLINK_NETFILTER, Nft, TableId, next_generation, number};
use crate::netlink::{Message, NetlinkError, Socket};

/// NFNLGRP_NFTABLES.
const GROUP: u32 = 7;
/// A transaction is told after it is in force: this often it is waited for what is being told.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

pub struct Monitor {
    socket: Socket,
    overruns: u64,
}

/// What was told since it was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Of each transaction, in order.
    pub generations: Vec<u32>,
    /// Something of one of the tables was committed.
    pub touched: bool,
    /// The kernel had more to tell than the socket could hold.
    pub lost: bool,
}

impl Monitor {
    /// Listens in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        let monitor = Self { socket: Socket::open(NETLINK_NETFILTER, "netfilter")?, overruns: 0 };
        monitor.listen(true)?;
        Ok(monitor)
    }

    /// As [`Self::open`], with so many bytes for what was not asked for yet.
    pub fn with_buffer(bytes: usize) -> Result<Self, NetlinkError> {
        let monitor = Self::open()?;
        monitor.socket.set_receive_buffer(bytes)?;
        Ok(monitor)
    }

    /// Begins or ceases to listen. What was told before can still be heard.
    pub fn listen(&self, on: bool) -> Result<(), NetlinkError> {
        self.socket.subscribe(GROUP, on)
    }

    pub fn read_changes(&mut self, tables: &[TableId]) -> Result<Changes, NetlinkError> {
        let mut heard = Changes::default();
        heard.lost = self.socket.read_notifications(|message| {
            let [kind, subsystem] = message.header.kind.to_le_bytes();
            if u16::from(subsystem) != number::SUBSYSTEM {
                return Ok(());
            }
            if u16::from(kind) == number::NEW_GENERATION {
                heard.generations.push(message.attrs(FIXED)?.get(1)?.be32()?);
            } else if !heard.touched {
                heard.touched = is_of(tables, message)?;
            }
            Ok(())
        })?;
        self.overruns += u64::from(heard.lost);
        Ok(heard)
    }

    /// The newest generation, if nobody touched the tables since that one; `None` if somebody may have. Generations are
    /// counted: one that was not told of is one of which nothing is known.
    pub fn untouched_since(
        &mut self,
        nft: &mut Nft,
        tables: &[TableId],
        seen: u32,
    ) -> Result<Option<u32>, NetlinkError> {
        let mut known = seen;
        for _ in 0..ATTEMPTS {
            let heard = self.read_changes(tables)?;
            let mut gap = false;
            for generation in heard.generations {
                gap |= generation != next_generation(known);
                known = generation;
            }
            if heard.lost || heard.touched || gap {
                return Ok(None);
            }
            if nft.generation()? == known {
                return Ok(Some(known));
            }
            thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// How often the kernel had more to tell than the socket could hold.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }
}

impl AsFd for Monitor {
    /// Readable when something was told.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Every kind of object has the table's name as attribute 1. Clients that are bound and unbound are no change: packets do
/// that all the time, and nobody is told.
fn is_of(tables: &[TableId], message: &Message<'_>) -> Result<bool, NetlinkError> {
    let [kind, _] = message.header.kind.to_le_bytes();
    if u16::from(kind) == number::DEL_ELEMENT
        && message
            .attrs(FIXED)?
            .find(number::element::SET)?
            .is_some_and(|set| Bond::ALL.map(Bond::map).contains(&&*set.text()))
    {
        return Ok(false);
    }
    let Some(name) = message.attrs(FIXED)?.find(1)?.map(|name| name.text()) else { return Ok(false) };
    let family = message.body.first().copied();
    Ok(tables.iter().any(|table| family == Some(number::family(table.family)) && name == table.name))
}
