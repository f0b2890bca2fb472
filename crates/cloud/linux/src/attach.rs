//! Attaching: an existing namespace, or an interface of this machine, becomes a resource.
//!
//! ```text
//!   netns:NAME   a namespace that is somebody's: it gets an interface of ours, and keeps everything else
//!   link:NAME    an interface of this machine, with something behind it: it is moved into the network, and moved back
//! ```
//!
//! What has another way out than the one given here cannot be closed by a permit list, so it is refused.

use std::net::Ipv4Addr;

use cloud_api::{Attachment, CloudError, Result};
use serde::{Deserialize, Serialize};

use crate::{
    cloud::{ATTACHED_REGION, Inner},
    names::port,
    namespace,
    network::ROUTER,
    shell::{delete_link, ip_in, run, veth},
    state::{Resource, State},
};

/// The interface that an attached namespace gets.
pub(crate) const INTERFACE: &str = "trestle0";

/// What was attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attached {
    Namespace(String),
    Link(String),
}

impl Attached {
    pub(crate) fn parse(id: &str) -> Result<Self> {
        let is_plain = |name: &str| {
            let legal = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
            !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(legal)
        };
        match id.split_once(':') {
            Some(("netns", name)) if is_plain(name) && name.len() <= 255 => {
                Ok(Self::Namespace(name.to_owned()))
            }
            Some(("link", name)) if is_plain(name) && name.len() <= 15 => Ok(Self::Link(name.to_owned())),
            _ => Err(CloudError::invalid(format!(
                "{id:?} is nothing to attach: write netns:NAME for a network namespace, or link:NAME for an interface \
                 of this machine"
            ))),
        }
    }

    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Namespace(name) => format!("netns:{name}"),
            Self::Link(name) => format!("link:{name}"),
        }
    }
}

/// An interface as `ip -j` tells of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    ifname: String,
    link_type: String,
    flags: Vec<String>,
    master: Option<String>,
    addr_info: Vec<Address>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    local: String,
    scope: String,
}

impl Interface {
    fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    /// Addresses that somebody has given it.
    fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addr_info.iter().filter(|address| address.scope != "link").map(|address| address.local.as_str())
    }
}

async fn interfaces(namespace: Option<&str>) -> Result<Vec<Interface>> {
    let text = match namespace {
        Some(name) => run(&["ip", "-n", name, "-j", "address"]).await?,
        None => run(&["ip", "-j", "address"]).await?,
    };
    serde_json::from_str(&text).map_err(|err| CloudError::unavailable(format!("`ip -j address` says {err}")))
}

/// Why a namespace with these interfaces cannot be closed; none if it can.
fn open_ways(interfaces: &[Interface]) -> Option<String> {
    let open = |interface: &&Interface| {
        interface.link_type != "loopback" && interface.ifname != INTERFACE && interface.is_up()
    };
    let open: Vec<&str> = interfaces.iter().filter(open).map(|interface| interface.ifname.as_str()).collect();
    (!open.is_empty()).then(|| open.join(", "))
}

impl Inner {
    /// Checks that something can be attached to a network of ours, and says what attaching it would change.
    pub(crate) async fn inspect_attachment(&self, state: &State, id: &str) -> Result<Attachment> {
        let attached = Attached::parse(id)?;
        if let Some((name, _)) =
            state.resources.iter().find(|(_, other)| other.attached.as_ref() == Some(&attached))
        {
            return Err(CloudError::conflict(format!("{id} is attached already, as {name}")));
        }
        let changes = match &attached {
            Attached::Namespace(name) => self.inspect_namespace(state, name).await?,
            Attached::Link(name) => inspect_link(name).await?,
        };
        let region = ATTACHED_REGION.parse().expect("it is a legal name");
        Ok(Attachment { region, network: None, address: None, changes })
    }

    async fn inspect_namespace(&self, state: &State, name: &str) -> Result<Vec<String>> {
        if !namespace::exists(name) {
            return Err(CloudError::not_found(format!(
                "there is no network namespace {name}; `ip netns` lists them"
            )));
        }
        if name.contains(self.names.mark()) {
            return Err(CloudError::invalid(format!("namespace {name} belongs to a Linux cloud itself")));
        }
        let there = interfaces(Some(name)).await?;
        if let Some(open) = open_ways(&there) {
            return Err(CloudError::conflict(format!(
                "namespace {name} cannot be closed: it has another way out ({open}); take that down first"
            )));
        }
        let overlap = |address: &&str| {
            let within = |ip: Ipv4Addr| state.networks.values().any(|space| space.contains(&ip));
            address.parse().is_ok_and(within)
        };
        if let Some(address) = there.iter().flat_map(Interface::addresses).find(overlap) {
            return Err(CloudError::conflict(format!(
                "namespace {name} has {address}, which is in a network of this cloud"
            )));
        }
        Ok(vec![
            format!("namespace {name}: gets interface {INTERFACE} with an address of its network"),
            format!("namespace {name}: its default route becomes via {ROUTER} dev {INTERFACE}"),
            format!("namespace {name}: nothing else changes; its processes go on"),
        ])
    }

