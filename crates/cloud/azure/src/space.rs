//! Addresses of networks: which get into each other's way, and how a cluster's are divided.
//!
//! ```text
//!   10.4.0.0/16    what the network was asked for with
//!   10.4.0.0/17      the virtual network and its subnet: nodes and Pods
//!   10.4.128.0/17    the cluster's services, which no route leads to
//! ```

use cloud_api::{CloudError, Result};
use ipnet::Ipv4Net;

/// The sizes that a cluster's network may have: AKS takes services in less than a /12, and one node needs most of a /25.
const SIZES: std::ops::RangeInclusive<u8> = 12..=24;
/// What AKS keeps for itself inside a cluster.
const RESERVED: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 30, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 31, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 0, 2, 0), 24),
];

pub fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// Refuses spaces that AKS could not use.
pub fn check_space(space: Ipv4Net) -> Result {
    if !SIZES.contains(&space.prefix_len()) {
        return Err(CloudError::invalid(format!(
            "{space} cannot be the network of a managed cluster in Azure: it is between a /{} and a /{}",
            SIZES.start(),
            SIZES.end()
        )));
    }
    match RESERVED.into_iter().find(|kept| overlap(space, *kept)) {
        Some(kept) => Err(CloudError::invalid(format!(
            "{space} cannot be the network of a managed cluster in Azure, which keeps {kept} for itself"
        ))),
        None => Ok(()),
    }
}

/// The lower half of a space, for nodes and Pods, and the upper, for services. Spaces have halves: see `check_space`.
pub fn halves(space: Ipv4Net) -> (Ipv4Net, Ipv4Net) {
    let mut both = space.subnets((space.prefix_len() + 1).min(32)).into_iter().flatten();
    let mut next = || both.next().unwrap_or(space);
    (next(), next())
}

/// The space that a cluster's network was asked for with, by the block that its virtual network has.
pub fn space_of(block: Ipv4Net) -> Option<Ipv4Net> {
    block.supernet()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_has_two_halves_and_is_known_by_the_lower() {
        let space: Ipv4Net = "10.4.0.0/16".parse().unwrap();
        let (block, services) = halves(space);
        assert_eq!((block.to_string(), services.to_string()), ("10.4.0.0/17".into(), "10.4.128.0/17".into()));
        assert_eq!(space_of(block), Some(space));
        assert!(check_space(space).is_ok());
        for bad in ["10.0.0.0/8", "10.0.0.0/25", "172.30.0.0/16", "172.16.0.0/12"] {
            assert!(check_space(bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
