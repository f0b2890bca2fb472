//! Cloud DNS: private zones of networks, and what is in them. Changes are done at once.

use serde_json::{Value, json};

use super::{
    Outcome, Refusal, refuse,
    state::{Gce, Request, is_name, path_of},
};
use crate::rest::{items, show, text};

fn invalid(message: impl Into<String>) -> Refusal {
    refuse(400, "invalid", message)
}

fn missing(what: &str) -> Refusal {
    refuse(404, "notFound", format!("The '{what}' resource does not exist."))
}

/// Whether a zone is one of a network.
pub(super) fn uses(object: &Value, link: &str) -> bool {
    object["_networks"].as_array().is_some_and(|all| all.iter().any(|one| one == link))
}

fn same(a: &Value, b: &Value) -> bool {
    a["name"] == b["name"] && a["type"] == b["type"]
}

impl Gce {
    pub(super) fn call_dns(&mut self, request: &Request<'_>) -> Outcome {
        let target = request.target;
        let path = request.path(&target.name);
        let found =
            |gce: &Self| gce.objects.get(&path).cloned().ok_or_else(|| missing("parameters.managedZone"));
        match target.method.as_str() {
            "dns.managedZones.create" => self.create_zone(request),
            "dns.managedZones.get" => found(self).map(|zone| show(&zone)),
            "dns.managedZones.list" => {
                let zones: Vec<Value> =
                    self.objects.below(&request.path("")).map(|(_, zone)| show(zone)).collect();
                Ok(json!({"kind": "dns#managedZonesListResponse", "managedZones": zones}))
            }
            "dns.resourceRecordSets.list" => {
                Ok(json!({"kind": "dns#resourceRecordSetsListResponse", "rrsets": found(self)?["_records"]}))
            }
            "dns.changes.create" => {
                let mut zone = found(self)?;
                let answer = change(&mut zone, &request.body)?;
                self.objects.insert(path.clone(), zone);
                Ok(answer)
            }
            "dns.managedZones.delete" => {
                if found(self)?["_records"].as_array().is_some_and(|all| all.len() > 2) {
                    bail!(
                        400,
                        "containerNotEmpty",
                        "The resource named cannot be deleted because it contains one or more 'resource records'."
                    );
                }
                self.objects.remove(&path);
                Ok(Value::Null)
            }
            other => Err(refuse(404, "notFound", format!("{other} is not simulated"))),
        }
    }

    fn create_zone(&mut self, request: &Request<'_>) -> Outcome {
        let mut zone = request.body.clone();
        let (name, domain) = (text(&zone["name"]), text(&zone["dnsName"]));
        let path = request.path(name);
        if !is_name(name) || !domain.ends_with('.') || !zone["description"].is_string() {
            return Err(invalid(format!("Invalid value for 'entity.managedZone': '{name}' '{domain}'")));
        }
        if self.objects.contains_key(&path) {
            bail!(409, "alreadyExists", "The resource 'entity.managedZone' named '{name}' already exists");
        }
        let networks = items(&zone["privateVisibilityConfig"]["networks"]);
        if zone["visibility"] != "private" || networks.is_empty() {
            return Err(invalid("Only private zones are simulated, and those of a network."));
        }
        let mut links = Vec::new();
        for network in &networks {
            let path = path_of(text(&network["networkUrl"]), &request.target.project);
            let link = self.ready(&path)?["selfLink"].clone();
            let text = link.as_str().unwrap_or_default();
            if self.of_kind("managedZones").any(|(_, other)| other["dnsName"] == domain && uses(other, text))
            {
                return Err(invalid(format!("The network has a zone for {domain} already.")));
            }
            links.push(link);
        }
        self.made += 1;
        let fixed = |kind: &str, data: &str| json!({"kind": "dns#resourceRecordSet", "name": domain, "type": kind, "ttl": 21600, "rrdatas": [data]});
        let records = json!([
            fixed("NS", "ns-gcp-private.googledomains.com."),
            fixed(
                "SOA",
                "ns-gcp-private.googledomains.com. cloud-dns-hostmaster.google.com. 1 21600 3600 259200 300"
            )
        ]);
        zone["kind"] = "dns#managedZone".into();
        zone["id"] = self.made.to_string().into();
        zone["creationTime"] = "2026-10-01T00:00:00.000Z".into();
        zone["nameServers"] = json!(["ns-gcp-private.googledomains.com."]);
        zone["_records"] = records;
        zone["_networks"] = links.into();
        self.objects.insert(path, zone.clone());
        Ok(show(&zone))
    }
}

/// Carries a change out, all of it or nothing.
fn change(zone: &mut Value, wanted: &Value) -> Outcome {
    let domain = text(&zone["dnsName"]).to_owned();
    let mut records = items(&zone["_records"]);
    let list = |field: &str| items(&wanted[field]);
    for gone in list("deletions") {
        let is_it =
            |one: &Value| same(one, &gone) && one["rrdatas"] == gone["rrdatas"] && one["ttl"] == gone["ttl"];
        let place = records.iter().position(is_it).ok_or_else(|| missing("entity.change.deletions[0]"))?;
        records.remove(place);
    }
    for mut new in list("additions") {
        let name = text(&new["name"]);
        if !name.ends_with(&domain) || !new["rrdatas"].is_array() || !new["ttl"].is_u64() {
            return Err(invalid(format!("Invalid value for 'entity.change.additions[0]': '{name}'")));
        }
        if records.iter().any(|one| same(one, &new)) {
            bail!(409, "alreadyExists", "The resource 'entity.change.additions[0]' already exists");
        }
        new["kind"] = "dns#resourceRecordSet".into();
        records.push(new);
    }
    zone["_records"] = records.into();
    let mut answer = wanted.clone();
    answer["kind"] = "dns#change".into();
    answer["id"] = "1".into();
    answer["status"] = "done".into();
    answer["startTime"] = "2026-10-01T00:00:00.000Z".into();
    Ok(answer)
}
