//! What a user writes for a cluster: where it is, and GKE's own JSON of it. No network settings.

use cloud_api::CloudError;
use model::Segment;
use serde_json::{Map, Value, json};

use super::space::{PODS, SERVICES};

/// Fields of a description that only a cluster's has.
pub(crate) const TELLING: [&str; 4] = ["cluster", "nodePools", "initialNodeCount", "autopilot"];

/// Fields that set the network, which is Trestle's to set.
const NETWORK: [&str; 10] = [
    "network",
    "subnetwork",
    "ipAllocationPolicy",
    "privateClusterConfig",
    "masterAuthorizedNetworksConfig",
    "controlPlaneEndpointsConfig",
    "clusterIpv4Cidr",
    "servicesIpv4Cidr",
    "nodeIpv4CidrSize",
    "tpuIpv4CidrBlock",
];
/// What of a cluster's `networkConfig` leaves its border where it is.
const INSIDE: [&str; 7] = [
    "datapathProvider",
    "dataplaneV2Config",
    "dnsConfig",
    "enableCiliumClusterwideNetworkPolicy",
    "enableFqdnNetworkPolicy",
    "enableIntraNodeVisibility",
    "inTransitEncryptionConfig",
];
/// Tags of nodes, by which firewalls find them.
const TAGS: [&str; 3] = ["tags", "networkTags", "resourceManagerTags"];
/// Fields that Trestle sets itself, or that only Google sets.
const OWN: [&str; 8] = ["name", "description", "id", "selfLink", "status", "location", "zone", "endpoint"];

const SHAPE: &str = "{\"location\": \"us-west1\", \"cluster\": {\"initialNodeCount\": 1}}";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterDescription {
    /// A region or a zone.
    pub(crate) location: String,
    pub(crate) region: Segment,
    fields: Map<String, Value>,
}

fn invalid(what: impl Into<String>) -> CloudError {
    CloudError::invalid(format!("the description of a cluster in Google Cloud {}", what.into()))
}

/// The region of a location: of `us-west1-a` it is `us-west1`, of `us-west1` too.
fn region_of(location: &str) -> Option<Segment> {
    let (start, end) = location.rsplit_once('-')?;
    let is_zone = end.len() == 1 && end.bytes().all(|byte| byte.is_ascii_lowercase()) && start.contains('-');
    let region = if is_zone { start } else { location };
    let ends_in_number = region.ends_with(|last: char| last.is_ascii_digit());
    region.parse().ok().filter(|_| ends_in_number)
}

impl ClusterDescription {
    pub(crate) fn parse(mut fields: Map<String, Value>) -> Result<Self, CloudError> {
        let Some(Value::Object(cluster)) = fields.remove("cluster") else {
            return Err(invalid(format!("is JSON such as {SHAPE}; this has no cluster in it")));
        };
        let Some(Value::String(location)) = fields.remove("location") else {
            return Err(invalid(format!("names no location; it is {SHAPE}")));
        };
        if let Some(other) = fields.keys().next() {
            return Err(invalid(format!("has {other} beside location and cluster; it is {SHAPE}")));
        }
        let bad = || invalid(format!("has the location {location}, which is neither region nor zone"));
        let region = region_of(&location).ok_or_else(bad)?;
        check(&cluster)?;
        Ok(Self { location, region, fields: cluster })
    }

    /// The cluster to ask for: private nodes with our tag, in our subnet, and a control plane that only they reach.
    pub(crate) fn body(&self, tag: &str, mark: &str, network: &str, subnet: &str) -> Value {
        let mut cluster = Value::Object(self.fields.clone());
        cluster["name"] = tag.into();
        cluster["description"] = mark.into();
        cluster["network"] = network.into();
        cluster["subnetwork"] = subnet.into();
        cluster["ipAllocationPolicy"] = json!({
            "useIpAliases": true,
            "stackType": "IPV4",
            "clusterSecondaryRangeName": PODS,
            "servicesSecondaryRangeName": SERVICES,
        });
        cluster["networkConfig"]["defaultEnablePrivateNodes"] = true.into();
        cluster["controlPlaneEndpointsConfig"] = json!({
            "dnsEndpointConfig": {"allowExternalTraffic": false},
            "ipEndpointsConfig": {
                "enabled": true,
                "enablePublicEndpoint": false,
                // Nothing stands before the control plane's address but this; the cluster's own nodes and Pods are always in.
                "authorizedNetworksConfig": {
                    "enabled": true,
                    "gcpPublicCidrsAccessEnabled": false,
                    "privateEndpointEnforcementEnabled": true,
                },
            },
        });
        let autopilot = cluster["autopilot"]["enabled"] == true;
        if autopilot || cluster["autoscaling"]["enableNodeAutoprovisioning"] == true {
            cluster["nodePoolAutoConfig"]["networkTags"] = json!({"tags": [tag]});
        }
        match cluster["nodePools"].as_array_mut() {
            _ if autopilot => {}
            Some(pools) => pools.iter_mut().for_each(|pool| pool["config"]["tags"] = json!([tag])),
            None => cluster["nodeConfig"]["tags"] = json!([tag]),
        }
        // Looking for what is not there leaves a null behind.
        if let Value::Object(fields) = &mut cluster {
            fields.retain(|_, value| !value.is_null());
        }
        cluster
    }
}

