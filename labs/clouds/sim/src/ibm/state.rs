//! The account's objects, by id.

use serde_json::{Value, json};

use super::{Outcome, REGIONS, Refusal, refuse, schema::Call};
use crate::{
    objects::Objects,
    rest,
    rest::{list, text},
    server::Ask,
};

/// Fields that begin with `_` are the simulator's own: `_kind` and `_region` say what an object is and where, `_parent`
/// what it is part of, `_vpc` whose VPC it is in, `_until` when its state changes, `_then` the fields it has then, and
/// `_gone` that it then disappears.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ibm {
    pub(super) objects: Objects,
    pub(super) made: u64,
}

pub(crate) struct Request<'r> {
    pub(super) call: &'r Call,
    pub(super) region: &'static str,
    pub(super) ask: &'r Ask<'r>,
    pub(super) body: Value,
    /// What is made shall fail.
    pub(super) fails: bool,
}

impl Request<'_> {
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        rest::parameter(self.ask.uri, name)
    }

    /// What is made or changed: the path's last name.
    pub(super) fn id(&self) -> &str {
        self.call.ids.last().map(String::as_str).unwrap_or_default()
    }

    /// What the path's collection is part of.
    pub(super) fn parent(&self) -> &str {
        self.call.ids.first().map(String::as_str).unwrap_or_default()
    }

    pub(super) fn href(&self, path: &str) -> String {
        let region = if self.region == "us-south" { String::new() } else { format!("/{}", self.region) };
        format!("{}{region}/v1/{path}", self.ask.origin)
    }

    /// Where the object is found: APIs other than the VPC's are one for all regions.
    pub(super) fn home(&self) -> &'static str {
        if self.call.operation.starts_with("is.") { self.region } else { "global" }
    }
}

pub(super) fn missing(what: &str) -> Refusal {
    refuse(404, "not_found", format!("{what} was not found"))
}

impl Ibm {
    pub(super) fn call(&mut self, request: &Request<'_>) -> Outcome {
        let name = request.call.operation.split_once('.').map_or("", |(_, name)| name);
        match name {
            _ if request.call.operation.starts_with("containers.") => self.clusters(request, name),
            "list_regions" => Ok((200, regions(request))),
            "list_region_zones" => zones(request).map(|zones| (200, json!({"zones": zones}))),
            "get_region_zone" => {
                let found = zones(request)?.into_iter().find(|zone| zone["name"] == request.id());
                found.map(|zone| (200, zone)).ok_or_else(|| missing(request.id()))
            }
            "list_images" => Ok((200, super::images::images(request))),
            "list_gateway_locations" => {
                let one = |name: &&str| json!({"name": name, "billing_location": "us", "type": "region"});
                Ok((200, json!({"locations": REGIONS.iter().map(one).collect::<Vec<_>>()})))
            }
            "list_vpn_gateway_advertised_cidrs" => {
                let gateway = self.get("vpn_gateways", request.parent())?;
                Ok((200, json!({"advertised_cidrs": gateway["advertised_cidrs"]})))
            }
            "add_vpn_gateway_advertised_cidr"
            | "remove_vpn_gateway_advertised_cidr"
            | "check_vpn_gateway_advertised_cidr" => self.advertised(request, name),
            "set_subnet_public_gateway" | "unset_subnet_public_gateway" | "get_subnet_public_gateway" => {
                self.subnet_gateway(request, name)
            }
            "get_vpc_default_security_group" => {
                let vpc = self.get("vpcs", request.id())?;
                let id = text(&vpc["default_security_group"]["id"]).to_owned();
                Ok((200, self.shown(self.get("security_groups", &id)?)))
            }
            "create_security_group_target_binding" | "delete_security_group_target_binding" => {
                self.bind(request, name)
            }
            _ if name.starts_with("list_") => self.list(request).map(|page| (200, page)),
            _ if name.starts_with("get_") => Ok((200, self.shown(self.in_place(request, request.id())?))),
            _ if name.starts_with("create_") => {
                let id = self.create(request)?;
                Ok((201, self.shown(&self.objects[&id])))
            }
            _ if name.starts_with("update_") => {
                let id = self.update(request)?;
                Ok((200, self.shown(&self.objects[&id])))
            }
            _ if name.starts_with("delete_") => {
                self.delete(request)?;
                Ok((if name == "delete_vpn_gateway" { 202 } else { 204 }, Value::Null))
            }
            _ => Err(refuse(404, "not_found", format!("{name} is not simulated"))),
        }
    }

    pub(super) fn get(&self, kind: &str, id: &str) -> Result<&Value, Refusal> {
        self.objects.get(id).filter(|object| object["_kind"] == kind).ok_or_else(|| missing(id))
    }

    /// An object of the request's collection, region and parent.
    pub(super) fn in_place(&self, request: &Request<'_>, id: &str) -> Result<&Value, Refusal> {
        let object = self.get(&request.call.kind, id)?;
        let nested = request.call.ids.len() > 1;
        if object["_region"] != request.home() || (nested && object["_parent"] != request.parent()) {
            return Err(missing(id));
        }
        Ok(object)
    }

    pub(super) fn of_kind<'i>(&'i self, kind: &'i str) -> impl Iterator<Item = &'i Value> {
        self.objects.values().filter(move |object| object["_kind"] == kind)
    }