    /// Connects what was attached to its network.
    pub(crate) async fn make_attached(
        &self,
        attached: &Attached,
        network: &str,
        resource: &Resource,
    ) -> Result {
        let (address, port) = (resource.address, port(resource.address));
        match attached {
            Attached::Namespace(name) => {
                if !namespace::exists(name) {
                    return Err(CloudError::not_found(format!("the attached namespace {name} is gone")));
                }
                veth((name, INTERFACE), (network, &port)).await?;
                let lines = [
                    "link set lo up".to_owned(),
                    format!("address replace {address}/32 dev {INTERFACE}"),
                    format!("link set {INTERFACE} up"),
                    format!("route replace {ROUTER} dev {INTERFACE} scope link"),
                    format!("route replace default via {ROUTER} dev {INTERFACE}"),
                ];
                ip_in(name, &lines).await
            }
            Attached::Link(name) => {
                if namespace::has_link(network, &port).await {
                    return Ok(());
                }
                let moved = ["ip", "link", "set", "dev", name, "netns", network, "name", &port];
                run(&moved).await.map(drop).map_err(|err| {
                    CloudError::not_found(format!("the attached interface {name} cannot be had: {err}"))
                })
            }
        }
    }

    /// Gives back what was attached, as it was.
    pub(crate) async fn detach(&self, attached: &Attached, network: &str, resource: &Resource) -> Result {
        match attached {
            Attached::Namespace(name) if namespace::exists(name) => delete_link(name, INTERFACE).await,
            Attached::Namespace(_) => Ok(()),
            Attached::Link(name) => {
                let port = port(resource.address);
                if !namespace::has_link(network, &port).await {
                    return Ok(());
                }
                // The namespace this process is in, which need not be the first one.
                let here = std::process::id().to_string();
                ip_in(network, &[format!("link set {port} down"), format!("address flush dev {port}")])
                    .await?;
                run(&["ip", "-n", network, "link", "set", "dev", &port, "netns", &here, "name", name])
                    .await
                    .map(drop)
            }
        }
    }
}

async fn inspect_link(name: &str) -> Result<Vec<String>> {
    let there = interfaces(None).await?;
    let none =
        || CloudError::not_found(format!("this machine has no interface {name}; `ip link` lists them"));
    let interface = there.iter().find(|interface| interface.ifname == name).ok_or_else(none)?;
    let refuse = |why: String| Err(CloudError::conflict(format!("interface {name} {why}")));
    if interface.link_type == "loopback" {
        return refuse("is this machine's loopback".to_owned());
    }
    if let Some(master) = &interface.master {
        return refuse(format!("is a port of {master}; take it out first (`ip link set {name} nomaster`)"));
    }
    let addresses: Vec<&str> = interface.addresses().collect();
    if !addresses.is_empty() {
        return refuse(format!(
            "has addresses of this machine ({}); remove them first",
            addresses.join(", ")
        ));
    }
    Ok(vec![
        format!("interface {name}: is moved into its network's namespace, and back when it is deleted"),
        format!("what is behind it must have the address it is given, as a /32, and {ROUTER} as its router"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_they_say_or_refused() {
        assert_eq!(Attached::parse("netns:web"), Ok(Attached::Namespace("web".to_owned())));
        assert_eq!(Attached::parse("link:tap0").unwrap().uri(), "link:tap0");
        for bad in [
            "",
            "web",
            "netns:",
            "netns:../x",
            "netns:-a",
            "link:a b",
            "link:a;b",
            "link:0123456789abcdef",
            "vm:1",
        ] {
            assert!(Attached::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_way_out_is_told() {
        let text = r#"[{"ifname":"lo","link_type":"loopback","flags":["UP"],"addr_info":[]},
            {"ifname":"eth1","link_type":"ether","flags":["BROADCAST","UP"],
             "addr_info":[{"local":"10.0.0.9","scope":"global"},{"local":"fe80::1","scope":"link"}]},
            {"ifname":"eth2","link_type":"ether","flags":[],"addr_info":[]}]"#;
        let read: Vec<Interface> = serde_json::from_str(text).unwrap();
        assert_eq!(open_ways(&read).as_deref(), Some("eth1"));
        assert_eq!(read[1].addresses().collect::<Vec<_>>(), ["10.0.0.9"]);
    }
}
