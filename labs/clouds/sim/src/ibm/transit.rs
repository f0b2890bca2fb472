//! Transit gateways and what is attached to them.

use serde_json::{Value, json};

use super::{
    Refusal,
    state::{Ibm, Request, missing},
};
use crate::{rest::text, wire::Wire};

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
            bail!(409, "gateway_not_ready", "The gateway is not available");
        }
        let kind = text(&request.body["network_type"]);
        let collection = match kind {
            "vpc" => "vpcs",
            "vpn_gateway" => "vpn_gateways",
            _ => bail!(400, "not_simulated", "{kind} is not simulated"),
        };
        let crn = text(&request.body["network_id"]);
        let network = self.of_kind(collection).find(|one| one["crn"] == crn && one["_gone"] != true);
        let network = network.ok_or_else(|| missing(crn))?.clone();
        if kind == "vpn_gateway" && network["lifecycle_state"] != "stable" {
            bail!(409, "vpn_gateway_not_ready", "The VPN gateway is not stable");
        }
        if hub["global"] != true && network["_region"] != hub["location"] {
            bail!(400, "validation_failed", "A local gateway connects networks of its own region");
        }
        let mut there = self.of_kind("transit_gateways/connections");
        if there.any(|one| {
            one["_parent"] == request.parent() && one["network_id"] == crn && one["name"] != object["name"]
        }) {
            bail!(409, "conflict_field", "The network is connected already");
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

    /// Asks for a report, unless one is being written. The last one that is complete stays.
    pub(super) fn route_report(
        &mut self,
        request: &Request<'_>,
        mut object: Value,
    ) -> Result<String, Refusal> {
        let hub = self.get("transit_gateways", request.parent())?;
        let routes = hub["_routes"].clone();
        let mine = |one: &&Value| one["_parent"] == request.parent();
        let there: Vec<&Value> = self.of_kind("transit_gateways/route_reports").filter(mine).collect();
        let id = |one: &Value| text(&one["id"]).to_owned();
        if let Some(pending) = there.iter().find(|one| one["status"] == "pending") {
            return Ok(id(pending));
        }
        let old: Vec<String> = there.iter().rev().skip(1).map(|one| id(one)).collect();
        self.objects.retain(|id, _| !old.contains(id));
        for (field, value) in
            [("connections", json!([])), ("overlapping_routes", json!([])), ("status", json!("pending"))]
        {
            object[field] = value;
        }
        Self::later(request, &mut object, 2, json!({"status": "complete", "connections": routes}));
        let id = id(&object);
        self.objects.insert(id.clone(), object);
        Ok(id)
    }

    /// Writes down what reports of transit gateways will say.
    pub(crate) fn note_routes(&mut self, wire: &Wire) {
        let learnt = |gateway: &str| -> Vec<Value> {
            let tunnels = wire.gateways.get(gateway).into_iter().flat_map(|gateway| &gateway.tunnels);
            let sessions = tunnels.filter_map(|end| Some((wire.bgp_peer(end)?, end.bgp?.peer_asn)));
            let routes = sessions.flat_map(|(peer, asn)| {
                let routes = wire.gateways[peer].routes.iter().filter(|(net, _)| net.prefix_len() > 0);
                routes.map(move |(net, _)| json!({"prefix": net.to_string(), "as_path": asn.to_string(), "is_used": true, "local_preference": "100"}))
            });
            routes.collect()
        };
        let hubs: Vec<String> = self
            .of_kind("transit_gateways")
            .filter_map(|hub| hub["id"].as_str().map(str::to_owned))
            .collect();
        for hub in hubs {
            let attached =
                self.of_kind("transit_gateways/connections").filter(|one| one["_parent"] == hub.as_str());
            let shown = attached.map(|one| {
                let network = text(&one["_network"]);
                let prefixes = self.of_kind("vpcs/address_prefixes").filter(|prefix| prefix["_parent"] == network);
                let routes: Vec<Value> = prefixes.map(|prefix| json!({"prefix": prefix["cidr"]})).collect();
                json!({"id": one["id"], "name": one["name"], "type": one["network_type"], "routes": routes, "bgps": learnt(network)})
            });
            let shown: Vec<Value> = shown.collect();
            if let Some(hub) = self.objects.get_mut(&hub) {
                hub["_routes"] = shown.into();
            }
        }
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
