//! What a user writes for a cluster: where it is, and GKE's own JSON of it. No network settings.

use cloud_api::{CloudError, field_among};
use model::Segment;
use serde_json::{Map, Value, json};

use super::space::{PODS, SERVICES};
use crate::{mark::Remark, shapes::shapes};

type Fields = Map<String, Value>;

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
/// Fields of [`Written`]: Google takes other spellings of them, which would pass by what is looked at here.
const READ: [&str; 6] =
    ["networkConfig", "nodeConfig", "nodePoolAutoConfig", "autopilot", "autoscaling", "nodePools"];
/// Fields that Trestle sets itself, or that only Google sets.
const OWN: [&str; 8] = ["name", "description", "id", "selfLink", "status", "location", "zone", "endpoint"];

const SHAPE: &str = "{\"location\": \"us-west1\", \"cluster\": {\"initialNodeCount\": 1}}";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterDescription {
    /// A region or a zone.
    pub(crate) location: String,
    pub(crate) region: Segment,
    cluster: Written,
}

shapes! {
    /// A cluster as a user writes it, with what is looked into, or what something is put in. To Google no pools and an
    /// empty list of them are the same.
    Written {
        maybe {
            network_config: Fields,
            node_config: Option<Fields>,
            node_pool_auto_config: Option<Fields>,
            autopilot: Option<Autopilot>,
            autoscaling: Option<Autoscaling>,
            node_pools: Vec<Pool>,
        }
        rest { rest }
    }

    Autopilot { maybe { enabled: bool, } rest { rest } }

    Autoscaling { maybe { enable_node_autoprovisioning: bool, } rest { rest } }

    Pool { maybe { config: Option<Fields>, } rest { rest } }
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
    pub(crate) fn parse(mut fields: Fields) -> Result<Self, CloudError> {
        let Some(cluster @ Value::Object(_)) = fields.remove("cluster") else {
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
        let odd = |err: serde_path_to_error::Error<_>| {
            invalid(format!("has an odd {}: {}", err.path(), err.inner()))
        };
        let cluster: Written = serde_path_to_error::deserialize(cluster).map_err(odd)?;
        cluster.check_spelling()?;
        cluster.check()?;
        Ok(Self { location, region, cluster })
    }

    /// The cluster to ask for: private nodes with our tag, in our subnet, and a control plane that only they reach.
    pub(crate) fn body(&self, tag: &str, mark: Remark, network: &str, subnet: &str) -> Fields {
        let mut cluster = self.cluster.clone();
        cluster.network_config.insert("defaultEnablePrivateNodes".to_owned(), true.into());
        cluster.tag(tag);
        let ours = json!({
            "name": tag,
            "description": mark,
            "network": network,
            "subnetwork": subnet,
            "ipAllocationPolicy": {
                "useIpAliases": true,
                "stackType": "IPV4",
                "clusterSecondaryRangeName": PODS,
                "servicesSecondaryRangeName": SERVICES,
            },
            "controlPlaneEndpointsConfig": {
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
            },
        });
        [json!(cluster), ours].into_iter().filter_map(|part| part.as_object().cloned()).flatten().collect()
    }
}

impl Written {
    /// Gives all nodes our tag, in whichever way they come to be.
    fn tag(&mut self, tag: &str) {
        let tags = || json!([tag]);
        let is_autopilot = self.autopilot.as_ref().is_some_and(|one| one.enabled);
        if is_autopilot || self.autoscaling.as_ref().is_some_and(|one| one.enable_node_autoprovisioning) {
            let auto = self.node_pool_auto_config.get_or_insert_default();
            auto.insert("networkTags".to_owned(), json!({ "tags": tags() }));
        }
        if is_autopilot {
            return;
        }
        for pool in &mut self.node_pools {
            pool.config.get_or_insert_default().insert("tags".to_owned(), tags());
        }
        if self.node_pools.is_empty() {
            self.node_config.get_or_insert_default().insert("tags".to_owned(), tags());
        }
    }

    /// Refuses other spellings of what is looked into.
    fn check_spelling(&self) -> Result<(), CloudError> {
        let in_autopilot = self.autopilot.iter().map(|one| among(&one.rest, &["enabled"]));
        let in_autoscaling =
            self.autoscaling.iter().map(|one| among(&one.rest, &["enableNodeAutoprovisioning"]));
        let in_pools = self.node_pools.iter().map(|pool| among(&pool.rest, &["config"]));
        let inside = in_autopilot.chain(in_autoscaling).chain(in_pools);
        match among(&self.rest, &READ).or_else(|| inside.flatten().next()) {
            Some(odd) => {
                Err(invalid(format!("has {odd}; write it as Google's documentation of the JSON does")))
            }
            None => Ok(()),
        }
    }

    /// Refuses what is not the user's to say.
    fn check(&self) -> Result<(), CloudError> {
        if let Some(own) = among(&self.rest, &OWN) {
            return Err(invalid(format!("has {own}, which Trestle or Google sets; leave it out")));
        }
        let mut inside = self.network_config.keys().filter(|name| !INSIDE.contains(&name.as_str()));
        let mut pools = self.node_pools.iter().filter_map(|pool| among(&pool.rest, &["networkConfig"]));
        let configs = self.node_pools.iter().map(|pool| &pool.config);
        let configs = configs.chain([&self.node_config, &self.node_pool_auto_config]).flatten();
        let mut tags = configs.filter_map(|config| among(config, &TAGS));
        let network = among(&self.rest, &NETWORK)
            .or_else(|| inside.next().map(|other| format!("networkConfig.{other}")))
            .or_else(|| pools.next().map(|field| format!("{field} of a pool")))
            .or_else(|| tags.next().map(|tags| format!("{tags} of nodes")));
        match network {
            Some(what) => {
                Err(invalid(format!("sets the network with {what}, which Trestle does; leave it out")))
            }
            None => Ok(()),
        }
    }
}

/// The first of these fields that is there, however it is spelled.
fn among(fields: &Fields, names: &[&str]) -> Option<String> {
    field_among(&Value::Object(fields.clone()), names).map(str::to_owned)
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
            let body = parse(&text).unwrap().body("t", Remark::default(), "n", "s");
            assert!(body.values().all(|value| !value.is_null()), "{body:?}");
            let mut told = body.clone();
            told.insert("location".to_owned(), "us-west1".into());
            let told = serde_json::from_value(told.into()).unwrap();
            assert_eq!(super::super::fence::untagged(&told, "t"), Vec::<String>::new(), "{body:?}");
            let body = Value::Object(body);
            assert_eq!(body["networkConfig"]["defaultEnablePrivateNodes"], true);
            assert_eq!(
                body["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]["enablePublicEndpoint"],
                false
            );
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
