//! Ranges that addresses and node ports come from.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;

/// More addresses of a prefix than this are not told apart: nobody has so many Services.
const MOST: u128 = 1 << 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    prefixes: Vec<IpNet>,
    node_ports: NodePorts,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangesError {
    #[error("{one} and {other} overlap")]
    Overlap { one: IpNet, other: IpNet },
    #[error("{prefix} has no address to allot")]
    TooSmall { prefix: IpNet },
}

impl Default for Ranges {
    fn default() -> Self {
        let prefix = IpNet::new_assert(Ipv4Addr::new(10, 96, 0, 0).into(), 12);
        Self { prefixes: vec![prefix], node_ports: NodePorts::default() }
    }
}

impl Ranges {
    /// The family of the first prefix is that of Services which do not name one. Without prefixes no addresses are
    /// allotted.
    pub fn new(prefixes: Vec<IpNet>, node_ports: NodePorts) -> Result<Self, RangesError> {
        for (place, one) in prefixes.iter().enumerate() {
            if size(one) < 1 {
                return Err(RangesError::TooSmall { prefix: *one });
            }
            if let Some(other) = prefixes[..place].iter().find(|other| overlap(one, other)) {
                return Err(RangesError::Overlap { one: *other, other: *one });
            }
        }
        Ok(Self { prefixes, node_ports })
    }

    pub(super) fn node_ports(&self) -> NodePorts {
        self.node_ports
    }

    pub(super) fn first_family(&self) -> Option<bool> {
        self.prefixes.first().map(|prefix| prefix.addr().is_ipv6())
    }

    pub(super) fn has_family(&self, ipv6: bool) -> bool {
        self.of_family(ipv6).next().is_some()
    }

    pub(super) fn describe(&self, ipv6: bool) -> String {
        self.of_family(ipv6).map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The first prefix that has a free one gives it.
    pub(super) fn find_address(
        &self,
        ipv6: bool,
        seed: u64,
        mut free: impl FnMut(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        self.of_family(ipv6).find_map(|prefix| {
            let size = size(prefix);
            let lower = (size / 16).clamp(16, 256).min(size);
            find(size, lower, seed, |place| free(address(prefix, place))).map(|place| address(prefix, place))
        })
    }

    fn of_family(&self, ipv6: bool) -> impl Iterator<Item = &IpNet> {
        self.prefixes.iter().filter(move |prefix| prefix.addr().is_ipv6() == ipv6)
    }
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// Addresses that may be allotted: neither the network's own, nor what an IPv4 network is called by as a whole.
fn size(prefix: &IpNet) -> u128 {
    let bits = u32::from(prefix.max_prefix_len() - prefix.prefix_len());
    let all = 1_u128.checked_shl(bits).unwrap_or(u128::MAX).min(MOST);
    let reserved = if prefix.addr().is_ipv6() { 1 } else { 2 };
    if all == 1 { 1 } else { all.saturating_sub(reserved) }
}

fn address(prefix: &IpNet, place: u128) -> IpAddr {
    let skip = u128::from(prefix.prefix_len() < prefix.max_prefix_len());
    match prefix.network() {
        IpAddr::V4(first) => {
            let offset = u32::try_from(place + skip).unwrap_or(u32::MAX);
            Ipv4Addr::from(u32::from(first).saturating_add(offset)).into()
        }
        IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).saturating_add(place + skip)).into(),
    }
}

/// A free place: above `lower` first, beginning where the seed leads to, then below.
fn find(size: u128, lower: u128, seed: u64, mut free: impl FnMut(u128) -> bool) -> Option<u128> {
    let upper = size - lower;
    let start = if upper == 0 { 0 } else { u128::from(seed) % upper };
    let above = (0..upper).map(|step| lower + (start + step) % upper);
    above.chain(0..lower).find(|place| free(*place))
}

/// Ports of every node, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePorts {
    first: u16,
    last: u16,
}

impl Default for NodePorts {
    fn default() -> Self {
        Self { first: 30_000, last: 32_767 }
    }
}

impl NodePorts {
    pub(super) fn find(self, seed: u64, mut free: impl FnMut(u16) -> bool) -> Option<u16> {
        let size = u128::from(self.last - self.first) + 1;
        let lower = (size / 32).clamp(16, 128).min(size);
        let port =
            |place: u128| self.first + u16::try_from(place).expect("a place is below the number of ports");
        find(size, lower, seed, |place| free(port(place))).map(port)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of ports such as 30000-32767")]
pub struct ParseNodePortsError(String);

impl FromStr for NodePorts {
    type Err = ParseNodePortsError;

    fn from_str(text: &str) -> Result<Self, ParseNodePortsError> {
        let parsed = text.split_once('-').and_then(|(first, last)| {
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (0 < first && first <= last).then_some(Self { first, last })
        });
        parsed.ok_or_else(|| ParseNodePortsError(text.to_owned()))
    }
}

impl fmt::Display for NodePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
