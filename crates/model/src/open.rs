//! What is open from one end to another, of every protocol: the answer of permit lists and of policies alike.
//!
//! ```text
//!   Open ─► for each class of protocols, an Openings: which (major, minor) are open
//!
//!   tcp, udp, sctp    major: destination port      minor: source port
//!   icmp              major: type                  minor: code
//!   other             major: IANA's number         minor: 0 and 1; 1 alone where only some ports of it are open
//! ```
//!
//! Exact: nothing about source ports or codes is guessed, an opening says for which it holds.

mod openings;
mod ranges;

use std::fmt;

pub use openings::{Openings, Rectangle};
pub use ranges::Ranges;

use crate::ProtocolClass;

/// What is open, by class of protocols.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open([Openings; 5]);

/// How much of what is asked about is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Share {
    None,
    Some,
    All,
}

impl Open {
    /// Everything.
    pub fn all() -> Self {
        Self(ProtocolClass::ALL.map(Openings::all))
    }

    pub fn none() -> Self {
        Self(ProtocolClass::ALL.map(Openings::none))
    }

    /// From what is open of each class.
    pub fn new(of: impl FnMut(ProtocolClass) -> Openings) -> Self {
        Self(ProtocolClass::ALL.map(of))
    }

    pub fn of(&self, class: ProtocolClass) -> &Openings {
        &self.0[class as usize]
    }

    /// What is open here and there.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self::new(|class| self.of(class).intersect(other.of(class)))
    }

    /// Of one class only.
    #[must_use]
    pub fn only(&self, class: ProtocolClass) -> Self {
        Self::new(|one| if one == class { self.of(one).clone() } else { Openings::none(one) })
    }

    /// Of some classes taken together.
    pub fn share(&self, classes: &[ProtocolClass]) -> Share {
        let shares = || classes.iter().map(|class| self.of(*class).share());
        if shares().all(|share| share == Share::All) {
            Share::All
        } else if shares().all(|share| share == Share::None) {
            Share::None
        } else {
            Share::Some
        }
    }
}

/// `all`, `none`, or as in `tcp 80, 443 from 40000-60000; icmp; other 47`.
impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share(&ProtocolClass::ALL) {
            Share::All => return f.write_str("all"),
            Share::None => return f.write_str("none"),
            Share::Some => {}
        }
        let some = ProtocolClass::ALL.iter().filter(|class| self.of(**class).share() != Share::None);
        for (at, class) in some.enumerate() {
            let (semicolon, openings) = (if at == 0 { "" } else { "; " }, self.of(*class));
            match openings.share() {
                Share::All => write!(f, "{semicolon}{class}")?,
                _ => write!(f, "{semicolon}{class} {openings}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_each_protocol_that_is_open() {
        let open = Open::new(|class| match class {
            ProtocolClass::Tcp => {
                Openings::new(class, [((80, 80), (40_000, 60_000)), ((443, 443), Openings::every(class).1)])
            }
            ProtocolClass::Icmp => Openings::all(class),
            ProtocolClass::Other => Openings::new(class, [((47, 47), (0, 1)), ((33, 33), (1, 1))]),
            _ => Openings::none(class),
        });
        assert_eq!(open.to_string(), "tcp 443, 80 from 40000-60000; icmp; other 47, 33 in part");
        assert_eq!((Open::all().to_string(), Open::none().to_string()), ("all".into(), "none".into()));
        assert_eq!(open.intersect(&Open::all()), open);
        assert_eq!(open.share(&[ProtocolClass::Icmp]), Share::All);
        assert_eq!(open.share(&[ProtocolClass::Icmp, ProtocolClass::Udp]), Share::Some);
        assert_eq!(open.only(ProtocolClass::Icmp).to_string(), "icmp");
    }
}
