//! Security groups: allow rules only, sixty per direction.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Action, Outcome, Refusal, refuse,
    state::{ACCOUNT, Ec2},
};
use crate::rest::{items, list, text, texts};

const MISSING: &str = "InvalidGroup.NotFound";
const MOST: usize = 60;

/// Flat rules of a request's permissions, or of the one permission that older clients write into the request itself.
fn rules(input: &Value, egress: bool) -> Result<Vec<Value>, Refusal> {
    let mut rules = Vec::new();
    let mut permissions = items(&input["IpPermissions"]);
    if !input["CidrIp"].is_null() {
        let mut one = json!({"IpRanges": [{"CidrIp": input["CidrIp"]}]});
        for field in ["IpProtocol", "FromPort", "ToPort"] {
            one[field] = input[field].clone();
        }
        permissions.push(one);
    }
    for permission in &permissions {
        let others = ["UserIdGroupPairs", "Ipv6Ranges", "PrefixListIds"];
        let is_given = |name: &&str| permission[name].as_array().is_some_and(|list| !list.is_empty());
        if let Some(other) = others.into_iter().find(is_given) {
            bail!("UnsupportedOperation", "{other} of rules are not simulated.");
        }
        let protocol = match text(&permission["IpProtocol"]) {
            "6" => "tcp",
            "17" => "udp",
            "1" => "icmp",
            other => other,
        };
        let (from, to) = (permission["FromPort"].as_i64(), permission["ToPort"].as_i64());
        if matches!(protocol, "tcp" | "udp") && (from.is_none() || to.is_none()) {
            bail!("InvalidParameterValue", "Ports are needed for tcp and udp.");
        }
        for range in list(&permission["IpRanges"]) {
            let cidr = text(&range["CidrIp"]);
            let bad = || refuse("InvalidParameterValue", format!("CIDR block {cidr} is malformed"));
            let net: Ipv4Net = cidr.parse().map_err(|_| bad())?;
            let description = text(&range["Description"]);
            let legal =
                |letter: char| letter.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(letter);
            if description.len() > 255 || !description.chars().all(legal) {
                bail!("InvalidParameterValue", "Invalid rule description.");
            }
            let mut rule = json!({"egress": egress, "protocol": protocol, "cidr": net.trunc().to_string(), "description": description});
            if protocol != "-1" {
                (rule["from"], rule["to"]) = (json!(from), json!(to));
            }
            rules.push(rule);
        }
    }
    Ok(rules)
}

/// A rule by itself, with its id.
fn shown(group: &str, rule: &Value) -> Value {
    json!({"SecurityGroupRuleId": rule["id"], "GroupId": group, "GroupOwnerId": ACCOUNT, "IsEgress": rule["egress"],
        "IpProtocol": rule["protocol"], "FromPort": rule["from"].as_i64().unwrap_or(-1), "ToPort": rule["to"].as_i64().unwrap_or(-1),
        "CidrIpv4": rule["cidr"], "Description": rule["description"]})
}

fn is_same(a: &Value, b: &Value) -> bool {
    ["egress", "protocol", "cidr", "from", "to"].iter().all(|key| a[key] == b[key])
}

/// As EC2 shows them: ranges by protocol and ports.
fn permissions(rules: &Value, egress: bool) -> Value {
    let mut shown: Vec<Value> = Vec::new();
    for rule in rules.as_array().into_iter().flatten().filter(|rule| rule["egress"] == egress) {
        let mut range = json!({"CidrIp": rule["cidr"]});
        if rule["description"] != "" {
            range["Description"] = rule["description"].clone();
        }
        let fits = |one: &&mut Value| {
            one["IpProtocol"] == rule["protocol"]
                && one["FromPort"] == rule["from"]
                && one["ToPort"] == rule["to"]
        };
        match shown.iter_mut().find(fits) {
            Some(one) => one["IpRanges"].as_array_mut().into_iter().for_each(|list| list.push(range.clone())),
            None => {
                let mut one = json!({"IpProtocol": rule["protocol"], "IpRanges": [range], "UserIdGroupPairs": [], "Ipv6Ranges": [], "PrefixListIds": []});
                if !rule["from"].is_null() {
                    (one["FromPort"], one["ToPort"]) = (rule["from"].clone(), rule["to"].clone());
                }
                shown.push(one);
            }
        }
    }
    shown.into()
}

