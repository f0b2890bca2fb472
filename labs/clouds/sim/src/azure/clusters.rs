//! Managed Kubernetes clusters: what AKS asks of one, and what it makes for it.
//!
//! ```text
//!   subnet ── private endpoint of the API server, whose security rules AKS switches off
//!          ├─ nodes, each with addresses for its Pods
//!          └─ security group of whoever made the subnet: AKS leaves it alone
//! ```
//!
//! Nodes, load balancer and the nodes' own security group are in a resource group of AKS's, which is not shown. That
//! group lets through what comes from private addresses, and matters to nobody here.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Refusal, is,
    networks::{hosts, overlap, parts, spaces},
    objects::listed,
    refuse,
    state::{Azure, key},
    wire::lines,
};
use crate::{
    rest::{list, text},
    wire::{Firewall, Host, Line},
};

type Checked = Result<(), Refusal>;

pub(super) const CLUSTERS: &str = "managedClusters";
/// Addresses of a node: its own, and those that are kept for Pods.
const PODS: u64 = 30;
/// What nodes fetch before they join: images, binaries, tokens, and how their cluster is.
const NEEDED: [&str; 4] = [
    "MicrosoftContainerRegistry",
    "AzureFrontDoor.FirstParty",
    "AzureActiveDirectory",
    "AzureResourceManager",
];
/// What AKS keeps for itself inside a cluster.
const RESERVED: [&str; 4] = ["169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24"];

fn pools(cluster: &Value) -> impl Iterator<Item = &Value> {
    listed(cluster, "agentPoolProfiles")
}

fn nodes(pool: &Value) -> u64 {
    pool["count"].as_u64().unwrap_or(1)
}

/// The subnet that a cluster's first pool is in.
fn subnet_of(cluster: &Value) -> &str {
    pools(cluster).next().map(|pool| text(&pool["vnetSubnetID"])).unwrap_or_default()
}

fn is_pool_name(name: &str) -> bool {
    (1..=12).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && name.as_bytes()[0].is_ascii_lowercase()
}

impl Azure {
    pub(super) fn check_cluster(&mut self, object: &mut Value, there: Option<&Value>) -> Checked {
        let bad = |code, message: &str| Err(refuse(400, code, message));
        let name = text(&object["name"]).to_owned();
        if name.len() > 63 || name.ends_with(['-', '_']) {
            return bad("InvalidResourceName", "A cluster's name has 63 letters at most.");
        }
        check_identity(object)?;
        check_pools(object)?;
        if text(&object["properties"]["dnsPrefix"]).is_empty() {
            return bad("DNSPrefixNotProvided", "A dnsPrefix is needed.");
        }
        self.check_cluster_network(object)?;
        if let Some(there) = there {
            let fixed = [&["dnsPrefix"][..], &["networkProfile", "serviceCidr"], &["nodeResourceGroup"]];
            let at = |object: &Value, path: &[&str]| {
                path.iter().fold(object["properties"].clone(), |value, part| value[*part].clone())
            };
            let given = |path: &[&str]| !at(object, path).is_null();
            let changed = fixed.iter().any(|path| given(path) && at(object, path) != at(there, path));
            if changed || !is(subnet_of(there), subnet_of(object)) {
                return bad("PropertyChangeNotAllowed", "Changing a cluster's network is not allowed.");
            }
        }
        self.fill_in(object, there, &name)
    }

    fn check_cluster_network(&self, object: &Value) -> Checked {
        let bad = |code, message: &str| Err(refuse(400, code, message));
        let reference = subnet_of(object).to_owned();
        if pools(object).any(|pool| !is(text(&pool["vnetSubnetID"]), &reference)) {
            return bad("DifferentVNet", "Only pools of one subnet are simulated.");
        }
        let (vnet, subnet) = self.subnet(&reference)?;
        if vnet["location"] != object["location"] {
            return bad("InvalidParameter", "The subnet is in another location.");
        }
        let profile = &object["properties"]["networkProfile"];
        if !is(text(&profile["networkPlugin"]), "azure") || !profile["networkPluginMode"].is_null() {
            return bad("NetworkPluginNotSupported", "Only Pods with addresses of the subnet are simulated.");
        }
        let services: Option<Ipv4Net> = text(&profile["serviceCidr"]).parse().ok();
        let Some(services) = services.filter(|net| net.trunc() == *net && net.prefix_len() > 12) else {
            return bad("InvalidServiceCidr", "The serviceCidr must be smaller than /12.");
        };
        if overlap(&[services], &spaces(vnet)) {
            return bad("ServiceCidrOverlapExistingSubnetsCidr", "The serviceCidr overlaps the network.");
        }
        let reserved: Vec<Ipv4Net> = RESERVED.iter().filter_map(|text| text.parse().ok()).collect();
        if overlap(&[services], &reserved) || overlap(&spaces(vnet), &reserved) {
            return bad("ReservedCidr", "The network has addresses that AKS keeps for itself.");
        }
        let dns: Option<Ipv4Addr> = text(&profile["dnsServiceIP"]).parse().ok();
        let first = services.hosts().next();
        if !dns.is_some_and(|dns| services.contains(&dns) && Some(dns) != first) {
            return bad("InvalidDNSServiceIP", "The dnsServiceIP is not in the serviceCidr.");
        }
        let need: u64 =
            pools(object).map(|pool| nodes(pool) * (pool["maxPods"].as_u64().unwrap_or(PODS) + 1)).sum();
        let room = hosts(subnet).count() as u64;
        match need + 1 > room {
            true => bad(
                "InsufficientSubnetSize",
                &format!("Pre-allocated IPs {need} exceeds IPs available {room} in Subnet Cidr."),
            ),
            false => Ok(()),
        }
    }

