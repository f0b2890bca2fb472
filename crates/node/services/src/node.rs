//! What a proxy knows about its own node.

use std::net::IpAddr;

use ipnet::IpNet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub zone: Option<String>,
    /// Addresses on which node ports are served.
    pub addresses: Vec<IpAddr>,
    /// External addresses that services claim are not served.
    pub refuse_external_ips: bool,
    /// Addresses that are left alone, whatever services claim.
    pub excluded: Vec<IpNet>,
}

impl Node {
    pub(crate) fn excludes(&self, address: IpAddr) -> bool {
        self.excluded.iter().any(|prefix| prefix.contains(&address))
    }
}
