//! Names and marks. A name is made from what an object is for, so the same is never made twice; the description says
//! in words what the name hides.

pub(crate) use cloud_http::letters as hash;
use ipnet::Ipv4Net;
use model::{NetworkName, PeeringName, Segment, Site};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

    pub(crate) fn of(&self, kind: &str, what: &str) -> String {
        format!("{}-{kind}-{}", self.prefix(), hash(what, 10))
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

    pub(crate) fn external(&self, peer: &Site, addresses: &str) -> String {
        format!("{}-{}", self.of("ext", &peer.to_string()), hash(addresses, 6))
    }

    pub(crate) fn tunnel(&self, peer: &Site, number: usize) -> String {
        format!("{}-{number}", self.of("tun", &peer.to_string()))
    }

    pub(crate) fn marker(&self, peering: &PeeringName) -> String {
        self.of("pm", &peering.to_string())
    }

    /// A description that says whose an object is.
    pub(crate) fn mark(&self) -> Mark {
        Mark { owner: self.owner.clone(), site: self.site.clone(), ..Mark::default() }
    }

    /// Whether an object is this site's.
    pub(crate) fn owns(&self, object: &Value) -> bool {
        read(object).is_some_and(|mark| mark.owner == self.owner && mark.site == self.site)
    }
}

/// What a description holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) owner: String,
    pub(crate) site: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<Segment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<Segment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<Site>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peering: Option<PeeringName>,
    /// The two VPCs of a peering that somebody asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pair: Option<String>,
    /// Of an adopted network: the range that instances are attached from. Of a cluster's network: all of its ranges together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) space: Option<Ipv4Net>,
    /// Of an attached instance: which one it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// Stands for a tunnel's key, which cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    trestle: Mark,
}

pub(crate) fn write(mark: Mark) -> String {
    serde_json::to_string(&Envelope { trestle: mark }).unwrap_or_default()
}

/// The mark of an object, if it has one.
pub(crate) fn read(object: &Value) -> Option<Mark> {
    let text = object["description"].as_str()?;
    serde_json::from_str::<Envelope>(text).ok().map(|envelope| envelope.trestle)
}

/// A reference's last part.
pub(crate) fn last(value: &Value) -> &str {
    value.as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default()
}

/// A reference without the host that it may begin with: `projects/…`.
pub(crate) fn path(value: &Value) -> &str {
    let text = value.as_str().unwrap_or_default();
    text.find("projects/").map_or(text, |start| &text[start..])
}

pub(crate) fn network_of(site: &Site, region: &Segment) -> NetworkName {
    NetworkName { site: site.clone(), region: region.clone() }
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
            names.of("att", "projects/p/zones/z/instances/i"),
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
