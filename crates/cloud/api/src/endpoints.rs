//! What private endpoints have in common in all clouds: an address that stands for a service of somebody else.
//!
//! An endpoint is a resource like a machine, with two differences: it is made only where the cloud's configuration says
//! so, and it never opens a connection, so that its permit list speaks of inbound traffic only.

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
