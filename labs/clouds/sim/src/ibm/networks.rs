//! VPCs, their prefixes and subnets, and public gateways.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{
    Refusal,
    objects::{FULL, Made, PLAIN, identity, net, reference},
    refuse,
    state::{Ibm, Request, missing},
};
use crate::rest::text;

impl Ibm {
    pub(super) fn vpc(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let id = text(&object["id"]).to_owned();
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
        let group_id = text(&group["id"]).to_owned();
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
            self.objects.insert(text(&rule["id"]).to_owned(), rule);
        }
        if request.body["address_prefix_management"] != "manual" {
            for (number, zone) in ["1", "2", "3"].iter().enumerate() {
                let mut prefix = self.fresh(request, "vpcs/address_prefixes", "");
                prefix["_parent"] = id.as_str().into();
                prefix["cidr"] = format!("10.24{number}.0.0/18").into();
                prefix["zone"] = self.zone(request, &format!("{}-{zone}", request.region))?;
                prefix["is_default"] = true.into();
                self.objects.insert(text(&prefix["id"]).to_owned(), prefix);
            }
        }
        Ok(())
    }

    pub(super) fn zone(&self, request: &Request<'_>, name: &str) -> Made {
        let known = (1..=3).any(|number| name == format!("{}-{number}", request.region));
        if !known {
            bail!(400, "validation_invalid_zone", "There is no zone {name} here");
        }
        Ok(json!({"name": name, "href": request.href(&format!("regions/{}/zones/{name}", request.region))}))
    }

    /// The VPC that a request names, ready or not; of another region it is not known.
    pub(super) fn own_vpc(&self, request: &Request<'_>, value: &Value) -> Made {
        let vpc = self.get("vpcs", identity(value))?;
        if vpc["_region"] != request.region || vpc["_gone"] == true {
            return Err(missing(identity(value)));
        }
        Ok(vpc.clone())
    }

    pub(super) fn prefix(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
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
        object["zone"] = self.zone(request, text(&request.body["zone"]["name"]))?;
        object["is_default"] = request.body["is_default"].as_bool().unwrap_or(false).into();
        Ok(())
    }

    pub(super) fn subnet(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
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
                bail!(409, "conflict_field", "{space} overlaps with {}", other["ipv4_cidr_block"]);
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

    pub(super) fn public_gateway(
        &mut self,
        request: &Request<'_>,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        let vpc = self.own_vpc(request, &request.body["vpc"])?;
        let zone = self.zone(request, text(&request.body["zone"]["name"]))?;
        let beside = self.of_kind("public_gateways").any(|one| {
            one["_vpc"] == vpc["id"] && one["zone"]["name"] == zone["name"] && one["name"] != object["name"]
        });
        if beside {
            bail!(409, "conflict_field", "The VPC has a public gateway in that zone");
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

    pub(super) fn subnet_gateway(&mut self, request: &Request<'_>, name: &str) -> super::Outcome {
        let subnet = self.get("subnets", request.id())?.clone();
        let id = text(&subnet["id"]).to_owned();
        match name {
            "set_subnet_public_gateway" => {
                let nat = self.get("public_gateways", identity(&request.body))?.clone();
                if nat["_vpc"] != subnet["_vpc"] || nat["zone"]["name"] != subnet["zone"]["name"] {
                    bail!(400, "validation_failed", "The public gateway is in another VPC or zone");
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
}