    fn list(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        let kind = &request.call.kind;
        let nested = !request.call.ids.is_empty();
        let mut filters = Vec::new();
        for (parameter, pointer) in [
            ("vpc.id", "/vpc/id"),
            ("vpc.name", "/vpc/name"),
            ("vpc.crn", "/vpc/crn"),
            ("name", "/name"),
            ("zone.name", "/zone/name"),
            ("resource_group.id", "/resource_group/id"),
            ("mode", "/mode"),
        ] {
            filters.extend(request.parameter(parameter).map(|value| (pointer, value)));
        }
        let passes = |object: &&Value| {
            object["_region"] == request.home()
                && (!nested || object["_parent"] == request.parent())
                && filters.iter().all(|(pointer, value)| {
                    object.pointer(pointer).and_then(Value::as_str) == Some(value.as_str())
                })
        };
        if nested {
            let above = kind.split('/').next().unwrap_or_default();
            self.get(above, request.parent())?;
        }
        let all: Vec<&Value> = self.of_kind(kind).filter(passes).collect();
        let key = kind.rsplit('/').next().unwrap_or_default();
        // These come all at once.
        if ["security_groups/rules", "transit_gateways/route_reports"].contains(&kind.as_str()) {
            return Ok(json!({ key: all.iter().map(|object| self.shown(object)).collect::<Vec<_>>() }));
        }
        let limit =
            request.parameter("limit").and_then(|text| text.parse().ok()).unwrap_or(50usize).clamp(1, 100);
        // The token is the id that the page begins with.
        let start = request.parameter("start").unwrap_or_default();
        let id = |object: &Value| text(&object["id"]).to_owned();
        let from = all.iter().position(|object| id(object) >= start).unwrap_or(all.len());
        let page = &all[from..all.len().min(from + limit)];
        let page: Vec<Value> = match kind.as_str() {
            "security_groups" => self.shown_groups(page),
            _ => page.iter().map(|object| self.shown(object)).collect(),
        };
        let path = request.ask.uri.path().split_once("/v1/").map_or("", |(_, path)| path);
        let mut answer = json!({ key: page, "limit": limit, "first": {"href": request.href(&format!("{path}?limit={limit}"))} });
        if kind != "transit_gateways" {
            answer["total_count"] = all.len().into();
        }
        if let Some(next) = all.get(from + limit) {
            let href = request.href(&format!("{path}?limit={limit}&start={}", id(next)));
            answer["next"] = json!({"href": href});
            if request.home() == "global" {
                answer["next"]["start"] = id(next).into();
            }
        }
        Ok(answer)
    }

    /// Brings everything to its state of now.
    pub(crate) fn settle(&mut self, now: u64) {
        let is_due = |object: &Value| object["_until"].as_u64().is_some_and(|until| until <= now);
        self.objects.retain(|_, object| !(is_due(object) && object["_gone"] == true));
        self.objects.change(
            |_, object| is_due(object),
            |object| {
                object["_until"] = Value::Null;
                let then = object["_then"].take();
                for (field, value) in then.as_object().into_iter().flatten() {
                    object[field.as_str()] = value.clone();
                }
            },
        );
    }

    /// What is left that somebody made. What goes with a VPC is not told apart from it.
    pub(crate) fn left(&self) -> Vec<String> {
        let own = self.objects.iter().filter(|(_, object)| object["_default"] != true);
        own.map(|(id, object)| format!("{} {} {id}", object["_kind"], object["name"])).collect()
    }

    /// Every permit goes, every closed group is opened to everybody, and every tunnel is cut.
    pub(crate) fn vandalise(&mut self) {
        let kinds = ["instances", "endpoint_gateways", "workers"];
        let targets: Vec<Value> = kinds.iter().flat_map(|kind| self.of_kind(kind)).cloned().collect();
        // IBM's own of clusters aside, which nobody gets rid of for long.
        let is_ibms = |group: &str| {
            let name = self.objects.get(group).and_then(|group| group["name"].as_str());
            name.is_some_and(|name| name.starts_with("kube-"))
        };
        let is_used = |group: &str| {
            targets.iter().flat_map(|one| list(&one["_groups"])).any(|id| id == group && !is_ibms(group))
        };
        let doomed: Vec<String> = self
            .of_kind("security_groups/rules")
            .filter(|rule| is_used(text(&rule["_parent"])))
            .filter_map(|rule| rule["id"].as_str().map(str::to_owned))
            .collect();
        self.objects
            .retain(|id, object| !(doomed.contains(id) || object["_kind"] == "vpn_gateways/connections"));
        self.reset_groups();
    }
}

fn regions(request: &Request<'_>) -> Value {
    let one = |name: &&str| json!({"name": name, "status": "available", "endpoint": request.ask.origin, "href": request.href(&format!("regions/{name}"))});
    json!({"regions": REGIONS.iter().map(one).collect::<Vec<_>>()})
}

fn zones(request: &Request<'_>) -> Result<Vec<Value>, Refusal> {
    let region = request.parent();
    if !REGIONS.contains(&region) {
        return Err(missing(region));
    }
    let region_href = request.href(&format!("regions/{region}"));
    let one = |number: u8| {
        let name = format!("{region}-{number}");
        json!({"name": name, "status": "available", "href": format!("{region_href}/zones/{name}"), "region": {"name": region, "href": region_href}})
    };
    Ok((1..=3).map(one).collect())
}
