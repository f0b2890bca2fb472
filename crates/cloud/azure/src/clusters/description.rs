//! What a user writes for a cluster: Azure's own JSON, with its location. No network settings.

use ipnet::Ipv4Net;
use model::Segment;
use serde_json::{Map, Value, json};

use cloud_api::{CloudError, field_among};

use crate::{
    cloud::Result,
    description::{Frame, invalid},
};

const FRAME: Frame = Frame {
    what: "a managed Kubernetes cluster in Azure",
    fields: &["location", "properties", "identity", "sku", "tags"],
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
const LISTS: [&str; 2] = ["agentPoolProfiles", "addonProfiles"];
/// Addons that need, or make, further subnets, which no permit list guards.
const ADDONS: [&str; 2] = ["aciConnectorLinux", "ingressApplicationGateway"];
/// Pods that a node has addresses for if nothing else is said.
const PODS: u64 = 30;
/// The longest name of a resource group for nodes.
const LONGEST_GROUP: usize = 80;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterDescription {
    pub(crate) region: Segment,
    fields: Map<String, Value>,
}

impl ClusterDescription {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (region, fields) = FRAME.read(text)?;
        let refused = |what: String| Err(invalid(FRAME.what, what));
        let properties = &fields["properties"];
        // Azure does not tell upper from lower case in names of fields: what is spelled otherwise would not be looked at.
        let mut names = properties.as_object().into_iter().flat_map(|all| all.keys());
        let other = |name: &&String| LISTS.iter().any(|list| list.eq_ignore_ascii_case(name) && list != name);
        if let Some(name) = names.find(other) {
            return refused(format!("has {name}, which is one of {} in other letters", LISTS.join(" and ")));
        }
        let pools = properties["agentPoolProfiles"].as_array().map(Vec::as_slice).unwrap_or_default();
        let network = field_among(properties, &NETWORK)
            .or_else(|| pools.iter().find_map(|pool| field_among(pool, &POOL)));
        if let Some(name) = network {
            return refused(format!("sets the network with {name}, which Trestle does; leave it out"));
        }
        if let Some(name) = field_among(&properties["addonProfiles"], &ADDONS) {
            return refused(format!(
                "has the addon {name}, whose subnets would be outside of the permit list"
            ));
        }
        if pools.is_empty() || !pools.iter().all(|pool| pool["name"].is_string()) {
            return refused("has no agentPoolProfiles, each with a name".to_owned());
        }
        let identity = fields.get("identity").unwrap_or(&Value::Null);
        let assigned = identity["userAssignedIdentities"].as_object().is_some_and(|all| !all.is_empty());
        if identity["type"] != "UserAssigned" || !assigned {
            return refused(
                "has no user-assigned identity. One that the cluster brings along gets no role in a network of somebody \
                 else before the cluster is made: make one with `az identity create`, give it the role Network Contributor on \
                 the resource group, and name it in identity"
                    .to_owned(),
            );
        }
        Ok(Self { region, fields })
    }

    /// The addresses that nodes and Pods take, with one node more per pool for upgrades, and the API server's.
    fn addresses(&self) -> u64 {
        let pools = self.fields["properties"]["agentPoolProfiles"].as_array().into_iter().flatten();
        let number = |pool: &Value, field: &str| pool[field].as_u64();
        let of_pool = |pool: &Value| {
            let nodes = number(pool, "count").unwrap_or(1).max(number(pool, "maxCount").unwrap_or(0));
            (nodes + 1) * (number(pool, "maxPods").unwrap_or(PODS) + 1)
        };
        pools.map(of_pool).sum::<u64>() + 1
    }

    /// Refuses more nodes and Pods than a block has addresses for.
    pub(crate) fn check_room(&self, block: Ipv4Net) -> Result<()> {
        // Azure keeps five of each subnet.
        let (need, room) = (self.addresses(), (1u64 << (32 - block.prefix_len())) - 5);
        match need > room {
            true => Err(CloudError::invalid(format!(
                "the cluster's nodes and Pods, and a node more of each pool for upgrades, take {need} addresses, and {block} \
                 has {room}; use fewer nodes or a lower maxPods"
            ))),
            false => Ok(()),
        }
    }

    /// Refuses a name for the resource group of AKS's own that Azure would not take.
    pub(crate) fn check_group(&self, group: &str, cluster: &str) -> Result<()> {
        let group = group.rsplit('/').next().unwrap_or_default();
        let given = self.fields["properties"]["nodeResourceGroup"].as_str().map(str::to_owned);
        let name = given.unwrap_or_else(|| format!("MC_{group}_{cluster}_{}", self.region));
        match name.len() > LONGEST_GROUP {
            true => Err(CloudError::invalid(format!(
                "AKS would call the resource group of the nodes {name}, and has {LONGEST_GROUP} letters for it; set a shorter \
                 nodeResourceGroup in properties"
            ))),
            false => Ok(()),
        }
    }

    /// The cluster as it is asked for: private, in a subnet, with services in a block that nothing is routed to.
    pub(crate) fn body(self, name: &str, tags: &Value, subnet: &str, services: Ipv4Net) -> Value {
        let mut body = Value::Object(self.fields);
        for (key, value) in tags.as_object().into_iter().flatten() {
            body["tags"][key] = value.clone();
        }
        let properties = &mut body["properties"];
        if properties["dnsPrefix"].is_null() {
            properties["dnsPrefix"] = name.into();
        }
        for pool in properties["agentPoolProfiles"].as_array_mut().into_iter().flatten() {
            pool["vnetSubnetID"] = subnet.into();
        }
        properties["networkProfile"] = json!({
            "networkPlugin": "azure",
            "serviceCidr": services.to_string(),
            "dnsServiceIP": services.hosts().nth(9).unwrap_or(services.addr()).to_string(),
            "loadBalancerSku": "standard",
            "outboundType": "loadBalancer",
        });
        // Without a private zone, which only its own network could read: the name is public, the address is not.
        properties["apiServerAccessProfile"] = json!({"enablePrivateCluster": true, "privateDNSZone": "none", "enablePrivateClusterPublicFQDN": true});
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
        let body = cluster.body("n", &json!({"a": "b"}), "/s", "10.0.128.0/17".parse().unwrap());
        assert_eq!(body["tags"]["a"], "b");
        let properties = &body["properties"];
        assert_eq!(properties["agentPoolProfiles"][0]["vnetSubnetID"], "/s");
        assert_eq!(properties["apiServerAccessProfile"]["enablePrivateCluster"], true);
        let network = &properties["networkProfile"];
        assert_eq!(
            (&network["serviceCidr"], &network["dnsServiceIP"]),
            (&json!("10.0.128.0/17"), &json!("10.0.128.10"))
        );
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
