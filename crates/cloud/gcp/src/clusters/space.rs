//! How the space of a cluster's network is divided. Pure.
//!
//! ```text
//!   |── nodes ──|─ services ─|──────── Pods ────────|
//!   first quarter  second       upper half
//! ```

use cloud_api::CloudError;
use ipnet::Ipv4Net;

use crate::shapes::SecondaryRange;

/// Names of the subnet's secondary ranges.
pub(crate) const PODS: &str = "pods";
pub(crate) const SERVICES: &str = "services";

/// The longest prefix: two nodes with the 256 addresses for Pods that Google gives each.
const LONGEST: u8 = 22;
/// Google's bound on a range for services.
const SERVICES_SHORTEST: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranges {
    pub(crate) nodes: Ipv4Net,
    pub(crate) services: Ipv4Net,
    pub(crate) pods: Ipv4Net,
}

impl Ranges {
    pub(crate) fn of(space: Ipv4Net) -> Result<Self, CloudError> {
        let length = space.prefix_len();
        let small = || {
            CloudError::invalid(format!(
                "the space {space} is too small for a cluster of Google Cloud, which takes a /{LONGEST} at least; set \
                 the length of networks' spaces accordingly"
            ))
        };
        if length > LONGEST {
            return Err(small());
        }
        let mut halves = space.subnets(length + 1).map_err(|_| small())?;
        let (lower, pods) = halves.next().zip(halves.next()).ok_or_else(small)?;
        let mut quarters = lower.subnets(length + 2).map_err(|_| small())?;
        let (nodes, second) = quarters.next().zip(quarters.next()).ok_or_else(small)?;
        let services = Ipv4Net::new(second.network(), (length + 2).max(SERVICES_SHORTEST));
        Ok(Self { nodes, services: services.map_err(|_| small())?, pods })
    }

    /// Those that a subnet has beside its own, which is that of the nodes.
    pub(crate) fn secondary(&self) -> Vec<SecondaryRange> {
        let range = |(name, range): (&str, Ipv4Net)| SecondaryRange {
            range_name: name.to_owned(),
            ip_cidr_range: range.into(),
        };
        [(SERVICES, self.services), (PODS, self.pods)].map(range).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mark::Mark, shapes::Subnet};

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn parts_are_apart_and_inside() {
        for text in ["10.4.0.0/16", "10.0.0.0/22", "10.0.0.0/8"] {
            let space = net(text);
            let parts = Ranges::of(space).unwrap();
            let (ip_cidr_range, secondary_ip_ranges) = (Some(parts.nodes), parts.secondary());
            let all = Subnet { ip_cidr_range, secondary_ip_ranges, ..Subnet::default() }.ranges();
            assert_eq!(all, [parts.nodes, parts.services, parts.pods]);
            for (place, one) in all.iter().enumerate() {
                assert!(space.contains(one), "{one} of {text}");
                assert!(!all[place + 1..].iter().any(|other| other.contains(one) || one.contains(other)));
            }
            assert!(parts.services.prefix_len() >= SERVICES_SHORTEST);
        }
        let parts = Ranges::of(net("10.4.0.0/16")).unwrap();
        let wanted = ["10.4.0.0/18", "10.4.64.0/18", "10.4.128.0/17"].map(net);
        assert_eq!([parts.nodes, parts.services, parts.pods], wanted);
        assert!(Ranges::of(net("10.4.0.0/23")).is_err());
    }

    #[test]
    fn a_divided_subnet_is_known_as_a_whole() {
        let mark = Mark { space: Some(net("10.4.0.0/16")), ..Mark::default() };
        let ip_cidr_range = Some(net("10.4.0.0/18"));
        let divided = Subnet { ip_cidr_range, description: mark.into(), ..Subnet::default() };
        assert_eq!(divided.whole(), Some(net("10.4.0.0/16")));
        assert_eq!(Subnet { ip_cidr_range, ..Subnet::default() }.whole(), ip_cidr_range);
    }
}