impl Ec2 {
    pub(super) fn groups(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        let egress = action.ends_with("Egress");
        Some(match action {
            "CreateSecurityGroup" => self.create_group(ask),
            "DescribeSecurityGroups" => self.describe("sg", "GroupIds", "SecurityGroups", MISSING, ask),
            "DescribeSecurityGroupRules" => self.list_rules(ask),
            "DeleteSecurityGroup" => self.delete_group(ask),
            "AuthorizeSecurityGroupIngress" | "AuthorizeSecurityGroupEgress" => self.authorize(egress, ask),
            "RevokeSecurityGroupIngress" | "RevokeSecurityGroupEgress" => self.revoke(egress, ask),
            "UpdateSecurityGroupRuleDescriptionsIngress" | "UpdateSecurityGroupRuleDescriptionsEgress" => {
                self.describe_rules(egress, ask)
            }
            _ => return None,
        })
    }

    fn create_group(&mut self, ask: &Action<'_>) -> Outcome {
        let vpc = ask.text("VpcId").to_owned();
        self.get(&vpc, ask, "InvalidVpcID.NotFound")?;
        let name = ask.text("GroupName").to_owned();
        if self.all("sg").any(|(_, one)| one["GroupName"] == name.as_str() && one["VpcId"] == vpc.as_str()) {
            bail!("InvalidGroup.Duplicate", "The security group '{name}' already exists for VPC '{vpc}'");
        }
        if name.len() > 255 || name.starts_with("sg-") {
            bail!("InvalidParameterValue", "Invalid security group name.");
        }
        let id = self.new_id("sg");
        // A new group lets everything out.
        let rule = self.new_rule();
        let open =
            json!([{"id": rule, "egress": true, "protocol": "-1", "cidr": "0.0.0.0/0", "description": ""}]);
        let object = json!({"GroupId": id, "GroupName": name, "Description": ask.text("Description"), "VpcId": vpc, "OwnerId": ACCOUNT,
            "IpPermissions": [], "IpPermissionsEgress": permissions(&open, true), "_rules": open});
        let object = self.put(&id, "security-group", object, ask);
        Ok(json!({"GroupId": id, "Tags": object["Tags"]}))
    }

    fn delete_group(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("GroupId").to_owned();
        let group = self.get(&id, ask, MISSING)?;
        if group["_default"] == true {
            bail!("CannotDelete", "the specified group cannot be deleted by a user");
        }
        let holds = |object: &Value| {
            let groups = list(&object["SecurityGroups"]);
            object["State"]["Name"] != "terminated"
                && groups.into_iter().any(|group| group["GroupId"] == id.as_str())
        };
        if self.all("i").any(|(_, instance)| holds(instance)) {
            bail!("DependencyViolation", "resource {id} has a dependent object");
        }
        self.objects.remove(&id);
        Ok(json!({"Return": true, "GroupId": id}))
    }

    /// All rules go, and one comes that nobody asked for; VPN connections are deleted.
    pub(crate) fn vandalise(&mut self) {
        let groups: Vec<String> =
            self.all("sg").filter(|(_, group)| group["_default"] != true).map(|(id, _)| id.clone()).collect();
        for id in groups {
            let rule = self.new_rule();
            let open = json!({"id": rule, "egress": false, "protocol": "tcp", "from": 22, "to": 22, "cidr": "0.0.0.0/0", "description": "by hand"});
            self.set_rules(&id, vec![open]);
        }
        self.objects.change(|id, _| id.starts_with("vpn-"), |object| object["State"] = "deleted".into());
    }

