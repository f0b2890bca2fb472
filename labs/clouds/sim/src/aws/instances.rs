//! Instances: made inside their groups, gone a while after they are terminated.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Action, Outcome, Refusal, refuse,
    state::{ACCOUNT, Ec2},
};
use crate::rest::{list, text, texts};

const MISSING: &str = "InvalidInstanceID.NotFound";
const NO_INTERFACE: &str = "InvalidNetworkInterfaceID.NotFound";
/// Groups on one interface.
const MOST_GROUPS: usize = 5;

pub(super) fn instance_state(name: &str) -> Value {
    let code = match name {
        "pending" => 0,
        "running" => 16,
        "shutting-down" => 32,
        _ => 48,
    };
    json!({"Code": code, "Name": name})
}

fn reservation(instances: Vec<Value>) -> Value {
    let id = instances.first().and_then(|one| one["_reservation"].as_str()).unwrap_or("r-0");
    json!({"ReservationId": id, "OwnerId": ACCOUNT, "Groups": [], "Instances": instances})
}

impl Ec2 {
    pub(super) fn instances(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        Some(match action {
            "RunInstances" => self.run_instances(ask),
            "DescribeInstances" => {
                self.describe("i", "InstanceIds", "Instances", MISSING, ask).map(|found| {
                    let mut shown: Vec<Value> = Vec::new();
                    for instance in list(&found["Instances"]) {
                        let together =
                            shown.iter_mut().find(|one| one["ReservationId"] == instance["_reservation"]);
                        match together.and_then(|one| one["Instances"].as_array_mut()) {
                            Some(instances) => instances.push(instance.clone()),
                            None => shown.push(reservation(vec![instance.clone()])),
                        }
                    }
                    let mut answer = json!({"Reservations": shown});
                    if let Some(token) = found.get("NextToken") {
                        answer["NextToken"] = token.clone();
                    }
                    answer
                })
            }
            "DescribeNetworkInterfaces" => {
                self.describe("eni", "NetworkInterfaceIds", "NetworkInterfaces", NO_INTERFACE, ask)
            }
            "TerminateInstances" => self.terminate(ask),
            "ModifyNetworkInterfaceAttribute" => self.set_groups(ask),
            _ => return None,
        })
    }

    fn run_instances(&mut self, ask: &Action<'_>) -> Outcome {
        let token = ask.text("ClientToken");
        if let Some(there) = self.tokens.get(token).filter(|_| !token.is_empty()) {
            let show = |id| self.objects.get(id).cloned().unwrap_or_else(|| json!({ "InstanceId": id }));
            return Ok(reservation(there.split(' ').map(show).collect()));
        }
        if ask.text("ImageId").is_empty() {
            bail!("MissingParameter", "The request must contain the parameter ImageId");
        }
        let (least, most) = (ask.input["MinCount"].as_u64(), ask.input["MaxCount"].as_u64());
        let (least, most) = (least.unwrap_or(1), most.unwrap_or(1));
        if least < 1 || most < least {
            bail!("InvalidParameterValue", "MaxCount must be at least MinCount, and MinCount 1");
        }
        let mut instances = Vec::new();
        for index in 0..most {
            match self.launch(index, ask) {
                Ok(instance) => instances.push(instance),
                // As many as fit, if that is enough.
                Err(_) if index >= least => break,
                Err(refusal) => return Err(refusal),
            }
        }
        let ids: Vec<String> =
            instances.iter().filter_map(|one| one["InstanceId"].as_str()).map(str::to_owned).collect();
        // What is started together is one reservation.
        let name = ids.first().map_or_else(String::new, |id| id.replacen("i-", "r-", 1));
        for (id, instance) in ids.iter().zip(&mut instances) {
            instance["_reservation"] = name.as_str().into();
            self.objects.insert(id.clone(), instance.clone());
            self.later(id, "running", ask.now + 20);
        }
        self.tokens.insert(token.to_owned(), ids.join(" "));
        Ok(reservation(instances))
    }

