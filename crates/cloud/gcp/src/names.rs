//! Names. A name is made from what an object is for, so the same is never made twice; its mark says in words what the
//! name hides.

pub(crate) use cloud_http::letters as hash;
use model::{PeeringName, Segment, Site};

use crate::mark::{Mark, Remark};

/// The names of a site's objects: `t-SITE-KIND-WHAT`, 40 letters at most.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    owner: String,
    site: String,
}

impl Names {
    pub(crate) fn new(owner: &str, site: &Site) -> Self {
        Self { owner: owner.to_owned(), site: site.to_string() }
    }

    /// What all names of the site begin with.
    pub(crate) fn prefix(&self) -> String {
        format!("t-{}", hash(&format!("{}/{}", self.owner, self.site), 8))
    }

    /// What all names of a kind begin with.
    pub(crate) fn all(&self, kind: &str) -> String {
        format!("{}-{kind}-", self.prefix())
    }

    pub(crate) fn of(&self, kind: &str, what: &str) -> String {
        format!("{}{}", self.all(kind), hash(what, 10))
    }

    pub(crate) fn network(&self) -> String {
        format!("{}-net", self.prefix())
    }

    pub(crate) fn deny(&self) -> String {
        format!("{}-deny", self.prefix())
    }

    pub(crate) fn subnet(&self, region: &str) -> String {
        self.of("sub", region)
    }

    pub(crate) fn instance(&self, name: &Segment) -> String {
        self.of("vm", name.as_str())
    }

    /// A cluster's name, which is the network tag of its nodes too: 25 letters of the 40 that GKE takes.
    pub(crate) fn cluster(&self, name: &Segment) -> String {
        self.of("k8s", name.as_str())
    }

    /// What the names of endpoints begin with: those for Google's APIs have 20 letters and digits at most.
    pub(crate) fn endpoints(&self) -> String {
        format!("t{}", hash(&format!("{}/{}", self.owner, self.site), 8))
    }

    pub(crate) fn endpoint(&self, name: &Segment) -> String {
        format!("{}{}", self.endpoints(), hash(name.as_str(), 10))
    }

    pub(crate) fn endpoint_subnet(&self, region: &str) -> String {
        self.of("eps", region)
    }

    /// The policy that closes endpoints.
    pub(crate) fn policy(&self) -> String {
        format!("{}-endpoints", self.prefix())
    }

    pub(crate) fn nat(&self, region: &str) -> String {
        self.of("nat", region)
    }

    pub(crate) fn gateway(&self) -> String {
        format!("{}-gw", self.prefix())
    }

    pub(crate) fn router(&self) -> String {
        format!("{}-router", self.prefix())
    }

    /// What the names of a peer's external gateways begin with.
    pub(crate) fn externals(&self, peer: &Site) -> String {
        self.of("ext", &peer.to_string())
    }

    pub(crate) fn external(&self, peer: &Site, addresses: &str) -> String {
        format!("{}-{}", self.externals(peer), hash(addresses, 6))
    }

    /// What the names of tunnels to a peer begin with.
    pub(crate) fn tunnels(&self, peer: &Site) -> String {
        format!("{}-", self.of("tun", &peer.to_string()))
    }

    pub(crate) fn tunnel(&self, peer: &Site, number: usize) -> String {
        format!("{}{number}", self.tunnels(peer))
    }

    /// What the names of the firewalls of a permit list begin with.
    pub(crate) fn list(&self, of: &str) -> String {
        self.of("fw", of)
    }

    /// The firewall that says that a network is adopted.
    pub(crate) fn adopted(&self, network: &str) -> String {
        self.of("ad", network)
    }

    /// The network tag of an attached instance.
    pub(crate) fn attached(&self, uri: &str) -> String {
        self.of("att", uri)
    }

    pub(crate) fn marker(&self, peering: &PeeringName) -> String {
        self.of("pm", &peering.to_string())
    }

    /// Says whose an object is.
    pub(crate) fn mark(&self) -> Mark {
        Mark { owner: self.owner.clone(), site: self.site.clone(), ..Mark::default() }
    }

    /// Whether an object with this description is this site's.
    pub(crate) fn owns(&self, description: &Remark) -> bool {
        description.mark().is_some_and(|mark| mark.owner == self.owner && mark.site == self.site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_legal_and_different() {
        let long = "x".repeat(120);
        let names = Names::new("trestle", &format!("{long}.{long}").parse().unwrap());
        let peer: Site = "other.aws".parse().unwrap();
        let all = [
            names.network(),
            names.deny(),
            names.subnet("us-west1"),
            names.instance(&long.parse().unwrap()),
            names.cluster(&long.parse().unwrap()),
            names.endpoint_subnet("us-west1"),
            names.policy(),
            names.endpoint(&long.parse().unwrap()),
            names.nat("us-west1"),
            names.gateway(),
            names.router(),
            names.of("peer", &peer.to_string()),
            names.attached("projects/p/zones/z/instances/i"),
            names.list("projects/p/zones/z/instances/i"),
            names.adopted("us-west1-vpc-abc"),
            names.external(&peer, "1.2.3.4"),
            names.tunnel(&peer, 3),
        ];
        for name in &all {
            assert!(name.len() <= 40, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
        }
        let endpoint = names.endpoint(&long.parse().unwrap());
        assert!(endpoint.len() <= 20 && !endpoint.contains('-'), "{endpoint}");
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_ne!(names.network(), Names::new("other", &peer).network());
    }
}
