//! The same case in IPv6: every address becomes the last 32 bits of one in fd00::/96.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::{Case, Expected, Row, Stage};
use crate::{Node, Service, Slice, nftables::Config};

pub fn six(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv6Addr::from_bits((0xfd00 << 112) | u128::from(v4.to_bits())).into(),
        // One of another family stays one.
        IpAddr::V6(_) => IpAddr::from([99, 0, 0, 1]),
    }
}

fn six_prefix(prefix: IpNet) -> IpNet {
    let len = if prefix.prefix_len() == 0 { 0 } else { prefix.prefix_len() + 96 };
    IpNet::new(six(prefix.addr()), len).expect("at most 32 more than 96").trunc()
}

fn six_all(addresses: &mut [IpAddr]) {
    addresses.iter_mut().for_each(|address| *address = six(*address));
}

impl Case {
    #[must_use]
    pub fn in_ipv6(mut self) -> Self {
        self.stages.iter_mut().for_each(Stage::become_ipv6);
        self
    }
}

impl Stage {
    fn become_ipv6(&mut self) {
        self.services.iter_mut().for_each(|(_, service)| six_service(service));
        self.slices.iter_mut().for_each(|(_, slice)| six_slice(slice));
        self.rows.iter_mut().for_each(Row::become_ipv6);
    }
}

impl Row {
    fn become_ipv6(&mut self) {
        self.from = six(self.from);
        self.to.0 = six(self.to.0);
        for expected in [Some(&mut self.expected), self.with_ipvs.as_mut()].into_iter().flatten() {
            if let Expected::Answered { by, .. } | Expected::Sticky(by) = expected {
                by.iter_mut().for_each(|(address, _)| *address = six(*address));
            }
        }
    }
}

fn six_service(service: &mut Service) {
    six_all(&mut service.cluster_ips);
    six_all(&mut service.external_ips);
    service.load_balancers.iter_mut().for_each(|one| one.address = six(one.address));
    service.source_ranges.iter_mut().for_each(|range| *range = six_prefix(*range));
}

fn six_slice(slice: &mut Slice) {
    slice.endpoints.iter_mut().for_each(|endpoint| six_all(&mut endpoint.addresses));
}

pub fn node() -> Node {
    let mut node = super::node();
    six_all(&mut node.addresses);
    node
}

pub fn rules() -> Config {
    let mut rules = super::rules();
    for prefixes in [&mut rules.pod_prefixes, &mut rules.service_prefixes] {
        prefixes.iter_mut().for_each(|prefix| *prefix = six_prefix(*prefix));
    }
    six_all(&mut rules.node_addresses);
    rules
}
