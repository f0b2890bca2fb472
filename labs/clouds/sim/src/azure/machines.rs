//! What somebody makes who has never heard of Trestle.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::state::{Azure, key};
use crate::{Machine, rest::text};

const GROUP: &str = "/subscriptions/s1/resourceGroups/theirs";
const LOCATION: &str = "westus2";
const SPACE: &str = "172.20.0.0/16";

impl Azure {
    fn make(&mut self, now: u64, kind: &str, name: &str, properties: Value) -> String {
        let provider = if kind == "virtualMachines" { "Microsoft.Compute" } else { "Microsoft.Network" };
        let id = format!("{GROUP}/providers/{provider}/{kind}/{name}");
        let body = json!({"location": LOCATION, "tags": {"by": "hand"}, "properties": properties});
        if let Err(refusal) = self.put_as(&id, body, now) {
            panic!("{id}: {refusal:?}");
        }
        self.settle(u64::MAX);
        id
    }

    /// A machine in a virtual network of two blocks, in a group that lets everybody in. A neighbour is in another subnet,
    /// and in no group.
    pub(crate) fn put_machine(&mut self, neighbour: Option<&Machine>, now: u64) -> Machine {
        let group = match neighbour {
            Some(_) => Value::Null,
            None => {
                let part =
                    |name: &str, prefix: &str| json!({"name": name, "properties": {"addressPrefix": prefix}});
                let subnets = json!([part("one", "172.20.1.0/24"), part("two", "172.20.2.0/24")]);
                let blocks = json!({"addressPrefixes": [SPACE, "192.168.77.0/24"]});
                self.make(now, "virtualNetworks", "old", json!({"addressSpace": blocks, "subnets": subnets}));
                let open = json!({"priority": 100, "direction": "Inbound", "access": "Allow", "protocol": "*", "sourceAddressPrefix": "*",
                    "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "*"});
                let rules = json!({"securityRules": [{"name": "all", "properties": open}]});
                json!({"id": self.make(now, "networkSecurityGroups", "open", rules)})
            }
        };
        let name = if neighbour.is_some() { "two" } else { "one" };
        let subnet = format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/old/subnets/{name}");
        let inside =
            json!({"primary": true, "privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet}});
        let mut interface = json!({"ipConfigurations": [{"name": "main", "properties": inside}], "enableAcceleratedNetworking": true});
        if !group.is_null() {
            interface["networkSecurityGroup"] = group;
        }
        let interface = self.make(now, "networkInterfaces", &format!("nic-{name}"), interface);
        let machine = json!({"hardwareProfile": {"vmSize": "Standard_D2s_v5"}, "networkProfile": {"networkInterfaces": [{"id": interface}]}});
        let id = self.make(now, "virtualMachines", &format!("vm-{name}"), machine);
        let made = &self.objects[&key(&interface)]["properties"]["ipConfigurations"][0]["properties"];
        Machine {
            id,
            address: text(&made["privateIPAddress"]).parse().expect("it has an address"),
            space: SPACE.parse().expect("it is a prefix"),
        }
    }

    /// Everything there is, as Azure shows it, but for the marks of versions.
    pub(crate) fn all_objects(&self) -> BTreeMap<String, Value> {
        self.objects.iter().map(|(id, object)| (id.clone(), without_etags(self.show(object)))).collect()
    }
}

fn without_etags(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| name != "etag")
            .map(|(name, value)| (name, without_etags(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_etags).collect(),
        other => other,
    }
}
