//! What creates, changes and deletes have in common, whatever the object.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Refusal,
    instances::target,
    state::{Ibm, Request, missing},
};
use crate::rest::{self, list, text};

pub(super) type Made = Result<Value, Refusal>;

pub(super) const CREATED: &str = "2026-10-01T00:00:00.000Z";

/// IBM's word for an object of a kind, as in CRNs and `resource_type`.
fn resource_type(kind: &str) -> &'static str {
    match kind {
        "vpcs" => "vpc",
        "subnets" => "subnet",
        "security_groups" => "security-group",
        "security_groups/rules" => "security_group_rule",
        "instances" => "instance",
        "public_gateways" => "public_gateway",
        "endpoint_gateways" => "endpoint_gateway",
        "ike_policies" => "ike_policy",
        "ipsec_policies" => "ipsec_policy",
        "vpn_gateways" => "vpn_gateway",
        "vpn_gateways/connections" => "vpn_gateway_connection",
        "transit_gateways" => "gateway",
        "keys" => "key",
        _ => "other",
    }
}

/// Fields of the answer among those that objects of every kind are given; the others are the simulator's own.
fn fields(kind: &str) -> &'static [&'static str] {
    match kind {
        "vpcs/address_prefixes" => &["id", "href", "created_at", "name"],
        "security_groups" | "keys" => &["id", "href", "created_at", "name", "crn", "resource_group"],
        "security_groups/rules" => &["id", "href", "name", "resource_type"],
        "ike_policies" | "ipsec_policies" => {
            &["id", "href", "created_at", "name", "resource_type", "resource_group"]
        }
        "vpn_gateways/connections" => &["id", "href", "created_at", "name", "resource_type"],
        "transit_gateways" => &["id", "created_at", "name", "crn", "resource_group"],
        "transit_gateways/connections" => &["id", "created_at", "name"],
        "transit_gateways/route_reports" => &["id", "created_at"],
        _ => &["id", "href", "created_at", "name", "crn", "resource_type", "resource_group"],
    }
}

/// Names differ, and are counted, among objects of a kind that have this field in common.
fn scope(kind: &str) -> &'static str {
    match kind {
        "vpcs" | "instances" | "ike_policies" | "ipsec_policies" | "transit_gateways" | "keys" => "_region",
        kind if kind.contains('/') => "_parent",
        _ => "_vpc",
    }
}

/// A reference: some fields of an object.
pub(super) fn reference(object: &Value, fields: &[&str]) -> Value {
    let mut found = json!({});
    for field in fields {
        found[*field] = object[*field].clone();
    }
    found
}

pub(super) const FULL: [&str; 5] = ["id", "crn", "href", "name", "resource_type"];
pub(super) const PLAIN: [&str; 4] = ["id", "crn", "href", "name"];

pub(super) fn net(value: &Value) -> Option<Ipv4Net> {
    value.as_str()?.parse().ok()
}

/// By id, CRN, href or name, as identities in requests may be.
pub(super) fn identity(value: &Value) -> &str {
    let found = ["id", "crn", "href", "name"].iter().find_map(|field| value[*field].as_str());
    found.and_then(|text| text.rsplit(['/', ':']).next()).unwrap_or_default()
}

impl Ibm {
    pub(super) fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// The beginnings of an object.
    pub(super) fn fresh(&mut self, request: &Request<'_>, kind: &str, name: &str) -> Value {
        let number = self.number();
        let id = format!("r006-{number:08x}-0000-4000-8000-000000000000");
        let name = if name.is_empty() { format!("unnamed-blender-parcel-{number}") } else { name.to_owned() };
        let (service, resource) =
            (if request.home() == "global" { "transit" } else { "is" }, resource_type(kind));
        let group = request.body["resource_group"]["id"].as_str().unwrap_or("default-group").to_owned();
        let mut group_reference = json!({"id": group, "href": format!("https://resource-controller.cloud.ibm.com/v2/resource_groups/{group}")});
        if service == "is" {
            group_reference["name"] = "Default".into();
        }
        let nested = match kind.split_once('/') {
            Some((above, below)) => format!("{above}/{}/{below}/{id}", request.parent()),
            None => format!("{kind}/{id}"),
        };
        let all = json!({
            "id": id,
            "crn": format!("crn:v1:bluemix:public:{service}:{}:a/sim::{resource}:{id}", request.region),
            "href": request.href(&nested),
            "created_at": CREATED,
            "name": name,
            "resource_type": resource,
            "resource_group": group_reference,
        });
        let mut object = reference(&all, fields(kind));
        (object["_kind"], object["_region"]) = (kind.into(), request.home().into());
        object["_crn"] = all["crn"].clone();
        object
    }

