//! What a packet says beyond its addresses, and what is decided on it.
//!
//! Every protocol has two 16-bit numbers at the start of its header, as far as rules care: source and destination
//! port, or for ICMP type and code (as one number) and nothing. A rule is a box in that plane.

pub const TCP: u8 = 6;
pub const ALL: (u16, u16) = (0, u16::MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decision {
    Permit,
    Drop,
    Reject,
}

/// A packet beyond its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct L4 {
    pub protocol: u8,
    /// Source port, or type × 256 + code.
    pub first: u16,
    /// Destination port.
    pub second: u16,
}

/// Both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Match {
    pub protocol: u8,
    pub first: (u16, u16),
    pub second: (u16, u16),
}

impl Match {
    pub fn covers(&self, packet: L4) -> bool {
        let within = |(low, high): (u16, u16), number| (low..=high).contains(&number);
        self.protocol == packet.protocol
            && within(self.first, packet.first)
            && within(self.second, packet.second)
    }
}
