//! What kinds of resources have in common in all clouds. The description tells the kind, and the plugin reads it.
//!
//! A private endpoint, an address that stands for a service of somebody else, is a resource like a machine with two
//! differences: it is made only where the cloud's configuration says so, and it never opens a connection, so that its
//! permit list speaks of inbound traffic only. A managed cluster is no resource yet.

use model::{Direction, PermitEntry};

use crate::CloudError;

/// Refuses to make an endpoint unless the configuration has the flag.
pub fn endpoints_allowed(flag: bool, cloud: &str) -> Result<(), CloudError> {
    match flag {
        true => Ok(()),
        false => Err(CloudError::unsupported(format!(
            "the description is that of a private endpoint, which {cloud} makes only with `private_endpoints: true` in the \
             cloud's configuration (or `trestle plugin … --private-endpoints`)"
        ))),
    }
}

/// Refuses the description of a managed Kubernetes cluster, by the field that tells.
pub fn no_clusters(field: Option<&&str>, cloud: &str) -> Result<(), CloudError> {
    match field {
        None => Ok(()),
        Some(field) => Err(CloudError::unsupported(format!(
            "the description has {field} and is that of a managed Kubernetes cluster; in {cloud}, Trestle makes machines and \
             private endpoints only. See docs/limits.md"
        ))),
    }
}

/// Refuses entries that an endpoint cannot mean anything by.
pub fn only_inbound(entries: &[PermitEntry]) -> Result<(), CloudError> {
    match entries.iter().find(|entry| entry.traffic.direction == Direction::Outbound) {
        None => Ok(()),
        Some(entry) => Err(CloudError::unsupported(format!(
            "the entry {} is for outbound traffic, and a private endpoint opens no connections; permit inbound traffic at the \
             endpoint and outbound traffic at those who call it",
            entry.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{EntryName, Ports, Protocol, Traffic};

    use super::*;
    use crate::CloudErrorKind;

    #[test]
    fn what_an_endpoint_cannot_be_is_refused_by_name() {
        let refused = endpoints_allowed(false, "IBM Cloud").unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported);
        assert!(refused.message.contains("private_endpoints"), "{refused}");
        assert!(no_clusters(None, "Azure").is_ok());
        let refused = no_clusters(Some(&"nodePools"), "Azure").unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported);
        let entry = |direction| {
            let traffic = Traffic::new(direction, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
            let targets = ["10.0.0.1".parse().unwrap()].into();
            PermitEntry::new(EntryName::reported("e"), traffic, targets, BTreeSet::new()).unwrap()
        };
        assert!(only_inbound(&[entry(Direction::Inbound)]).is_ok());
        let refused = only_inbound(&[entry(Direction::Inbound), entry(Direction::Outbound)]).unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported);
    }
}
