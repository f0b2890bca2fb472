//! Networks, interfaces, addresses, NAT, machines, and peerings.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Refusal, is,
    objects::listed,
    refuse,
    state::{Azure, key},
};
use crate::rest::{list, text};

type Checked = Result<(), Refusal>;

pub(super) fn spaces(vnet: &Value) -> Vec<Ipv4Net> {
    let prefixes = list(&vnet["properties"]["addressSpace"]["addressPrefixes"]);
    prefixes.filter_map(|text| text.as_str()?.parse().ok()).collect()
}

pub(super) fn overlap(a: &[Ipv4Net], b: &[Ipv4Net]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.contains(b) || b.contains(a)))
}

/// The virtual network and the name of `…/virtualNetworks/V/subnets/S`.
pub(super) fn parts(subnet: &str) -> Option<(&str, &str)> {
    let at = subnet.to_ascii_lowercase().find("/subnets/")?;
    Some((&subnet[..at], &subnet[at + "/subnets/".len()..]))
}

/// The addresses of a subnet that can be had: Azure keeps the first four and the last.
pub(super) fn hosts(subnet: &Value) -> impl Iterator<Item = Ipv4Addr> {
    let net: Option<Ipv4Net> = text(&subnet["properties"]["addressPrefix"]).parse().ok();
    net.into_iter().flat_map(|net| net.hosts().skip(3))
}

impl Azure {
    pub(super) fn check_vnet(&self, object: &mut Value, there: Option<&Value>) -> Checked {
        let space = spaces(object);
        let given = object["properties"]["addressSpace"]["addressPrefixes"].as_array().map_or(0, Vec::len);
        if space.is_empty() || space.len() != given || space.iter().any(|net| net.trunc() != *net) {
            bail!(400, "InvalidAddressPrefixFormat", "The address space is not valid.");
        }
        if object["properties"]["subnets"].is_null() {
            object["properties"]["subnets"] = json!([]);
        }
        let mut taken: Vec<Ipv4Net> = Vec::new();
        for subnet in listed(object, "subnets") {
            let name = text(&subnet["name"]);
            let net: Option<Ipv4Net> = text(&subnet["properties"]["addressPrefix"]).parse().ok();
            let Some(net) = net.filter(|net| net.trunc() == *net && net.prefix_len() <= 29) else {
                bail!(400, "InvalidAddressPrefixFormat", "Subnet {name} has no valid prefix.");
            };
            if !space.iter().any(|space| space.contains(&net)) {
                bail!(400, "NetcfgInvalidSubnet", "Subnet {name} is not within the network.");
            }
            if overlap(&[net], &taken) {
                bail!(400, "NetcfgSubnetRangesOverlap", "Subnet {name} overlaps another.");
            }
            taken.push(net);
            for user in ["natGateway", "networkSecurityGroup"] {
                if let Some(used) = subnet["properties"][user]["id"].as_str() {
                    self.ready(used)?;
                }
            }
        }
        // What a replaced network lacks is deleted, unless it is in use.
        let Some(there) = there else {
            object["properties"]["virtualNetworkPeerings"] = json!([]);
            return Ok(());
        };
        for old in listed(there, "subnets") {
            let name = text(&old["name"]);
            if !listed(object, "subnets").any(|one| is(text(&one["name"]), name)) {
                self.clone().delete(&format!("{}/subnets/{name}", text(&there["id"])))?;
            }
        }
        object["properties"]["virtualNetworkPeerings"] =
            there["properties"]["virtualNetworkPeerings"].clone();
        Ok(())
    }

    /// The subnet that a reference names, and the network it is in.
    pub(super) fn subnet(&self, reference: &str) -> Result<(&Value, &Value), Refusal> {
        let missing = || {
            let message = format!("Resource {reference} referenced by resource was not found.");
            refuse(400, "InvalidResourceReference", message)
        };
        let (vnet, name) = parts(reference).ok_or_else(missing)?;
        let vnet = self.ready(vnet)?;
        let subnet = listed(vnet, "subnets").find(|one| is(text(&one["name"]), name)).ok_or_else(missing)?;
        Ok((vnet, subnet))
    }

