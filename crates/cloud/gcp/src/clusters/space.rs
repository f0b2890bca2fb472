//! How the space of a cluster's network is divided. Pure.
//!
//! ```text
//!   |── nodes ──|─ services ─|──────── Pods ────────|
//!   first quarter  second       upper half
//! ```

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use crate::{adopt::range, names};

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

    /// The ranges as a subnet has them.
    pub(crate) fn put_in(&self, subnet: &mut Value) {
        let secondary =
            |(name, range): (&str, Ipv4Net)| json!({"rangeName": name, "ipCidrRange": range.to_string()});
        subnet["ipCidrRange"] = self.nodes.to_string().into();
        subnet["secondaryIpRanges"] =
            [(SERVICES, self.services), (PODS, self.pods)].map(secondary).to_vec().into();
    }
}

/// The space of a subnet of ours: what its mark says, where it is divided, or else its range.
pub(crate) fn whole(subnet: &Value) -> Option<Ipv4Net> {
    names::read(subnet).and_then(|mark| mark.space).or_else(|| range(subnet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adopt::ranges;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn parts_are_apart_and_inside() {
        for text in ["10.4.0.0/16", "10.0.0.0/22", "10.0.0.0/8"] {
            let (space, mut subnet) = (net(text), json!({}));
            let parts = Ranges::of(space).unwrap();
            parts.put_in(&mut subnet);
            let all = ranges(&subnet);
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
        let mark = names::Mark { space: Some(net("10.4.0.0/16")), ..names::Mark::default() };
        let divided = json!({"ipCidrRange": "10.4.0.0/18", "description": names::write(mark)});
        assert_eq!(whole(&divided), Some(net("10.4.0.0/16")));
        assert_eq!(whole(&json!({"ipCidrRange": "10.5.0.0/16"})), Some(net("10.5.0.0/16")));
    }
}