    fn set_rules(&mut self, id: &str, rules: Vec<Value>) {
        if let Some(group) = self.objects.get_mut(id) {
            let rules = Value::Array(rules);
            group["IpPermissions"] = permissions(&rules, false);
            group["IpPermissionsEgress"] = permissions(&rules, true);
            group["_rules"] = rules;
        }
    }

    fn authorize(&mut self, egress: bool, ask: &Action<'_>) -> Outcome {
        let id = ask.text("GroupId").to_owned();
        let mut there = self.get(&id, ask, MISSING)?["_rules"].as_array().cloned().unwrap_or_default();
        let mut new = Vec::new();
        for mut rule in rules(&ask.input, egress)? {
            if there.iter().any(|one| is_same(one, &rule)) {
                bail!(
                    "InvalidPermission.Duplicate",
                    "the specified rule \"peer: {}, ALLOW\" already exists",
                    rule["cidr"]
                );
            }
            rule["id"] = self.new_rule().into();
            new.push(shown(&id, &rule));
            there.push(rule);
        }
        if there.iter().filter(|rule| rule["egress"] == egress).count() > MOST {
            bail!(
                "RulesPerSecurityGroupLimitExceeded",
                "The maximum number of rules per security group has been reached."
            );
        }
        self.set_rules(&id, there);
        Ok(json!({"Return": true, "SecurityGroupRules": new}))
    }

    fn revoke(&mut self, egress: bool, ask: &Action<'_>) -> Outcome {
        let id = ask.text("GroupId").to_owned();
        let mut there = self.get(&id, ask, MISSING)?["_rules"].as_array().cloned().unwrap_or_default();
        let missing =
            |code: &'static str| refuse(code, "The specified rule does not exist in this security group.");
        for rule in rules(&ask.input, egress)? {
            let before = there.len();
            there.retain(|one| !is_same(one, &rule));
            if there.len() == before {
                return Err(missing("InvalidPermission.NotFound"));
            }
        }
        for rule in texts(&ask.input["SecurityGroupRuleIds"]) {
            let place = there.iter().position(|one| one["id"] == rule && one["egress"] == egress);
            there.remove(place.ok_or_else(|| missing("InvalidSecurityGroupRuleId.NotFound"))?);
        }
        self.set_rules(&id, there);
        Ok(json!({"Return": true}))
    }

    fn describe_rules(&mut self, egress: bool, ask: &Action<'_>) -> Outcome {
        let id = ask.text("GroupId").to_owned();
        let mut there = self.get(&id, ask, MISSING)?["_rules"].as_array().cloned().unwrap_or_default();
        for rule in rules(&ask.input, egress)? {
            let found = there.iter_mut().find(|one| is_same(one, &rule));
            found.ok_or_else(|| {
                refuse("InvalidPermission.NotFound", "The specified rule does not exist.")
            })?["description"] = rule["description"].clone();
        }
        self.set_rules(&id, there);
        Ok(json!({"Return": true}))
    }

    fn list_rules(&self, ask: &Action<'_>) -> Outcome {
        let filters = list(&ask.input["Filters"]);
        let groups: Vec<&str> = filters
            .filter(|filter| filter["Name"] == "group-id")
            .flat_map(|filter| texts(&filter["Values"]))
            .collect();
        let mut all = Vec::new();
        for (id, group) in self.all("sg").filter(|(id, group)| {
            group["_region"] == ask.region && (groups.is_empty() || groups.contains(&id.as_str()))
        }) {
            all.extend(list(&group["_rules"]).map(|rule| shown(id, rule)));
        }
        let wanted = texts(&ask.input["SecurityGroupRuleIds"]);
        all.retain(|rule| wanted.is_empty() || wanted.contains(&text(&rule["SecurityGroupRuleId"])));
        if all.len() < wanted.len() {
            bail!("InvalidSecurityGroupRuleId.NotFound", "A security group rule ID does not exist");
        }
        Ok(json!({"SecurityGroupRules": all}))
    }
}
