//! What is asked about VPCs and instances apart from what they are: DNS in a VPC, and whether an instance passes its checks.

use serde_json::{Value, json};

use super::{Action, Outcome, refuse, state::Ec2};

const NO_VPC: &str = "InvalidVpcID.NotFound";
/// A VPC's attributes, as they are named where they are set, where they are asked for, and whether they are on at first.
const ATTRIBUTES: [(&str, &str, bool); 3] = [
    ("EnableDnsSupport", "enableDnsSupport", true),
    ("EnableDnsHostnames", "enableDnsHostnames", false),
    ("EnableNetworkAddressUsageMetrics", "enableNetworkAddressUsageMetrics", false),
];

impl Ec2 {
    pub(super) fn attributes(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        Some(match action {
            "DescribeVpcAttribute" => self.vpc_attribute(ask),
            "ModifyVpcAttribute" => self.set_vpc_attribute(ask),
            "DescribeInstanceStatus" => self.instance_status(ask),
            _ => return None,
        })
    }

    fn vpc_attribute(&self, ask: &Action<'_>) -> Outcome {
        let vpc = self.get(ask.text("VpcId"), ask, NO_VPC)?;
        let wanted = ATTRIBUTES.into_iter().find(|(_, asked, _)| *asked == ask.text("Attribute"));
        let (name, _, first) = wanted.ok_or_else(|| {
            refuse("InvalidParameterValue", format!("There is no attribute {}.", ask.text("Attribute")))
        })?;
        let value = vpc["_attributes"][name].as_bool().unwrap_or(first);
        Ok(json!({"VpcId": ask.text("VpcId"), name: {"Value": value}}))
    }

    /// One at a time, as EC2 has it.
    fn set_vpc_attribute(&mut self, ask: &Action<'_>) -> Outcome {
        let given = ATTRIBUTES.into_iter().filter(|(name, ..)| ask.input[name]["Value"].is_boolean());
        let [(name, ..)] = given.collect::<Vec<_>>()[..] else {
            bail!("InvalidParameterCombination", "Exactly one attribute is set at a time.");
        };
        let vpc = self.get_mut(ask.text("VpcId"), ask, NO_VPC)?;
        vpc["_attributes"][name] = ask.input[name]["Value"].clone();
        Ok(json!({}))
    }

    /// Those that run, unless all are asked for.
    fn instance_status(&self, ask: &Action<'_>) -> Outcome {
        let mut found = self.describe("i", "InstanceIds", "Instances", "InvalidInstanceID.NotFound", ask)?;
        let all = ask.input["IncludeAllInstances"] == true;
        let runs = |instance: &Value| instance["State"]["Name"] == "running";
        let shown = |instance: &Value| {
            let (status, check) =
                if runs(instance) { ("ok", "passed") } else { ("not-applicable", "insufficient-data") };
            let summary = json!({"Status": status, "Details": [{"Name": "reachability", "Status": check}]});
            json!({"InstanceId": instance["InstanceId"], "AvailabilityZone": instance["Placement"]["AvailabilityZone"],
                "InstanceState": instance["State"], "InstanceStatus": summary, "SystemStatus": summary})
        };
        let instances = found["Instances"].take();
        let each = instances.as_array().into_iter().flatten().filter(|one| all || runs(one));
        let mut answer = json!({"InstanceStatuses": each.map(shown).collect::<Vec<_>>()});
        if let Some(token) = found.get("NextToken") {
            answer["NextToken"] = token.clone();
        }
        Ok(answer)
    }
}
