//! What a user writes for an instance: the fields of RunInstances, and the region. No network settings.

use cloud_api::CloudError;
use model::Segment;
use serde_json::{Map, Value};

/// Fields of RunInstances that set the network, which is Trestle's to set.
const NETWORK: [&str; 10] = [
    "NetworkInterfaces",
    "SecurityGroupIds",
    "SecurityGroups",
    "SubnetId",
    "PrivateIpAddress",
    "Ipv6Addresses",
    "Ipv6AddressCount",
    "SecondaryInterfaces",
    "EnablePrimaryIpv6",
    "NetworkInterface",
];

/// Fields that may be given, and go into the request as they are.
const FIELDS: [&str; 6] =
    ["ImageId", "InstanceType", "KeyName", "UserData", "EbsOptimized", "InstanceInitiatedShutdownBehavior"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    pub(crate) region: Segment,
    pub(crate) zone: Option<String>,
    pub(crate) fields: Map<String, Value>,
}

impl Description {
    pub(crate) fn parse(text: &str) -> Result<Self, CloudError> {
        let invalid =
            |what: String| CloudError::invalid(format!("the description of an AWS instance {what}"));
        let shape = "is JSON such as {\"region\": \"us-east-1\", \"ImageId\": \"ami-…\", \"InstanceType\": \"t3.micro\"}";
        let mut fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|err| invalid(format!("{shape}; this is not: {err}")))?;
        if let Some(network) = NETWORK.iter().find(|name| fields.contains_key(**name)) {
            return Err(invalid(format!(
                "sets the network with {network}, which Trestle does; leave it out"
            )));
        }
        let mut take = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Ok(Some(text)),
            None => Ok(None),
            Some(other) => Err(invalid(format!("has {other} as {name}"))),
        };
        let (region, zone) = (take("region")?, take("zone")?);
        let from_zone =
            || zone.as_deref().and_then(|zone| zone.get(..zone.len().saturating_sub(1))).map(str::to_owned);
        let region = region.or_else(from_zone).ok_or_else(|| invalid("names no region".to_owned()))?;
        if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(invalid(format!("has {unknown}; known are region, zone, {}", FIELDS.join(", "))));
        }
        if !fields.contains_key("ImageId") {
            return Err(invalid("names no ImageId".to_owned()));
        }
        let region = region.parse().map_err(|err| invalid(format!("has the region {region}: {err}")))?;
        Ok(Self { region, zone, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_a_region_and_no_network() {
        let fine =
            Description::parse(r#"{"region":"us-east-1","ImageId":"ami-1","InstanceType":"t3.micro"}"#)
                .unwrap();
        assert_eq!((fine.region.as_str(), fine.fields.len()), ("us-east-1", 2));
        let zone = Description::parse(r#"{"zone":"us-east-1b","ImageId":"ami-1"}"#).unwrap();
        assert_eq!(zone.region.as_str(), "us-east-1");
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"ImageId":"ami-1"}"#,
            r#"{"region":"us-east-1"}"#,
            r#"{"region":"us east","ImageId":"a"}"#,
            r#"{"region":7,"ImageId":"a"}"#,
            r#"{"region":"us-east-1","ImageId":"a","SubnetId":"subnet-1"}"#,
            r#"{"region":"us-east-1","ImageId":"a","Imageid":"b"}"#,
        ] {
            assert!(Description::parse(bad).is_err(), "{bad}");
        }
    }
}
