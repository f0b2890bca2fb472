//! Kinds of resources: which one a description is of. An instance has a profile and an image, an endpoint has a target, a
//! cluster has a worker pool.

use cloud_api::{CloudError, field_among, network_of_cluster};
use model::Segment;
use serde_json::{Map, Value};

use crate::{
    Result,
    clusters::ClusterDescription,
    description::{Description, zone_in},
};

/// Fields of an endpoint that Trestle sets.
const OWN: [&str; 5] = ["vpc", "ips", "security_groups", "name", "resource_group"];

/// What a description is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Described {
    Instance(Description),
    Endpoint(EndpointDescription),
    Cluster(ClusterDescription),
}

/// What a user writes for an endpoint: IBM's own JSON of an endpoint gateway prototype, and the zone of its address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndpointDescription {
    pub(crate) zone: String,
    pub(crate) region: Segment,
    pub(crate) fields: Map<String, Value>,
}

impl Described {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(fields) if fields.contains_key("target") => {
                EndpointDescription::of(fields).map(Self::Endpoint)
            }
            Ok(fields) if fields.contains_key("workerPool") => {
                ClusterDescription::of(fields).map(Self::Cluster)
            }
            _ => Description::parse(text).map(Self::Instance),
        }
    }

    /// The network that a resource of a name is to be in.
    pub(crate) fn network(&self, name: &Segment) -> Result<Segment> {
        match self {
            Self::Instance(description) => Ok(description.region.clone()),
            Self::Endpoint(description) => Ok(description.region.clone()),
            Self::Cluster(description) => {
                crate::clusters::check_name(name)?;
                network_of_cluster(&description.region, name)
            }
        }
    }
}

impl EndpointDescription {
    fn of(fields: Map<String, Value>) -> Result<Self> {
        let invalid =
            |what: String| CloudError::invalid(format!("the description of an IBM Cloud endpoint {what}"));
        let given = Value::Object(fields);
        if let Some(own) = field_among(&given, &OWN) {
            return Err(invalid(format!("has {own}, which Trestle sets; leave it out")));
        }
        let shape = "has a target such as {\"resource_type\": \"provider_cloud_service\", \"crn\": …}";
        let mut fields = match given {
            Value::Object(fields) if fields.get("target").is_some_and(Value::is_object) => fields,
            _ => return Err(invalid(shape.to_owned())),
        };
        let zone = fields.remove("zone").ok_or_else(|| invalid("names no zone".to_owned()))?;
        let (zone, region) =
            zone_in(&zone).ok_or_else(|| invalid(format!("has the zone {zone}, which is none")))?;
        Ok(Self { zone, region, fields })
    }
}

#[cfg(test)]
mod tests {
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
}
