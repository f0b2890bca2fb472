//! What a user writes for a cluster: IBM's own JSON of a request for one, with a zone or several. No network settings.

use cloud_api::{CloudError, CloudErrorKind, field_among};
use model::Segment;
use serde_json::{Map, Value};

use super::zone_in;
use crate::Result;
use crate::names::MOST_IN_CLUSTER_NAME;

/// Fields that set the network, which is Trestle's to set.
const NETWORK: [&str; 5] = [
    "podSubnet",
    "serviceSubnet",
    "securityGroupIDs",
    "disablePublicServiceEndpoint",
    "disableOutboundTrafficProtection",
];
const NETWORK_OF_POOL: [&str; 2] = ["vpcID", "securityGroupIDs"];
/// Fields that Trestle sets itself.
const OWN: [&str; 2] = ["name", "provider"];
/// Fields that Trestle reads.
const READ: [&str; 3] = ["workerPool", "kubeVersion", "zone"];
const READ_OF_POOL: [&str; 4] = ["flavor", "workerCount", "zones", "name"];
/// The first version of Kubernetes whose clusters are closed to the outside unless somebody opens them.
const FIRST: (u32, u32) = (1, 30);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterDescription {
    pub(crate) zones: Vec<String>,
    pub(crate) region: Segment,
    /// Workers per zone.
    pub(crate) workers: u64,
    pub(crate) fields: Map<String, Value>,
    /// Has a name and a count of workers, whether they were given or not.
    pub(crate) pool: Map<String, Value>,
}

/// Refuses a name that a cluster's VPC cannot have.
pub(crate) fn check_name(name: &Segment) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let text = name.as_str();
    match text.len() <= MOST_IN_CLUSTER_NAME && text.bytes().all(legal) && !text.ends_with('-') {
        true => Ok(()),
        false => Err(CloudError::invalid(format!(
            "a cluster in IBM Cloud cannot be called {name}: its VPC has the name in its own, so it is of small letters, \
             digits and hyphens, {MOST_IN_CLUSTER_NAME} at most, and ends with none"
        ))),
    }
}

fn invalid(what: impl std::fmt::Display) -> CloudError {
    CloudError::invalid(format!("the description of a cluster in IBM Cloud {what}"))
}

impl ClusterDescription {
    pub(crate) fn of(mut fields: Map<String, Value>) -> Result<Self> {
        let shape = "has a workerPool such as {\"flavor\": \"bx2.4x16\", \"workerCount\": 2}";
        check_fields(&fields, &NETWORK, &OWN, &READ)?;
        let Some(Value::Object(mut pool)) = fields.remove("workerPool") else { return Err(invalid(shape)) };
        check_fields(&pool, &NETWORK_OF_POOL, &[], &READ_OF_POOL)?;
        check_version(fields.get("kubeVersion"))?;
        if !pool.get("flavor").is_some_and(Value::is_string) {
            return Err(invalid(shape));
        }
        let workers = match pool.get("workerCount") {
            None => 1,
            Some(count) => count
                .as_u64()
                .filter(|count| *count > 0)
                .ok_or_else(|| invalid(format!("has the workerCount {count}, and not one of 1 or more")))?,
        };
        let (zones, region) = zones_in(fields.remove("zone"), pool.remove("zones"))?;
        pool.insert("workerCount".to_owned(), workers.into());
        if pool.get("name").is_none_or(Value::is_null) {
            pool.insert("name".to_owned(), "default".into());
        }
        Ok(Self { zones, region, workers, fields, pool })
    }
}

/// Refuses fields that Trestle sets, and such as IBM takes for those that Trestle reads, in another spelling: IBM would
/// take either of the two.
fn check_fields(fields: &Map<String, Value>, network: &[&str], own: &[&str], read: &[&str]) -> Result<()> {
    let others = fields.iter().filter(|(name, _)| !read.contains(&name.as_str()));
    let others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(network) = field_among(&others, network) {
        return Err(sets_network(network));
    }
    if let Some(own) = field_among(&others, own) {
        return Err(invalid(format!("has {own}, which Trestle sets; leave it out")));
    }
    match field_among(&others, read) {
        None => Ok(()),
        Some(other) => Err(invalid(format!("has {other}; it is one of {}, spelled so", read.join(", ")))),
    }
}

fn sets_network(field: &str) -> CloudError {
    invalid(format!("sets the network with {field}, which Trestle does; leave it out"))
}

