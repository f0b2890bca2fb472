//! Objects as clients see them: without what is the simulator's own, with what Azure works out.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{
    is,
    objects::listed,
    state::{Azure, key},
};
use crate::rest::text;

fn default_rules() -> &'static [Value] {
    static RULES: OnceLock<Vec<Value>> = OnceLock::new();
    RULES.get_or_init(|| {
        serde_json::from_str(include_str!("../../schemas/azure/default_rules.json"))
            .expect("the file is JSON")
    })
}

/// A child with its id.
fn child(parent: &Value, kind: &str, mut one: Value) -> Value {
    one["id"] = format!("{}/{kind}/{}", text(&parent["id"]), text(&one["name"])).into();
    one["etag"] = parent["etag"].clone();
    one["type"] = format!("{}/{kind}", text(&parent["type"])).into();
    one["properties"]["provisioningState"] = "Succeeded".into();
    one
}

impl Azure {
    pub(super) fn show(&self, object: &Value) -> Value {
        let mut shown = object.clone();
        match text(&object["type"]).rsplit('/').next().unwrap_or_default() {
            "virtualNetworks" => self.show_vnet(&mut shown),
            "networkSecurityGroups" => self.show_group(&mut shown),
            "networkInterfaces" => {
                if let Some(machine) = self.machine_of(text(&object["id"])) {
                    shown["properties"]["virtualMachine"] = json!({ "id": machine });
                }
                named(&mut shown, "ipConfigurations");
            }
            "virtualNetworkGateways" => named(&mut shown, "ipConfigurations"),
            "virtualMachines" => {
                // Passwords and what runs first are never shown.
                let profile = shown["properties"]["osProfile"].as_object_mut().into_iter();
                profile.for_each(|all| all.retain(|name, _| name != "adminPassword" && name != "customData"));
            }
            _ => {}
        }
        clean(&shown)
    }

    fn show_vnet(&self, shown: &mut Value) {
        let parent = shown.clone();
        let subnets = listed(&parent, "subnets").map(|subnet| {
            let mut subnet = child(&parent, "subnets", subnet.clone());
            let users = self.configurations(text(&subnet["id"]));
            if !users.is_empty() {
                subnet["properties"]["ipConfigurations"] = users.into();
            }
            subnet
        });
        shown["properties"]["subnets"] = subnets.collect();
        let peerings = listed(&parent, "virtualNetworkPeerings").map(|peering| {
            let mut peering = child(&parent, "virtualNetworkPeerings", peering.clone());
            peering["properties"]["peeringState"] = peering["_state"].clone();
            let far = self.objects.get(&key(text(&peering["properties"]["remoteVirtualNetwork"]["id"])));
            if let Some(far) = far {
                peering["properties"]["remoteAddressSpace"] = far["properties"]["addressSpace"].clone();
            }
            peering
        });
        shown["properties"]["virtualNetworkPeerings"] = peerings.collect();
    }

    /// What has an address in a subnet.
    fn configurations(&self, subnet: &str) -> Vec<Value> {
        let holders =
            ["networkInterfaces", "virtualNetworkGateways"].into_iter().flat_map(|kind| self.of_kind(kind));
        let inside = holders.flat_map(|(_, holder)| {
            listed(holder, "ipConfigurations")
                .filter(|one| is(text(&one["properties"]["subnet"]["id"]), subnet))
                .map(move |one| json!({"id": format!("{}/ipConfigurations/{}", text(&holder["id"]), text(&one["name"]))}))
        });
        inside.chain(self.nodes_in(subnet)).collect()
    }

    fn show_group(&self, shown: &mut Value) {
        let parent = shown.clone();
        let rules =
            listed(&parent, "securityRules").map(|rule| child(&parent, "securityRules", rule.clone()));
        shown["properties"]["securityRules"] = rules.collect();
        let defaults =
            default_rules().iter().map(|rule| child(&parent, "defaultSecurityRules", rule.clone()));
        shown["properties"]["defaultSecurityRules"] = defaults.collect();
        let users: Vec<Value> = self
            .of_kind("networkInterfaces")
            .filter(|(_, one)| {
                is(text(&one["properties"]["networkSecurityGroup"]["id"]), text(&parent["id"]))
            })
            .map(|(_, one)| json!({"id": one["id"]}))
            .collect();
        if !users.is_empty() {
            shown["properties"]["networkInterfaces"] = users.into();
        }
        let subnets: Vec<Value> = self
            .of_kind("virtualNetworks")
            .flat_map(|(_, vnet)| listed(vnet, "subnets").map(move |subnet| (vnet, subnet)))
            .filter(|(_, one)| {
                is(text(&one["properties"]["networkSecurityGroup"]["id"]), text(&parent["id"]))
            })
            .map(|(vnet, one)| json!({"id": format!("{}/subnets/{}", text(&vnet["id"]), text(&one["name"]))}))
            .collect();
        if !subnets.is_empty() {
            shown["properties"]["subnets"] = subnets.into();
        }
    }
}

fn named(shown: &mut Value, field: &str) {
    let id = text(&shown["id"]).to_owned();
    for one in shown["properties"][field].as_array_mut().into_iter().flatten() {
        one["id"] = format!("{id}/{field}/{}", text(&one["name"])).into();
        one["properties"]["provisioningState"] = "Succeeded".into();
    }
}

/// Without what is the simulator's own, and without what is nothing.
fn clean(object: &Value) -> Value {
    match object {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(name, value)| !name.starts_with('_') && !value.is_null())
                .map(|(name, value)| (name.clone(), clean(value)))
                .collect(),
        ),
        Value::Array(items) => items.iter().map(clean).collect(),
        other => other.clone(),
    }
}
