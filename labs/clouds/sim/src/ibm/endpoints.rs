//! Endpoint gateways: an address in a subnet that stands for a service outside, behind security groups.

use serde_json::{Value, json};

use super::{
    Refusal,
    objects::{FULL, PLAIN, identity, reference},
    refuse,
    state::{Ibm, Request},
};
use crate::{
    rest::{list, text},
    wire::{Firewall, Host},
};

impl Ibm {
    pub(super) fn endpoint_gateway(
        &mut self,
        request: &Request<'_>,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        let bad = |message: &str| Err(refuse(400, "validation_failed", message));
        let (body, vpc) = (&request.body, self.own_vpc(request, &request.body["vpc"])?);
        let taken = self
            .of_kind("endpoint_gateways")
            .any(|other| other["_vpc"] == vpc["id"] && other["target"] == body["target"]);
        if taken {
            return bad("The target is that of another endpoint gateway in the VPC");
        }
        let [ip] = body["ips"].as_array().map(Vec::as_slice).unwrap_or_default() else {
            return bad("Endpoint gateways without or with several addresses are not simulated");
        };
        let subnet = self.get("subnets", identity(&ip["subnet"]))?.clone();
        if subnet["_vpc"] != vpc["id"] {
            return bad("The subnet is in another VPC");
        }
        if subnet["status"] != "available" {
            bail!(409, "subnet_not_ready", "The subnet is not available");
        }
        let mut groups = Vec::new();
        for group in list(&body["security_groups"]) {
            let found = self.get("security_groups", identity(group))?;
            if found["_vpc"] != vpc["id"] {
                return bad("The security group is in another VPC");
            }
            groups.push(found.clone());
        }
        if groups.is_empty() {
            groups.push(self.get("security_groups", identity(&vpc["default_security_group"]))?.clone());
        }
        let address = self.address(text(&subnet["id"]))?;
        let number = self.number();
        let id = format!("0717-ip{number:06x}");
        let home = format!("subnets/{}/reserved_ips/{id}", text(&subnet["id"]));
        let reserved = json!({"id": id, "href": request.href(&home), "address": address.to_string(), "name": ip["name"].as_str().unwrap_or("reserved-ip"), "resource_type": "subnet_reserved_ip"});
        for (field, value) in [
            ("dns_resolution_binding_mode", json!("primary")),
            ("health_state", json!("ok")),
            ("ips", json!([reserved])),
            ("lifecycle_reasons", json!([])),
            ("lifecycle_state", json!("pending")),
            ("security_groups", groups.iter().map(|group| reference(group, &PLAIN)).collect()),
            ("service_endpoints", json!(["service.private.example.com"])),
            ("target", body["target"].clone()),
            ("vpc", reference(&vpc, &FULL)),
            ("_vpc", vpc["id"].clone()),
            ("_subnet", subnet["id"].clone()),
            ("_zone", subnet["zone"]["name"].clone()),
            ("_groups", groups.iter().map(|group| group["id"].clone()).collect()),
        ] {
            object[field] = value;
        }
        let then = if request.fails { "failed" } else { "stable" };
        Self::later(request, object, 10, json!({"lifecycle_state": then}));
        Ok(())
    }

    /// Endpoints as hosts: they answer whom their groups let in, and open nothing. Those that IBM made for a cluster are
    /// IBM's, and in groups that only the cluster's workers are let into.
    pub(super) fn endpoint_hosts(&self) -> Vec<Host> {
        let ready = self.of_kind("endpoint_gateways").filter(|one| one["lifecycle_state"] == "stable");
        let ready = ready.filter(|one| one["_provided"] != true);
        let host = |one: &Value| Host {
            address: one["ips"][0]["address"].as_str().and_then(|text| text.parse().ok()),
            network: super::wire::wire_name(&one["_vpc"], &one["_zone"]),
            inbound: self.firewall(one, "inbound"),
            outbound: Firewall::default(),
            ..Host::default()
        };
        ready.map(host).collect()
    }
}

/// An endpoint gateway as a target of a security group.
pub(super) fn target(endpoint: &Value) -> Value {
    reference(endpoint, &FULL)
}