    pub(super) fn check_interface(&self, object: &mut Value, there: Option<&Value>) -> Checked {
        if let Some(group) = object["properties"]["networkSecurityGroup"]["id"].as_str() {
            self.ready(group)?;
        }
        let configuration = object["properties"]["ipConfigurations"][0].clone();
        let reference = text(&configuration["properties"]["subnet"]["id"]).to_owned();
        let (vnet, subnet) = self.subnet(&reference)?;
        if vnet["location"] != object["location"] {
            bail!(400, "InvalidResourceReference", "The subnet is in another location.");
        }
        if is(text(&subnet["name"]), "GatewaySubnet") {
            bail!(400, "SubnetReservedForGateway", "The subnet is for gateways.");
        }
        let old = there.map(|there| &there["properties"]["ipConfigurations"][0]["properties"]);
        let kept = old.filter(|old| is(text(&old["subnet"]["id"]), &reference));
        let address = match kept {
            Some(old) => text(&old["privateIPAddress"]).to_owned(),
            None => self.free_address(&reference, subnet)?.to_string(),
        };
        let properties = &mut object["properties"]["ipConfigurations"][0]["properties"];
        properties["privateIPAddress"] = address.into();
        properties["privateIPAddressVersion"] = "IPv4".into();
        object["properties"]["macAddress"] = "00-0D-3A-00-00-01".into();
        Ok(())
    }

    fn free_address(&self, reference: &str, subnet: &Value) -> Result<Ipv4Addr, Refusal> {
        let full = || refuse(400, "SubnetIsFull", "Subnet does not have enough capacity.");
        let used = self.used(reference);
        hosts(subnet).find(|host| !used.contains(&host.to_string())).ok_or_else(full)
    }

    /// The addresses of a subnet that somebody has.
    pub(super) fn used(&self, reference: &str) -> BTreeSet<String> {
        let interfaces = self
            .of_kind("networkInterfaces")
            .map(|(_, interface)| &interface["properties"]["ipConfigurations"][0]["properties"])
            .filter(|one| is(text(&one["subnet"]["id"]), reference))
            .map(|one| text(&one["privateIPAddress"]).to_owned());
        interfaces.chain(self.used_by_clusters(reference)).collect()
    }

    pub(super) fn check_address(&self, object: &mut Value, there: Option<&Value>) -> Checked {
        let standard = is(text(&object["sku"]["name"]), "Standard");
        if standard && !is(text(&object["properties"]["publicIPAllocationMethod"]), "Static") {
            bail!(400, "StandardSkuPublicIPAddressesMustBeStatic", "It must be static.");
        }
        let zones = object["zones"].as_array().is_some_and(|zones| !zones.is_empty());
        if zones && object["location"] == "westus" {
            bail!(400, "ZonesNotSupported", "The location does not support availability zones.");
        }
        let made = self.made;
        let new = || format!("20.{}.{}.{}", 40 + (made >> 16 & 63), made >> 8 & 255, made & 255).into();
        object["properties"]["ipAddress"] =
            there.map_or_else(new, |there| there["properties"]["ipAddress"].clone());
        Ok(())
    }

    pub(super) fn check_nat(&self, object: &Value) -> Checked {
        let addresses: Vec<&str> =
            listed(object, "publicIpAddresses").filter_map(|one| one["id"].as_str()).collect();
        addresses.iter().try_for_each(|id| self.ready(id).map(drop))
    }

    pub(super) fn check_machine(&mut self, object: &mut Value) -> Checked {
        let own = text(&object["id"]).to_owned();
        let interfaces = object["properties"]["networkProfile"]["networkInterfaces"].as_array().cloned();
        let ids: Vec<String> =
            interfaces.into_iter().flatten().map(|one| text(&one["id"]).to_owned()).collect();
        if ids.is_empty() || object["properties"]["hardwareProfile"].is_null() {
            bail!(400, "InvalidParameter", "A hardwareProfile and an interface are needed.");
        }
        for id in &ids {
            self.ready(id)?;
            let user = self.machine_of(id).filter(|user| !is(user, &own));
            if let Some(user) = user {
                bail!(400, "NicInUse", "Network Interface {id} is used by {user}.");
            }
        }
        self.made += 1;
        object["properties"]["vmId"] = format!("00000000-0000-0000-0002-{:012}", self.made).into();
        Ok(())
    }