    /// Takes an object in, unless its name is taken or there are too many.
    pub(super) fn keep(&mut self, object: Value, most: usize) -> Result<String, Refusal> {
        let (kind, name) = (&object["_kind"], &object["name"]);
        let within = scope(kind.as_str().unwrap_or_default());
        let beside = |other: &&Value| other["_kind"] == *kind && other[within] == object[within];
        let mut count = 0;
        for other in self.objects.values().filter(beside) {
            if other["name"] == *name {
                bail!(400, "validation_unique_failed", "The name {name} is not unique");
            }
            count += usize::from(other["_default"] != true);
        }
        if count >= most {
            bail!(400, "over_quota", "The quota of {kind} is reached");
        }
        let id = text(&object["id"]).to_owned();
        self.objects.insert(id.clone(), object);
        Ok(id)
    }

    pub(super) fn create(&mut self, request: &Request<'_>) -> Result<String, Refusal> {
        let kind = request.call.kind.as_str();
        let name = text(&request.body["name"]).to_owned();
        if name.len() > 63
            || name.bytes().any(|byte| !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'))
        {
            bail!(400, "validation_invalid_name", "The name {name} is not valid");
        }
        let mut object = self.fresh(request, kind, &name);
        object["_parent"] = request.parent().into();
        let most = match kind {
            "vpcs" => {
                self.vpc(request, &mut object)?;
                10
            }
            "vpcs/address_prefixes" => {
                self.prefix(request, &mut object)?;
                25
            }
            "subnets" => {
                self.subnet(request, &mut object)?;
                100
            }
            "security_groups" => return self.group(request, object),
            "transit_gateways/route_reports" => return self.route_report(request, object),
            "security_groups/rules" => {
                self.get("security_groups", request.parent())?;
                self.rule(&request.body, &mut object)?;
                250
            }
            "instances" => {
                self.instance(request, &mut object)?;
                200
            }
            "public_gateways" => {
                self.public_gateway(request, &mut object)?;
                30
            }
            "endpoint_gateways" => {
                self.endpoint_gateway(request, &mut object)?;
                100
            }
            "keys" => {
                object["public_key"] = request.body["public_key"].clone();
                object["type"] = "rsa".into();
                (object["length"], object["fingerprint"]) = (2048.into(), "SHA256:sim".into());
                200
            }
            "ike_policies" | "ipsec_policies" => {
                super::links::policy(request, &mut object);
                20
            }
            "vpn_gateways" => {
                self.vpn_gateway(request, &mut object)?;
                9
            }
            "vpn_gateways/connections" => {
                self.vpn_connection(request, &mut object)?;
                10
            }
            "transit_gateways" => {
                super::transit::gateway(request, &mut object);
                10
            }
            "transit_gateways/connections" => {
                self.transit_connection(request, &mut object)?;
                14
            }
            other => bail!(404, "not_found", "{other} cannot be made here"),
        };
        self.keep(object, most)
    }

    /// An object changes later: to `then`, or to failure.
    pub(super) fn later(request: &Request<'_>, object: &mut Value, seconds: u64, then: Value) {
        object["_until"] = (request.ask.now + seconds).into();
        object["_then"] = then;
    }

    pub(super) fn update(&mut self, request: &Request<'_>) -> Result<String, Refusal> {
        let id = self.in_place(request, request.id())?["id"].as_str().unwrap_or_default().to_owned();
        if request.call.kind == "vpn_gateways/connections" && !request.body["psk"].is_null() {
            super::links::check_key(&request.body["psk"])?;
        }
        let object = self.objects.get_mut(&id).ok_or_else(|| missing(&id))?;
        for (field, value) in request.body.as_object().into_iter().flatten() {
            match field.as_str() {
                "name"
                | "psk"
                | "global"
                | "admin_state_up"
                | "establish_mode"
                | "dead_peer_detection"
                | "port_min"
                | "port_max"
                | "remote"
                | "direction" => object[field.as_str()] = value.clone(),
                _ => bail!(400, "not_simulated", "{field} cannot be changed here"),
            }
        }
        Ok(id)
    }

    /// Who uses an object, which therefore cannot go.
    fn user(&self, object: &Value) -> Option<(&'static str, String)> {
        let id = text(&object["id"]);
        let used = |kind: &'static str, field: &str| {
            self.of_kind(kind).find(|one| one[field] == id).map(|one| one["name"].to_string())
        };
        match object["_kind"].as_str()? {
            "vpcs" => {
                let inside = ["subnets", "instances", "public_gateways", "endpoint_gateways", "workers"];
                let inside = inside.iter().find_map(|kind| used(kind, "_vpc"));
                inside.or_else(|| self.joint_of(object)).map(|user| ("vpc_in_use", user))
            }
            "subnets" => used("instances", "_subnet")
                .or_else(|| used("vpn_gateways", "_subnet"))
                .or_else(|| used("endpoint_gateways", "_subnet"))
                .or_else(|| used("workers", "_subnet"))
                .map(|user| ("subnet_in_use_network_interface_exists", user)),
            "public_gateways" => {
                let mut subnets = self.of_kind("subnets");
                subnets
                    .find(|one| one["public_gateway"]["id"] == id)
                    .map(|one| ("public_gateway_in_use", one["name"].to_string()))
            }
            "security_groups" => {
                let kinds = ["instances", "endpoint_gateways", "workers"];
                let target = kinds.iter().flat_map(|kind| self.of_kind(kind)).find(|one| {
                    one["_groups"].as_array().is_some_and(|list| list.iter().any(|group| group == id))
                });
                let mut rules = self.of_kind("security_groups/rules");
                let rule = || rules.find(|rule| rule["remote"]["id"] == id && rule["_parent"] != id);
                let user = target.or_else(rule).map(|one| one["name"].to_string());
                let user = user.or_else(|| (object["_default"] == true).then(|| "the VPC".to_owned()));
                user.map(|user| ("security_group_in_use", user))
            }
            "ike_policies" => {
                used("vpn_gateways/connections", "_ike").map(|user| ("ike_policy_in_use", user))
            }
            "ipsec_policies" => {
                used("vpn_gateways/connections", "_ipsec").map(|user| ("ipsec_policy_in_use", user))
            }
            "vpn_gateways" if object["lifecycle_state"] == "pending" => {
                Some(("vpn_gateway_in_use", "its making".to_owned()))
            }
            "vpn_gateways" => self.joint_of(object).map(|user| ("vpn_gateway_in_use", user)),
            "transit_gateways" => {
                used("transit_gateways/connections", "_parent").map(|user| ("gateway_in_use", user))
            }
            _ => None,
        }
    }

