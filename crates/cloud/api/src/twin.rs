//! IPv6 twins: every address of a network has one, so that what has one family's address has the other's too.
//!
//! A twin is the IPv4 address within one prefix of unique local addresses (RFC 4193). So twins need no allocation, do
//! not overlap where spaces do not, and a prefix of addresses is a prefix of twins.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The first 96 bits of all twins: `fd` and "trest".
const PREFIX: u128 = 0xfd74_7265_7374 << 80;
const PREFIX_LEN: u8 = 96;

/// The twin of an address.
pub fn twin(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(PREFIX | u128::from(u32::from(address)))
}

/// The twins of all addresses of a prefix.
pub fn twins(prefix: Ipv4Net) -> Ipv6Net {
    Ipv6Net::new(twin(prefix.network()), PREFIX_LEN + prefix.prefix_len()).expect("96 and 32 are 128")
}

/// The addresses whose twins a prefix holds; none if it holds others too, or none.
pub fn of_twins(prefix: Ipv6Net) -> Option<Ipv4Net> {
    let bits = u128::from(prefix.network());
    let length = prefix.prefix_len().checked_sub(PREFIX_LEN)?;
    let low = u32::try_from(bits ^ PREFIX).ok()?;
    Ipv4Net::new(low.into(), length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_addresses_is_a_prefix_of_twins() {
        assert_eq!(twin([10, 0, 0, 1].into()).to_string(), "fd74:7265:7374::a00:1");
        for text in ["10.1.2.3/32", "10.1.0.0/16", "0.0.0.0/0"] {
            let prefix: Ipv4Net = text.parse().unwrap();
            assert_eq!(of_twins(twins(prefix)), Some(prefix));
        }
        for text in ["fd74:7265:7374::/48", "fd00::1/128", "::/0", "fd74:7265:7374:1::/96", "2600::/12"] {
            assert_eq!(of_twins(text.parse().unwrap()), None, "{text}");
        }
    }
}
