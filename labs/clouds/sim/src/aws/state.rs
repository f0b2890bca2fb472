//! The objects of an account, as JSON in the names of the API description, and what all kinds have in common.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Action, Outcome, Refusal, refuse};
use crate::{
    objects::Objects,
    rest::{self, items, list, text, texts},
};

pub(crate) const REGIONS: [&str; 3] = ["eu-west-1", "us-east-1", "us-west-2"];
pub(crate) const ACCOUNT: &str = "123456789012";

/// An account with all its regions. `_region`, `_then` and `_at` are the simulator's own: where an object is, and
/// what becomes of its state at what time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ec2 {
    pub(super) objects: Objects,
    pub(super) made: u64,
    /// Rules are counted apart: they are many, and the ids of recordings are of the others.
    ruled: u64,
    pub(super) tokens: BTreeMap<String, String>,
}

/// Answers the actions of one kind of object, and no others.
type Answers = fn(&mut Ec2, &str, &Action<'_>) -> Option<Outcome>;

impl Ec2 {
    pub(super) fn call(&mut self, action: &str, ask: &Action<'_>) -> Outcome {
        let answers: [Answers; 6] =
            [Self::network, Self::groups, Self::instances, Self::transit, Self::vpn, Self::attributes];
        if ask.input["DryRun"] == true {
            let message = "Request would have succeeded, but DryRun flag is set.";
            return Err(rest::refuse(412, "DryRunOperation", message));
        }
        match action {
            "DescribeRegions" => {
                let region = |name: &&str| json!({"RegionName": name, "Endpoint": format!("ec2.{name}.amazonaws.com"), "OptInStatus": "opt-in-not-required"});
                return Ok(json!({"Regions": REGIONS.iter().map(region).collect::<Vec<_>>()}));
            }
            "DescribeAvailabilityZones" => {
                let zone = |letter: &&str| json!({"ZoneName": format!("{}{letter}", ask.region), "RegionName": ask.region, "State": "available", "ZoneType": "availability-zone"});
                let zones: Vec<Value> = ["a", "b", "c", "d", "e"].iter().map(zone).collect();
                return Ok(json!({"AvailabilityZones": zones}));
            }
            "DescribeTags" => return Ok(self.list_tags(ask)),
            "CreateTags" | "DeleteTags" => return self.tags(action == "CreateTags", ask),
            _ => {}
        }
        let outcome = answers.iter().find_map(|answer| answer(self, action, ask));
        outcome.unwrap_or_else(|| Err(refuse("InvalidAction", format!("{action} is not simulated"))))
    }

    pub(super) fn new_id(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}-{:017x}", 0xa0000 + self.made)
    }

    pub(super) fn new_rule(&mut self) -> String {
        self.ruled += 1;
        format!("sgr-{:017x}", self.ruled)
    }

    /// A public address that nobody else has.
    pub(super) fn public_address(&mut self) -> String {
        self.made += 1;
        format!("52.{}.{}.{}", self.made >> 16 & 255, self.made >> 8 & 255, self.made & 255)
    }

    /// Stores a new object with the tags of the request.
    pub(super) fn put(&mut self, id: &str, kind: &str, mut object: Value, ask: &Action<'_>) -> Value {
        object["_region"] = ask.region.into();
        object["_kind"] = kind.into();
        let specifications = list(&ask.input["TagSpecifications"]);
        let ours = specifications.filter(|specification| specification["ResourceType"] == kind);
        let tags: Vec<Value> = ours.flat_map(|one| list(&one["Tags"]).cloned()).collect();
        object["Tags"] = tags.into();
        self.objects.insert(id.to_owned(), object.clone());
        object
    }

    /// What an object's state becomes, and when.
    pub(super) fn later(&mut self, id: &str, then: &str, at: u64) {
        if let Some(object) = self.objects.get_mut(id) {
            object["_then"] = then.into();
            object["_at"] = at.into();
        }
    }

    /// Brings everything to its state of now.
    pub(crate) fn settle(&mut self, now: u64) {
        let due: Vec<String> = self
            .objects
            .iter()
            .filter(|(_, object)| object["_at"].as_u64().is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            let Some(object) = self.objects.get_mut(&id) else { continue };
            let then = text(&object["_then"]).to_owned();
            object["_at"] = Value::Null;
            if then == "gone" {
                self.objects.remove(&id);
            } else if id.starts_with("i-") {
                object["State"] = super::instances::instance_state(&then);
                if then == "terminated" {
                    self.release_instance(&id, now);
                }
            } else if id.starts_with("pcx-") {
                object["Status"]["Code"] = then.clone().into();
            } else {
                object["State"] = then.clone().into();
            }
            // What is deleted stays listed for a while, then goes.
            if then.contains("deleted") || then == "terminated" {
                self.later(&id, "gone", now + 3000);
            }
        }
    }

    pub(super) fn get(&self, id: &str, ask: &Action<'_>, code: &'static str) -> Result<&Value, Refusal> {
        let found = self.objects.get(id).filter(|object| is_in(object, ask.region) && !is_deleted(object));
        found.ok_or_else(|| refuse(code, format!("The ID '{id}' does not exist")))
    }

    pub(super) fn get_mut(
        &mut self,
        id: &str,
        ask: &Action<'_>,
        code: &'static str,
    ) -> Result<&mut Value, Refusal> {
        let found =
            self.objects.get_mut(id).filter(|object| is_in(object, ask.region) && !is_deleted(object));
        found.ok_or_else(|| refuse(code, format!("The ID '{id}' does not exist")))
    }

    /// Objects of a kind, in all regions, that are not deleted.
    pub(super) fn all<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.objects.iter().filter(move |(id, object)| {
            id.rsplit_once('-').is_some_and(|(kind, _)| kind == prefix) && !is_deleted(object)
        })
    }

    /// Answers a Describe: by ids, by filters, by pages.
    pub(super) fn describe(
        &self,
        prefix: &str,
        ids: &str,
        list: &str,
        missing: &'static str,
        ask: &Action<'_>,
    ) -> Outcome {
        let wanted = texts(&ask.input[ids]);
        let here = |object: &Value| is_in(object, ask.region);
        for id in &wanted {
            if !self.objects.get(id).is_some_and(here) {
                bail!(missing, "The ID '{id}' does not exist");
            }
        }
        let of_kind =
            self.objects.iter().filter(|(id, _)| id.rsplit_once('-').is_some_and(|(kind, _)| kind == prefix));
        let found: Vec<Value> = of_kind
            .filter(|(id, object)| here(object) && (wanted.is_empty() || wanted.contains(&id.as_str())))
            .filter(|(_, object)| passes(object, &ask.input["Filters"]))
            .map(|(_, object)| object.clone())
            .collect();
        let skip: usize = ask.text("NextToken").parse().unwrap_or(0);
        let size = ask.input["MaxResults"]
            .as_u64()
            .map_or(usize::MAX, |size| usize::try_from(size).unwrap_or(usize::MAX));
        let page: Vec<Value> = found.iter().skip(skip).take(size).cloned().collect();
        let next = skip.saturating_add(size);
        let mut answer = json!({ list: page });
        if next < found.len() {
            answer["NextToken"] = next.to_string().into();
        }
        Ok(answer)
    }

    fn tags(&mut self, set: bool, ask: &Action<'_>) -> Outcome {
        let tags = items(&ask.input["Tags"]);
        for id in texts(&ask.input["Resources"]) {
            let object = self.get_mut(id, ask, "InvalidID")?;
            let mut kept: Vec<Value> = items(&object["Tags"]);
            kept.retain(|old| !tags.iter().any(|new| new["Key"] == old["Key"]));
            if set {
                kept.extend(tags.clone());
            }
            object["Tags"] = kept.into();
        }
        Ok(json!({}))
    }

    fn list_tags(&self, ask: &Action<'_>) -> Value {
        let here = self.objects.iter().filter(|(_, object)| object["_region"] == ask.region);
        let shown = here.flat_map(|(id, object)| {
            let tags = list(&object["Tags"]);
            tags.map(move |tag| json!({"ResourceId": id, "ResourceType": object["_kind"], "Key": tag["Key"], "Value": tag["Value"]}))
        });
        let shown: Vec<Value> = shown.filter(|tag| passes(tag, &ask.input["Filters"])).collect();
        json!({"Tags": shown})
    }

    /// What came with something that somebody made.
    pub(super) fn defaults(&self) -> Vec<String> {
        let own = |object: &Value| object["_default"] == true && !is_deleted(object);
        self.objects.iter().filter(|(_, object)| own(object)).map(|(id, _)| id.clone()).collect()
    }

    /// What is left that somebody made.
    pub(crate) fn left(&self) -> Vec<String> {
        let made = |object: &Value| object["_default"] != true && !is_deleted(object);
        self.objects.iter().filter(|(_, object)| made(object)).map(|(id, _)| id.clone()).collect()
    }
}

