//! Names. A name is made from what an object is for, so the same is never made twice, and owner and site are in it, so
//! that what others made is never taken for ours.

use cloud_http::letters;
use model::{PeeringName, Segment, Site};

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

    pub(crate) fn network(&self) -> String {
        self.named("vpc")
    }

    /// The VPC of a cluster, by the cluster's name as a resource, which is in it as it is.
    pub(crate) fn cluster_network(&self, cluster: &str) -> String {
        format!("{}-{CLUSTERS}{cluster}", self.prefix)
    }

    /// The cluster whose VPC has a name.
    pub(crate) fn cluster_of<'n>(&self, vpc: &'n str) -> Option<&'n str> {
        vpc.strip_prefix(&self.named(CLUSTERS))
    }

    /// The note in an adopted VPC.
    pub(crate) fn adopted(&self) -> String {
        self.named("adopted")
    }

    /// The note of an attached instance, by the name that it has as a resource.
    pub(crate) fn attached(&self, instance: &str) -> String {
        format!("{instance}-att")
    }

    pub(crate) fn gateway_network(&self) -> String {
        self.named("gw-vpc")
    }

    /// One of a network's address prefixes.
    pub(crate) fn part(&self, number: usize) -> String {
        self.named(&format!("part-{number}"))
    }

    pub(crate) fn subnet(&self, zone: &str) -> String {
        self.of("sub", zone)
    }

    pub(crate) fn nat(&self, zone: &str) -> String {
        self.of("nat", zone)
    }

    pub(crate) fn instance(&self, name: &Segment) -> String {
        self.of("vm", name.as_str())
    }

    pub(crate) fn endpoint(&self, name: &Segment) -> String {
        self.of("vpe", name.as_str())
    }

    pub(crate) fn is_endpoint(&self, name: &str) -> bool {
        name.starts_with(&self.named("vpe-"))
    }

    /// A cluster by its name as a resource. 31 letters; IBM gives a cluster 32.
    pub(crate) fn cluster(&self, name: &str) -> String {
        self.of("iks", name)
    }

    pub(crate) fn is_cluster(&self, name: &str) -> bool {
        name.starts_with(&self.named("iks-"))
    }

    pub(crate) fn is_instance(&self, name: &str) -> bool {
        name.starts_with(&self.named("vm-"))
    }

    /// The closed group of an instance, by the instance's name.
    pub(crate) fn group(&self, instance: &str) -> String {
        format!("{instance}-sg")
    }

    /// Another group of an instance, for a list that is too long for the first.
    pub(crate) fn further_group(&self, instance: &str, number: usize) -> String {
        format!("{instance}-sg-{number}")
    }

    /// What the names of an instance's notes begin with.
    fn instance_notes(&self, instance: &str) -> String {
        format!("{instance}-note-")
    }

    /// A part of an instance's note: `…-NUMBER`, or `…-NUMBER-PART-COUNT` if it has several.
    pub(crate) fn instance_note(&self, instance: &str, number: u64, part: usize, count: usize) -> String {
        let first = format!("{}{number}", self.instance_notes(instance));
        if count == 1 { first } else { format!("{first}-{part}-{count}") }
    }

    /// Number, part and count of such a name.
    pub(crate) fn read_note(&self, instance: &str, name: &str) -> Option<(u64, usize, usize)> {
        let mut rest = name.strip_prefix(&self.instance_notes(instance))?.splitn(3, '-');
        let number = rest.next()?.parse().ok()?;
        match (rest.next(), rest.next()) {
            (None, _) => Some((number, 0, 1)),
            (Some(part), Some(count)) => Some((number, part.parse().ok()?, count.parse().ok()?)),
            _ => None,
        }
    }

    pub(crate) fn peering_note(&self, peering: &PeeringName) -> String {
        self.of("peering", &peering.to_string())
    }

    pub(crate) fn is_peering_note(&self, name: &str) -> bool {
        name.starts_with(&self.named("peering-"))
    }

    pub(crate) fn link_note(&self, peer: &Site) -> String {
        self.of("link", &peer.to_string())
    }

    pub(crate) fn is_link_note(&self, name: &str) -> bool {
        name.starts_with(&self.named("link-"))
    }

    pub(crate) fn gateway(&self) -> String {
        self.named("gw")
    }

    pub(crate) fn policy(&self) -> String {
        self.named("ipsec")
    }

    /// What the names of a link's connections begin with.
    pub(crate) fn connections(&self, peer: &Site) -> String {
        format!("{}-", self.of("conn", &peer.to_string()))
    }

    pub(crate) fn hub(&self) -> String {
        self.named("hub")
    }

    /// What is attached to a transit gateway.
    pub(crate) fn joint(&self, what: &str) -> String {
        self.of("joint", what)
    }

    /// Whether an object is ours, by its name.
    pub(crate) fn owns(&self, name: &str) -> bool {
        name.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('-'))
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
        let vm = names.instance(&long.parse().unwrap());
        let vpe = names.endpoint(&long.parse().unwrap());
        let iks = names.cluster(&long);
        assert!(iks.len() <= 32 && names.is_cluster(&iks) && !names.is_instance(&iks));
        let network = names.cluster_network(&"k".repeat(MOST_IN_CLUSTER_NAME));
        assert_eq!(names.cluster_of(&network).map(str::len), Some(MOST_IN_CLUSTER_NAME));
        assert!([&network, &names.network(), &names.gateway_network()].iter().all(|name| is_network(name)));
        assert!(!["t-shirts-vpc", "t-aaaaaaaaaaaa-sub-x", "my-vpc"].iter().any(|name| is_network(name)));
        for (number, part, count) in [(7, 0, 1), (8, 2, 3)] {
            let note = names.instance_note(&vm, number, part, count);
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
            names.instance_note(&vm, u64::MAX, 0, 1),
            names.instance_note(&vm, u64::MAX, 4, 5),
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
            names.instance_note(&iks, u64::MAX, 4, 5),
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
