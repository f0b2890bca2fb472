//! Names and tags. A name is made from what an object is for, so the same is never made twice; the tags say in words
//! what the name hides.

use cloud_http::letters;
use model::{NetworkName, Segment, Site};
use serde_json::{Map, Value};

/// `Microsoft.Network/virtualNetworks/subnets` of an id: its provider and every second part after that.
pub(crate) fn kind(id: &str) -> String {
    let parts: Vec<&str> = id.rsplit_once("/providers/").map_or(id, |(_, rest)| rest).split('/').collect();
    let types = parts.iter().skip(1).step_by(2);
    parts.iter().take(1).chain(types).copied().collect::<Vec<_>>().join("/")
}

/// The id of the object that an id is of, or of a part of.
pub(crate) fn whole(id: &str) -> &str {
    let provider = id.rfind("/providers/").map_or(0, |at| at + "/providers/".len());
    let end = id[provider..].match_indices('/').nth(2).map_or(id.len(), |(at, _)| provider + at);
    &id[..end]
}

/// The names of a site's objects: `t-SITE-KIND-WHAT`, 40 letters at most. And their tags.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    owner: String,
    site: Site,
}

const OWNER: &str = "trestle-owner";
const NAMESPACE: &str = "trestle-namespace";
const CLOUD: &str = "trestle-cloud";
pub(crate) const NAME: &str = "trestle-name";
pub(crate) const PEER_NAMESPACE: &str = "trestle-peer-namespace";
pub(crate) const PEER_CLOUD: &str = "trestle-peer-cloud";
/// Stands for a connection's key, so that keys need not be read to be compared.
pub(crate) const KEY: &str = "trestle-key";

impl Names {
    pub(crate) fn new(owner: &str, site: &Site) -> Self {
        Self { owner: owner.to_owned(), site: site.clone() }
    }

    /// What all names of the site begin with.
    pub(crate) fn prefix(&self) -> String {
        format!("t-{}", letters(&format!("{}/{}", self.owner, self.site), 8))
    }

    pub(crate) fn of(&self, kind: &str, what: &str) -> String {
        format!("{}-{kind}-{}", self.prefix(), letters(what, 10))
    }

    pub(crate) fn network(&self, region: &str) -> String {
        self.of("net", region)
    }

    /// The network that gateways stand in.
    pub(crate) fn hub(&self) -> String {
        format!("{}-hub", self.prefix())
    }

    pub(crate) fn gateway(&self) -> String {
        format!("{}-gw", self.prefix())
    }

    pub(crate) fn gateway_address(&self, number: usize) -> String {
        format!("{}-gwip-{number}", self.prefix())
    }

    /// A peering that was asked for, by the network at the other side.
    pub(crate) fn peering(&self, far: &NetworkName) -> String {
        self.of("peer", &far.to_string())
    }

    /// `number` is the tunnel's.
    pub(crate) fn tunnel(&self, kind: &str, peer: &Site, number: usize) -> String {
        format!("{}-{number}", self.of(kind, &peer.to_string()))
    }

    /// Tags that say whose an object is, and more.
    pub(crate) fn tags(&self, more: &[(&str, &str)]) -> Value {
        let site = &self.site;
        let own = [
            (OWNER, self.owner.as_str()),
            (NAMESPACE, site.namespace.as_str()),
            (CLOUD, site.cloud.as_str()),
        ];
        let all = own.iter().chain(more).map(|(key, value)| ((*key).to_owned(), Value::from(*value)));
        Value::Object(all.collect::<Map<_, _>>())
    }

    /// Whether an object is this site's.
    pub(crate) fn owns(&self, object: &Value) -> bool {
        self.owns_site(object).as_ref() == Some(&self.site)
    }

    /// The site of an object of this owner.
    pub(crate) fn owns_site(&self, object: &Value) -> Option<Site> {
        let namespace: Segment = tag(object, NAMESPACE)?.parse().ok()?;
        let cloud: Segment = tag(object, CLOUD)?.parse().ok()?;
        (tag(object, OWNER)? == self.owner).then_some(Site { namespace, cloud })
    }
}

/// Azure does not tell upper from lower case in the names of tags.
pub(crate) fn tag<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    let tags = object["tags"].as_object()?;
    tags.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).and_then(|(_, value)| value.as_str())
}

/// The peer that a connection or a local network gateway is for.
pub(crate) fn peer_of(object: &Value) -> Option<Site> {
    let namespace = tag(object, PEER_NAMESPACE)?.parse().ok()?;
    let cloud = tag(object, PEER_CLOUD)?.parse().ok()?;
    Some(Site { namespace, cloud })
}

/// Ids are the same whatever their case.
pub(crate) fn is_same_id(a: &Value, b: &str) -> bool {
    a.as_str().is_some_and(|a| a.eq_ignore_ascii_case(b))
}

/// `West US 2` and `westus2` are one region.
pub(crate) fn region_of(location: &str) -> Option<Segment> {
    location.replace(' ', "").to_ascii_lowercase().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_kinds() {
        let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        for (id, expected) in [
            ("/virtualNetworks", "Microsoft.Network/virtualNetworks"),
            ("/virtualNetworks/v", "Microsoft.Network/virtualNetworks"),
            ("/virtualNetworks/v/subnets/s", "Microsoft.Network/virtualNetworks/subnets"),
            (
                "/virtualNetworkGateways/g/getLearnedRoutes",
                "Microsoft.Network/virtualNetworkGateways/getLearnedRoutes",
            ),
        ] {
            assert_eq!(kind(&format!("{group}{id}")), expected);
            let parent: Vec<&str> = id.splitn(4, '/').take(3).collect();
            assert_eq!(whole(&format!("{group}{id}")), format!("{group}{}", parent.join("/")));
        }
    }

    #[test]
    fn names_are_short_legal_and_different() {
        let long = "x".repeat(120);
        let names = Names::new("trestle", &format!("{long}.{long}").parse().unwrap());
        let peer: Site = "other.aws".parse().unwrap();
        let network = NetworkName { site: peer.clone(), region: "r".parse().unwrap() };
        let all = [
            names.network("westus2"),
            names.hub(),
            names.gateway(),
            names.gateway_address(1),
            names.peering(&network),
            names.tunnel("con", &peer, 3),
            names.tunnel("lng", &peer, 3),
        ];
        for name in &all {
            assert!(name.len() <= 40, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
        }
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        // Azure keeps 256 letters in a tag's value.
        let tags = names.tags(&[]);
        assert!(tags.as_object().unwrap().values().all(|value| value.as_str().unwrap().len() <= 256));
        assert!(names.owns(&serde_json::json!({ "tags": tags })));
        assert!(!Names::new("other", &peer).owns(&serde_json::json!({ "tags": tags })));
    }
}
