//! Places among the calls in flight: taken once it is known who calls, and given back when the call has ended. And places among the
//! connections of those who are known, given back when they are closed.
//!
//! ```text
//!   who is known     max_in_flight, max_connections, of which one caller has at most three quarters
//!   strangers        max_strangers_in_flight, of which one address has at most a quarter
//!   health           needs none
//! ```
//!
//! So strangers can only ever keep out strangers, and one of them not all the others.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use model::Subject;
use parking_lot::Mutex;
use tonic::Code;

use crate::{call::Place, failure::Failure};

/// All places.
pub struct Places {
    known: Arc<Shares<Subject>>,
    strangers: Arc<Shares<IpAddr>>,
    connections: Arc<Shares<Subject>>,
}

impl Places {
    pub fn new(known: usize, strangers: usize, connections: usize) -> Self {
        Self {
            known: Shares::new(known, known - known / 4),
            strangers: Shares::new(strangers, strangers.div_ceil(4)),
            connections: Shares::new(connections, connections - connections / 4),
        }
    }

    /// A place for a connection on which somebody has just become known; none if this caller has too many.
    pub fn connection(&self, subject: &Subject) -> Option<Place> {
        Shares::take(&self.connections, subject.clone()).map(Place::new)
    }

    /// A place for somebody who is known.
    pub fn known(&self, subject: &Subject) -> Result<Place, Failure> {
        let text = "too many calls at once; try again in a second";
        Shares::take(&self.known, subject.clone()).map(Place::new).ok_or_else(|| full(text))
    }

    /// A place for somebody of whom only the address is known.
    pub fn stranger(&self, address: IpAddr) -> Result<Place, Failure> {
        let text = "too many calls at once by callers without credentials; try again in a second";
        Shares::take(&self.strangers, block(address)).map(Place::new).ok_or_else(|| full(text))
    }
}

fn full(text: &str) -> Failure {
    Failure::new(Code::Unavailable, text)
}

/// What counts as one address: over IPv6 a customer has a whole /64.
pub fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

/// So many of something, of which each owner may have a share.
struct Shares<K> {
    most: usize,
    most_each: usize,
    taken: Mutex<Taken<K>>,
}

struct Taken<K> {
    all: usize,
    each: HashMap<K, usize>,
}

/// One of them; given back when dropped.
struct Share<K: Eq + Hash + Clone> {
    of: Arc<Shares<K>>,
    owner: K,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    fn new(most: usize, most_each: usize) -> Arc<Self> {
        Arc::new(Self { most, most_each, taken: Mutex::new(Taken { all: 0, each: HashMap::new() }) })
    }

    fn take(shares: &Arc<Self>, owner: K) -> Option<Share<K>> {
        let mut taken = shares.taken.lock();
        if taken.all >= shares.most {
            return None;
        }
        let has = taken.each.entry(owner.clone()).or_default();
        if *has >= shares.most_each {
            return None;
        }
        *has += 1;
        taken.all += 1;
        drop(taken);
        Some(Share { of: Arc::clone(shares), owner })
    }
}

impl<K: Eq + Hash + Clone> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        taken.all -= 1;
        if let Some(has) = taken.each.get_mut(&self.owner) {
            *has -= 1;
            if *has == 0 {
                taken.each.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Role;

    use super::*;

    fn subject(name: &str) -> Subject {
        Subject { role: Role::Viewer, name: name.parse().unwrap() }
    }

    #[test]
    fn nobody_takes_all_places_and_strangers_take_none_of_the_others() {
        let places = Places::new(8, 8, 8);
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let strangers: Vec<_> = (0..9).filter_map(|n| places.stranger(address(n / 3)).ok()).collect();
        assert_eq!(strangers.len(), 6, "two for each address");
        let held: Vec<_> = (0..9).filter_map(|_| places.known(&subject("a")).ok()).collect();
        assert_eq!(held.len(), 6);
        let others: Vec<_> = (0..9).filter_map(|_| places.known(&subject("b")).ok()).collect();
        assert_eq!(others.len(), 2);
        assert_eq!(places.known(&subject("c")).err().map(|failure| failure.code), Some(Code::Unavailable));
        drop(held);
        assert!(places.known(&subject("c")).is_ok());
        assert!(places.known.taken.lock().each.len() <= 2, "who holds nothing is forgotten");
        let connections: Vec<_> = (0..9).filter_map(|_| places.connection(&subject("a"))).collect();
        assert!(connections.len() == 6 && places.connection(&subject("b")).is_some());
    }

    #[test]
    fn the_addresses_of_one_customer_count_as_one() {
        let read = |text: &str| block(text.parse().unwrap());
        assert_eq!(read("2001:db8::1"), read("2001:db8::ffff:1"));
        assert_ne!(read("2001:db8::1"), read("2001:db8:0:1::1"));
        assert_eq!(read("::ffff:192.0.2.1"), read("192.0.2.1"));
        assert_ne!(read("192.0.2.2"), read("192.0.2.1"));
    }
}
