//! What a user writes for a cluster: where it is, and GKE's own JSON of it. No network settings.

use cloud_api::{CloudError, field_among};
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
/// Fields that are looked into, or that tags are put in. Google takes other spellings of them, which would pass by that.
const READ: [&str; 5] = ["networkConfig", "nodeConfig", "nodePoolAutoConfig", "autopilot", "autoscaling"];
const POOLS: &str = "nodePools";
/// Switches inside these that say which nodes there are.
const SWITCHES: [(&str, &str); 2] = [("autopilot", "enabled"), ("autoscaling", "enableNodeAutoprovisioning")];
/// Fields that Trestle sets itself, or that only Google sets.
const OWN: [&str; 8] = ["name", "description", "id", "selfLink", "status", "location", "zone", "endpoint"];

const SHAPE: &str = "{\"location\": \"us-west1\", \"cluster\": {\"initialNodeCount\": 1}}";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterDescription {
    /// A region or a zone.
    pub(crate) location: String,
    pub(crate) region: Segment,
    fields: Value,
}

fn invalid(what: impl Into<String>) -> CloudError {
    CloudError::invalid(format!("the description of a cluster in Google Cloud {}", what.into()))
}

/// The region of a location: of `us-west1-a` it is `us-west1`, of `us-west1` too.
fn region_at(location: &str) -> Option<Segment> {
    let (start, end) = location.rsplit_once('-')?;
    let is_zone = end.len() == 1 && end.bytes().all(|byte| byte.is_ascii_lowercase()) && start.contains('-');
    let region = if is_zone { start } else { location };
    let ends_in_number = region.ends_with(|last: char| last.is_ascii_digit());
    region.parse().ok().filter(|_| ends_in_number)
}