    /// The machine that an interface belongs to.
    pub(super) fn machine_of(&self, interface: &str) -> Option<String> {
        let has = |machine: &Value| {
            let all = machine["properties"]["networkProfile"]["networkInterfaces"].as_array();
            all.into_iter().flatten().any(|one| is(text(&one["id"]), interface))
        };
        let mut machines = self.of_kind("virtualMachines").map(|(_, machine)| machine);
        machines.find(|machine| has(machine)).map(|machine| text(&machine["id"]).to_owned())
    }

    pub(super) fn check_peering(&self, id: &str, new: &mut Value) -> Checked {
        let (near, name) = (self.get(id)?, text(&new["name"]).to_owned());
        let far_id = text(&new["properties"]["remoteVirtualNetwork"]["id"]).to_owned();
        let far = self.ready(&far_id)?;
        if is(&far_id, id) || overlap(&spaces(near), &spaces(far)) {
            bail!(400, "VnetAddressSpacesOverlap", "The address spaces of the networks overlap.");
        }
        let towards = |one: &&Value| is(text(&one["properties"]["remoteVirtualNetwork"]["id"]), &far_id);
        let same = |one: &&Value| is(text(&one["name"]), &name);
        if listed(near, "virtualNetworkPeerings").filter(towards).any(|one| !same(&one)) {
            let code = "AnotherPeeringAlreadyReferencesRemoteVnet";
            bail!(400, code, "There is another peering with that network.");
        }
        let old = listed(near, "virtualNetworkPeerings").find(same);
        if old.is_some_and(|old| old["_state"] == "Disconnected") {
            bail!(
                400,
                "RemotePeeringIsDisconnected",
                "Cannot update the peering {name}: its remote peering is disconnected."
            );
        }
        if new["properties"]["useRemoteGateways"] == true {
            let gateway = self.gateway_in(&far_id).is_some_and(|(_, gateway)| gateway["_until"].is_null());
            let lent = listed(far, "virtualNetworkPeerings").any(|one| {
                is(text(&one["properties"]["remoteVirtualNetwork"]["id"]), id)
                    && one["properties"]["allowGatewayTransit"] == true
            });
            if !gateway || !lent {
                bail!(
                    400,
                    "RemoteVnetHasNoGateways",
                    "The remote network has no gateway, or does not allow its transit."
                );
            }
        }
        for flag in
            ["allowVirtualNetworkAccess", "allowForwardedTraffic", "allowGatewayTransit", "useRemoteGateways"]
        {
            if new["properties"][flag].is_null() {
                new["properties"][flag] = (flag == "allowVirtualNetworkAccess").into();
            }
        }
        new["_state"] = "Initiated".into();
        Ok(())
    }

    /// Two sides that name each other are connected.
    pub(super) fn meet_peering(&mut self, id: &str, name: &str) {
        let Some(near) = self.objects.get(&key(id)) else { return };
        let own = listed(near, "virtualNetworkPeerings").find(|one| is(text(&one["name"]), name));
        let far =
            own.map(|one| key(text(&one["properties"]["remoteVirtualNetwork"]["id"]))).unwrap_or_default();
        let near = key(id);
        let back = self.objects.get(&far).is_some_and(|far| {
            listed(far, "virtualNetworkPeerings")
                .any(|one| is(text(&one["properties"]["remoteVirtualNetwork"]["id"]), &near))
        });
        if back {
            self.set_peering(&near, &far, "Connected");
            self.set_peering(&far, &near, "Connected");
        }
    }

    fn set_peering(&mut self, near: &str, far: &str, state: &str) {
        let list = self
            .objects
            .get_mut(near)
            .and_then(|vnet| vnet["properties"]["virtualNetworkPeerings"].as_array_mut());
        for one in list.into_iter().flatten() {
            if is(text(&one["properties"]["remoteVirtualNetwork"]["id"]), far) {
                one["_state"] = state.into();
            }
        }
    }

    /// The other sides of a network's peerings, or of the one with `far`, are alone now.
    pub(super) fn cut_peerings(&mut self, id: &str, far: Option<&str>) {
        let ids: Vec<String> = match far {
            Some(far) => vec![key(far)],
            None => self.of_kind("virtualNetworks").map(|(id, _)| id.clone()).collect(),
        };
        for other in ids {
            self.set_peering(&other, id, "Disconnected");
        }
    }
}
