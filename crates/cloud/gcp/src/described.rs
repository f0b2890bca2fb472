//! Kinds of resources: which one a description is of. An instance has a zone; an endpoint has a `url` or a `bundle`; a cluster
//! has a `cluster`.

use cloud_api::{CloudError, network_of_cluster};
use model::Segment;
use serde_json::{Map, Value};

use crate::{
    clusters::description::{ClusterDescription, TELLING},
    description::Description,
    endpoints::Spot,
    ground::Result,
};

/// What a description is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Described {
    Instance(Description),
    Endpoint(Service),
    Cluster(ClusterDescription),
}

/// What an endpoint stands for: a service attachment of a region, or a bundle of Google's own APIs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) target: String,
    pub(crate) spot: Spot,
    /// The network it lives in.
    pub(crate) network: Segment,
}

const BUNDLES: [&str; 2] = ["all-apis", "vpc-sc"];

impl Described {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(fields) if fields.contains_key("url") || fields.contains_key("bundle") => {
                Service::of(&fields).map(Self::Endpoint)
            }
            Ok(fields) if TELLING.iter().any(|name| fields.contains_key(*name)) => {
                ClusterDescription::parse(fields).map(Self::Cluster)
            }
            _ => Description::parse(text).map(Self::Instance),
        }
    }

    /// The network that a resource of a name is to be in.
    pub(crate) fn network(&self, name: &Segment) -> Result<Segment> {
        match self {
            Self::Instance(description) => Ok(description.region.clone()),
            Self::Endpoint(service) => Ok(service.network.clone()),
            Self::Cluster(cluster) => network_of_cluster(&cluster.region, name),
        }
    }
}

impl Service {
    fn of(fields: &Map<String, Value>) -> Result<Self> {
        let invalid = |what: String| {
            CloudError::invalid(format!(
                "the description of a private endpoint in Google Cloud {what}; it is {{\"url\": \
                 \"projects/…/regions/…/serviceAttachments/…\"}} or {{\"bundle\": \"all-apis\"}}"
            ))
        };
        let (spot, target) = match fields.iter().collect::<Vec<_>>().as_slice() {
            [(key, Value::String(url))] if *key == "url" => {
                let target = url.find("projects/").map(|start| url[start..].to_owned()).unwrap_or_default();
                match target.split('/').collect::<Vec<_>>().as_slice() {
                    ["projects", _, "regions", region, "serviceAttachments", _] => {
                        (Spot::Region((*region).to_owned()), target)
                    }
                    _ => return Err(invalid(format!("has the url {url}, which is no service attachment's"))),
                }
            }
            [(key, Value::String(bundle))] if *key == "bundle" => match BUNDLES.contains(&bundle.as_str()) {
                true => (Spot::Global, bundle.clone()),
                false => return Err(invalid(format!("has the bundle {bundle}, which is none"))),
            },
            [(key, _)] => return Err(invalid(format!("has a {key} that is no text"))),
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                return Err(invalid(format!("has {}", names.join(", "))));
            }
        };
        let network = spot.network().ok_or_else(|| invalid(format!("names no region: {target}")))?;
        Ok(Self { target, spot, network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_tells_the_kind() {
        let read = |text: &str| match Described::parse(text).unwrap() {
            Described::Endpoint(service) => (service.network.to_string(), service.target),
            Described::Instance(description) => (description.region.to_string(), "vm".to_owned()),
            Described::Cluster(cluster) => (cluster.region.to_string(), cluster.location),
        };
        let attachment = "projects/p/regions/us-west1/serviceAttachments/s";
        for url in [attachment.to_owned(), format!("https://www.googleapis.com/compute/v1/{attachment}")] {
            let described = read(&format!(r#"{{"url":"{url}"}}"#));
            assert_eq!(described, ("us-west1-endpoints".to_owned(), attachment.to_owned()));
        }
        assert_eq!(read(r#"{"bundle":"vpc-sc"}"#), ("global-endpoints".to_owned(), "vpc-sc".to_owned()));
        let instance = r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[]}"#;
        assert_eq!(read(instance), ("us-west1".to_owned(), "vm".to_owned()));
        let cluster = r#"{"location":"us-west1-b","cluster":{"initialNodeCount":1}}"#;
        assert_eq!(read(cluster), ("us-west1".to_owned(), "us-west1-b".to_owned()));
        for bad in [
            r#"{"nodePools":[],"location":"us-west1"}"#,
            r#"{"url":7}"#,
            r#"{"url":"https://example.com"}"#,
            r#"{"url":"projects/p/global/serviceAttachments/s"}"#,
            r#"{"bundle":"some-apis"}"#,
            r#"{"bundle":"all-apis","url":"x"}"#,
            r#"{"bundle":"all-apis","subnetwork":"x"}"#,
        ] {
            assert!(Described::parse(bad).is_err(), "{bad}");
        }
    }
}
