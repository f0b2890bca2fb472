//! What a user writes for a cluster: Azure's own JSON, with its location. No network settings.

use cloud_api::{CloudError, field_among};
use ipnet::Ipv4Net;
use model::Segment;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    description::{Frame, Written},
    place::*,
    types::*,
};

const FRAME: Frame = Frame {
    what: "a managed Kubernetes cluster in Azure",
    fields: &["identity", "sku"],
    shape: r#"is JSON such as {"location": "westus2", "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/subscriptions/…/userAssignedIdentities/…": {}}}, "properties": {"agentPoolProfiles": [{"name": "nodes", "mode": "System", "count": 2, "vmSize": "Standard_D2s_v5"}]}}"#,
};
/// Properties of a cluster that are Trestle's to set: its network, and from where its API server is reached.
const NETWORK: [&str; 5] = [
    "networkProfile",
    "apiServerAccessProfile",
    "privateLinkResources",
    "publicNetworkAccess",
    "fqdnSubdomain",
];
/// The same of a pool of nodes.
const POOL: [&str; 6] = [
    "vnetSubnetID",
    "podSubnetID",
    "podIPAllocationMode",
    "enableNodePublicIP",
    "nodePublicIPPrefixID",
    "networkProfile",
];
/// Properties in which others are looked for.
const POOLS: &str = "agentPoolProfiles";
const ADDON_PROFILES: &str = "addonProfiles";
/// Addons that need, or make, further subnets, which no permit list guards.
const ADDONS: [&str; 2] = ["aciConnectorLinux", "ingressApplicationGateway"];
/// Pods that a node has addresses for if nothing else is said.
const PODS: u64 = 30;
/// The longest name of a resource group for nodes.
const LONGEST_GROUP: usize = 80;

/// What decides how many addresses a pool of nodes takes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pool {
    #[serde(rename = "name")]
    _name: String,
    count: Option<u64>,
    max_count: Option<u64>,
    max_pods: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    r#type: String,
    user_assigned_identities: serde_json::Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterDescription {
    pub region: Segment,
    written: Written,
    /// The addresses that nodes and Pods take, with one node more per pool for upgrades, and the API server's.
    addresses: u64,
}

impl ClusterDescription {
    pub fn parse(text: &str) -> Result<Self> {
        let (region, written) = FRAME.read(text)?;
        let refused = |what: String| Err(FRAME.invalid(what));
        // Azure does not tell upper from lower case in names of fields: what is spelled otherwise would not be looked at.
        let is_other = |name: &&String| {
            [POOLS, ADDON_PROFILES].iter().any(|list| list.eq_ignore_ascii_case(name) && list != name)
        };
        if let Some(name) = written.properties.keys().find(is_other) {
            return refused(format!("has {name}, which is {POOLS} or {ADDON_PROFILES} in other letters"));
        }
        let property = |name: &str| written.properties.get(name).cloned().unwrap_or_default();
        let pools = property(POOLS);
        let all = Value::Object(written.properties.clone());
        let mut each = pools.as_array().into_iter().flatten();
        let network = field_among(&all, &NETWORK).or_else(|| each.find_map(|pool| field_among(pool, &POOL)));
        if let Some(name) = network {
            return refused(format!("sets the network with {name}, which Trestle does; leave it out"));
        }
        if let Some(name) = field_among(&property(ADDON_PROFILES), &ADDONS) {
            return refused(format!(
                "has the addon {name}, whose subnets would be outside of the permit list"
            ));
        }
        let unread = |err| FRAME.invalid(format!("has {POOLS} that are none: {err}"));
        let pools: Vec<Pool> = serde_json::from_value(pools).map_err(unread)?;
        if pools.is_empty() {
            return refused(format!("has no {POOLS}"));
        }
        let identity = written.rest.get("identity").cloned().unwrap_or_default();
        let identity: Identity = serde_json::from_value(identity).unwrap_or_default();
        if identity.r#type != "UserAssigned" || identity.user_assigned_identities.is_empty() {
            return refused(
                "has no user-assigned identity. One that the cluster brings along gets no role in a network of somebody \
                 else before the cluster is made: make one with `az identity create`, give it the role Network Contributor on \
                 the resource group, and name it in identity"
                    .to_owned(),
            );
        }
        let of_pool = |pool: &Pool| {
            let nodes = pool.count.unwrap_or(1).max(pool.max_count.unwrap_or(0));
            nodes.saturating_add(1).saturating_mul(pool.max_pods.unwrap_or(PODS).saturating_add(1))
        };
        let addresses = pools.iter().map(of_pool).fold(1, u64::saturating_add);
        Ok(Self { region, written, addresses })
    }

    /// Refuses more nodes and Pods than a block has addresses for.
    pub fn check_room(&self, block: Ipv4Net) -> Result {
        // Azure keeps five of each subnet.
        let (need, room) = (self.addresses, (1u64 << (32 - block.prefix_len())) - 5);
        match need > room {
            true => Err(CloudError::invalid(format!(
                "the cluster's nodes and Pods, and a node more of each pool for upgrades, take {need} addresses, and {block} \
                 has {room}; use fewer nodes or a lower maxPods"
            ))),
            false => Ok(()),
        }
    }

    /// Refuses a name for the resource group of AKS's own that Azure would not take.
    pub fn check_group(&self, group: &str, cluster: &str) -> Result {
        let group = group.rsplit('/').next().unwrap_or_default();
        let given = self.written.properties.get("nodeResourceGroup").and_then(Value::as_str);
        let name = given.map_or_else(|| format!("MC_{group}_{cluster}_{}", self.region), str::to_owned);
        match name.len() > LONGEST_GROUP {
            true => Err(CloudError::invalid(format!(
                "AKS would call the resource group of the nodes {name}, and has {LONGEST_GROUP} letters for it; set a shorter \
                 nodeResourceGroup in properties"
            ))),
            false => Ok(()),
        }
    }

    /// The cluster as it is asked for: private, in a subnet, with services in a block that nothing is routed to.
    pub fn body(self, name: &str, tags: Tags, subnet: &Id<Subnet>, services: Ipv4Net) -> Written {
        let mut body = self.written.tagged(tags);
        let properties = &mut body.properties;
        if properties.get("dnsPrefix").is_none_or(Value::is_null) {
            properties.insert("dnsPrefix".to_owned(), name.into());
        }
        let pools = properties.get_mut(POOLS).and_then(Value::as_array_mut);
        for pool in pools.into_iter().flatten().filter_map(Value::as_object_mut) {
            pool.insert("vnetSubnetID".to_owned(), subnet.as_str().into());
        }
        let network = json!({
            "networkPlugin": "azure",
            "serviceCidr": services,
            "dnsServiceIP": services.hosts().nth(9).unwrap_or(services.addr()),
            "loadBalancerSku": "standard",
            "outboundType": "loadBalancer",
        });
        properties.insert("networkProfile".to_owned(), network);
        // Without a private zone, which only its own network could read: the name is public, the address is not.
        let access = json!({"enablePrivateCluster": true, "privateDNSZone": "none", "enablePrivateClusterPublicFQDN": true});
        properties.insert("apiServerAccessProfile".to_owned(), access);
        body
    }
}

