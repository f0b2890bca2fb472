//! Autonomous system numbers for gateways: private ones, the smallest that is free.

use std::collections::BTreeSet;

/// Two-byte and four-byte numbers for private use, RFC 6996. 65535 and 4294967295 are reserved by RFC 7300.
const PRIVATE: [std::ops::RangeInclusive<u32>; 2] = [64_512..=65_534, 4_200_000_000..=4_294_967_294];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all private AS numbers are in use")]
pub struct NoAsnLeft;

/// The smallest private number that is neither in use nor in a reserved range (first and last, in any order).
/// O(used + reserved²).
pub fn find_asn(used: &BTreeSet<u32>, reserved: &[(u32, u32)]) -> Result<u32, NoAsnLeft> {
    for range in PRIVATE {
        let mut free = *range.start();
        while range.contains(&free) {
            let block = reserved.iter().find(|(first, last)| (*first..=*last).contains(&free));
            match block {
                Some((_, last)) => free = last.saturating_add(1),
                None if used.contains(&free) => free += 1,
                None => return Ok(free),
            }
        }
    }
    Err(NoAsnLeft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the reference.
    #[test]
    fn asn_vectors_hold() {
        assert_eq!(find_asn(&[64512].into(), &[]), Ok(64513));
        assert_eq!(find_asn(&[64512, 64514].into(), &[]), Ok(64513));
        assert_eq!(find_asn(&BTreeSet::new(), &[]), Ok(64512));
        let all_two_byte: BTreeSet<u32> = (64512..=65534).collect();
        assert_eq!(find_asn(&all_two_byte, &[]), Ok(4_200_000_000));
    }

    /// One number must do for a gateway towards every cloud, now and later.
    #[test]
    fn numbers_that_some_cloud_refuses_are_left_out() {
        let reserved: Vec<_> = ["azure", "gcp", "ibm", "aws"]
            .iter()
            .flat_map(|kind| crate::kinds::traits_of(kind).asn_reserved)
            .collect();
        let mut used = BTreeSet::new();
        while let Ok(asn) = find_asn(&used, &reserved)
            && asn < 65_535
        {
            used.insert(asn);
        }
        let refused =
            [64_512, 64_513, 65_100, 65_200, 65_234, 65_402, 65_433, 65_500, 65_515, 65_517, 65_520];
        assert_eq!(used.first(), Some(&64_514));
        assert!(refused.iter().all(|asn| !used.contains(asn)));
        assert_eq!(used.len(), 1023 - 2 - 1 - 35 - 32 - 1 - 1 - 4);
    }

    #[test]
    fn public_numbers_in_use_do_not_matter() {
        assert_eq!(find_asn(&[1, 65535, 4_294_967_295].into(), &[]), Ok(64512));
    }
}
