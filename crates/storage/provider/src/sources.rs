//! Sources: the addresses a consumer may reach storage from.
//!
//! In: what a ticket allows and what a consumer says. Out: the addresses to permit, never wider than the ticket, or a
//! refusal. Not here: how a network is opened for them (`storage-backend::Network`).

use std::{collections::BTreeSet, fmt};

use model::{Address, ParseAddressError};
use serde::{Deserialize, Serialize};

/// Addresses and prefixes; a cluster that has more of them says a prefix.
const MOST: usize = 64;

/// Where a consumer comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sources(BTreeSet<Address>);

/// Why addresses cannot be permitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourcesError {
    #[error(transparent)]
    Address(#[from] ParseAddressError),
    #[error("{count} addresses are too many; at most {MOST} are taken, say prefixes instead")]
    TooMany { count: usize },
    #[error("the ticket does not allow access from {address}; it allows {allowed}")]
    NotAllowed { address: Address, allowed: Sources },
}

impl Sources {
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, SourcesError> {
        if texts.len() > MOST {
            return Err(SourcesError::TooMany { count: texts.len() });
        }
        Ok(Self(texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Address> {
        self.0.iter().copied()
    }

    pub fn to_texts(&self) -> Vec<String> {
        self.iter().map(|address| address.to_string()).collect()
    }

    /// What a consumer gets that says where it comes from: what it said, if the ticket allows all of it; what the
    /// ticket allows, if it said nothing.
    pub(crate) fn granted(said: &Self, allowed: &Self) -> Result<Self, SourcesError> {
        if said.is_empty() {
            return Ok(allowed.clone());
        }
        let within = |address: &Address| allowed.0.iter().any(|prefix| prefix.net().contains(&address.net()));
        match said.0.iter().find(|address| !within(address)) {
            Some(address) => Err(SourcesError::NotAllowed { address: *address, allowed: allowed.clone() }),
            None => Ok(said.clone()),
        }
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() { f.write_str("none") } else { f.write_str(&self.to_texts().join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(texts: &[&str]) -> Sources {
        Sources::parse(texts).unwrap()
    }

    #[test]
    fn a_consumer_gets_what_it_says_within_its_ticket() {
        let ticket = sources(&["10.1.0.0/16", "2001:db8::/32"]);
        for said in [&["10.1.2.3"][..], &["10.1.0.0/16"], &["10.1.2.0/24", "2001:db8::7"]] {
            assert_eq!(Sources::granted(&sources(said), &ticket), Ok(sources(said)));
        }
        assert_eq!(Sources::granted(&Sources::default(), &ticket), Ok(ticket));
    }

    #[test]
    fn nothing_opens_the_network_beyond_the_ticket() {
        let ticket = sources(&["10.1.0.0/16"]);
        for said in [&["10.2.0.1"][..], &["10.0.0.0/8"], &["0.0.0.0/0"], &["::/0"], &["10.1.0.1", "8.8.8.8"]]
        {
            let refused = Sources::granted(&sources(said), &ticket);
            assert!(matches!(refused, Err(SourcesError::NotAllowed { .. })), "{said:?}: {refused:?}");
        }
        let nothing = Sources::default();
        assert!(Sources::granted(&sources(&["10.1.0.1"]), &nothing).is_err(), "a ticket without sources");
        assert_eq!(Sources::granted(&nothing, &nothing), Ok(Sources::default()));
    }

    #[test]
    fn bad_addresses_and_floods_are_refused() {
        for bad in ["", "10.0.0.1/33", "name", " 10.0.0.1"] {
            assert!(Sources::parse(&[bad]).is_err(), "{bad:?}");
        }
        let flood: Vec<String> = (0..=MOST).map(|n| format!("10.0.0.{n}")).collect();
        assert_eq!(Sources::parse(&flood), Err(SourcesError::TooMany { count: MOST + 1 }));
        assert_eq!(Sources::parse(&flood[..MOST]).map(|all| all.iter().count()), Ok(MOST));
    }
}