    pub(super) fn delete(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let object = self.in_place(request, request.id())?.clone();
        if object["_gone"] == true {
            return Ok(());
        }
        if let Some((code, user)) = self.user(&object) {
            bail!(409, code, "{} is in use by {user}", object["name"]);
        }
        let id = text(&object["id"]).to_owned();
        let (seconds, fields): (u64, &[&str]) = match request.call.kind.as_str() {
            "vpcs" => (3, &["status"]),
            "subnets" => (5, &["status"]),
            "instances" => (15, &["status", "lifecycle_state"]),
            "public_gateways" => (5, &["status"]),
            "endpoint_gateways" => (10, &["lifecycle_state"]),
            "vpn_gateways" => (120, &["lifecycle_state"]),
            "transit_gateways" => (5, &["status"]),
            "transit_gateways/connections" => (10, &["status"]),
            _ => (0, &[]),
        };
        if fields.is_empty() {
            self.objects.retain(|one, object| *one != id && object["_parent"] != id.as_str());
            self.reopen_balancers(&object);
            return Ok(());
        }
        if request.call.kind == "vpcs" {
            // Groups and prefixes go with it.
            let groups: Vec<Value> = self
                .of_kind("security_groups")
                .filter(|one| one["_vpc"] == id.as_str())
                .map(|one| one["id"].clone())
                .collect();
            self.objects.retain(|_, one| {
                one["_vpc"] != id.as_str()
                    && one["_parent"] != id.as_str()
                    && !groups.contains(&one["_parent"])
            });
        }
        if ["vpn_gateways", "transit_gateways"].contains(&request.call.kind.as_str()) {
            self.objects.retain(|_, one| one["_parent"] != id.as_str());
        }
        if let Some(object) = self.objects.get_mut(&id) {
            fields.iter().for_each(|field| object[*field] = "deleting".into());
            (object["_gone"], object["_until"]) = (true.into(), (request.ask.now + seconds).into());
        }
        Ok(())
    }