#[cfg(test)]
mod tests {
    use cloud_api::CloudErrorKind;

    use super::*;

    fn text(pool: &str, more: &str) -> String {
        format!(
            r#"{{"location":"westus2","identity":{{"type":"UserAssigned","userAssignedIdentities":{{"/i":{{}}}}}},
            "properties":{{"agentPoolProfiles":[{{"name":"p","count":2{pool}}}]{more}}}}}"#
        )
    }

    #[test]
    fn a_cluster_is_private_and_in_its_subnet() {
        let cluster = ClusterDescription::parse(&text("", "")).unwrap();
        let tags = Tags([("a".to_owned(), "b".to_owned())].into());
        let body = cluster.body("n", tags, &Id::new("/s"), "10.0.128.0/17".parse().unwrap());
        assert_eq!(body.tags.get("a"), Some(&json!("b")));
        let property = |name: &str| body.properties.get(name).unwrap();
        assert_eq!(*property(POOLS), json!([{"name": "p", "count": 2, "vnetSubnetID": "/s"}]));
        assert_eq!(*property("dnsPrefix"), json!("n"));
        let access = property("apiServerAccessProfile");
        assert_eq!(access.get("enablePrivateCluster"), Some(&json!(true)));
        let network =
            ["serviceCidr", "dnsServiceIP"].map(|name| property("networkProfile").get(name).unwrap());
        assert_eq!(network, [&json!("10.0.128.0/17"), &json!("10.0.128.10")]);
    }

    #[test]
    fn networks_and_identities_without_roles_are_refused() {
        let own = r#""identity":{"type":"UserAssigned","userAssignedIdentities":{"/i":{}}}"#;
        let mut bad: Vec<String> =
            NETWORK.iter().map(|name| text("", &format!(r#","{name}":{{}}"#))).collect();
        bad.extend(POOL.iter().map(|name| text(&format!(r#","{name}":"x""#), "")));
        bad.extend(ADDONS.iter().map(|name| text("", &format!(r#","addonProfiles":{{"{name}":{{}}}}"#))));
        bad.push(text(r#","VnetSubnetId":"/s""#, ""));
        bad.push(text("", r#","NETWORKPROFILE":{}"#));
        bad.push(text("", r#","addonProfiles":{"ACIConnectorLinux":{}}"#));
        bad.push(text("", r#","AddonProfiles":{}"#));
        bad.push(text("", r#","AgentPoolProfiles":[]"#));
        bad.push(text("", "").replace(own, r#""identity":{"type":"SystemAssigned"}"#));
        bad.push(text("", "").replace(&format!("{own},"), ""));
        bad.push(text("", "").replace(r#"{"name":"p","count":2}"#, ""));
        for text in bad {
            let refused = ClusterDescription::parse(&text).unwrap_err();
            assert_eq!(refused.kind, CloudErrorKind::Invalid, "{text}: {refused}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cluster = ClusterDescription::parse(&text("", "")).unwrap();
        assert!(cluster.check_room("10.0.0.0/25".parse().unwrap()).is_ok(), "94 of 123");
        let more = ClusterDescription::parse(&text(r#","maxCount":4"#, "")).unwrap();
        assert!(more.check_room("10.0.0.0/25".parse().unwrap()).is_err(), "156 of 123");
        assert!(cluster.check_group("/subscriptions/s/resourceGroups/g", "c").is_ok());
        let long = format!("/subscriptions/s/resourceGroups/{}", "g".repeat(90));
        assert!(cluster.check_group(&long, "c").is_err());
        let named = ClusterDescription::parse(&text("", r#","nodeResourceGroup":"mine""#)).unwrap();
        assert!(named.check_group(&long, "c").is_ok());
    }
}
