//! Names. A name is made from what an object is for, so the same is never made twice, and owner and site are in it, so
//! that what others made is never taken for ours.

use cloud_http::letters;
use model::Site;

/// What the name of a cluster's VPC begins with, after owner and site.
const CLUSTERS: &str = "k8s-";
/// What is left of the 63 letters of a VPC's name.
pub(crate) const MOST_IN_CLUSTER_NAME: usize = 44;

/// Whether a VPC's name is one that this plugin gives, for whichever owner and site.
pub(crate) fn is_network(name: &str) -> bool {
    let rest = name.strip_prefix("t-").and_then(|rest| rest.split_at_checked(12));
    let what = rest.and_then(|(site, rest)| Some((site, rest.strip_prefix('-')?)));
    what.is_some_and(|(site, what)| {
        site.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && (["vpc", "gw-vpc"].contains(&what) || what.starts_with(CLUSTERS))
    })
}

/// The names of a site's objects: `t-SITE-KIND-WHAT`, 63 letters at most.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(owner: &str, site: &Site) -> Self {
        Self { prefix: format!("t-{}", letters(&format!("{owner}/{site}"), 12)) }
    }

    /// Of what belongs to two sites.
    pub(crate) fn pair(owner: &str, a: &Site, b: &Site) -> Self {
        let (first, second) = if a < b { (a, b) } else { (b, a) };
        Self { prefix: format!("t-{}", letters(&format!("{owner}/{first}+{second}"), 12)) }
    }

    fn named(&self, kind: &str) -> String {
        format!("{}-{kind}", self.prefix)
    }

    fn of(&self, kind: &str, what: &str) -> String {
        format!("{}-{kind}-{}", self.prefix, letters(what, 12))
    }

    /// The VPC of a cluster, by the cluster's name as a resource, which is in it as it is.
    pub(crate) fn cluster_network(&self, cluster: &str) -> String {
        format!("{}-{CLUSTERS}{cluster}", self.prefix)
    }

    /// The cluster whose VPC has a name.
    pub(crate) fn cluster_of<'n>(&self, vpc: &'n str) -> Option<&'n str> {
        vpc.strip_prefix(&self.named(CLUSTERS))
    }

    /// The note of an attached instance, by the name that it has as a resource.
    pub(crate) fn attached(&self, instance: &str) -> String {
        format!("{instance}-att")
    }

    /// One of a network's address prefixes.
    pub(crate) fn part(&self, number: usize) -> String {
        self.named(&format!("part-{number}"))
    }

    /// The closed group of a resource, by the resource's name.
    pub(crate) fn group(&self, resource: &str) -> String {
        format!("{resource}-sg")
    }

    /// Another group of a resource, for a list that is too long for the first.
    pub(crate) fn further_group(&self, resource: &str, number: usize) -> String {
        format!("{resource}-sg-{number}")
    }

    /// A part of a resource's note: `…-NUMBER`, or `…-NUMBER-PART-COUNT` if it has several.
    pub(crate) fn note(&self, resource: &str, number: u64, part: usize, count: usize) -> String {
        let first = format!("{resource}-note-{number}");
        if count == 1 { first } else { format!("{first}-{part}-{count}") }
    }

    /// Number, part and count of such a name.
    pub(crate) fn read_note(&self, resource: &str, name: &str) -> Option<(u64, usize, usize)> {
        let mut rest = name.strip_prefix(resource)?.strip_prefix("-note-")?.splitn(3, '-');
        let number = rest.next()?.parse().ok()?;
        match (rest.next(), rest.next()) {
            (None, _) => Some((number, 0, 1)),
            (Some(part), Some(count)) => Some((number, part.parse().ok()?, count.parse().ok()?)),
            _ => None,
        }
    }

    /// What the names of a link's connections begin with.
    pub(crate) fn connections(&self, peer: &Site) -> String {
        format!("{}-", self.of("conn", &peer.to_string()))
    }

    /// Whether an object is ours, by its name.
    pub(crate) fn owns(&self, name: &str) -> bool {
        name.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('-'))
    }
}

macro_rules! names {
    (one { $($one:ident $word:literal)* } many { $($many:ident $kind:literal [$($is:ident)?])* }) => {
        impl Names {
            $(pub(crate) fn $one(&self) -> String {
                self.named($word)
            })*

            $(pub(crate) fn $many(&self, what: impl std::fmt::Display) -> String {
                self.of($kind, &what.to_string())
            }

            $(pub(crate) fn $is(&self, name: &str) -> bool {
                name.starts_with(&self.named(concat!($kind, "-")))
            })?)*
        }
    };
}

names! {
    one {
        network         "vpc"
        adopted         "adopted" // the note in an adopted VPC
        gateway         "gw"
        gateway_network "gw-vpc"
        policy          "ipsec"   // of keys, both kinds
        hub             "hub"
    }
    many {
        subnet          "sub"     [] // of a zone
        nat             "nat"     [] // of a zone
        instance        "vm"      [is_instance]
        endpoint        "vpe"     [is_endpoint]
        cluster         "iks"     [is_cluster] // 31 letters; IBM gives a cluster 32
        peering_note    "peering" [is_peering_note]
        link_note       "link"    [is_link_note] // of a peer
        joint           "joint"   [] // of what is attached to a transit gateway
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_legal_and_different() {
        let long = "x".repeat(120);
        let site: Site = format!("{long}.{long}").parse().unwrap();
        let names = Names::new("trestle", &site);
        let peer: Site = "other.aws".parse().unwrap();
        let vm = names.instance(&long);
        let vpe = names.endpoint(&long);
        let iks = names.cluster(&long);
        assert!(iks.len() <= 32 && names.is_cluster(&iks) && !names.is_instance(&iks));
        let network = names.cluster_network(&"k".repeat(MOST_IN_CLUSTER_NAME));
        assert_eq!(names.cluster_of(&network).map(str::len), Some(MOST_IN_CLUSTER_NAME));
        assert!([&network, &names.network(), &names.gateway_network()].iter().all(|name| is_network(name)));
        assert!(!["t-shirts-vpc", "t-aaaaaaaaaaaa-sub-x", "my-vpc"].iter().any(|name| is_network(name)));
        for (number, part, count) in [(7, 0, 1), (8, 2, 3)] {
            let note = names.note(&vm, number, part, count);
            assert_eq!(names.read_note(&vm, &note), Some((number, part, count)));
        }
        let all = [
            names.network(),
            names.gateway_network(),
            names.part(3),
            names.subnet("us-south-1"),
            names.nat("us-south-1"),
            names.group(&vm),
            names.further_group(&vm, 4),
            names.note(&vm, u64::MAX, 0, 1),
            names.note(&vm, u64::MAX, 4, 5),
            vm,
            names.link_note(&peer),
            names.gateway(),
            names.policy(),
            format!("{}9", names.connections(&peer)),
            names.hub(),
            names.joint("us-south"),
            names.group(&vpe),
            vpe,
            names.further_group(&iks, 3),
            names.note(&iks, u64::MAX, 4, 5),
            iks,
            network,
            Names::pair("trestle", &site, &peer).hub(),
        ];
        for name in &all {
            assert!(name.len() <= 63, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert!(!name.ends_with('-'));
        }
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        let [.., pair] = &all;
        assert!(names.owns(&all[0]) && !names.owns(pair));
        assert!(!Names::new("other", &site).owns(&all[0]));
        assert_eq!(Names::pair("o", &site, &peer).hub(), Names::pair("o", &peer, &site).hub());
    }
}
