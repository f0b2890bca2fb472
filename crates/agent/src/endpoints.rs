//! The local registry: which interface of this node is which Pod. Pure.
//!
//! In: `attach` and `detach`, from a CNI plugin, a script or a person, in any order and repeated at will. Out: the
//! endpoints. Holds: for each Pod at most one endpoint, for each interface and each address at most one Pod; the newest
//! attachment wins. So an address that goes from one Pod to the next is the next one's at once, and a late `detach` of
//! the first takes nothing from it.
//!
//! An endpoint is *closed* until a controller that knows of it has spoken: nothing in, nothing out.

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest name the kernel gives an interface.
const MAX_INTERFACE: usize = 15;
const MAX_NAME: usize = 253;
/// A Pod has an address or two; a list of hundreds is a mistake.
const MAX_ADDRESSES: usize = 16;

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
    #[error("{0} addresses are too many for one Pod; at most {MAX_ADDRESSES}")]
    Addresses(usize),
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The node's end of the Pod's link.
    pub interface: String,
    /// The Pod's addresses, if they are known.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
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
    /// Nothing in and nothing out until a controller has spoken.
    pub closed: bool,
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

    /// Attaches a Pod, closed or open. Whether anything changed: what is attached already stays as it is, closed or
    /// open.
    pub fn attach(
        &mut self,
        pod: Pod,
        mut attachment: Attachment,
        closed: bool,
    ) -> Result<bool, EndpointError> {
        attachment.check()?;
        attachment.addresses.sort_unstable();
        attachment.addresses.dedup();
        if self.0.get(&pod).is_some_and(|endpoint| endpoint.attachment == attachment) {
            return Ok(false);
        }
        self.0.retain(|_, other| other.attachment.interface != attachment.interface);
        for other in self.0.values_mut() {
            other.attachment.addresses.retain(|address| !attachment.addresses.contains(address));
        }
        self.0.insert(pod.clone(), Endpoint { pod, attachment, closed });
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

    /// Opens all that are closed: from now on policies alone decide. Whether there were any.
    pub fn open(&mut self) -> bool {
        let mut changed = false;
        for endpoint in self.0.values_mut() {
            changed |= std::mem::take(&mut endpoint.closed);
        }
        changed
    }
}

impl FromIterator<Endpoint> for Endpoints {
    /// Later ones win, as when they are attached one after the other.
    fn from_iter<T: IntoIterator<Item = Endpoint>>(endpoints: T) -> Self {
        let mut all = Self::default();
        for Endpoint { pod, attachment, closed } in endpoints {
            // From a file that somebody may have edited: what cannot be is not taken over.
            let _ = all.attach(pod, attachment, closed);
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
        Attachment { interface: interface.into(), addresses }
    }

    #[test]
    fn an_address_goes_to_the_newest_pod_and_a_late_detach_leaves_it_there() {
        let mut all = Endpoints::default();
        all.attach(pod("old"), attachment("v1", &["10.0.0.1", "fd00::1"]), false).unwrap();
        all.attach(pod("new"), attachment("v2", &["10.0.0.1"]), true).unwrap();
        assert_eq!(all.get(&pod("old")).unwrap().attachment, attachment("v1", &["fd00::1"]));
        assert!(all.detach(&pod("old"), None));
        assert_eq!(all.get(&pod("new")).unwrap().attachment, attachment("v2", &["10.0.0.1"]));
    }

    #[test]
    fn a_pod_that_comes_back_is_not_detached_by_the_end_of_its_earlier_life() {
        let mut all = Endpoints::default();
        all.attach(pod("web-0"), attachment("v1", &[]), false).unwrap();
        all.attach(pod("web-0"), attachment("v2", &[]), true).unwrap();
        assert!(!all.detach(&pod("web-0"), Some("v1")));
        assert!(all.get(&pod("web-0")).unwrap().closed, "another interface is another endpoint");
        assert!(all.detach(&pod("web-0"), Some("v2")));
        assert!(!all.detach(&pod("web-0"), None));
    }

    #[test]
    fn an_interface_is_one_pods() {
        let mut all = Endpoints::default();
        all.attach(pod("a"), attachment("v1", &[]), false).unwrap();
        all.attach(pod("b"), attachment("v1", &[]), false).unwrap();
        assert_eq!(all.iter().map(|one| one.pod.clone()).collect::<Vec<_>>(), [pod("b")]);
    }

    #[test]
    fn attaching_again_changes_nothing_and_opening_opens_all() {
        let mut all = Endpoints::default();
        assert_eq!(all.attach(pod("a"), attachment("v1", &["10.0.0.2", "10.0.0.1"]), true), Ok(true));
        assert!(all.open());
        assert_eq!(all.attach(pod("a"), attachment("v1", &["10.0.0.1", "10.0.0.2"]), true), Ok(false));
        assert!(!all.get(&pod("a")).unwrap().closed && !all.open());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut all = Endpoints::default();
        for interface in ["", "a/b", "..", "a b", "longer-than-fifteen", "eth*", "a\0"] {
            let refused = all.attach(pod("a"), attachment(interface, &[]), false);
            assert_eq!(refused, Err(EndpointError::Interface(interface.into())));
        }
        for address in ["0.0.0.0", "224.0.0.1", "127.0.0.1", "::", "ff02::1"] {
            assert!(all.attach(pod("a"), attachment("v", &[address]), false).is_err(), "{address}");
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
                    let made = Attachment { interface, addresses: addresses.clone() };
                    all.attach(pod.clone(), made, true).unwrap();
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
