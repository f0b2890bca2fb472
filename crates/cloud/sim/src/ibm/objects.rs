//! What creates, changes and deletes do, of networks, groups and instances.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Refusal, refuse,
    state::{Ibm, Request, missing},
};
use crate::rest;

type Made = Result<Value, Refusal>;

const CREATED: &str = "2026-10-01T00:00:00.000Z";

/// IBM's word for an object of a kind, as in CRNs and `resource_type`.
fn resource_type(kind: &str) -> &'static str {
    match kind {
        "vpcs" => "vpc",
        "subnets" => "subnet",
        "security_groups" => "security-group",
        "security_groups/rules" => "security_group_rule",
        "instances" => "instance",
        "public_gateways" => "public_gateway",
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
        _ => &["id", "href", "created_at", "name", "crn", "resource_type", "resource_group"],
    }
}

/// Objects whose names must differ have the same scope.
fn scope(object: &Value) -> String {
    let of = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let within = match object["_kind"].as_str().unwrap_or_default() {
        "vpcs" | "instances" | "ike_policies" | "ipsec_policies" | "transit_gateways" | "keys" => {
            of("_region")
        }
        kind if kind.contains('/') => of("_parent"),
        _ => of("_vpc"),
    };
    format!("{} {within} {}", of("_kind"), of("name"))
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
        let own = scope(&object);
        if self.objects.values().any(|other| scope(other) == own) {
            let message = format!("The name {} is not unique", object["name"]);
            return Err(refuse(400, "validation_unique_failed", message));
        }
        let within = own.rsplit_once(' ').map_or("", |(within, _)| within);
        let like = self.objects.values().filter(|other| {
            other["_default"] != true && scope(other).rsplit_once(' ').is_some_and(|(one, _)| one == within)
        });
        if like.count() >= most {
            return Err(refuse(400, "over_quota", format!("The quota of {} is reached", object["_kind"])));
        }
        let id = object["id"].as_str().unwrap_or_default().to_owned();
        self.objects.insert(id.clone(), object);
        Ok(id)
    }

    pub(super) fn create(&mut self, request: &Request<'_>) -> Result<String, Refusal> {
        let kind = request.call.kind.as_str();
        let name = request.body["name"].as_str().unwrap_or_default().to_owned();
        if name.len() > 63
            || name.bytes().any(|byte| !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'))
        {
            return Err(refuse(400, "validation_invalid_name", format!("The name {name} is not valid")));
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
            other => return Err(refuse(404, "not_found", format!("{other} cannot be made here"))),
        };
        self.keep(object, most)
    }

    /// An object changes later: to `then`, or to failure.
    pub(super) fn later(request: &Request<'_>, object: &mut Value, seconds: u64, then: Value) {
        object["_until"] = (request.ask.now + seconds).into();
        object["_then"] = then;
    }

    fn vpc(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let id = object["id"].as_str().unwrap_or_default().to_owned();
        let mut group = self.fresh(request, "security_groups", &format!("{id}-default"));
        (group["_vpc"], group["_default"]) = (id.as_str().into(), true.into());
        group["vpc"] = reference(object, &FULL);
        object["default_security_group"] = reference(&group, &PLAIN);
        let acl = self.fresh(request, "network_acls", "default-acl");
        object["default_network_acl"] = reference(&acl, &PLAIN);
        let mut table = self.fresh(request, "routing_tables", "default-table");
        table["resource_type"] = "routing_table".into();
        object["default_routing_table"] = reference(&table, &FULL);
        let servers = json!([{"address": "161.26.0.10"}]);
        object["dns"] = json!({"enable_hub": false, "resolution_binding_count": 0, "resolver": {"servers": servers, "configuration": "default", "type": "system"}});
        for (field, value) in [
            ("classic_access", json!(false)),
            ("cse_source_ips", json!([])),
            ("health_reasons", json!([])),
            ("health_state", json!("ok")),
            ("public_address_ranges", json!([])),
            ("status", json!("pending")),
        ] {
            object[field] = value;
        }
        Self::later(request, object, 3, json!({"status": "available"}));
        let group_id = group["id"].as_str().unwrap_or_default().to_owned();
        self.objects.insert(group_id.clone(), group);
        // The default group lets everything out, and its members reach each other.
        for (direction, remote) in
            [("outbound", json!({"cidr_block": "0.0.0.0/0"})), ("inbound", json!({"id": group_id}))]
        {
            let mut rule = self.fresh(request, "security_groups/rules", "");
            (rule["_parent"], rule["_default"]) = (group_id.as_str().into(), true.into());
            self.rule(
                &json!({"direction": direction, "protocol": "icmp_tcp_udp", "remote": remote}),
                &mut rule,
            )?;
            self.objects.insert(rule["id"].as_str().unwrap_or_default().to_owned(), rule);
        }
        if request.body["address_prefix_management"] != "manual" {
            for (number, zone) in ["1", "2", "3"].iter().enumerate() {
                let mut prefix = self.fresh(request, "vpcs/address_prefixes", "");
                prefix["_parent"] = id.as_str().into();
                prefix["cidr"] = format!("10.24{number}.0.0/18").into();
                prefix["zone"] = self.zone(request, &format!("{}-{zone}", request.region))?;
                prefix["is_default"] = true.into();
                self.objects.insert(prefix["id"].as_str().unwrap_or_default().to_owned(), prefix);
            }
        }
        Ok(())
    }

    fn zone(&self, request: &Request<'_>, name: &str) -> Made {
        let known = (1..=3).any(|number| name == format!("{}-{number}", request.region));
        if !known {
            return Err(refuse(400, "validation_invalid_zone", format!("There is no zone {name} here")));
        }
        Ok(json!({"name": name, "href": request.href(&format!("regions/{}/zones/{name}", request.region))}))
    }

    /// The VPC that a request names, ready or not; of another region it is not known.
    fn own_vpc(&self, request: &Request<'_>, value: &Value) -> Made {
        let vpc = self.get("vpcs", identity(value))?;
        if vpc["_region"] != request.region || vpc["_gone"] == true {
            return Err(missing(identity(value)));
        }
        Ok(vpc.clone())
    }

    fn prefix(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        self.get("vpcs", request.parent())?;
        let bad = |message: String| refuse(400, "validation_failed", message);
        let space = net(&request.body["cidr"]).filter(|space| space.trunc() == *space);
        let space = space.ok_or_else(|| bad(format!("{} is no prefix", request.body["cidr"])))?;
        for other in
            self.of_kind("vpcs/address_prefixes").filter(|other| other["_parent"] == request.parent())
        {
            if net(&other["cidr"]).is_some_and(|other| other.contains(&space) || space.contains(&other)) {
                return Err(bad(format!("{space} overlaps with {}", other["cidr"])));
            }
        }
        object["cidr"] = space.to_string().into();
        object["zone"] = self.zone(request, request.body["zone"]["name"].as_str().unwrap_or_default())?;
        object["is_default"] = request.body["is_default"].as_bool().unwrap_or(false).into();
        Ok(())
    }

    fn subnet(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let bad = |message: String| refuse(400, "validation_failed", message);
        let vpc = self.own_vpc(request, &request.body["vpc"])?;
        let space = net(&request.body["ipv4_cidr_block"])
            .filter(|space| space.trunc() == *space && space.prefix_len() <= 29);
        let space = space.ok_or_else(|| bad(format!("{} is no subnet", request.body["ipv4_cidr_block"])))?;
        let mut prefixes = self.of_kind("vpcs/address_prefixes").filter(|one| one["_parent"] == vpc["id"]);
        let home = prefixes.find(|one| net(&one["cidr"]).is_some_and(|one| one.contains(&space)));
        let home = home.ok_or_else(|| bad(format!("{space} is in no address prefix of the VPC")))?;
        let zone = request.body["zone"]["name"].as_str().or(home["zone"]["name"].as_str());
        let zone = self.zone(request, zone.unwrap_or_default())?;
        if home["zone"]["name"] != zone["name"] {
            return Err(bad(format!("{space} belongs to the zone {}", home["zone"]["name"])));
        }
        for other in self.of_kind("subnets").filter(|other| other["_vpc"] == vpc["id"]) {
            if net(&other["ipv4_cidr_block"])
                .is_some_and(|other| other.contains(&space) || space.contains(&other))
            {
                return Err(refuse(
                    409,
                    "conflict_field",
                    format!("{space} overlaps with {}", other["ipv4_cidr_block"]),
                ));
            }
        }
        if !request.body["public_gateway"].is_null() {
            let nat = self.get("public_gateways", identity(&request.body["public_gateway"]))?;
            object["public_gateway"] = reference(nat, &FULL);
        }
        let size = 1i64 << (32 - space.prefix_len());
        for (field, value) in [
            ("ipv4_cidr_block", json!(space.to_string())),
            ("available_ipv4_address_count", json!(size - 5)),
            ("total_ipv4_address_count", json!(size)),
            ("ip_version", json!("ipv4")),
            ("network_acl", vpc["default_network_acl"].clone()),
            ("routing_table", vpc["default_routing_table"].clone()),
            ("status", json!("pending")),
            ("vpc", reference(&vpc, &FULL)),
            ("zone", zone),
            ("_vpc", vpc["id"].clone()),
            // The first four and the last are IBM's.
            ("_used", json!(3)),
        ] {
            object[field] = value;
        }
        let then = if request.fails { "failed" } else { "available" };
        Self::later(request, object, 8, json!({"status": then}));
        Ok(())
    }

    fn group(&mut self, request: &Request<'_>, mut object: Value) -> Result<String, Refusal> {
        let vpc = self.own_vpc(request, &request.body["vpc"])?;
        object["vpc"] = reference(&vpc, &FULL);
        object["_vpc"] = vpc["id"].clone();
        let id = self.keep(object, 100)?;
        let rules = request.body["rules"].as_array().cloned().unwrap_or_default();
        for body in rules {
            let mut rule =
                self.fresh(request, "security_groups/rules", body["name"].as_str().unwrap_or_default());
            rule["_parent"] = id.as_str().into();
            rule["href"] = request
                .href(&format!("security_groups/{id}/rules/{}", rule["id"].as_str().unwrap_or_default()))
                .into();
            self.rule(&body, &mut rule)?;
            self.keep(rule, 250)?;
        }
        Ok(id)
    }

    fn rule(&mut self, body: &Value, object: &mut Value) -> Result<(), Refusal> {
        let bad = |message: &str| Err(refuse(400, "validation_failed", message));
        let ports = (body["port_min"].as_i64(), body["port_max"].as_i64());
        match ports {
            (None, None) => {}
            (Some(first), Some(last)) if (1..=last).contains(&first) && last <= 65_535 => {
                (object["port_min"], object["port_max"]) = (first.into(), last.into());
            }
            _ => return bad("port_min and port_max go together, from 1 to 65535"),
        }
        for field in ["type", "code"] {
            if !body[field].is_null() {
                object[field] = body[field].clone();
            }
        }
        let everybody = json!({"cidr_block": "0.0.0.0/0"});
        let remote = match &body["remote"] {
            Value::Null => everybody.clone(),
            remote if !remote["address"].is_null() => {
                match remote["address"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok()) {
                    Some(_) => remote.clone(),
                    None => return bad("remote.address is no address"),
                }
            }
            remote if !remote["cidr_block"].is_null() => match net(&remote["cidr_block"]) {
                Some(space) if space.trunc() == space => remote.clone(),
                _ => return bad("remote.cidr_block is no prefix"),
            },
            remote => reference(self.get("security_groups", identity(remote))?, &PLAIN),
        };
        for (field, value) in [
            ("direction", body["direction"].clone()),
            ("protocol", body["protocol"].clone()),
            ("ip_version", json!("ipv4")),
            ("local", everybody),
            ("remote", remote),
        ] {
            object[field] = value;
        }
        Ok(())
    }

    fn public_gateway(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let vpc = self.own_vpc(request, &request.body["vpc"])?;
        let zone = self.zone(request, request.body["zone"]["name"].as_str().unwrap_or_default())?;
        let beside = self.of_kind("public_gateways").any(|one| {
            one["_vpc"] == vpc["id"] && one["zone"]["name"] == zone["name"] && one["name"] != object["name"]
        });
        if beside {
            return Err(refuse(409, "conflict_field", "The VPC has a public gateway in that zone"));
        }
        let number = self.number();
        let id = format!("r006-f{number:07x}");
        object["floating_ip"] = json!({"address": format!("150.240.{}.{}", number >> 8 & 255, number & 255), "id": id, "name": format!("fip-{number}"), "crn": format!("crn:v1:bluemix:public:is:{}:a/sim::floating-ip:{id}", request.region), "href": request.href(&format!("floating_ips/{id}"))});
        (object["vpc"], object["_vpc"], object["zone"]) = (reference(&vpc, &FULL), vpc["id"].clone(), zone);
        object["status"] = "pending".into();
        Self::later(
            request,
            object,
            10,
            json!({"status": if request.fails { "failed" } else { "available" }}),
        );
        Ok(())
    }

    /// The next address of a subnet.
    pub(super) fn address(&mut self, subnet: &str) -> Result<Ipv4Addr, Refusal> {
        let object = self.objects.get_mut(subnet).ok_or_else(|| missing(subnet))?;
        let used = object["_used"].as_u64().unwrap_or(3) + 1;
        object["_used"] = used.into();
        let space = net(&object["ipv4_cidr_block"]).unwrap_or_default();
        let address = Ipv4Addr::from(u32::from(space.network()) + u32::try_from(used).unwrap_or(u32::MAX));
        if space.contains(&address) && address != space.broadcast() {
            Ok(address)
        } else {
            Err(refuse(409, "subnet_full", "The subnet has no free address"))
        }
    }

    fn instance(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let body = &request.body;
        let attachment = &body["primary_network_attachment"]["virtual_network_interface"];
        let interface = if attachment.is_null() { &body["primary_network_interface"] } else { attachment };
        let subnet = self.get("subnets", identity(&interface["subnet"]))?.clone();
        if subnet["zone"]["name"] != body["zone"]["name"] || subnet["_region"] != request.region {
            return Err(refuse(400, "validation_failed", "The subnet is in another zone"));
        }
        if subnet["status"] != "available" {
            return Err(refuse(409, "subnet_not_ready", "The subnet is not available"));
        }
        let vpc = self.get("vpcs", subnet["_vpc"].as_str().unwrap_or_default())?.clone();
        let mut groups = Vec::new();
        for group in interface["security_groups"].as_array().into_iter().flatten() {
            let found = self.get("security_groups", identity(group))?;
            if found["_vpc"] != vpc["id"] {
                return Err(refuse(400, "validation_failed", "The security group is in another VPC"));
            }
            groups.push(found["id"].clone());
        }
        if groups.is_empty() {
            groups.push(vpc["default_security_group"]["id"].clone());
        }
        let taken = object["name"].clone();
        if self.of_kind("instances").any(|other| other["name"] == taken && other["_region"] == request.region)
        {
            return Err(refuse(400, "validation_unique_failed", format!("The name {taken} is not unique")));
        }
        let address = self.address(subnet["id"].as_str().unwrap_or_default())?;
        let number = self.number();
        let id = object["id"].as_str().unwrap_or_default().to_owned();
        let part = |kind: &str, path: &str| json!({"id": format!("0717-{kind}{number:06x}"), "href": request.href(&format!("{path}/0717-{kind}{number:06x}")), "name": format!("{kind}-{number}")});
        let mut ip =
            part("ip", &format!("subnets/{}/reserved_ips", subnet["id"].as_str().unwrap_or_default()));
        (ip["address"], ip["resource_type"]) = (address.to_string().into(), "subnet_reserved_ip".into());
        let mut vni = part("vni", "virtual_network_interfaces");
        vni["resource_type"] = "virtual_network_interface".into();
        vni["crn"] = format!(
            "crn:v1:bluemix:public:is:{}:a/sim::virtual-network-interface:{}",
            body["zone"]["name"].as_str().unwrap_or_default(),
            vni["id"].as_str().unwrap_or_default()
        )
        .into();
        if let Some(name) = attachment["name"].as_str() {
            vni["name"] = name.into();
        }
        let joined = |kind: &str, resource: &str| {
            let mut one = part(kind, &format!("instances/{id}/{resource}s"));
            one["primary_ip"] = ip.clone();
            one["resource_type"] = resource.into();
            one["subnet"] = reference(&subnet, &FULL);
            one
        };
        let mut attached = joined("att", "instance_network_attachment");
        attached["virtual_network_interface"] =
            reference(&vni, &["crn", "href", "id", "name", "resource_type"]);
        let interface = joined("nic", "network_interface");
        let volume = part("vol", &format!("instances/{id}/volume_attachments"));
        let profile = body["profile"]["name"].as_str().unwrap_or("bx2-2x8");
        for (field, value) in [
            ("availability", json!({"class": "standard"})),
            ("availability_policy", json!({"host_failure": "restart", "preemption": "stop"})),
            ("bandwidth", json!(4000)),
            ("boot_volume_attachment", volume.clone()),
            ("cluster_network_attachments", json!([])),
            ("confidential_compute_mode", json!("disabled")),
            ("disks", json!([])),
            ("enable_secure_boot", json!(false)),
            ("health_reasons", json!([])),
            ("health_state", json!("ok")),
            ("lifecycle_reasons", json!([])),
            ("lifecycle_state", json!("pending")),
            ("memory", json!(8)),
            ("metadata_service", json!({"enabled": false, "protocol": "http", "response_hop_limit": 1})),
            ("network_attachments", json!([attached.clone()])),
            ("primary_network_attachment", attached),
            ("network_interfaces", json!([interface.clone()])),
            ("primary_network_interface", interface),
            (
                "profile",
                json!({"name": profile, "href": request.href(&format!("instance/profiles/{profile}")), "resource_type": "instance_profile"}),
            ),
            ("reservation_affinity", json!({"policy": "disabled", "pool": []})),
            ("software_attachments", json!([])),
            ("startable", json!(true)),
            ("status", json!("pending")),
            ("status_reasons", json!([])),
            ("threads_per_core", json!(2)),
            ("total_network_bandwidth", json!(3000)),
            ("total_volume_bandwidth", json!(1000)),
            (
                "vcpu",
                json!({"architecture": "amd64", "count": 2, "manufacturer": "intel", "percentage": 100}),
            ),
            ("volume_attachments", json!([volume])),
            ("volume_bandwidth_qos_mode", json!("pooled")),
            ("vpc", reference(&vpc, &FULL)),
            ("zone", subnet["zone"].clone()),
            ("_vpc", vpc["id"].clone()),
            ("_subnet", subnet["id"].clone()),
            ("_groups", groups.into()),
            ("_vni", vni),
        ] {
            object[field] = value;
        }
        let then = match request.fails {
            true => json!({"status": "failed", "lifecycle_state": "failed"}),
            false => json!({"status": "running", "lifecycle_state": "stable"}),
        };
        Self::later(request, object, 30, then);
        Ok(())
    }

    pub(super) fn bind(&mut self, request: &Request<'_>, name: &str) -> super::Outcome {
        let group = self.get("security_groups", request.parent())?["id"].clone();
        let wanted = request.id().to_owned();
        let instance = self.objects.values_mut().find(|one| one["_vni"]["id"] == wanted.as_str());
        let instance = instance.ok_or_else(|| missing(&wanted))?;
        let mut groups: Vec<Value> = instance["_groups"].as_array().cloned().unwrap_or_default();
        groups.retain(|one| *one != group);
        if name.starts_with("create") {
            groups.push(group);
        } else if groups.is_empty() {
            return Err(refuse(409, "conflict_field", "A target needs at least one security group"));
        }
        instance["_groups"] = groups.into();
        let target = target(instance);
        Ok(if name.starts_with("create") { (201, target) } else { (204, Value::Null) })
    }

    pub(super) fn subnet_gateway(&mut self, request: &Request<'_>, name: &str) -> super::Outcome {
        let subnet = self.get("subnets", request.id())?.clone();
        let id = subnet["id"].as_str().unwrap_or_default().to_owned();
        match name {
            "set_subnet_public_gateway" => {
                let nat = self.get("public_gateways", identity(&request.body))?.clone();
                if nat["_vpc"] != subnet["_vpc"] || nat["zone"]["name"] != subnet["zone"]["name"] {
                    return Err(refuse(
                        400,
                        "validation_failed",
                        "The public gateway is in another VPC or zone",
                    ));
                }
                if let Some(subnet) = self.objects.get_mut(&id) {
                    subnet["public_gateway"] = reference(&nat, &FULL);
                }
                Ok((201, self.shown(&nat)))
            }
            _ if subnet["public_gateway"].is_null() => Err(missing("the subnet's public gateway")),
            "unset_subnet_public_gateway" => {
                let fields = self.objects.get_mut(&id).and_then(Value::as_object_mut);
                fields.into_iter().for_each(|fields| drop(fields.remove("public_gateway")));
                Ok((204, Value::Null))
            }
            _ => {
                let nat = self.get("public_gateways", identity(&subnet["public_gateway"]))?;
                Ok((200, self.shown(nat)))
            }
        }
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
                _ => return Err(refuse(400, "not_simulated", format!("{field} cannot be changed here"))),
            }
        }
        Ok(id)
    }

    /// Who uses an object, which therefore cannot go.
    fn user(&self, object: &Value) -> Option<(&'static str, String)> {
        let id = object["id"].as_str().unwrap_or_default();
        let used = |kind: &'static str, field: &str| {
            self.of_kind(kind).find(|one| one[field] == id).map(|one| one["name"].to_string())
        };
        match object["_kind"].as_str()? {
            "vpcs" => {
                let inside =
                    ["subnets", "instances", "public_gateways"].iter().find_map(|kind| used(kind, "_vpc"));
                inside.or_else(|| self.joint_of(object)).map(|user| ("vpc_in_use", user))
            }
            "subnets" => used("instances", "_subnet")
                .or_else(|| used("vpn_gateways", "_subnet"))
                .map(|user| ("subnet_in_use_network_interface_exists", user)),
            "public_gateways" => {
                let mut subnets = self.of_kind("subnets");
                subnets
                    .find(|one| one["public_gateway"]["id"] == id)
                    .map(|one| ("public_gateway_in_use", one["name"].to_string()))
            }
            "security_groups" => {
                let mut instances = self.of_kind("instances");
                let target = instances.find(|one| {
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
            return Err(refuse(409, code, format!("{} is in use by {user}", object["name"])));
        }
        let id = object["id"].as_str().unwrap_or_default().to_owned();
        let (seconds, fields): (u64, &[&str]) = match request.call.kind.as_str() {
            "vpcs" => (3, &["status"]),
            "subnets" => (5, &["status"]),
            "instances" => (15, &["status", "lifecycle_state"]),
            "public_gateways" => (5, &["status"]),
            "vpn_gateways" => (120, &["lifecycle_state"]),
            "transit_gateways" => (5, &["status"]),
            "transit_gateways/connections" => (10, &["status"]),
            _ => (0, &[]),
        };
        if fields.is_empty() {
            self.objects.retain(|one, object| *one != id && object["_parent"] != id.as_str());
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
        if request.call.kind == "vpn_gateways" {
            self.objects.retain(|_, one| one["_parent"] != id.as_str());
        }
        if let Some(object) = self.objects.get_mut(&id) {
            fields.iter().for_each(|field| object[*field] = "deleting".into());
            (object["_gone"], object["_until"]) = (true.into(), (request.ask.now + seconds).into());
        }
        Ok(())
    }

    /// An object as it is answered: with what others say of it, and without what is the simulator's own.
    pub(super) fn shown(&self, object: &Value) -> Value {
        let mut shown = rest::show(object);
        let id = &object["id"];
        let connections = |field: &str| -> Value {
            let mine = self.of_kind("vpn_gateways/connections").filter(|one| one[field] == *id);
            mine.map(|one| reference(one, &["href", "id", "name", "resource_type"])).collect()
        };
        match object["_kind"].as_str().unwrap_or_default() {
            "security_groups" => {
                let rules = self.of_kind("security_groups/rules").filter(|rule| rule["_parent"] == *id);
                shown["rules"] = rules.map(rest::show).collect();
                let mine = |one: &&Value| one["_groups"].as_array().is_some_and(|list| list.contains(id));
                shown["targets"] = self.of_kind("instances").filter(mine).map(target).collect();
            }
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

/// An instance's interface as a target of a security group.
fn target(instance: &Value) -> Value {
    let mut target = rest::show(&instance["_vni"]);
    let attached = &instance["primary_network_attachment"];
    (target["primary_ip"], target["subnet"]) = (attached["primary_ip"].clone(), attached["subnet"].clone());
    target
}
