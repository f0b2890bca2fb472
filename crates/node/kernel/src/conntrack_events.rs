//! Connections as the kernel's table tells of them: those that are opened, and those that end.
//!
//! A connection is told when its first packet has passed everything, so that what is told was allowed. The kernel tells only while
//! somebody listens.

use crate::{
    conntrack::{Connection, DELETE, FIXED, NETLINK_NETFILTER, SUBSYSTEM, connection},
    netlink::{Attrs, Message, NetlinkError, Socket},
    sysctl,
};

const NEW: u16 = 0;
/// Blocks that are read at once, of mostly one event each.
const MOST: usize = 50_000;
/// NFNLGRP_CONNTRACK_NEW and NFNLGRP_CONNTRACK_DESTROY.
const OPENED: u32 = 1;
const ENDED: u32 = 3;
const COUNTERS: [u16; 2] = [9, 10];
const BYTES: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Opened,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Opened(Connection),
    /// With its bytes in both directions, if the kernel counts them.
    Ended(Connection, Option<u64>),
}

pub struct ConntrackEvents {
    socket: Socket,
    dropped: u64,
}

impl ConntrackEvents {
    /// Listens in the network namespace of the calling thread. Ends are of interest for their bytes alone: where the kernel does not count
    /// those now, they are not listened to.
    pub fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::open(NETLINK_NETFILTER, "netfilter")?;
        socket.subscribe(OPENED, true)?;
        if sysctl::read("net/netfilter/nf_conntrack_acct").is_some_and(|counts| counts == "1") {
            socket.subscribe(ENDED, true)?;
        }
        let dropped = socket.dropped().unwrap_or_default();
        Ok(Self { socket, dropped })
    }

    /// What has happened since, without waiting, and how many events were lost because too much was waiting. `next` says whether an
    /// event is to be read, and for how many of its kind it stands.
    pub fn read(
        &mut self,
        mut next: impl FnMut(Kind) -> Option<u64>,
        mut each: impl FnMut(u64, Event),
    ) -> Result<u64, NetlinkError> {
        let overrun = self.socket.read_some_notifications(MOST, |message| {
            let kind = match message.header.kind {
                kind if kind == SUBSYSTEM << 8 | NEW => Kind::Opened,
                kind if kind == SUBSYSTEM << 8 | DELETE => Kind::Ended,
                _ => return Ok(()),
            };
            if let Some(weight) = next(kind)
                && let Some(event) = event(kind, message)?
            {
                each(weight, event);
            }
            Ok(())
        })?;
        if !overrun {
            return Ok(0);
        }
        // At least the one by which it was found out.
        let dropped = self.socket.dropped().unwrap_or(self.dropped + 1);
        Ok(dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped)))
    }
}

fn event(kind: Kind, message: &Message<'_>) -> Result<Option<Event>, NetlinkError> {
    let attrs = message.attrs(FIXED)?;
    let Some(connection) = connection(&attrs)? else { return Ok(None) };
    Ok(Some(match kind {
        Kind::Opened => Event::Opened(connection),
        Kind::Ended => Event::Ended(connection, bytes(&attrs)?),
    }))
}

fn bytes(attrs: &Attrs<'_>) -> Result<Option<u64>, NetlinkError> {
    let mut all = None;
    for kind in COUNTERS {
        let Some(counters) = attrs.find(kind)? else { continue };
        let count = counters.nested().find(BYTES)?.and_then(|attr| attr.value.first_chunk().copied());
        all = count.map(u64::from_be_bytes).map_or(all, |count| Some(all.unwrap_or(0) + count));
    }
    Ok(all)
}