    /// What AKS says of a cluster by itself, and the addresses it takes.
    fn fill_in(&self, object: &mut Value, there: Option<&Value>, name: &str) -> Checked {
        let (id, location) = (text(&object["id"]).to_owned(), text(&object["location"]).to_owned());
        let group = id.split('/').nth(4).unwrap_or_default().to_owned();
        let version = text(&object["properties"]["kubernetesVersion"]).to_owned();
        let version = if version.is_empty() { "1.34.2".to_owned() } else { version };
        let properties = &mut object["properties"];
        if properties["nodeResourceGroup"].is_null() {
            properties["nodeResourceGroup"] = format!("MC_{group}_{name}_{location}").into();
        }
        if text(&properties["nodeResourceGroup"]).len() > 80 {
            bail!(
                400,
                "InvalidParameter",
                "The length of the node resource group name is too long. The maximum length is 80."
            );
        }
        properties["kubernetesVersion"] = version.as_str().into();
        properties["currentKubernetesVersion"] = version.as_str().into();
        properties["powerState"] = json!({"code": "Running"});
        let prefix = text(&properties["dnsPrefix"]).to_owned();
        let private = properties["apiServerAccessProfile"]["enablePrivateCluster"] == true;
        if private {
            properties["privateFQDN"] = format!("{prefix}-00000001.hcp.{location}.azmk8s.io").into();
        } else {
            properties["fqdn"] = format!("{prefix}-00000001.hcp.{location}.azmk8s.io").into();
        }
        if properties["networkProfile"]["outboundType"].is_null() {
            properties["networkProfile"]["outboundType"] = "loadBalancer".into();
        }
        for pool in properties["agentPoolProfiles"].as_array_mut().into_iter().flatten() {
            pool["currentOrchestratorVersion"] = version.as_str().into();
            pool["provisioningState"] = "Succeeded".into();
            pool["powerState"] = json!({"code": "Running"});
            if pool["maxPods"].is_null() {
                pool["maxPods"] = PODS.into();
            }
        }
        object["_addresses"] = match there {
            Some(there) => there["_addresses"].clone(),
            None => self.cluster_addresses(object)?.iter().map(ToString::to_string).collect(),
        };
        Ok(())
    }

    /// The API server's, and of each node its own and that of a Pod.
    fn cluster_addresses(&self, object: &Value) -> Result<Vec<Ipv4Addr>, Refusal> {
        let reference = subnet_of(object);
        let (_, subnet) = self.subnet(reference)?;
        let count: u64 = pools(object).map(nodes).sum();
        let used = self.used(reference);
        let free = hosts(subnet).filter(|host| !used.contains(&host.to_string()));
        Ok(free.take(usize::try_from(2 * count + 1).unwrap_or(3)).collect())
    }

    /// The addresses that clusters have in a subnet.
    pub(super) fn used_by_clusters(&self, subnet: &str) -> BTreeSet<String> {
        let of_it = self.of_kind(CLUSTERS).filter(|(_, cluster)| is(subnet_of(cluster), subnet));
        let taken = of_it.flat_map(|(_, one)| list(&one["_addresses"]));
        taken.map(|address| text(address).to_owned()).collect()
    }

    /// The interfaces of nodes, as a subnet shows them.
    pub(super) fn nodes_in(&self, subnet: &str) -> Vec<Value> {
        let of_it = self.of_kind(CLUSTERS).filter(|(_, cluster)| is(subnet_of(cluster), subnet));
        let node = |cluster: &Value, pool: &Value| {
            let scope = text(&cluster["id"]).split("/resourceGroups/").next().unwrap_or_default().to_owned();
            let group = text(&cluster["properties"]["nodeResourceGroup"]);
            let set = format!("aks-{}-vmss", text(&pool["name"]));
            json!({"id": format!("{scope}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/0/networkInterfaces/{set}/ipConfigurations/ipconfig1")})
        };
        of_it
            .flat_map(|(_, cluster)| pools(cluster).map(|pool| node(cluster, pool)).collect::<Vec<_>>())
            .collect()
    }

