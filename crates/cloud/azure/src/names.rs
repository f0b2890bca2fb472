//! Names and tags. A name is made from what an object is for, so the same is never made twice; the tags say in words
//! what the name hides.

use cloud_api::{CloudError, Result};
use cloud_http::letters;
use model::{NetworkName, Site};

use crate::types::Tags;

/// The names of a site's objects: `t-SITE-KIND-WHAT`, 40 letters at most. And their tags.
#[derive(Clone, Debug)]
pub struct Names {
    owner: String,
    site: Site,
}

pub const OWNER: &str = "trestle-owner";
const NAMESPACE: &str = "trestle-namespace";
const CLOUD: &str = "trestle-cloud";
pub const NAME: &str = "trestle-name";
/// The name of the network that something is, or is for, where its location does not say so.
pub const NETWORK: &str = "trestle-network";
pub const PEER_NAMESPACE: &str = "trestle-peer-namespace";
pub const PEER_CLOUD: &str = "trestle-peer-cloud";
/// Stands for a connection's key, so that keys need not be read to be compared.
pub const KEY: &str = "trestle-key";

/// What Azure keeps in a tag.
pub const LONGEST_TAG: usize = 256;

impl Names {
    pub fn new(owner: &str, site: &Site) -> Self {
        Self { owner: owner.to_owned(), site: site.clone() }
    }

    /// What all names of the site begin with.
    pub fn prefix(&self) -> String {
        format!("t-{}", letters(&format!("{}/{}", self.owner, self.site), 8))
    }

    pub fn of(&self, kind: &str, what: &str) -> String {
        self.ending(kind, &suffix(what))
    }

    pub fn ending(&self, kind: &str, suffix: &str) -> String {
        format!("{}-{kind}-{suffix}", self.prefix())
    }

    /// The network that gateways stand in.
    pub fn hub(&self) -> String {
        format!("{}-hub", self.prefix())
    }

    pub fn gateway(&self) -> String {
        format!("{}-gw", self.prefix())
    }

    pub fn gateway_address(&self, number: usize) -> String {
        format!("{}-gwip-{number}", self.prefix())
    }

    /// A peering that was asked for, by the network at the other side.
    pub fn peering(&self, far: &NetworkName) -> String {
        self.of("peer", &far.to_string())
    }

    /// `number` is the tunnel's.
    pub fn tunnel(&self, kind: &str, peer: &Site, number: usize) -> String {
        format!("{}-{number}", self.of(kind, &peer.to_string()))
    }

    /// Tags that say whose an object is, and more.
    pub fn tags(&self, more: &[(&str, &str)]) -> Tags {
        let site = &self.site;
        let own = [
            (OWNER, self.owner.as_str()),
            (NAMESPACE, site.namespace.as_str()),
            (CLOUD, site.cloud.as_str()),
        ];
        let all = own.iter().chain(more);
        Tags(all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    /// Whether an object with these tags is this site's.
    pub fn owns(&self, tags: &Tags) -> bool {
        self.owns_site(tags).as_ref() == Some(&self.site)
    }

    /// The site of an object of this owner.
    pub fn owns_site(&self, tags: &Tags) -> Option<Site> {
        let site = Site { namespace: tags.parsed(NAMESPACE)?, cloud: tags.parsed(CLOUD)? };
        (tags.get(OWNER)? == self.owner).then_some(site)
    }
}

/// Whether all letters are such as names of Azure have.
pub fn is_legal(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "-_.()".contains(letter))
}

pub fn group_path(subscription: &str, group: &str) -> Result<String> {
    match is_legal(subscription) && is_legal(group) {
        true => Ok(format!("/subscriptions/{subscription}/resourceGroups/{group}")),
        false => Err(CloudError::invalid(format!(
            "{subscription:?} and {group:?} cannot be a subscription and a resource group of Azure"
        ))),
    }
}

/// What the names of all objects end with that are for one thing.
pub fn suffix(what: &str) -> String {
    letters(what, 10)
}

/// The peer that a connection or a local network gateway is for.
pub fn peer_of(tags: &Tags) -> Option<Site> {
    Some(Site { namespace: tags.parsed(PEER_NAMESPACE)?, cloud: tags.parsed(PEER_CLOUD)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_legal_and_different() {
        let long = "x".repeat(120);
        let names = Names::new("trestle", &format!("{long}.{long}").parse().unwrap());
        let peer: Site = "other.aws".parse().unwrap();
        let network = NetworkName { site: peer.clone(), region: "r".parse().unwrap() };
        let all = [
            names.of("net", "westus2"),
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
        let tags = names.tags(&[]);
        assert!(tags.0.values().all(|value| value.len() <= LONGEST_TAG));
        assert!(names.owns(&tags));
        assert!(!Names::new("other", &peer).owns(&tags));
        // Azure may show a tag's name in other letters.
        let shown = Tags(tags.0.iter().map(|(key, value)| (key.to_uppercase(), value.clone())).collect());
        assert!(names.owns(&shown));
    }
}
