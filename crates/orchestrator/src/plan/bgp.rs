//! Addresses of BGP inside tunnels: link-local /30s, within what both clouds allow.

use std::{collections::BTreeSet, net::Ipv4Addr};

use model::{BgpPair, CloudTraits};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBgpLeft {
    #[error("no free pair of BGP addresses between {first} and {last}, which is what both clouds allow")]
    Used { first: Ipv4Addr, last: Ipv4Addr },
    #[error(
        "both clouds insist on the first address of a tunnel, so that they cannot be linked to each other"
    )]
    BothFirst,
}

/// One free /30 per tunnel, lowest first. `used` holds every inside address in use at any cloud: the same pair twice
/// would be ambiguous at a gateway with both links.
pub fn find_bgp(
    a: &CloudTraits,
    b: &CloudTraits,
    used: &BTreeSet<Ipv4Addr>,
) -> Result<Vec<BgpPair>, NoBgpLeft> {
    let (first, last) = (a.bgp_first.max(b.bgp_first), a.bgp_last.min(b.bgp_last));
    let (low, high) = (u32::from(first) & !3, u32::from(last));
    let is_free = |pair: &BgpPair| {
        let reserved = a.bgp_reserved.iter().chain(&b.bgp_reserved).any(|net| net.contains(&pair.a));
        !reserved && !used.contains(&pair.a) && !used.contains(&pair.b)
    };
    if a.bgp_first_host && b.bgp_first_host {
        return Err(NoBgpLeft::BothFirst);
    }
    // Every address of the larger end needs its tunnel.
    let wanted = usize::from(a.tunnels.min(b.tunnels).min(a.addresses.max(b.addresses)));
    let order = |block: u32| match b.bgp_first_host {
        true => BgpPair { a: (block + 2).into(), b: (block + 1).into() },
        false => BgpPair { a: (block + 1).into(), b: (block + 2).into() },
    };
    let pairs: Vec<_> = (low..=high).step_by(4).map(order).filter(is_free).take(wanted).collect();
    if pairs.len() == wanted { Ok(pairs) } else { Err(NoBgpLeft::Used { first, last }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::traits_of;

    fn found(used: &[[u8; 2]]) -> Vec<[u8; 2]> {
        let used = used.iter().map(|[c, d]| Ipv4Addr::new(169, 254, *c, *d)).collect();
        let pairs = find_bgp(&traits_of("azure"), &traits_of("gcp"), &used).unwrap();
        pairs.iter().flat_map(|pair| [pair.a, pair.b]).map(|ip| [ip.octets()[2], ip.octets()[3]]).collect()
    }

    /// The known answers of the reference.
    #[test]
    fn bgp_vectors_hold() {
        assert_eq!(found(&[[21, 1], [21, 5], [21, 2], [21, 6]]), [[21, 9], [21, 10], [21, 13], [21, 14]]);
        assert_eq!(found(&[[21, 1], [22, 1], [21, 2], [22, 2]]), [[21, 5], [21, 6], [21, 9], [21, 10]]);
        assert_eq!(found(&[]), [[21, 1], [21, 2], [21, 5], [21, 6]]);
        assert_eq!(found(&[[21, 1], [21, 9], [21, 2], [21, 5]]), [[21, 13], [21, 14], [21, 17], [21, 18]]);
    }

    #[test]
    fn each_cloud_keeps_its_own_constraints() {
        let pairs = |a: &str, b: &str| find_bgp(&traits_of(a), &traits_of(b), &BTreeSet::new());
        assert_eq!(pairs("gcp", "ibm").unwrap()[0].a, Ipv4Addr::new(169, 254, 0, 1));
        assert_eq!(pairs("aws", "gcp").unwrap()[0].a, Ipv4Addr::new(169, 254, 0, 5));
        assert_eq!(pairs("aws", "azure").unwrap()[0].a, Ipv4Addr::new(169, 254, 21, 1));
        assert_eq!(pairs("azure", "aws").unwrap()[0].b, Ipv4Addr::new(169, 254, 21, 1));
        assert_eq!(pairs("aws", "aws"), Err(NoBgpLeft::BothFirst));
    }

    /// AWS has four addresses per link; everybody else has two, and then two tunnels are enough.
    #[test]
    fn a_link_has_as_many_tunnels_as_its_larger_end_has_addresses() {
        let count = |a: &str, b: &str| {
            let (a, b) = (traits_of(a), traits_of(b));
            find_bgp(&a, &b, &BTreeSet::new()).unwrap().len()
        };
        assert_eq!([count("azure", "gcp"), count("aws", "gcp"), count("azure", "aws")], [2, 4, 4]);
        assert_eq!([count("aws", "ibm"), count("gcp", "ibm"), count("azure", "ibm")], [4, 2, 2]);
        assert_eq!([count("aws", "linux"), count("gcp", "linux"), count("ibm", "linux")], [2, 2, 2]);
    }

    #[test]
    fn azure_has_room_for_64_links_and_then_says_so() {
        let azure = traits_of("azure");
        let mut used = BTreeSet::new();
        for _ in 0..64 {
            for pair in find_bgp(&azure, &CloudTraits::default(), &used).unwrap() {
                assert!(used.insert(pair.a) && used.insert(pair.b));
            }
        }
        assert!(find_bgp(&azure, &CloudTraits::default(), &used).is_err());
    }
}