/// A VPC peering is in the regions of both its ends.
fn is_in(object: &Value, region: &str) -> bool {
    object["_region"] == region || object["AccepterVpcInfo"]["Region"] == region
}

fn is_deleted(object: &Value) -> bool {
    let state =
        object["State"].as_str().or(object["State"]["Name"].as_str()).or(object["Status"]["Code"].as_str());
    matches!(state, Some("deleted" | "terminated"))
}

/// Whether an object passes all filters of a request.
pub(super) fn passes(object: &Value, filters: &Value) -> bool {
    filters.as_array().into_iter().flatten().all(|filter| {
        let wanted = texts(&filter["Values"]);
        let name = text(&filter["Name"]);
        let mut found = Vec::new();
        if let "tag-key" | "tag-value" = name {
            let field = if name == "tag-key" { "Key" } else { "Value" };
            let tags = list(&object["Tags"]);
            found.extend(tags.filter_map(|tag| tag[field].as_str().map(str::to_owned)));
        } else if let Some(key) = name.strip_prefix("tag:") {
            let tags = list(&object["Tags"]);
            found.extend(
                tags.filter(|tag| tag["Key"] == key)
                    .filter_map(|tag| tag["Value"].as_str().map(str::to_owned)),
            );
        } else {
            for path in paths(name) {
                collect(object, &path, &mut found);
            }
        }
        found.iter().any(|value| wanted.iter().any(|pattern| fits(pattern, value)))
    })
}

