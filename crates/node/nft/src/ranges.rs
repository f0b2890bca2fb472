//! Ranges of addresses: prefixes with exceptions, made disjoint, as interval sets need them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Disjoint, sorted and not adjacent, whatever was added in whatever order. One family per value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// First and last address, as numbers.
    ranges: Vec<(u128, u128)>,
    ipv6: bool,
}

impl Ranges {
    /// Prefixes of the other family are left out.
    pub fn new(ipv6: bool, prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        let of_family = prefixes.into_iter().filter(|prefix| prefix.addr().is_ipv6() == ipv6);
        let mut ranges: Vec<_> = of_family.map(bounds).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self { ranges: merged, ipv6 }
    }

    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len());
        for &(mut first, last) in &self.ranges {
            let mut covered = false;
            for &(from, to) in &other.ranges {
                if to < first || from > last {
                    continue;
                }
                if from > first {
                    ranges.push((first, from - 1));
                }
                if to >= last {
                    covered = true;
                    break;
                }
                first = to + 1;
            }
            if !covered {
                ranges.push((first, last));
            }
        }
        Self { ranges, ipv6: self.ipv6 }
    }

    /// First and last address of each range.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
        self.ranges.iter().map(|&(first, last)| (self.address(first), self.address(last)))
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        address.is_ipv6() == self.ipv6
            && self.ranges.iter().any(|&(first, last)| (first..=last).contains(&number))
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn address(&self, number: u128) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::from(number).into()
        } else {
            let number = u32::try_from(number).expect("ranges of IPv4 come from 32-bit addresses");
            Ipv4Addr::from(number).into()
        }
    }
}

fn bounds(prefix: IpNet) -> (u128, u128) {
    (number(prefix.network()), number(prefix.broadcast()))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(prefixes: &[&str]) -> Ranges {
        Ranges::new(false, prefixes.iter().map(|prefix| prefix.parse().unwrap()))
    }

    #[test]
    fn overlapping_and_adjacent_prefixes_become_one() {
        assert_eq!(ranges(&["10.0.1.0/24", "10.0.0.0/24", "10.0.0.128/25"]), ranges(&["10.0.0.0/23"]));
    }

    #[test]
    fn an_exception_splits_its_prefix() {
        let left = ranges(&["10.0.0.0/8"]).without(&ranges(&["10.1.0.0/16", "11.0.0.0/8"]));
        let addresses: Vec<_> = left.iter().map(|(a, b)| format!("{a}-{b}")).collect();
        assert_eq!(addresses, ["10.0.0.0-10.0.255.255", "10.2.0.0-10.255.255.255"]);
    }

    #[test]
    fn the_whole_space_without_itself_is_empty() {
        let all = Ranges::new(true, ["::/0".parse().unwrap()]);
        assert!(all.without(&all).is_empty());
        assert!(all.contains("ffff::".parse().unwrap()));
    }

    fn prefixes() -> impl Strategy<Value = Vec<IpNet>> {
        let prefix = (0_u32..16, 28_u8..=32).prop_map(|(low, len)| {
            IpNet::new(Ipv4Addr::from(0xffff_fff0 | low).into(), len).expect("a prefix length within 32")
        });
        proptest::collection::vec(prefix, 0..5)
    }

    proptest! {
        #[test]
        fn an_address_is_in_the_difference_if_it_is_in_one_and_not_in_the_other(
            plus in prefixes(), minus in prefixes()
        ) {
            let difference = Ranges::new(false, plus.clone()).without(&Ranges::new(false, minus.clone()));
            for low in 0..16 {
                let address = IpAddr::from(Ipv4Addr::from(0xffff_fff0_u32 | low));
                let within = |list: &[IpNet]| list.iter().any(|prefix| prefix.contains(&address));
                prop_assert_eq!(difference.contains(address), within(&plus) && !within(&minus));
            }
        }
    }
}
