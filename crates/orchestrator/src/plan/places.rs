//! Where addresses are: which network holds a target, or whether it is public.

use std::{collections::BTreeMap, net::Ipv4Addr};

use cloud_api::twin::of_twins;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::{Address, NetworkName};

/// The networks there are, by address. Their spaces never overlap.
#[derive(Debug, Default)]
pub struct Places<'p> {
    by_start: BTreeMap<u32, (u32, &'p NetworkName)>,
}

/// What a target is, as a rule's peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class<'p> {
    /// Wholly within one network.
    Inside(&'p NetworkName),
    /// A wide prefix: some networks lie in it, and perhaps public addresses too.
    Wide { networks: Vec<&'p NetworkName>, public: bool },
    /// Reached through NAT.
    Public,
    /// Private, and nobody's.
    Unplaced,
}

impl<'p> Places<'p> {
    pub fn new(networks: impl IntoIterator<Item = (&'p NetworkName, Ipv4Net)>) -> Self {
        let by_start = networks
            .into_iter()
            .map(|(name, space)| (space.network().into(), (space.broadcast().into(), name)))
            .collect();
        Self { by_start }
    }

    /// O(log networks), plus the networks a wide prefix covers.
    pub fn classify(&self, target: Address) -> Class<'p> {
        let net = match target.net() {
            IpNet::V4(net) => net,
            IpNet::V6(net) => match of_twins(net) {
                // Where an address is its twin is. Public addresses have none.
                Some(net) if !has_public_v4(net) => net,
                Some(_) => return Class::Unplaced,
                None if is_public_v6(net) => return Class::Public,
                None => return Class::Unplaced,
            },
        };
        let (first, last): (u32, u32) = (net.network().into(), net.broadcast().into());
        if let Some((_, (end, name))) = self.by_start.range(..=first).next_back()
            && *end >= last
        {
            return Class::Inside(name);
        }
        // One that began before and reaches in, then all that begin inside.
        let before = self.by_start.range(..first).next_back().filter(|(_, (end, _))| *end >= first);
        let inside = self.by_start.range(first..=last);
        let networks: Vec<_> = before.into_iter().chain(inside).map(|(_, (_, name))| *name).collect();
        match (networks.is_empty(), has_public_v4(net)) {
            (true, true) => Class::Public,
            (true, false) => Class::Unplaced,
            (false, public) => Class::Wide { networks, public },
        }
    }
}

/// IPv4 blocks that are not globally reachable, from IANA's special-purpose registry. Those for documentation are left out:
/// examples use them as somebody's addresses on the Internet, and nobody's network has them.
const SPECIAL: [([u8; 4], u8); 11] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// Whether any address of the prefix is public: it is not within one special block. (No two special blocks make
/// up a larger prefix but 224.0.0.0/3, which is tested by its halves.)
fn has_public_v4(net: Ipv4Net) -> bool {
    let special =
        |net: Ipv4Net| SPECIAL.iter().any(|(ip, length)| special_block(*ip, *length).contains(&net));
    match net.prefix_len() {
        3 if net.network() == Ipv4Addr::new(224, 0, 0, 0) => false,
        _ => !special(net),
    }
}

fn special_block(ip: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(ip.into(), length)
}

/// Global unicast, 2000::/3, is public; a prefix around it has public addresses too.
fn is_public_v6(net: Ipv6Net) -> bool {
    let unicast = Ipv6Net::new_assert([0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].into(), 3);
    unicast.contains(&net) || net.contains(&unicast)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The original looked at the base address only and took IPv6 and shared address space for public.
    #[test]
    fn targets_are_placed_by_their_whole_extent() {
        let names: Vec<NetworkName> = ["a.x.r1", "a.x.r2"].iter().map(|name| name.parse().unwrap()).collect();
        let spaces: [Ipv4Net; 2] = ["10.0.0.0/16".parse().unwrap(), "10.2.0.0/16".parse().unwrap()];
        let places = Places::new(names.iter().zip(spaces));
        let class = |text: &str| places.classify(text.parse().unwrap());
        assert_eq!(class("10.0.0.7"), Class::Inside(&names[0]));
        assert_eq!(class("fd74:7265:7374::a00:7"), Class::Inside(&names[0]));
        assert_eq!(class("fd74:7265:7374::a01:1"), Class::Unplaced);
        assert_eq!(class("10.2.0.0/16"), Class::Inside(&names[1]));
        assert_eq!(class("10.1.0.1"), Class::Unplaced);
        let wide = |public| Class::Wide { networks: names.iter().collect(), public };
        assert_eq!(class("10.0.0.0/8"), wide(false));
        assert_eq!(class("0.0.0.0/0"), wide(true));
        assert_eq!(class("10.2.0.0/15"), Class::Wide { networks: vec![&names[1]], public: false });
        for public in ["8.8.8.8", "1.0.0.0/8", "2600::1", "::/0", "2000::/3", "192.0.2.7", "2001:db8::1"] {
            assert_eq!(class(public), Class::Public, "{public}");
        }
        for nobodys in ["100.64.0.1", "169.254.1.1", "fd00::1", "fe80::1", "224.0.0.0/3", "127.0.0.1"] {
            assert_eq!(class(nobodys), Class::Unplaced, "{nobodys}");
        }
    }
}
