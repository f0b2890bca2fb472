//! What somebody makes who has never heard of Trestle.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Action, state::Ec2};
use crate::{Machine, rest::text};

const REGION: &str = "us-east-1";
const SPACE: &str = "172.31.0.0/16";

impl Ec2 {
    fn make(&mut self, now: u64, action: &str, input: Value) -> Value {
        let ask = Action { region: REGION, now, input };
        self.call(action, &ask).unwrap_or_else(|refusal| panic!("{action}: {refusal:?}"))
    }

    /// An instance in a VPC, in a subnet with a route table of its own, in two groups, one of them open. A neighbour is in
    /// another zone, in a subnet that uses the main route table.
    pub(crate) fn put_machine(&mut self, neighbour: Option<&Machine>, now: u64) -> Machine {
        let (vpc, part, zone) = match neighbour.and_then(|machine| self.objects.get(&machine.id)) {
            Some(instance) => (text(&instance["VpcId"]).to_owned(), "172.31.32.0/20", "c"),
            None => {
                let made = self.make(now, "CreateVpc", json!({"CidrBlock": SPACE}));
                (text(&made["Vpc"]["VpcId"]).to_owned(), "172.31.16.0/20", "b")
            }
        };
        let zone = format!("{REGION}{zone}");
        let subnet = json!({"VpcId": vpc, "CidrBlock": part, "AvailabilityZone": zone});
        let subnet = text(&self.make(now, "CreateSubnet", subnet)["Subnet"]["SubnetId"]).to_owned();
        if neighbour.is_none() {
            let table = self.make(now, "CreateRouteTable", json!({"VpcId": vpc}));
            let both = json!({"RouteTableId": table["RouteTable"]["RouteTableId"], "SubnetId": subnet});
            self.make(now, "AssociateRouteTable", both);
        }
        let groups: Vec<String> = ["web", "ssh"]
            .iter()
            .map(|name| {
                let name = format!("{name} {part}");
                let wanted = json!({"GroupName": name, "Description": "by hand", "VpcId": vpc});
                text(&self.make(now, "CreateSecurityGroup", wanted)["GroupId"]).to_owned()
            })
            .collect();
        let everybody = json!([{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]);
        let open = json!({"GroupId": groups[0], "IpPermissions": everybody});
        self.make(now, "AuthorizeSecurityGroupIngress", open);
        let tags = json!([{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "old web"}]}]);
        let wanted = json!({"ImageId": "ami-7", "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1, "SubnetId": subnet, "SecurityGroupIds": groups, "TagSpecifications": tags});
        let made = self.make(now, "RunInstances", wanted)["Instances"][0].clone();
        Machine {
            id: text(&made["InstanceId"]).to_owned(),
            address: text(&made["PrivateIpAddress"]).parse().expect("it has an address"),
            space: SPACE.parse().expect("it is a prefix"),
        }
    }

    /// Everything that is not deleted, as EC2 shows it.
    pub(crate) fn all_objects(&self) -> BTreeMap<String, Value> {
        let left = self.left().into_iter().chain(self.defaults());
        let shown = |id: String| {
            let mut object = self.objects.get(&id)?.clone();
            object.as_object_mut()?.retain(|name, _| !name.starts_with('_'));
            Some((id, object))
        };
        left.filter_map(shown).collect()
    }
}
