//! Instances: made inside their groups, gone a while after they are terminated.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Action, Outcome, refuse,
    state::{ACCOUNT, Ec2},
};

const MISSING: &str = "InvalidInstanceID.NotFound";

pub(super) fn instance_state(name: &str) -> Value {
    let code = match name {
        "pending" => 0,
        "running" => 16,
        "shutting-down" => 32,
        _ => 48,
    };
    json!({"Code": code, "Name": name})
}

impl Ec2 {
    pub(super) fn instances(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        Some(match action {
            "RunInstances" => self.run_instances(ask),
            "DescribeInstances" => self.describe("i", "InstanceIds", "Instances", MISSING, ask).map(|mut found| {
                let each = found["Instances"].take();
                let reservation = |instance: &Value| json!({"ReservationId": "r-0", "OwnerId": ACCOUNT, "Instances": [instance]});
                let list: Vec<Value> = each.as_array().into_iter().flatten().map(reservation).collect();
                let mut answer = json!({"Reservations": list});
                if let Some(token) = found.get("NextToken") {
                    answer["NextToken"] = token.clone();
                }
                answer
            }),
            "TerminateInstances" => self.terminate(ask),
            "ModifyNetworkInterfaceAttribute" => self.set_groups(ask),
            _ => return None,
        })
    }

    fn run_instances(&mut self, ask: &Action<'_>) -> Outcome {
        let token = ask.text("ClientToken").to_owned();
        let answer = |instance: Value| {
            Ok(json!({"ReservationId": "r-0", "OwnerId": ACCOUNT, "Instances": [instance]}))
        };
        if let Some(there) = self.tokens.get(&token).filter(|_| !token.is_empty()) {
            return answer(self.objects.get(there).cloned().unwrap_or_else(|| json!({"InstanceId": there})));
        }
        if ask.text("ImageId").is_empty() {
            return Err(refuse("MissingParameter", "The request must contain the parameter ImageId"));
        }
        let interface = &ask.input["NetworkInterfaces"][0];
        let subnet_id =
            interface["SubnetId"].as_str().or(ask.input["SubnetId"].as_str()).unwrap_or_default().to_owned();
        let subnet = self.get(&subnet_id, ask, "InvalidSubnetID.NotFound")?.clone();
        let asked = interface["Groups"]
            .as_array()
            .or(ask.input["SecurityGroupIds"].as_array())
            .cloned()
            .unwrap_or_default();
        let mut groups = Vec::new();
        for group in asked.iter().filter_map(Value::as_str) {
            let found = self.get(group, ask, "InvalidGroup.NotFound")?;
            if found["VpcId"] != subnet["VpcId"] {
                return Err(refuse(
                    "InvalidParameter",
                    "Security group and subnet belong to different networks.",
                ));
            }
            groups.push(json!({"GroupId": group, "GroupName": found["GroupName"]}));
        }
        if groups.is_empty() {
            let default =
                self.all("sg").find(|(_, one)| one["_default"] == true && one["VpcId"] == subnet["VpcId"]);
            groups.extend(default.map(|(id, one)| json!({"GroupId": id, "GroupName": one["GroupName"]})));
        }
        let net: Ipv4Net = subnet["CidrBlock"]
            .as_str()
            .unwrap_or_default()
            .parse()
            .map_err(|_| refuse("InternalError", "subnet"))?;
        let used = subnet["_used"].as_u64().unwrap_or(4);
        let address = Ipv4Addr::from(u32::from(net.network()) + u32::try_from(used).unwrap_or(u32::MAX));
        if !net.contains(&address) || address == net.broadcast() {
            return Err(refuse("InsufficientFreeAddressesInSubnet", "There are not enough free addresses."));
        }
        if let Some(subnet) = self.objects.get_mut(&subnet_id) {
            subnet["_used"] = (used + 1).into();
        }
        let (id, eni) = (self.new_id("i"), self.new_id("eni"));
        let attached = json!({"NetworkInterfaceId": eni, "SubnetId": subnet_id, "VpcId": subnet["VpcId"], "PrivateIpAddress": address.to_string(), "Groups": groups, "Status": "in-use"});
        let object = json!({"InstanceId": id, "ImageId": ask.text("ImageId"), "InstanceType": if ask.text("InstanceType").is_empty() { "m1.small" } else { ask.text("InstanceType") },
            "State": instance_state("pending"), "PrivateIpAddress": address.to_string(), "SubnetId": subnet_id, "VpcId": subnet["VpcId"],
            "Placement": {"AvailabilityZone": subnet["AvailabilityZone"]}, "SecurityGroups": groups, "NetworkInterfaces": [attached], "ClientToken": token});
        let object = self.put(&id, "instance", object, ask);
        self.later(&id, "running", ask.now + 20);
        self.tokens.insert(token, id);
        answer(object)
    }

    fn terminate(&mut self, ask: &Action<'_>) -> Outcome {
        let ids: Vec<String> = ask.input["InstanceIds"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let mut changes = Vec::new();
        for id in ids {
            // A terminated instance may be terminated again.
            let found = self.objects.get_mut(&id).filter(|one| one["_region"] == ask.region);
            let instance =
                found.ok_or_else(|| refuse(MISSING, format!("The instance ID '{id}' does not exist")))?;
            let before = instance["State"].clone();
            if before["Name"] != "terminated" {
                instance["State"] = instance_state("shutting-down");
                changes.push(
                    json!({"InstanceId": id, "PreviousState": before, "CurrentState": instance["State"]}),
                );
                self.later(&id, "terminated", ask.now + 30);
            }
        }
        Ok(json!({"TerminatingInstances": changes}))
    }

    /// Its interface goes with it.
    pub(super) fn release_instance(&mut self, id: &str, _now: u64) {
        if let Some(instance) = self.objects.get_mut(id) {
            for field in ["SecurityGroups", "NetworkInterfaces"] {
                instance[field] = json!([]);
            }
            for field in ["SubnetId", "VpcId", "PrivateIpAddress"] {
                instance[field] = Value::Null;
            }
        }
    }

    fn set_groups(&mut self, ask: &Action<'_>) -> Outcome {
        let eni = ask.text("NetworkInterfaceId");
        let wanted: Vec<Value> = ask.input["Groups"].as_array().cloned().unwrap_or_default();
        let groups: Vec<Value> = wanted.iter().map(|id| json!({"GroupId": id, "GroupName": ""})).collect();
        let found = self
            .objects
            .values_mut()
            .find(|object| object["NetworkInterfaces"][0]["NetworkInterfaceId"] == eni);
        let instance = found
            .ok_or_else(|| refuse("InvalidNetworkInterfaceID.NotFound", format!("{eni} does not exist")))?;
        instance["SecurityGroups"] = groups.clone().into();
        instance["NetworkInterfaces"][0]["Groups"] = groups.into();
        Ok(json!({}))
    }
}
