//! The local registry: which interface of this node is which Pod. Pure.
//!
//! In: `attach` and `detach`, from a CNI plugin, a script or a person, in any order and repeated at will. Out: the
//! endpoints. Holds: for each Pod at most one endpoint, for each interface and each address at most one Pod; the newest
//! attachment wins. So an address that goes from one Pod to the next is the next one's at once, and a late `detach` of
//! the first takes nothing from it.
//!
//! An endpoint is *closed*, or pending, until a controller covers it: nothing in, nothing out.

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest name the kernel gives an interface.
const MAX_INTERFACE: usize = 15;
const MAX_NAME: usize = 253;
/// A Pod has an address or two; a list of hundreds is a mistake.
const MAX_ADDRESSES: usize = 16;
const MAX_UID: usize = 64;
const MAX_CONTAINER: usize = 128;

/// `NAMESPACE/NAME` of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Pod {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("{0:?} is not a Pod: write NAMESPACE/NAME")]
    Pod(String),
    #[error(
        "{0:?} cannot be an interface: at most {MAX_INTERFACE} characters, no spaces, slashes or wildcards"
    )]
    Interface(String),
    #[error("{0} cannot be the address of a Pod")]
    Address(IpAddr),
    #[error("{0:?} cannot be the UID of a Pod: at most {MAX_UID} characters, no spaces")]
    Uid(String),
    #[error("{0} addresses are too many for one Pod; at most {MAX_ADDRESSES}")]
    Addresses(usize),
    #[error("{0:?} cannot be a container or its interface: at most {MAX_CONTAINER} characters, no spaces")]
    Container(String),
    #[error(
        "Pod {pod} is attached by its interface {first} already, and one link of a Pod can be guarded: {second} cannot"
    )]
    SecondLink { pod: Pod, first: String, second: String },
}

impl FromStr for Pod {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let is_name = |name: &str| {
            (1..=MAX_NAME).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != '"')
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(EndpointError::Pod(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Pod {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl From<Pod> for String {
    fn from(pod: Pod) -> Self {
        pod.to_string()
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a Pod is attached to the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The node's end of the Pod's link.
    pub interface: String,
    /// The Pod's addresses, if they are known.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The Pod's UID, if it is known: then another life of a Pod of the same name is not taken for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// What a container runtime calls this life of the Pod's network, if one has made it: its end detaches this, and no other one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

/// A container's network, as its runtime names it: one Pod has a new one each time its sandbox is made anew.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    pub id: String,
    /// The interface in the container.
    pub interface: String,
    /// The network that it is attached to, of those that the runtime has.
    #[serde(default)]
    pub network: String,
}

impl Attachment {
    fn check(&self) -> Result<(), EndpointError> {
        let name = &self.interface;
        let is_fine = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '*' | '"' | ':');
        if !(1..=MAX_INTERFACE).contains(&name.len())
            || !name.chars().all(is_fine)
            || matches!(&**name, "." | "..")
        {
            return Err(EndpointError::Interface(name.clone()));
        }
        let is_uid = |uid: &str| {
            (1..=MAX_UID).contains(&uid.len()) && uid.chars().all(|c| c.is_ascii_graphic() && c != '"')
        };
        if let Some(uid) = self.uid.as_deref().filter(|uid| !is_uid(uid)) {
            return Err(EndpointError::Uid(uid.to_owned()));
        }
        let is_word = |text: &&String| {
            (1..=MAX_CONTAINER).contains(&text.len())
                && text.chars().all(|c| c.is_ascii_graphic() && c != '"')
        };
        let mut words = self.container.iter().flat_map(|container| [&container.id, &container.interface]);
        if let Some(word) = words.find(|word| !is_word(word)) {
            return Err(EndpointError::Container(word.clone()));
        }
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(EndpointError::Addresses(self.addresses.len()));
        }
        let is_host = |ip: &IpAddr| !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback());
        match self.addresses.iter().find(|address| !is_host(address)) {
            Some(address) => Err(EndpointError::Address(*address)),
            None => Ok(()),
        }
    }
}

/// A Pod on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub pod: Pod,
    #[serde(flatten)]
    pub attachment: Attachment,
    /// Nothing in and nothing out until a controller covers it.
    pub closed: bool,
    /// Since when it is closed or open, in seconds since 1970.
    #[serde(default)]
    pub since: i64,
    /// Nobody has attached it: the agent has found it, and forgets it when its link is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
}

/// All Pods on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints(BTreeMap<Pod, Endpoint>);

impl Endpoints {
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.values()
    }

