//! Names of what the cloud makes in the kernel. By them it recognises its own after a crash, and touches nothing else.
//!
//! ```text
//!   trn.MARK.CLOUD.NAMESPACE.REGION     a network            r0a000001  the port of a resource, in its network
//!   trr.MARK.CLOUD.NAMESPACE.NAME       a resource           gw         the port of the edge, in a network
//!   tre.MARK.CLOUD.NAMESPACE            a site's edge        n0a000000  the port of a network, in the edge
//!   trt.MARK.CLOUD.NAMESPACE.t1501      a tunnel's outside   t1501      the inside of a tunnel, in the edge
//!   trx.MARK                            what lies between    o1501      towards a tunnel's outside, in the edge
//! ```
//!
//! The mark stands for the directory of the state, so that two controllers on one machine, each with a cloud of the
//! same name, stay apart; and so that whoever starts anew in the same directory finds what was left behind.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use ipnet::Ipv4Net;
use model::{NetworkName, ResourceName, Segment, Site};
use sha2::{Digest as _, Sha256};

/// The longest name of a file, which a namespace is.
const LONGEST: usize = 255;

#[derive(Clone, Debug)]
pub(crate) struct Names {
    mark: String,
    cloud: Segment,
}

impl Names {
    /// The directory must exist.
    pub(crate) fn new(dir: &Path, cloud: Segment) -> io::Result<Self> {
        Ok(Self { mark: mark(dir)?, cloud })
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn cloud(&self) -> &Segment {
        &self.cloud
    }

    pub(crate) fn network(&self, name: &NetworkName) -> String {
        format!("trn.{}.{}.{}.{}", self.mark, name.site.cloud, name.site.namespace, name.region)
    }

    pub(crate) fn resource(&self, name: &ResourceName) -> String {
        format!("trr.{}.{}.{}.{}", self.mark, name.cloud, name.namespace, name.name)
    }

    pub(crate) fn edge(&self, site: &Site) -> String {
        format!("tre.{}.{}.{}", self.mark, site.cloud, site.namespace)
    }

    pub(crate) fn tunnel(&self, site: &Site, interface: &str) -> String {
        format!("trt.{}.{}.{}.{interface}", self.mark, site.cloud, site.namespace)
    }

    pub(crate) fn exchange(&self) -> String {
        format!("trx.{}", self.mark)
    }

    /// Whether a namespace is of this cloud.
    pub(crate) fn is_ours(&self, namespace: &str) -> bool {
        ["trn", "trr", "tre", "trt"]
            .iter()
            .any(|kind| namespace.starts_with(&format!("{kind}.{}.{}.", self.mark, self.cloud)))
    }

    /// Where the files of this cloud's daemons are: in memory, gone after a reboot as the daemons are.
    pub(crate) fn run_dir(&self) -> PathBuf {
        PathBuf::from("/run/trestle").join(&self.mark).join(short(self.cloud.as_str()))
    }
}

/// A short name for files whose path must be short, as those of sockets.
pub(crate) fn short(long: &str) -> String {
    common::hex(&Sha256::digest(long)[..4])
}

/// Whether a name can be the name of a namespace.
pub(crate) fn fits(namespace: &str) -> bool {
    namespace.len() <= LONGEST
}

/// What stands for a directory of state in names. The directory must exist.
pub fn mark(dir: &Path) -> io::Result<String> {
    let path = fs::canonicalize(dir)?;
    Ok(common::hex(&Sha256::digest(path.as_os_str().as_encoded_bytes())[..4]))
}

/// The port of a resource, in its network.
pub(crate) fn port(address: Ipv4Addr) -> String {
    format!("r{:08x}", u32::from(address))
}

/// The port of a network, in its site's edge.
pub(crate) fn lan(space: Ipv4Net) -> String {
    format!("n{:08x}", u32::from(space.network()))
}

/// The inside of a tunnel, by this end's BGP address.
pub(crate) fn inside(bgp: Ipv4Addr) -> String {
    format!("t{:04x}", u32::from(bgp) & 0xffff)
}

/// The port towards a tunnel's outside.
pub(crate) fn outer(interface: &str) -> String {
    format!("o{}", interface.trim_start_matches('t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_have_two_marks_and_one_has_one() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let names = |dir: &Path| Names::new(dir, "a".parse().unwrap()).unwrap();
        assert_ne!(names(a.path()).mark, names(b.path()).mark);
        assert_eq!(names(a.path()).mark, names(&a.path().join(".")).mark);
    }

    #[test]
    fn only_the_own_cloud_of_the_own_directory_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let names = |cloud: &str| Names::new(dir.path(), cloud.parse().unwrap()).unwrap();
        let site: Site = "ns.a".parse().unwrap();
        let edge = names("a").edge(&site);
        assert!(names("a").is_ours(&edge));
        assert!(!names("b").is_ours(&edge));
        assert!(!names("a").is_ours("tre.00000000.a.ns") && !names("a").is_ours("default"));
        assert!(!names("a").is_ours(&names("a-b").edge(&"ns.a-b".parse().unwrap())));
    }

    #[test]
    fn interfaces_fit_into_fifteen_letters() {
        assert_eq!(port([10, 0, 0, 1].into()), "r0a000001");
        assert_eq!(inside([169, 254, 21, 1].into()), "t1501");
        assert_eq!(outer("t1501"), "o1501");
    }
}