    /// AKS puts the API server's private endpoint into the subnet, and switches security rules off for it.
    pub(super) fn put_endpoint(&mut self, id: &str) {
        let Some(cluster) = self.objects.get(&key(id)) else { return };
        let Some((vnet, name)) = parts(subnet_of(cluster)).map(|(vnet, name)| (key(vnet), name.to_owned()))
        else {
            return;
        };
        let subnets =
            self.objects.get_mut(&vnet).and_then(|vnet| vnet["properties"]["subnets"].as_array_mut());
        for subnet in subnets.into_iter().flatten().filter(|one| is(text(&one["name"]), &name)) {
            subnet["properties"]["privateEndpointNetworkPolicies"] = "Disabled".into();
        }
    }

    /// Whether a cluster's nodes cannot come up: their security group keeps them from what they need.
    pub(super) fn starves(&self, id: &str) -> bool {
        let Some(cluster) = self.objects.get(&key(id)) else { return false };
        let Some(group) = self.group_of_subnet(subnet_of(cluster)) else { return false };
        let allowed = listed(group, "securityRules").map(|rule| &rule["properties"]).filter(|rule| {
            rule["access"] == "Allow" && rule["direction"] == "Outbound" && rule["protocol"] != "Udp"
        });
        let allowed: BTreeSet<&str> = allowed.map(|rule| text(&rule["destinationAddressPrefix"])).collect();
        let closed = listed(group, "securityRules").any(|rule| {
            let rule = &rule["properties"];
            rule["access"] == "Deny"
                && rule["direction"] == "Outbound"
                && rule["destinationAddressPrefix"] == "*"
        });
        closed && !allowed.contains("*") && !NEEDED.iter().all(|tag| allowed.contains(tag))
    }

    fn group_of_subnet(&self, reference: &str) -> Option<&Value> {
        let (_, subnet) = self.subnet(reference).ok()?;
        self.objects.get(&key(text(&subnet["properties"]["networkSecurityGroup"]["id"])))
    }

    /// Whether some cluster gives a network a way out.
    pub(super) fn has_outbound_cluster(&self, vnet: &str) -> bool {
        self.of_kind(CLUSTERS).any(|(_, cluster)| {
            let inside = parts(subnet_of(cluster)).is_some_and(|(home, _)| key(home) == vnet);
            inside && cluster["properties"]["networkProfile"]["outboundType"] == "loadBalancer"
        })
    }

    /// A cluster on the wire: its API server, its nodes and some of its Pods, all in the subnet's group.
    pub(super) fn cluster_hosts(&self, cluster: &Value) -> Vec<Host> {
        let reference = subnet_of(cluster);
        let Ok((vnet, subnet)) = self.subnet(reference) else { return Vec::new() };
        let open = || {
            let peers = vec![Ipv4Net::default()];
            Firewall(vec![Line {
                priority: 0,
                allow: true,
                protocol: None,
                ports: vec![],
                src_ports: vec![],
                peers,
            }])
        };
        let group = self.group_of_subnet(reference);
        let firewall = |direction: &str| group.map_or_else(open, |group| Firewall(lines(group, direction)));
        let policies = text(&subnet["properties"]["privateEndpointNetworkPolicies"]);
        let is_guarded = ["Enabled", "NetworkSecurityGroupEnabled"].contains(&policies);
        let addresses = list(&cluster["_addresses"]);
        let host = |(number, address): (usize, &Value)| Host {
            address: text(address).parse().ok(),
            network: key(text(&vnet["id"])),
            routes: None,
            cut_off: Vec::new(),
            guard: None,
            inbound: if number == 0 && !is_guarded { open() } else { firewall("Inbound") },
            outbound: firewall("Outbound"),
        };
        addresses.enumerate().map(host).collect()
    }
}

fn check_identity(object: &Value) -> Checked {
    let identity = &object["identity"];
    let assigned = identity["userAssignedIdentities"].as_object().is_some_and(|all| !all.is_empty());
    match text(&identity["type"]) {
        "UserAssigned" if assigned => Ok(()),
        "SystemAssigned" => Ok(()),
        _ if object["properties"]["servicePrincipalProfile"].is_object() => Ok(()),
        _ => Err(refuse(400, "InvalidParameter", "A managed identity or a service principal is needed.")),
    }
}

fn check_pools(object: &Value) -> Checked {
    let bad = |code, message: String| Err(refuse(400, code, message));
    let mut names = BTreeSet::new();
    for pool in pools(object) {
        let name = text(&pool["name"]);
        if !is_pool_name(name) || !names.insert(name) {
            return bad("InvalidParameter", format!("The agent pool name {name:?} is not valid."));
        }
        if nodes(pool) > 1000 || (pool["mode"] == "System" && nodes(pool) == 0) {
            return bad("InvalidParameter", format!("The count of agent pool {name} is not valid."));
        }
    }
    match pools(object).any(|pool| pool["mode"] == "System") {
        true => Ok(()),
        false => bad("MissingSystemPool", "Must define at least one system pool.".to_owned()),
    }
}
