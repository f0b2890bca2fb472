//! Autonomous system numbers for gateways: private ones, the smallest that is free.

use std::collections::BTreeSet;

/// Two-byte and four-byte numbers for private use, RFC 6996. 65535 and 4294967295 are reserved by RFC 7300.
const PRIVATE: [std::ops::RangeInclusive<u32>; 2] = [64_512..=65_534, 4_200_000_000..=4_294_967_294];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all private AS numbers are in use")]
pub struct NoAsnLeft;

/// The smallest private number that is not in use. O(used).
pub fn find_asn(used: &BTreeSet<u32>) -> Result<u32, NoAsnLeft> {
    for range in PRIVATE {
        let mut free = *range.start();
        for &taken in used.range(range.clone()) {
            if taken != free {
                break;
            }
            free += 1;
        }
        if range.contains(&free) {
            return Ok(free);
        }
    }
    Err(NoAsnLeft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the reference (A10).
    #[test]
    fn asn_vectors_hold() {
        assert_eq!(find_asn(&[64512].into()), Ok(64513));
        assert_eq!(find_asn(&[64512, 64514].into()), Ok(64513));
        assert_eq!(find_asn(&BTreeSet::new()), Ok(64512));
        let all_two_byte: BTreeSet<u32> = (64512..=65534).collect();
        assert_eq!(find_asn(&all_two_byte), Ok(4_200_000_000));
    }

    #[test]
    fn public_numbers_in_use_do_not_matter() {
        assert_eq!(find_asn(&[1, 65535, 4_294_967_295].into()), Ok(64512));
    }
}