    /// Groups with their rules and targets, which are looked for once, however many groups there are.
    pub(super) fn shown_groups(&self, groups: &[&Value]) -> Vec<Value> {
        let mut shown: BTreeMap<&str, Value> = BTreeMap::new();
        let empty = |group: &Value| {
            let mut shown = rest::show(group);
            (shown["rules"], shown["targets"]) = (json!([]), json!([]));
            shown
        };
        shown.extend(groups.iter().map(|group| (text(&group["id"]), empty(group))));
        let mut add = |group: &Value, field: &str, part: &dyn Fn() -> Value| {
            let group = group.as_str().and_then(|id| shown.get_mut(id));
            let list = group.and_then(|group| group[field].as_array_mut());
            list.into_iter().for_each(|list| list.push(part()));
        };
        for rule in self.of_kind("security_groups/rules") {
            add(&rule["_parent"], "rules", &|| rest::show(rule));
        }
        for instance in self.of_kind("instances") {
            for group in list(&instance["_groups"]) {
                add(group, "targets", &|| target(instance));
            }
        }
        for endpoint in self.of_kind("endpoint_gateways") {
            for group in list(&endpoint["_groups"]) {
                add(group, "targets", &|| super::endpoints::target(endpoint));
            }
        }
        groups.iter().filter_map(|group| shown.remove(text(&group["id"]))).collect()
    }

    /// An object as it is answered: with what others say of it, and without what is the simulator's own.
    pub(super) fn shown(&self, object: &Value) -> Value {
        let mut shown = rest::show(object);
        let id = &object["id"];
        let connections = |field: &str| -> Value {
            let mine = self.of_kind("vpn_gateways/connections").filter(|one| one[field] == *id);
            mine.map(|one| reference(one, &["href", "id", "name", "resource_type"])).collect()
        };
        match text(&object["_kind"]) {
            "security_groups" => return self.shown_groups(&[object]).remove(0),
            "vpcs/address_prefixes" => {
                let mut subnets = self.of_kind("subnets").filter(|one| one["_vpc"] == object["_parent"]);
                let space = net(&object["cidr"]).unwrap_or_default();
                let inside =
                    |one: &Value| net(&one["ipv4_cidr_block"]).is_some_and(|one| space.contains(&one));
                shown["has_subnets"] = subnets.any(inside).into();
            }
            "vpn_gateways" => shown["connections"] = connections("_parent"),
            "ike_policies" => shown["connections"] = connections("_ike"),
            "ipsec_policies" => shown["connections"] = connections("_ipsec"),
            _ => {}
        }
        shown
    }
}