    fn launch(&mut self, index: u64, ask: &Action<'_>) -> Result<Value, Refusal> {
        let interface = &ask.input["NetworkInterfaces"][0];
        let subnet_id =
            interface["SubnetId"].as_str().or(ask.input["SubnetId"].as_str()).unwrap_or_default().to_owned();
        let subnet = self.get(&subnet_id, ask, "InvalidSubnetID.NotFound")?.clone();
        let asked = if interface["Groups"].is_array() {
            &interface["Groups"]
        } else {
            &ask.input["SecurityGroupIds"]
        };
        let mut groups = self.groups_of(asked, &subnet["VpcId"], ask)?;
        if groups.is_empty() {
            let default =
                self.all("sg").find(|(_, one)| one["_default"] == true && one["VpcId"] == subnet["VpcId"]);
            groups.extend(default.map(|(id, one)| json!({"GroupId": id, "GroupName": one["GroupName"]})));
        }
        let address = self.next_address(&subnet_id, &subnet)?;
        let name = format!("ip-{}.ec2.internal", address.to_string().replace('.', "-"));
        let (id, eni) = (self.new_id("i"), self.new_id("eni"));
        let attached = json!({"NetworkInterfaceId": eni, "SubnetId": subnet_id, "VpcId": subnet["VpcId"], "PrivateIpAddress": address.to_string(), "PrivateDnsName": name,
            "PrivateIpAddresses": [{"Primary": true, "PrivateIpAddress": address.to_string(), "PrivateDnsName": name}],
            "Groups": groups, "Status": "in-use", "OwnerId": ACCOUNT, "SourceDestCheck": true, "InterfaceType": "interface",
            "Attachment": {"DeviceIndex": 0, "Status": "attached", "DeleteOnTermination": true, "AttachmentId": eni.replace("eni", "eni-attach")}});
        let object = json!({"InstanceId": id, "ImageId": ask.text("ImageId"), "InstanceType": if ask.text("InstanceType").is_empty() { "m1.small" } else { ask.text("InstanceType") },
            "State": instance_state("pending"), "PrivateIpAddress": address.to_string(), "SubnetId": subnet_id, "VpcId": subnet["VpcId"],
            "Placement": {"AvailabilityZone": subnet["AvailabilityZone"], "Tenancy": "default"}, "SecurityGroups": groups, "NetworkInterfaces": [attached], "ClientToken": ask.text("ClientToken"), "LaunchTime": "2026-10-01T00:00:00.000Z",
            "AmiLaunchIndex": index, "Architecture": "x86_64", "Hypervisor": "xen", "VirtualizationType": "hvm", "RootDeviceType": "ebs", "RootDeviceName": "/dev/xvda",
            "PrivateDnsName": name, "PublicDnsName": "", "StateTransitionReason": "", "PlatformDetails": "Linux/UNIX", "Monitoring": {"State": "disabled"}, "SourceDestCheck": true, "EbsOptimized": false});
        let object = self.put(&id, "instance", object, ask);
        let mut interface = attached;
        interface["Attachment"]["InstanceId"] = id.as_str().into();
        interface["AvailabilityZone"] = subnet["AvailabilityZone"].clone();
        interface["_region"] = ask.region.into();
        self.objects.insert(eni, interface);
        Ok(object)
    }

    fn next_address(&mut self, id: &str, subnet: &Value) -> Result<Ipv4Addr, Refusal> {
        let net: Ipv4Net =
            text(&subnet["CidrBlock"]).parse().map_err(|_| refuse("InternalError", "subnet"))?;
        let used = subnet["_used"].as_u64().unwrap_or(4);
        let address = Ipv4Addr::from(u32::from(net.network()) + u32::try_from(used).unwrap_or(u32::MAX));
        if !net.contains(&address) || address == net.broadcast() {
            bail!("InsufficientFreeAddressesInSubnet", "There are not enough free addresses.");
        }
        if let Some(subnet) = self.objects.get_mut(id) {
            subnet["_used"] = (used + 1).into();
        }
        Ok(address)
    }

    fn terminate(&mut self, ask: &Action<'_>) -> Outcome {
        let mut changes = Vec::new();
        for id in texts(&ask.input["InstanceIds"]) {
            // A terminated instance may be terminated again.
            let found = self.objects.get_mut(id).filter(|one| one["_region"] == ask.region);
            let instance =
                found.ok_or_else(|| refuse(MISSING, format!("The instance ID '{id}' does not exist")))?;
            let before = instance["State"].clone();
            if before["Name"] != "terminated" {
                instance["State"] = instance_state("shutting-down");
                changes.push(
                    json!({"InstanceId": id, "PreviousState": before, "CurrentState": instance["State"]}),
                );
                self.later(id, "terminated", ask.now + 30);
            }
        }
        Ok(json!({"TerminatingInstances": changes}))
    }

    /// Its interface goes with it.
    pub(super) fn release_instance(&mut self, id: &str, _now: u64) {
        self.objects.retain(|_, object| object["Attachment"]["InstanceId"] != id);
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
        let eni = ask.text("NetworkInterfaceId").to_owned();
        let interface = self.get(&eni, ask, NO_INTERFACE)?;
        let instance = text(&interface["Attachment"]["InstanceId"]).to_owned();
        let groups = self.groups_of(&ask.input["Groups"], &interface["VpcId"].clone(), ask)?;
        if groups.len() > MOST_GROUPS {
            bail!(
                "SecurityGroupsPerInterfaceLimitExceeded",
                "You have exceeded the number of security groups allowed per interface: {MOST_GROUPS}"
            );
        }
        self.get_mut(&eni, ask, NO_INTERFACE)?["Groups"] = groups.clone().into();
        let instance = self.get_mut(&instance, ask, MISSING)?;
        instance["SecurityGroups"] = groups.clone().into();
        instance["NetworkInterfaces"][0]["Groups"] = groups.into();
        Ok(json!({}))
    }

    /// Groups by their ids, all of one VPC.
    fn groups_of(&self, ids: &Value, vpc: &Value, ask: &Action<'_>) -> Result<Vec<Value>, Refusal> {
        let mut groups = Vec::new();
        for group in texts(ids) {
            let found = self.get(group, ask, "InvalidGroup.NotFound")?;
            if found["VpcId"] != *vpc {
                bail!("InvalidParameter", "Security group and subnet belong to different networks.");
            }
            groups.push(json!({"GroupId": group, "GroupName": found["GroupName"]}));
        }
        Ok(groups)
    }
}
