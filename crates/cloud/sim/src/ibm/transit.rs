//! Transit gateways and what is attached to them.

use serde_json::{Value, json};

use super::{
    Refusal, refuse,
    state::{Ibm, Request, missing},
};

pub(super) fn gateway(request: &Request<'_>, object: &mut Value) {
    for (field, value) in [
        ("location", request.body["location"].clone()),
        ("global", json!(request.body["global"].as_bool().unwrap_or(false))),
        ("connection_needs_attention", json!(false)),
        ("gre_enhanced_route_propagation", json!(false)),
        ("status", json!("pending")),
    ] {
        object[field] = value;
    }
    let then = if request.fails { "failed" } else { "available" };
    Ibm::later(request, object, 15, json!({"status": then}));
}

impl Ibm {
    pub(super) fn transit_connection(
        &mut self,
        request: &Request<'_>,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        let hub = self.get("transit_gateways", request.parent())?.clone();
        if hub["status"] != "available" {
            return Err(refuse(409, "gateway_not_ready", "The gateway is not available"));
        }
        let kind = request.body["network_type"].as_str().unwrap_or_default();
        let collection = match kind {
            "vpc" => "vpcs",
            "vpn_gateway" => "vpn_gateways",
            _ => return Err(refuse(400, "not_simulated", format!("{kind} is not simulated"))),
        };
        let crn = request.body["network_id"].as_str().unwrap_or_default();
        let network = self.of_kind(collection).find(|one| one["crn"] == crn && one["_gone"] != true);
        let network = network.ok_or_else(|| missing(crn))?.clone();
        if kind == "vpn_gateway" && network["lifecycle_state"] != "stable" {
            return Err(refuse(409, "vpn_gateway_not_ready", "The VPN gateway is not stable"));
        }
        if hub["global"] != true && network["_region"] != hub["location"] {
            return Err(refuse(
                400,
                "validation_failed",
                "A local gateway connects networks of its own region",
            ));
        }
        let mut there = self.of_kind("transit_gateways/connections");
        if there.any(|one| {
            one["_parent"] == request.parent() && one["network_id"] == crn && one["name"] != object["name"]
        }) {
            return Err(refuse(409, "conflict_field", "The network is connected already"));
        }
        for (field, value) in [
            ("network_type", json!(kind)),
            ("network_id", json!(crn)),
            ("request_status", json!("approved")),
            ("status", json!("pending")),
            ("updated_at", object["created_at"].clone()),
            ("_network", network["id"].clone()),
        ] {
            object[field] = value;
        }
        if kind == "vpn_gateway" {
            object["cidr"] = request.body["cidr"].as_str().unwrap_or("198.19.174.0/23").into();
        } else {
            object["prefix_filters_default"] = "permit".into();
        }
        Self::later(
            request,
            object,
            20,
            json!({"status": if request.fails { "failed" } else { "attached" }}),
        );
        Ok(())
    }

    /// What attaches a network to a transit gateway.
    pub(super) fn joint_of(&self, network: &Value) -> Option<String> {
        let mut all = self.of_kind("transit_gateways/connections");
        all.find(|one| one["_network"] == network["id"]).map(|one| one["name"].to_string())
    }

    /// The transit gateways that a network is attached to.
    pub(super) fn hubs_of(&self, network: &Value) -> Vec<&Value> {
        let all = self.of_kind("transit_gateways/connections");
        let mine = all.filter(|one| one["_network"] == network["id"] && one["status"] == "attached");
        mine.map(|one| &one["_parent"]).collect()
    }
}