/// The zones, all of one region: `zone`, or `zones` of the pool.
fn zones_in(zone: Option<Value>, zones: Option<Value>) -> Result<(Vec<String>, Segment)> {
    let given = match (zone, zones) {
        (Some(zone), None) => vec![zone],
        (None, Some(Value::Array(zones))) if !zones.is_empty() => zones,
        (None, None) => return Err(invalid("names no zone")),
        _ => return Err(invalid("names its zones once: as zone, or as workerPool.zones [{\"id\": …}]")),
    };
    let (mut names, mut regions) = (Vec::new(), Vec::new());
    for zone in &given {
        if let Some(subnet) = field_among(zone, &["subnetID"]) {
            return Err(sets_network(subnet));
        }
        let named = zone.get("id").unwrap_or(zone);
        let (name, region) =
            zone_in(named).ok_or_else(|| invalid(format!("has the zone {zone}, which is none")))?;
        names.push(name);
        regions.push(region);
    }
    names.sort();
    names.dedup();
    regions.dedup();
    match regions.pop() {
        Some(region) if regions.is_empty() => Ok((names, region)),
        _ => Err(invalid("has zones of several regions; a cluster is in one")),
    }
}

fn check_version(version: Option<&Value>) -> Result<()> {
    let Some(version) = version else { return Ok(()) };
    let text = version.as_str().unwrap_or_default();
    if text.contains("openshift") {
        return Err(CloudError::new(
            CloudErrorKind::Unsupported,
            format!("{text} is Red Hat OpenShift, which Trestle does not make; name a version of Kubernetes"),
        ));
    }
    let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) >= FIRST => Ok(()),
        (Some(_), Some(_)) => Err(invalid(format!(
            "has the kubeVersion {text}; before {}.{} IBM lets workers reach everybody",
            FIRST.0, FIRST.1
        ))),
        _ => Err(invalid(format!("has the kubeVersion {version}, which is none such as 1.33.5"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClusterDescription> {
        ClusterDescription::of(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn descriptions_name_zones_and_no_network() {
        let fine = read(
            r#"{"zone":"us-south-2","kubeVersion":"1.33.5","workerPool":{"flavor":"bx2.4x16","workerCount":2}}"#,
        );
        let fine = fine.unwrap();
        assert_eq!((fine.zones.as_slice(), fine.workers), (&["us-south-2".to_owned()][..], 2));
        assert_eq!(fine.region.as_str(), "us-south");
        let two =
            read(r#"{"workerPool":{"flavor":"f","zones":[{"id":"eu-de-3"},{"id":"eu-de-1"}]}}"#).unwrap();
        assert_eq!((two.zones, two.workers), (vec!["eu-de-1".to_owned(), "eu-de-3".to_owned()], 1));
        for bad in [
            r#"{"workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","workerPool":7}"#,
            r#"{"zone":"us-south-1","workerPool":{}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","workerCount":0}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","zones":[{"id":"us-south-2"}]}}"#,
            r#"{"workerPool":{"flavor":"f","zones":[{"id":"us-south-1"},{"id":"eu-de-1"}]}}"#,
            r#"{"workerPool":{"flavor":"f","zones":[{"id":"us-south-1","subnetID":"s"}]}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","vpcID":"v"}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","securityGroupIDs":[]}}"#,
            r#"{"zone":"us-south-1","securityGroupIDs":[],"workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","podSubnet":"10.0.0.0/16","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","disableOutboundTrafficProtection":true,"workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","name":"n","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","podsubnet":"10.0.0.0/16","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","DisablePublicServiceEndpoint":false,"workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","VPCID":"v"}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","SecurityGroupIDs":[]}}"#,
            r#"{"workerPool":{"flavor":"f","zones":[{"id":"us-south-1","SubnetID":"s"}]}}"#,
            r#"{"zone":"us-south-1","Name":"n","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f"},"WorkerPool":{"vpcID":"v"}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","Zones":[{"id":"us-south-1","subnetID":"s"}]}}"#,
            r#"{"zone":"us-south-1","workerPool":{"flavor":"f","WorkerCount":1000}}"#,
            r#"{"zone":"us-south-1","KubeVersion":"1.29.9","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","kubeVersion":"1.29.9","workerPool":{"flavor":"f"}}"#,
            r#"{"zone":"us-south-1","kubeVersion":"new","workerPool":{"flavor":"f"}}"#,
        ] {
            assert_eq!(read(bad).unwrap_err().kind, CloudErrorKind::Invalid, "{bad}");
        }
        let openshift = r#"{"zone":"us-south-1","kubeVersion":"4.18_openshift","workerPool":{"flavor":"f"}}"#;
        assert_eq!(read(openshift).unwrap_err().kind, CloudErrorKind::Unsupported);
    }

    #[test]
    fn names_fit_those_of_vpcs() {
        for (name, fits) in [("web-1", true), ("Web", false), ("a_b", false), ("a-", false)] {
            assert_eq!(check_name(&name.parse().unwrap()).is_ok(), fits, "{name}");
        }
        assert!(check_name(&"x".repeat(45).parse().unwrap()).is_err());
    }
}