    pub fn get(&self, pod: &Pod) -> Option<&Endpoint> {
        self.0.get(pod)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Attaches a Pod, closed. Whether anything changed: what is attached already stays as it is, closed or open.
    pub fn attach(&mut self, pod: Pod, attachment: Attachment, now: i64) -> Result<bool, EndpointError> {
        self.put(Endpoint { pod, attachment, closed: true, since: now, found: false })
    }

    /// As [`Self::attach`], by the agent itself.
    pub fn find(&mut self, pod: Pod, attachment: Attachment, now: i64) -> Result<bool, EndpointError> {
        self.put(Endpoint { pod, attachment, closed: true, since: now, found: true })
    }

    fn put(&mut self, mut endpoint: Endpoint) -> Result<bool, EndpointError> {
        let attachment = &mut endpoint.attachment;
        attachment.check()?;
        attachment.addresses.sort_unstable();
        attachment.addresses.dedup();
        if let Some(same) = self.0.get_mut(&endpoint.pod).filter(|one| one.attachment == *attachment) {
            let was_found = same.found;
            same.found &= endpoint.found;
            return Ok(same.found != was_found);
        }
        self.check_is_only(&endpoint)?;
        let attachment = &endpoint.attachment;
        self.0.retain(|_, other| other.attachment.interface != attachment.interface);
        for other in self.0.values_mut() {
            other.attachment.addresses.retain(|address| !attachment.addresses.contains(address));
        }
        self.0.insert(endpoint.pod.clone(), endpoint);
        Ok(true)
    }

    /// Takes a Pod out. With an interface, only if the Pod is attached by it: a late call for an earlier life of the
    /// Pod does nothing. Whether anything changed.
    pub fn detach(&mut self, pod: &Pod, interface: Option<&str>) -> bool {
        let is_meant = |endpoint: &Endpoint| {
            interface.is_none_or(|interface| endpoint.attachment.interface == interface)
        };
        self.0.get(pod).is_some_and(is_meant) && self.0.remove(pod).is_some()
    }

    /// Takes out what was attached for a container, by one of its interfaces or by any. Nothing if its Pod has a new one by now. Whether
    /// anything changed.
    pub fn detach_container(&mut self, id: &str, interface: Option<&str>) -> bool {
        let before = self.0.len();
        let is_meant = |container: &Container| {
            container.id == id && interface.is_none_or(|interface| container.interface == interface)
        };
        self.0.retain(|_, endpoint| !endpoint.attachment.container.as_ref().is_some_and(is_meant));
        self.0.len() != before
    }

    /// The same container has no other interface attached: the newest would take its place, and leave that one unguarded.
    fn check_is_only(&self, endpoint: &Endpoint) -> Result<(), EndpointError> {
        let Some(new) = &endpoint.attachment.container else { return Ok(()) };
        let there = self.0.get(&endpoint.pod).and_then(|there| there.attachment.container.as_ref());
        match there.filter(|there| there.id == new.id && there.interface != new.interface) {
            None => Ok(()),
            Some(there) => Err(EndpointError::SecondLink {
                pod: endpoint.pod.clone(),
                first: there.interface.clone(),
                second: new.interface.clone(),
            }),
        }
    }

    /// Closes and opens as is said. Whether anything changed.
    pub fn judge(&mut self, now: i64, mut is_open: impl FnMut(&Endpoint) -> bool) -> bool {
        let mut changed = false;
        for endpoint in self.0.values_mut() {
            let closed = !is_open(endpoint);
            if closed != endpoint.closed {
                (endpoint.closed, endpoint.since, changed) = (closed, now, true);
            }
        }
        changed
    }

    /// Those of which it is not known since when they are as they are, are so from now on.
    pub fn date(&mut self, now: i64) {
        self.0.values_mut().filter(|endpoint| endpoint.since == 0).for_each(|endpoint| endpoint.since = now);
    }

    /// Forgets what the agent has found, or a runtime has attached, and is not there any more: of these the link was there first. Whether
    /// there was any.
    pub fn forget_gone(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.0.len();
        let was_there = |endpoint: &Endpoint| endpoint.found || endpoint.attachment.container.is_some();
        self.0.retain(|_, endpoint| !was_there(endpoint) || is_there(&endpoint.attachment.interface));
        self.0.len() != before
    }

    /// The Pod that is attached by an interface.
    pub fn by_interface(&self, interface: &str) -> Option<&Endpoint> {
        self.0.values().find(|endpoint| endpoint.attachment.interface == interface)
    }
}

impl FromIterator<Endpoint> for Endpoints {
    /// Later ones win, as when they are attached one after the other.
    fn from_iter<T: IntoIterator<Item = Endpoint>>(endpoints: T) -> Self {
        let mut all = Self::default();
        for endpoint in endpoints {
            // From a file that somebody may have edited: what cannot be is not taken over.
            let _ = all.put(endpoint);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn pod(name: &str) -> Pod {
        Pod { namespace: "ns".into(), name: name.into() }
    }

    fn attachment(interface: &str, addresses: &[&str]) -> Attachment {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Attachment { interface: interface.into(), addresses, ..Attachment::default() }
    }

    #[test]
    fn an_address_goes_to_the_newest_pod_and_a_late_detach_leaves_it_there() {
        let mut all = Endpoints::default();
        all.attach(pod("old"), attachment("v1", &["10.0.0.1", "fd00::1"]), 0).unwrap();
        all.attach(pod("new"), attachment("v2", &["10.0.0.1"]), 0).unwrap();
        assert_eq!(all.get(&pod("old")).unwrap().attachment, attachment("v1", &["fd00::1"]));
        assert!(all.detach(&pod("old"), None));
        assert_eq!(all.get(&pod("new")).unwrap().attachment, attachment("v2", &["10.0.0.1"]));
    }

    #[test]
    fn a_pod_that_comes_back_is_not_detached_by_the_end_of_its_earlier_life() {
        let mut all = Endpoints::default();
        all.attach(pod("web-0"), attachment("v1", &[]), 0).unwrap();
        all.attach(pod("web-0"), attachment("v2", &[]), 0).unwrap();
        assert!(!all.detach(&pod("web-0"), Some("v1")));
        assert!(all.get(&pod("web-0")).unwrap().closed, "another interface is another endpoint");
        assert!(all.detach(&pod("web-0"), Some("v2")));
        assert!(!all.detach(&pod("web-0"), None));
    }

    #[test]
    fn an_interface_is_one_pods() {
        let mut all = Endpoints::default();
        all.attach(pod("a"), attachment("v1", &[]), 0).unwrap();
        all.attach(pod("b"), attachment("v1", &[]), 0).unwrap();
        assert_eq!(all.iter().map(|one| one.pod.clone()).collect::<Vec<_>>(), [pod("b")]);
    }

    #[test]
    fn attaching_again_changes_nothing_and_judging_opens_and_closes() {
        let mut all = Endpoints::default();
        assert_eq!(all.attach(pod("a"), attachment("v1", &["10.0.0.2", "10.0.0.1"]), 5), Ok(true));
        assert!(all.judge(7, |_| true));
        assert_eq!(all.attach(pod("a"), attachment("v1", &["10.0.0.1", "10.0.0.2"]), 9), Ok(false));
        let endpoint = all.get(&pod("a")).unwrap();
        assert_eq!((endpoint.closed, endpoint.since), (false, 7));
        assert!(!all.judge(9, |_| true) && all.judge(9, |_| false));
        assert_eq!(
            all.attach(pod("a"), Attachment { uid: Some("u".into()), ..attachment("v1", &[]) }, 9),
            Ok(true)
        );
    }

    #[test]
    fn what_was_found_goes_with_its_link_and_what_was_attached_does_not() {
        let mut all = Endpoints::default();
        all.find(pod("a"), attachment("v1", &["10.0.0.1"]), 0).unwrap();
        all.find(pod("b"), attachment("v2", &["10.0.0.2"]), 0).unwrap();
        assert_eq!(all.attach(pod("b"), attachment("v2", &["10.0.0.2"]), 0), Ok(true), "it is theirs now");
        assert!(all.forget_gone(|_| false));
        assert_eq!(all.iter().map(|one| one.pod.clone()).collect::<Vec<_>>(), [pod("b")]);
    }

    fn of_container(interface: &str, id: &str, inside: &str) -> Attachment {
        let container = Some(Container { id: id.into(), interface: inside.into(), network: String::new() });
        Attachment { container, ..attachment(interface, &[]) }
    }

    #[test]
    fn a_containers_end_detaches_what_was_attached_for_it_and_no_more() {
        let mut all = Endpoints::default();
        all.attach(pod("a"), of_container("cali1", "c1", "eth0"), 0).unwrap();
        all.judge(1, |_| true);
        // The sandbox is made anew; some networks call its link as the one before.
        assert_eq!(all.attach(pod("a"), of_container("cali1", "c2", "eth0"), 2), Ok(true));
        assert!(all.get(&pod("a")).unwrap().closed, "nobody has covered this life of it");
        assert!(!all.detach_container("c1", None) && !all.detach_container("c2", Some("eth1")));
        assert!(all.detach_container("c2", Some("eth0")) && all.is_empty());
        assert!(!all.detach_container("c2", None));
    }

    #[test]
    fn a_second_link_of_a_container_does_not_take_the_place_of_the_first() {
        let mut all = Endpoints::default();
        all.attach(pod("a"), of_container("v1", "c1", "eth0"), 0).unwrap();
        let second = all.attach(pod("a"), of_container("v2", "c1", "net1"), 0);
        assert!(matches!(second, Err(EndpointError::SecondLink { .. })), "{second:?}");
        assert_eq!(all.get(&pod("a")).unwrap().attachment.interface, "v1");
        assert_eq!(
            all.attach(pod("a"), of_container("v3", "c1", "eth0"), 0),
            Ok(true),
            "the same, made anew"
        );
        for bad in ["", "a b", "\"", "a\n"] {
            assert!(all.attach(pod("b"), of_container("v4", bad, "eth0"), 0).is_err(), "{bad:?}");
        }
        assert!(all.forget_gone(|name| name == "v9") && all.is_empty(), "its link is gone");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut all = Endpoints::default();
        for interface in ["", "a/b", "..", "a b", "longer-than-fifteen", "eth*", "a\0"] {
            let refused = all.attach(pod("a"), attachment(interface, &[]), 0);
            assert_eq!(refused, Err(EndpointError::Interface(interface.into())));
        }
        for address in ["0.0.0.0", "224.0.0.1", "127.0.0.1", "::", "ff02::1"] {
            assert!(all.attach(pod("a"), attachment("v", &[address]), 0).is_err(), "{address}");
        }
        for text in ["", "a", "/", "a/", "/b", "a/b/c", "a b/c", "a/\u{7f}"] {
            assert!(text.parse::<Pod>().is_err(), "{text}");
        }
        assert!(all.is_empty());
    }

    proptest! {
        #[test]
        fn interfaces_and_addresses_are_never_shared(
            calls in vec((0..5_u8, 0..4_u8, vec(1..6_u8, 0..3), any::<bool>()), 0..40),
        ) {
            let mut all = Endpoints::default();
            for (name, interface, addresses, attach) in calls {
                let (pod, interface) = (pod(&name.to_string()), format!("v{interface}"));
                let addresses: Vec<IpAddr> = addresses.iter().map(|n| IpAddr::from([10, 0, 0, *n])).collect();
                if attach {
                    let made = Attachment { interface, addresses: addresses.clone(), ..Attachment::default() };
                    all.attach(pod.clone(), made, 0).unwrap();
                    let has = &all.get(&pod).unwrap().attachment.addresses;
                    prop_assert!(addresses.iter().all(|address| has.contains(address)));
                } else {
                    all.detach(&pod, Some(&interface));
                }
                let used: Vec<_> = all.iter().flat_map(|one| &one.attachment.addresses).collect();
                prop_assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), used.len());
                let interfaces: BTreeSet<_> = all.iter().map(|one| &one.attachment.interface).collect();
                prop_assert_eq!(interfaces.len(), all.len());
            }
            let again: Endpoints = all.iter().cloned().collect();
            prop_assert_eq!(again, all);
        }
    }
}
