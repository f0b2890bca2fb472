//! What a user writes for an instance: IBM's own JSON of an instance prototype. No network settings.

use cloud_api::{CloudError, field_among};
use model::Segment;
use serde_json::{Map, Value, json};

/// Fields that set the network, which is Trestle's to set.
const NETWORK: [&str; 6] = [
    "vpc",
    "primary_network_attachment",
    "network_attachments",
    "primary_network_interface",
    "network_interfaces",
    "cluster_network_attachments",
];
/// Fields that Trestle sets itself.
const OWN: [&str; 2] = ["name", "resource_group"];

/// Fields of a managed cluster whose worker pool is not where it should be.
const CLUSTER: [&str; 2] = ["worker_pool", "kubeVersion"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    pub(crate) zone: String,
    pub(crate) region: Segment,
    pub(crate) fields: Map<String, Value>,
}

impl Description {
    pub(crate) fn parse(text: &str) -> Result<Self, CloudError> {
        let invalid =
            |what: String| CloudError::invalid(format!("the description of an IBM Cloud instance {what}"));
        let shape = "is JSON such as {\"zone\": {\"name\": \"us-south-1\"}, \"profile\": {\"name\": \"bx2-2x8\"}, \"image\": \
                     {\"id\": …}, \"keys\": [{\"id\": …}]}";
        let fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|err| invalid(format!("{shape}; this is not: {err}")))?;
        if let Some(field) = CLUSTER.iter().find(|name| fields.contains_key(**name)) {
            return Err(invalid(format!(
                "has {field}, which instances do not; a managed Kubernetes cluster is described with a workerPool"
            )));
        }
        let given = Value::Object(fields);
        if let Some(network) = field_among(&given, &NETWORK) {
            return Err(invalid(format!(
                "sets the network with {network}, which Trestle does; leave it out"
            )));
        }
        if let Some(own) = field_among(&given, &OWN) {
            return Err(invalid(format!("has {own}, which Trestle sets; leave it out")));
        }
        let Value::Object(mut fields) = given else { return Err(invalid(shape.to_owned())) };
        let zone = fields.get("zone").ok_or_else(|| invalid("names no zone".to_owned()))?;
        let (zone, region) =
            zone_in(zone).ok_or_else(|| invalid(format!("has the zone {zone}, which is none")))?;
        for needed in ["profile", "image"] {
            if !fields.contains_key(needed) {
                return Err(invalid(format!("has no {needed}")));
            }
        }
        fields.insert("zone".to_owned(), json!({"name": zone}));
        Ok(Self { zone, region, fields })
    }
}

/// A zone and its region. A zone is its region and a number, as a text or as an identity.
pub(crate) fn zone_in(value: &Value) -> Option<(String, Segment)> {
    let zone = value.as_str().or_else(|| value.get("name")?.as_str())?;
    let (region, number) = zone.rsplit_once('-')?;
    number.parse::<u8>().ok()?;
    Some((zone.to_owned(), region.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_a_zone_and_no_network() {
        let fine = r#"{"zone":"us-south-2","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#;
        let fine = Description::parse(fine).unwrap();
        assert_eq!((fine.zone.as_str(), fine.region.as_str()), ("us-south-2", "us-south"));
        assert_eq!(fine.fields["zone"], json!({"name": "us-south-2"}));
        let with = |more: &str| {
            format!(
                r#"{{"zone":{{"name":"us-south-1"}},"profile":{{"name":"b"}},"image":{{"id":"i"}}{more}}}"#
            )
        };
        assert!(Description::parse(&with("")).is_ok());
        for bad in [
            String::new(),
            "7".to_owned(),
            "{}".to_owned(),
            with(r#","vpc":{"id":"v"}"#),
            with(r#","primary_network_attachment":{}"#),
            with(r#","name":"x""#),
            with(r#","VPC":{"id":"v"}"#),
            with(r#","networkInterfaces":[]"#),
            with("").replace("us-south-1", "nowhere"),
            with("").replace("us-south-1", "us-south"),
            with("").replace("profile", "profil"),
            with("").replace("image", "picture"),
        ] {
            assert!(Description::parse(&bad).is_err(), "{bad}");
        }
    }
}
