//! What a user writes for an instance: Compute Engine's own JSON, and the zone. No network settings.

use cloud_api::{CloudError, field_among};
use model::Segment;
use serde_json::{Map, Value};

/// Fields that set the network, which is Trestle's to set.
const NETWORK: [&str; 4] = ["networkInterfaces", "tags", "canIpForward", "privateIpv6GoogleAccess"];
/// Fields that Trestle sets itself, or that only Google sets.
const OWN: [&str; 6] = ["name", "description", "id", "selfLink", "kind", "status"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    pub(crate) zone: String,
    pub(crate) region: Segment,
    pub(crate) fields: Map<String, Value>,
}

impl Description {
    pub(crate) fn parse(text: &str) -> Result<Self, CloudError> {
        let invalid =
            |what: String| CloudError::invalid(format!("the description of a Google Cloud instance {what}"));
        let shape =
            "is JSON such as {\"zone\": \"us-west1-a\", \"machineType\": \"e2-micro\", \"disks\": […]}";
        let mut fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|err| invalid(format!("{shape}; this is not: {err}")))?;
        let described = Value::Object(fields.clone());
        if let Some(network) = field_among(&described, &NETWORK) {
            return Err(invalid(format!(
                "sets the network with {network}, which Trestle does; leave it out"
            )));
        }
        if let Some(own) = field_among(&described, &OWN) {
            return Err(invalid(format!("has {own}, which Trestle sets; leave it out")));
        }
        let zone = match fields.remove("zone") {
            Some(Value::String(zone)) => zone,
            _ => return Err(invalid("names no zone".to_owned())),
        };
        let bad = || invalid(format!("has the zone {zone}, which is none"));
        let region = zone.rsplit_once('-').and_then(|(region, _)| region.parse().ok()).ok_or_else(bad)?;
        for needed in ["machineType", "disks"] {
            if !fields.contains_key(needed) {
                return Err(invalid(format!("has no {needed}")));
            }
        }
        if let Some(Value::String(machine)) = fields.get("machineType")
            && !machine.contains('/')
        {
            let full = format!("zones/{zone}/machineTypes/{machine}");
            fields.insert("machineType".to_owned(), full.into());
        }
        Ok(Self { zone, region, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_a_zone_and_no_network() {
        let fine =
            Description::parse(r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[]}"#).unwrap();
        assert_eq!((fine.zone.as_str(), fine.region.as_str()), ("us-west1-a", "us-west1"));
        assert_eq!(fine.fields["machineType"], "zones/us-west1-a/machineTypes/e2-micro");
        for bad in [
            "",
            "7",
            "{}",
            r#"{"zone":"nowhere","machineType":"e2-micro","disks":[]}"#,
            r#"{"zone":"us-west1-a","disks":[]}"#,
            r#"{"zone":"us-west1-a","machineType":"e2-micro"}"#,
            r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[],"networkInterfaces":[]}"#,
            r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[],"tags":{}}"#,
            r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[],"network_interfaces":[]}"#,
            r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[],"name":"x"}"#,
        ] {
            assert!(Description::parse(bad).is_err(), "{bad}");
        }
    }
}
