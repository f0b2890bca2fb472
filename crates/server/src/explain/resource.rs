//! The layer of permit lists: what they say of a connection that has a resource at one end or both.

use std::net::IpAddr;

use model::{Direction, ResourceName, policy::output::Protocol};
use orchestrator::execute::ResourceView;
use wire::trestle::v1::{ExplainedEnd, ExplainedSide, ExplainedStep};

use crate::reach::permitted;

/// One side of a connection, at a resource.
pub struct AtResource<'a> {
    pub resource: &'a ResourceView,
    pub direction: Direction,
    pub peer: Option<IpAddr>,
    /// As the user wrote it.
    pub peer_name: &'a str,
    pub protocol: Protocol,
    pub port: Option<u16>,
}

impl AtResource<'_> {
    pub fn side(&self) -> ExplainedSide {
        let decided = self.entry();
        let allowed = decided.is_some();
        let details = match decided {
            Some(name) => vec![format!("rule {name} of {}", self.resource.name)],
            None if self.peer.is_none() => vec![format!("{} has no address yet", self.peer_name)],
            None => vec![format!(
                "none of the {} entries of {} permits it, and what is not permitted is denied",
                self.resource.permit_list.len(),
                self.resource.name
            )],
        };
        let outcome = if allowed { "allow" } else { "no match" }.to_owned();
        let mut steps = vec![ExplainedStep { stage: "permit list".to_owned(), outcome, details }];
        if !allowed {
            let details = Vec::new();
            steps.push(ExplainedStep { stage: "default".to_owned(), outcome: "drop".to_owned(), details });
        }
        ExplainedSide { allowed, steps }
    }

    /// The entry that permits it. Without a port: one that permits all.
    fn entry(&self) -> Option<String> {
        let peer = self.peer?;
        self.resource.permit_list.iter().find_map(|entry| {
            let ports = permitted(std::slice::from_ref(entry), self.direction, peer, self.protocol);
            let permits = self.port.map_or_else(|| ports.is_all(), |port| ports.contains(port));
            permits.then(|| entry.name.to_string())
        })
    }

    pub fn remedy(&self) -> String {
        let way = match self.direction {
            Direction::Inbound => "--in",
            Direction::Outbound => "--out",
        };
        let protocol = self.protocol.to_string().to_lowercase();
        let port = self.port.map(|port| format!(" --port {port}")).unwrap_or_default();
        format!(
            "trestle rule add {} {way} --protocol {protocol}{port} --peer {}",
            self.resource.name, self.peer_name
        )
    }
}

pub fn end(resource: &ResourceView) -> ExplainedEnd {
    ExplainedEnd {
        workloads: vec![format!("resource {}", resource.name)],
        address: resource.ip.clone().unwrap_or_default(),
        enforced_on: vec![format!("{}.{}", resource.name.namespace, resource.name.cloud)],
    }
}

/// `namespace.cloud.name`, if that is what a caller wrote.
pub fn name(text: &str) -> Option<ResourceName> {
    if text.parse::<IpAddr>().is_ok() { None } else { text.parse().ok() }
}
