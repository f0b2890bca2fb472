//! What a user writes for a resource: IBM's own JSON of a request for one, without network settings. An instance has a
//! profile and an image, an endpoint has a target, a cluster has a worker pool.

mod cluster;

use cloud_api::{CloudError, field_among, network_of_cluster};
use model::Segment;
use serde_json::{Map, Value};

pub(crate) use self::cluster::ClusterDescription;
use crate::Result;

/// Fields that set the network, which is Trestle's to set.
const NETWORK: [&str; 6] = [
    "vpc",
    "primary_network_attachment",
    "network_attachments",
    "primary_network_interface",
    "network_interfaces",
    "cluster_network_attachments",
];
/// Fields that Trestle sets itself: of an instance, of an endpoint.
const OWN: [&str; 2] = ["name", "resource_group"];
const OWN_OF_ENDPOINT: [&str; 5] = ["vpc", "ips", "security_groups", "name", "resource_group"];
/// Fields of a managed cluster whose worker pool is not where it should be.
const CLUSTER: [&str; 2] = ["worker_pool", "kubeVersion"];

/// What a description is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Described {
    Instance(Description),
    Endpoint(Description),
    Cluster(ClusterDescription),
}

/// Of an instance, or of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    pub(crate) zone: String,
    pub(crate) region: Segment,
    /// What the request says of it.
    pub(crate) fields: Map<String, Value>,
}

impl Described {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(fields) if fields.contains_key("target") => endpoint(fields).map(Self::Endpoint),
            Ok(fields) if fields.contains_key("workerPool") => {
                ClusterDescription::of(fields).map(Self::Cluster)
            }
            _ => instance(text).map(Self::Instance),
        }
    }

    /// The network that a resource of a name is to be in.
    pub(crate) fn network(&self, name: &Segment) -> Result<Segment> {
        match self {
            Self::Instance(description) | Self::Endpoint(description) => Ok(description.region.clone()),
            Self::Cluster(description) => {
                cluster::check_name(name)?;
                network_of_cluster(&description.region, name)
            }
        }
    }
}

fn instance(text: &str) -> Result<Description> {
    let invalid =
        |what: String| CloudError::invalid(format!("the description of an IBM Cloud instance {what}"));
    let shape = "is JSON such as {\"zone\": {\"name\": \"us-south-1\"}, \"profile\": {\"name\": \"bx2-2x8\"}, \"image\": \
                 {\"id\": …}, \"keys\": [{\"id\": …}]}";
    let mut fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|err| invalid(format!("{shape}; this is not: {err}")))?;
    if let Some(field) = CLUSTER.iter().find(|name| fields.contains_key(**name)) {
        return Err(invalid(format!(
            "has {field}, which instances do not; a managed Kubernetes cluster is described with a workerPool"
        )));
    }
    let given = Value::Object(fields.clone());
    if let Some(network) = field_among(&given, &NETWORK) {
        return Err(invalid(format!("sets the network with {network}, which Trestle does; leave it out")));
    }
    if let Some(own) = field_among(&given, &OWN) {
        return Err(invalid(format!("has {own}, which Trestle sets; leave it out")));
    }
    let zone = fields.get("zone").ok_or_else(|| invalid("names no zone".to_owned()))?;
    let (zone, region) =
        zone_in(zone).ok_or_else(|| invalid(format!("has the zone {zone}, which is none")))?;
    if let Some(needed) = ["profile", "image"].iter().find(|needed| !fields.contains_key(**needed)) {
        return Err(invalid(format!("has no {needed}")));
    }
    fields.insert("zone".to_owned(), Map::from_iter([("name".to_owned(), zone.clone().into())]).into());
    Ok(Description { zone, region, fields })
}

fn endpoint(mut fields: Map<String, Value>) -> Result<Description> {
    let invalid =
        |what: String| CloudError::invalid(format!("the description of an IBM Cloud endpoint {what}"));
    if let Some(own) = field_among(&Value::Object(fields.clone()), &OWN_OF_ENDPOINT) {
        return Err(invalid(format!("has {own}, which Trestle sets; leave it out")));
    }
    if !fields.get("target").is_some_and(Value::is_object) {
        let shape = "has a target such as {\"resource_type\": \"provider_cloud_service\", \"crn\": …}";
        return Err(invalid(shape.to_owned()));
    }
    let zone = fields.remove("zone").ok_or_else(|| invalid("names no zone".to_owned()))?;
    let (zone, region) =
        zone_in(&zone).ok_or_else(|| invalid(format!("has the zone {zone}, which is none")))?;
    Ok(Description { zone, region, fields })
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_description_tells_the_kind() {
        let endpoint =
            r#"{"zone":"us-south-2","target":{"resource_type":"provider_cloud_service","crn":"crn:v1:x"}}"#;
        let Described::Endpoint(read) = Described::parse(endpoint).unwrap() else { panic!("an endpoint") };
        assert_eq!((read.zone.as_str(), read.region.as_str()), ("us-south-2", "us-south"));
        assert_eq!(read.fields.keys().collect::<Vec<_>>(), ["target"]);
        let instance = r#"{"zone":"us-south-2","profile":{"name":"b"},"image":{"id":"i"}}"#;
        assert!(matches!(Described::parse(instance), Ok(Described::Instance(_))));
        for bad in [
            r#"{"target":{"crn":"c"}}"#,
            r#"{"zone":"us-south","target":{"crn":"c"}}"#,
            r#"{"zone":"us-south-1","target":"c"}"#,
            r#"{"zone":"us-south-1","target":{"crn":"c"},"ips":[]}"#,
            r#"{"zone":"us-south-1","target":{"crn":"c"},"security_groups":[]}"#,
            r#"{"zone":"us-south-1","target":{"crn":"c"},"vpc":{}}"#,
            r#"{"zone":"us-south-1","target":{"crn":"c"},"VPC":{}}"#,
            r#"{"zone":"us-south-1","target":{"crn":"c"},"SecurityGroups":[]}"#,
        ] {
            assert!(Described::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn descriptions_name_a_zone_and_no_network() {
        let fine = r#"{"zone":"us-south-2","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#;
        let fine = instance(fine).unwrap();
        assert_eq!((fine.zone.as_str(), fine.region.as_str()), ("us-south-2", "us-south"));
        assert_eq!(fine.fields["zone"], json!({"name": "us-south-2"}));
        let with = |more: &str| {
            format!(
                r#"{{"zone":{{"name":"us-south-1"}},"profile":{{"name":"b"}},"image":{{"id":"i"}}{more}}}"#
            )
        };
        assert!(instance(&with("")).is_ok());
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
            assert!(instance(&bad).is_err(), "{bad}");
        }
    }
}