/// Where the values are that a filter looks at: under its own name, for all that are not so.
fn paths(name: &str) -> Vec<Vec<String>> {
    let others: &[&str] = match name {
        "instance-state-name" => &["State.Name"],
        "instance-state-code" => &["State.Code"],
        "status-code" => &["Status.Code"],
        "cidr" => &["CidrBlock"],
        "cidr-block-association.cidr-block" => &["CidrBlockAssociationSet.CidrBlock"],
        "availability-zone" => &["AvailabilityZone", "Placement.AvailabilityZone"],
        "group-id" => &["GroupId", "Groups.GroupId"],
        "group-name" => &["GroupName", "Groups.GroupName"],
        "instance.group-id" => &["SecurityGroups.GroupId"],
        "instance.group-name" => &["SecurityGroups.GroupName"],
        "addresses.private-ip-address" => &["PrivateIpAddresses.PrivateIpAddress"],
        "ip-permission.cidr" => &["IpPermissions.IpRanges.CidrIp"],
        "ip-permission.protocol" => &["IpPermissions.IpProtocol"],
        "attachment.resource-type" => &["TransitGatewayAttachments.ResourceType"],
        "attachment.resource-id" => &["TransitGatewayAttachments.ResourceId"],
        "egress.ip-permission.cidr" => &["IpPermissionsEgress.IpRanges.CidrIp"],
        _ => return vec![name.split('.').map(pascal).collect()],
    };
    others.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect()
}

/// Whether a value is as a filter has it, in which `*` stands for anything and `?` for one letter.
fn fits(pattern: &str, value: &str) -> bool {
    match (pattern.chars().next(), value.chars().next()) {
        (None, last) => last.is_none(),
        (Some('*'), first) => {
            fits(&pattern[1..], value) || first.is_some_and(|c| fits(pattern, &value[c.len_utf8()..]))
        }
        (Some(_), None) => false,
        (Some(own), Some(c)) => {
            (own == '?' || own == c) && fits(&pattern[own.len_utf8()..], &value[c.len_utf8()..])
        }
    }
}

fn pascal(kebab: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    kebab.split('-').map(word).collect()
}

/// All values at a path; lists are looked through, and may be in the plural.
fn collect(value: &Value, path: &[String], found: &mut Vec<String>) {
    match (value, path) {
        (Value::Array(items), _) => items.iter().for_each(|item| collect(item, path, found)),
        (Value::String(text), []) => found.push(text.clone()),
        (Value::Null | Value::Object(_), []) => {}
        (other, []) => found.push(other.to_string()),
        (Value::Object(fields), [first, rest @ ..]) => {
            for name in [first.clone(), format!("{first}s")] {
                if let Some(value) = fields.get(&name) {
                    collect(value, rest, found);
                }
            }
        }
        _ => {}
    }
}