/// Refuses what is not the user's to say.
fn check(cluster: &Map<String, Value>) -> Result<(), CloudError> {
    let network =
        |what: &str| invalid(format!("sets the network with {what}, which Trestle does; leave it out"));
    if let Some(field) = NETWORK.iter().find(|name| cluster.contains_key(**name)) {
        return Err(network(field));
    }
    if let Some(own) = OWN.iter().find(|name| cluster.contains_key(**name)) {
        return Err(invalid(format!("has {own}, which Trestle or Google sets; leave it out")));
    }
    let keys = |value: Option<&Value>| -> Vec<String> {
        value.and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let of_network = keys(cluster.get("networkConfig"));
    if let Some(other) = of_network.iter().find(|name| !INSIDE.contains(&name.as_str())) {
        return Err(network(&format!("networkConfig.{other}")));
    }
    let pools: Vec<&Value> =
        cluster.get("nodePools").and_then(Value::as_array).into_iter().flatten().collect();
    if pools.iter().any(|pool| !pool["networkConfig"].is_null()) {
        return Err(network("networkConfig of a pool"));
    }
    let configs = pools.iter().map(|pool| &pool["config"]);
    let configs =
        configs.chain(["nodeConfig", "nodePoolAutoConfig"].iter().filter_map(|name| cluster.get(*name)));
    for config in configs {
        if let Some(tags) = keys(Some(config)).iter().find(|name| TAGS.contains(&name.as_str())) {
            return Err(network(&format!("{tags} of nodes")));
        }
    }
    let objects = ["networkConfig", "nodeConfig", "nodePoolAutoConfig", "autopilot", "autoscaling"];
    let is_odd = |name: &&&str| cluster.get(**name).is_some_and(|value| !value.is_object());
    if let Some(odd) = objects.iter().find(is_odd) {
        return Err(invalid(format!("has a {odd} that is no object")));
    }
    let pools_are_objects =
        pools.iter().all(|pool| pool.is_object() && (pool["config"].is_null() || pool["config"].is_object()));
    match pools_are_objects && cluster.get("nodePools").is_none_or(Value::is_array) {
        true => Ok(()),
        false => Err(invalid("has nodePools that are no list of pools")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClusterDescription, CloudError> {
        ClusterDescription::parse(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn descriptions_name_a_location_and_no_network() {
        for (location, region) in
            [("us-west1", "us-west1"), ("us-west1-a", "us-west1"), ("europe-west12-b", "europe-west12")]
        {
            let text = format!(r#"{{"location":"{location}","cluster":{{"initialNodeCount":1}}}}"#);
            assert_eq!(parse(&text).unwrap().region.as_str(), region);
        }
        let bad = [
            r#"{"location":"nowhere","cluster":{}}"#,
            r#"{"location":"us-west1-","cluster":{}}"#,
            r#"{"cluster":{"initialNodeCount":1}}"#,
            r#"{"location":"us-west1","initialNodeCount":1}"#,
            r#"{"location":"us-west1","zone":"x","cluster":{}}"#,
        ];
        assert!(bad.iter().all(|text| parse(text).is_err()));
        for inside in [
            r#"{"network":"n"}"#,
            r#"{"ipAllocationPolicy":{}}"#,
            r#"{"controlPlaneEndpointsConfig":{}}"#,
            r#"{"networkConfig":{"enableMultiNetworking":true}}"#,
            r#"{"networkConfig":7}"#,
            r#"{"nodeConfig":{"tags":["x"]}}"#,
            r#"{"nodeConfig":"x"}"#,
            r#"{"nodePools":[{"name":"a","networkConfig":{"enablePrivateNodes":false}}]}"#,
            r#"{"nodePools":[{"name":"a","config":{"resourceManagerTags":{}}}]}"#,
            r#"{"nodePools":[7]}"#,
            r#"{"nodePools":{}}"#,
            r#"{"nodePoolAutoConfig":{"networkTags":{}}}"#,
            r#"{"name":"x"}"#,
        ] {
            let text = format!(r#"{{"location":"us-west1","cluster":{inside}}}"#);
            assert!(parse(&text).is_err(), "{inside}");
        }
    }

    #[test]
    fn all_nodes_get_the_tag_and_none_an_address_of_the_internet() {
        let body = |cluster: &str| {
            let text = format!(r#"{{"location":"us-west1","cluster":{cluster}}}"#);
            let body = parse(&text).unwrap().body("t", "m", "n", "s");
            assert_eq!(super::super::fence::untagged(&body, "t"), Vec::<String>::new(), "{body}");
            assert_eq!(body["networkConfig"]["defaultEnablePrivateNodes"], true);
            assert_eq!(
                body["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]["enablePublicEndpoint"],
                false
            );
            assert!(body.as_object().unwrap().values().all(|value| !value.is_null()), "{body}");
            body
        };
        assert_eq!(body(r#"{"initialNodeCount":1}"#)["nodeConfig"]["tags"], json!(["t"]));
        let pools = body(r#"{"nodePools":[{"name":"a"},{"name":"b","config":{"machineType":"e2-small"}}]}"#);
        assert_eq!(pools["nodePools"][1]["config"], json!({"machineType": "e2-small", "tags": ["t"]}));
        assert_eq!(pools["nodeConfig"], Value::Null);
        let auto = body(r#"{"autopilot":{"enabled":true}}"#);
        assert_eq!(auto["nodePoolAutoConfig"]["networkTags"]["tags"], json!(["t"]));
        let inside =
            body(r#"{"networkConfig":{"datapathProvider":"ADVANCED_DATAPATH"},"initialNodeCount":1}"#);
        assert_eq!(inside["networkConfig"]["datapathProvider"], "ADVANCED_DATAPATH");
    }
}
