//! Private endpoints: addresses of Private Service Connect, each a reserved address and a forwarding rule.
//!
//! Google has no firewall in front of an endpoint: what a sender lets out arrives. So Trestle stops it at the senders,
//! and leaves no other way in:
//!
//! ```text
//!   instance ── firewall policy ── firewalls ──► endpoint     the policy comes first (BEFORE_CLASSIC_FIREWALL):
//!               endpoint's list    sender's list              deny the endpoints' space, but goto_next for who is permitted
//!   tunnel ─────────── no route ──────────────►  endpoint     the router does not advertise the endpoints' space
//!   peered VPC ─────── not carried by Google ─►  endpoint
//! ```
//!
//! Endpoints live in networks of their own, next to those of instances: `REGION-endpoints` for services of a region, which
//! is a subnet, and `global-endpoints` for Google's own APIs, whose addresses are in no subnet. Such a network is there
//! if its space is closed: a deny for it stands in the policy, and the policy is in force.

pub(crate) mod networks;
pub mod policy;
pub(crate) mod resources;

use model::Segment;

use crate::{ground::is_cluster, link::Link};

const SUFFIX: &str = "-endpoints";
const GLOBAL: &str = "global";

/// Where endpoints are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    Region(String),
    Global,
}

impl Spot {
    /// The spot of a network's name; none for a network of instances.
    pub(crate) fn of(network: &str) -> Option<Self> {
        if is_cluster(network) {
            return None;
        }
        Some(match network.strip_suffix(SUFFIX)? {
            GLOBAL => Self::Global,
            region => Self::Region(region.to_owned()),
        })
    }

    /// The spot of an object that is in a region or in none.
    pub(crate) fn at(region: Option<&Link>) -> Self {
        region.map_or(Self::Global, |region| Self::Region(region.name().to_owned()))
    }

    pub(crate) fn network(&self) -> Option<Segment> {
        let place = match self {
            Self::Region(region) => region,
            Self::Global => GLOBAL,
        };
        format!("{place}{SUFFIX}").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_may_be_called_after_endpoints() {
        assert_eq!(Spot::of("us-west1-endpoints"), Some(Spot::Region("us-west1".to_owned())));
        assert_eq!(Spot::of("us-west1-k8s-my-endpoints"), None);
    }
}
