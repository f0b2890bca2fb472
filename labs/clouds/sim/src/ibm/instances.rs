//! Security groups with their rules, and the instances in them.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{
    Refusal,
    objects::{FULL, PLAIN, identity, net, reference},
    refuse,
    state::{Ibm, Request, missing},
};
use crate::rest::{self, items, list, text};

/// Security groups of one interface.
const MOST_GROUPS: usize = 5;

impl Ibm {
    pub(super) fn group(&mut self, request: &Request<'_>, mut object: Value) -> Result<String, Refusal> {
        let vpc = self.own_vpc(request, &request.body["vpc"])?;
        object["vpc"] = reference(&vpc, &FULL);
        object["_vpc"] = vpc["id"].clone();
        let id = self.keep(object, 100)?;
        let rules = items(&request.body["rules"]);
        for body in rules {
            let mut rule = self.fresh(request, "security_groups/rules", text(&body["name"]));
            rule["_parent"] = id.as_str().into();
            rule["href"] = request.href(&format!("security_groups/{id}/rules/{}", text(&rule["id"]))).into();
            self.rule(&body, &mut rule)?;
            self.keep(rule, 250)?;
        }
        Ok(id)
    }

    pub(super) fn rule(&mut self, body: &Value, object: &mut Value) -> Result<(), Refusal> {
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

    pub(super) fn instance(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let body = &request.body;
        let attachment = &body["primary_network_attachment"]["virtual_network_interface"];
        let interface = if attachment.is_null() { &body["primary_network_interface"] } else { attachment };
        let subnet = self.get("subnets", identity(&interface["subnet"]))?.clone();
        if subnet["zone"]["name"] != body["zone"]["name"] || subnet["_region"] != request.region {
            bail!(400, "validation_failed", "The subnet is in another zone");
        }
        if subnet["status"] != "available" {
            bail!(409, "subnet_not_ready", "The subnet is not available");
        }
        let vpc = self.get("vpcs", text(&subnet["_vpc"]))?.clone();
        let mut groups = Vec::new();
        for group in list(&interface["security_groups"]) {
            let found = self.get("security_groups", identity(group))?;
            if found["_vpc"] != vpc["id"] {
                bail!(400, "validation_failed", "The security group is in another VPC");
            }
            groups.push(found["id"].clone());
        }
        if groups.len() > MOST_GROUPS {
            bail!(400, "over_quota", "An interface is in five security groups at most");
        }
        if groups.is_empty() {
            groups.push(vpc["default_security_group"]["id"].clone());
        }
        let taken = object["name"].clone();
        if self.of_kind("instances").any(|other| other["name"] == taken && other["_region"] == request.region)
        {
            bail!(400, "validation_unique_failed", "The name {taken} is not unique");
        }
        let address = self.address(text(&subnet["id"]))?;
        let number = self.number();
        let id = text(&object["id"]).to_owned();
        let part = |kind: &str, path: &str| json!({"id": format!("0717-{kind}{number:06x}"), "href": request.href(&format!("{path}/0717-{kind}{number:06x}")), "name": format!("{kind}-{number}")});
        let mut ip = part("ip", &format!("subnets/{}/reserved_ips", text(&subnet["id"])));
        (ip["address"], ip["resource_type"]) = (address.to_string().into(), "subnet_reserved_ip".into());
        let mut vni = part("vni", "virtual_network_interfaces");
        vni["resource_type"] = "virtual_network_interface".into();
        vni["crn"] = format!(
            "crn:v1:bluemix:public:is:{}:a/sim::virtual-network-interface:{}",
            text(&body["zone"]["name"]),
            text(&vni["id"])
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
        let instance = self.objects.find_mut(|one| one["_vni"]["id"] == wanted.as_str());
        let instance = instance.ok_or_else(|| missing(&wanted))?;
        let mut groups: Vec<Value> = items(&instance["_groups"]);
        groups.retain(|one| *one != group);
        if name.starts_with("create") {
            groups.push(group);
            if groups.len() > MOST_GROUPS {
                bail!(400, "over_quota", "An interface is in five security groups at most");
            }
        } else if groups.is_empty() {
            bail!(409, "conflict_field", "A target needs at least one security group");
        }
        instance["_groups"] = groups.into();
        let target = target(instance);
        Ok(if name.starts_with("create") { (201, target) } else { (204, Value::Null) })
    }
}

/// An instance's interface as a target of a security group.
pub(super) fn target(instance: &Value) -> Value {
    let mut target = rest::show(&instance["_vni"]);
    let attached = &instance["primary_network_attachment"];
    (target["primary_ip"], target["subnet"]) = (attached["primary_ip"].clone(), attached["subnet"].clone());
    target
}