impl ClusterDescription {
    pub(crate) fn parse(mut fields: Map<String, Value>) -> Result<Self, CloudError> {
        let Some(Value::Object(mut cluster)) = fields.remove("cluster") else {
            return Err(invalid(format!("is JSON such as {SHAPE}; this has no cluster in it")));
        };
        let Some(Value::String(location)) = fields.remove("location") else {
            return Err(invalid(format!("names no location; it is {SHAPE}")));
        };
        if let Some(other) = fields.keys().next() {
            return Err(invalid(format!("has {other} beside location and cluster; it is {SHAPE}")));
        }
        let bad = || invalid(format!("has the location {location}, which is neither region nor zone"));
        let region = region_at(&location).ok_or_else(bad)?;
        // To Google no pools and an empty list of them are the same.
        if cluster.get(POOLS).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            cluster.remove(POOLS);
        }
        let cluster = Value::Object(cluster);
        check_shape(&cluster)?;
        check(&cluster)?;
        Ok(Self { location, region, fields: cluster })
    }

    /// The cluster to ask for: private nodes with our tag, in our subnet, and a control plane that only they reach.
    pub(crate) fn body(&self, tag: &str, mark: &str, network: &str, subnet: &str) -> Value {
        let mut cluster = self.fields.clone();
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

fn pools(cluster: &Value) -> impl Iterator<Item = &Value> {
    cluster[POOLS].as_array().into_iter().flatten()
}

/// One of these fields, spelled in another way.
fn misspelled(object: &Value, names: &[&str]) -> Option<String> {
    let mut others = object.clone();
    if let Value::Object(fields) = &mut others {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
    field_among(&others, names).map(str::to_owned)
}

/// Refuses what cannot be looked into.
fn check_shape(cluster: &Value) -> Result<(), CloudError> {
    let at_top = [READ.as_slice(), &[POOLS]].concat();
    let in_switches = SWITCHES.iter().map(|(object, switch)| misspelled(&cluster[*object], &[*switch]));
    let in_pools = pools(cluster).map(|pool| misspelled(pool, &["config"]));
    let mut all = std::iter::once(misspelled(cluster, &at_top)).chain(in_switches).chain(in_pools);
    if let Some(odd) = all.find_map(|found| found) {
        return Err(invalid(format!("has {odd}; write it as Google's documentation of the JSON does")));
    }
    if let Some(odd) = READ.iter().find(|name| cluster.get(**name).is_some_and(|value| !value.is_object())) {
        return Err(invalid(format!("has a {odd} that is no object")));
    }
    let is_odd = |(object, switch): &&(&str, &str)| {
        cluster[*object].get(*switch).is_some_and(|value| !value.is_boolean())
    };
    if let Some((object, switch)) = SWITCHES.iter().find(is_odd) {
        return Err(invalid(format!("has {object}.{switch} that is neither true nor false")));
    }
    let is_pool = |pool: &Value| pool.is_object() && (pool["config"].is_null() || pool["config"].is_object());
    match cluster.get(POOLS).is_none_or(Value::is_array) && pools(cluster).all(is_pool) {
        true => Ok(()),
        false => Err(invalid("has nodePools that are no list of pools")),
    }
}

/// Refuses what is not the user's to say.
fn check(cluster: &Value) -> Result<(), CloudError> {
    let network =
        |what: &str| Err(invalid(format!("sets the network with {what}, which Trestle does; leave it out")));
    if let Some(field) = field_among(cluster, &NETWORK) {
        return network(field);
    }
    if let Some(own) = field_among(cluster, &OWN) {
        return Err(invalid(format!("has {own}, which Trestle or Google sets; leave it out")));
    }
    let mut of_network = cluster["networkConfig"].as_object().into_iter().flatten();
    if let Some((other, _)) = of_network.find(|(name, _)| !INSIDE.contains(&name.as_str())) {
        return network(&format!("networkConfig.{other}"));
    }
    if let Some(field) = pools(cluster).find_map(|pool| field_among(pool, &["networkConfig"])) {
        return network(&format!("{field} of a pool"));
    }
    let configs = pools(cluster).map(|pool| &pool["config"]);
    let mut configs = configs.chain([&cluster["nodeConfig"], &cluster["nodePoolAutoConfig"]]);
    match configs.find_map(|config| field_among(config, &TAGS)) {
        Some(tags) => network(&format!("{tags} of nodes")),
        None => Ok(()),
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
            // As Google takes them too.
            r#"{"ip_allocation_policy":{}}"#,
            r#"{"private_cluster_config":{}}"#,
            r#"{"network_config":{"enable_multi_networking":true}}"#,
            r#"{"networkConfig":{"default_enable_private_nodes":false}}"#,
            r#"{"initialNodeCount":1,"node_config":{"tags":["x"]}}"#,
            r#"{"initialNodeCount":1,"nodeConfig":{},"node_config":{"tags":["x"]}}"#,
            r#"{"nodeConfig":{"resource_manager_tags":{}}}"#,
            r#"{"node_pools":[{"name":"a"}]}"#,
            r#"{"nodePools":[{"name":"a","network_config":{"enable_private_nodes":false}}]}"#,
            r#"{"nodePools":[{"name":"a","Config":{"tags":["x"]}}]}"#,
            r#"{"node_pool_auto_config":{}}"#,
            r#"{"autopilot":{"Enabled":true}}"#,
            r#"{"autopilot":{"enabled":"true"}}"#,
            r#"{"initialNodeCount":1,"autoscaling":{"enable_node_autoprovisioning":true}}"#,
        ] {
            let text = format!(r#"{{"location":"us-west1","cluster":{inside}}}"#);
            assert!(parse(&text).is_err(), "{inside}");
        }
        let fine = r#"{"location":"us-west1","cluster":{"initialNodeCount":1,"resourceLabels":{"network":"x"},"release_channel":{}}}"#;
        assert!(parse(fine).is_ok());
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
        for one in [r#"{"initialNodeCount":1}"#, r#"{"initialNodeCount":1,"nodePools":[]}"#] {
            assert_eq!(body(one)["nodeConfig"]["tags"], json!(["t"]), "{one}");
        }
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
