//! Names of Google's APIs in a site's VPC, as long as there is a network for clusters in it: three private zones that lead to
//! addresses which are reached without the internet. Without them a node, which has no way to the internet, finds neither its images nor
//! Google's APIs.

use cloud_http::{Class, encode_component};
use http::Method;
use serde_json::{Value, json};

use crate::{
    cloud::{GcpCloud, Ground, Result},
    google::Api,
    names,
};

/// The domains, and the name in each that has addresses; all others are called that.
const DOMAINS: [(&str, &str); 3] =
    [("googleapis.com.", "restricted.googleapis.com."), ("gcr.io.", "gcr.io."), ("pkg.dev.", "pkg.dev.")];
/// Of `restricted.googleapis.com`; see the fence of clusters.
const ADDRESSES: [&str; 4] = ["199.36.153.4", "199.36.153.5", "199.36.153.6", "199.36.153.7"];
/// Seconds.
const TTL: u32 = 300;

pub(crate) struct Dns(Api);

impl Dns {
    pub(crate) fn new(api: Api) -> Self {
        Self(api)
    }

    async fn create(&self, operation: &str, path: &str, body: &Value) -> Result<()> {
        match self.0.send(operation, Method::POST, path, Some(body)).await {
            Err(failure) if failure.is(Class::Exists) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// Asks for something to go. What is not there is fine.
    async fn leave(&self, operation: &str, method: Method, path: &str, body: Option<&Value>) -> Result<()> {
        match self.0.send(operation, method, path, body).await {
            Err(failure) if failure.is(Class::NotFound) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// All pages of a list.
    async fn list(&self, operation: &str, path: &str, field: &str) -> Result<Vec<Value>> {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let url = match token.is_empty() {
                true => path.to_owned(),
                false => format!("{path}?pageToken={}", encode_component(&token)),
            };
            let page = self.0.send(operation, Method::GET, &url, None).await?;
            found.extend(page[field].as_array().cloned().unwrap_or_default());
            token = page["nextPageToken"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                return Ok(found);
            }
        }
    }
}

fn zone_name(ground: &Ground, domain: &str) -> String {
    ground.names.of("dns", domain)
}

fn records(domain: &str, named: &str) -> Vec<Value> {
    let record = |name: String, kind: &str, data: Value| json!({"name": name, "type": kind, "ttl": TTL, "rrdatas": data});
    vec![
        record(named.to_owned(), "A", json!(ADDRESSES)),
        record(format!("*.{domain}"), "CNAME", json!([named])),
    ]
}

/// What turns a zone's records into the wanted ones; none if they are there. Others in the zone stay.
fn change(there: &[Value], wanted: &[Value]) -> Option<Value> {
    let same =
        |one: &Value, other: &Value, fields: &[&str]| fields.iter().all(|name| one[*name] == other[*name]);
    let is_there = |new: &&Value| there.iter().any(|old| same(old, new, &["name", "type", "ttl", "rrdatas"]));
    let (_, new): (Vec<&Value>, Vec<&Value>) = wanted.iter().partition(is_there);
    let is_replaced = |old: &&Value| new.iter().any(|new| same(old, new, &["name", "type"]));
    let old: Vec<&Value> = there.iter().filter(is_replaced).collect();
    match (new.is_empty(), old.is_empty()) {
        (true, _) => None,
        (false, true) => Some(json!({ "additions": new })),
        (false, false) => Some(json!({ "additions": new, "deletions": old })),
    }
}

/// What Cloud DNS keeps in a zone by itself.
fn is_fixed(record: &Value) -> bool {
    matches!(record["type"].as_str(), Some("NS" | "SOA"))
}

impl GcpCloud {
    fn zones_path(ground: &Ground) -> String {
        format!("projects/{}/managedZones", ground.project)
    }

    /// Makes the zones, and what is in them; what is as it should be is only read.
    pub(crate) async fn make_zones(&self, ground: &Ground) -> Result<()> {
        let network = format!("https://www.googleapis.com/compute/v1/{}", ground.network());
        let there = self.zones(ground).await?;
        for (domain, named) in DOMAINS {
            let (zones, name) = (Self::zones_path(ground), zone_name(ground, domain));
            if !there.iter().any(|zone| zone["name"] == name) {
                let zone = json!({
                    "name": name,
                    "dnsName": domain,
                    "description": names::write(ground.names.mark()),
                    "visibility": "private",
                    "privateVisibilityConfig": {"networks": [{"networkUrl": network}]},
                });
                self.dns.create("dns.managedZones.create", &zones, &zone).await?;
            }
            let path = format!("{zones}/{name}");
            if let Some(change) = change(&self.records_in(&path).await?, &records(domain, named)) {
                self.dns.create("dns.changes.create", &format!("{path}/changes"), &change).await?;
            }
        }
        Ok(())
    }

    async fn records_in(&self, zone: &str) -> Result<Vec<Value>> {
        self.dns.list("dns.resourceRecordSets.list", &format!("{zone}/rrsets"), "rrsets").await
    }

    async fn zones(&self, ground: &Ground) -> Result<Vec<Value>> {
        let found = self.dns.list("dns.managedZones.list", &Self::zones_path(ground), "managedZones").await?;
        Ok(found.into_iter().filter(|zone| ground.names.owns(zone)).collect())
    }

    pub(crate) async fn has_zones(&self, ground: &Ground) -> Result<bool> {
        let found = self.zones(ground).await?;
        let is_there = |domain: &str| found.iter().any(|zone| zone["name"] == zone_name(ground, domain));
        Ok(DOMAINS.iter().all(|(domain, _)| is_there(domain)))
    }

    pub(crate) async fn remove_zones(&self, ground: &Ground) -> Result<()> {
        for zone in self.zones(ground).await? {
            let path = format!("{}/{}", Self::zones_path(ground), zone["name"].as_str().unwrap_or_default());
            let inside = self.records_in(&path).await?;
            let inside: Vec<&Value> = inside.iter().filter(|record| !is_fixed(record)).collect();
            if !inside.is_empty() {
                let change = json!({ "deletions": inside });
                self.dns
                    .leave("dns.changes.create", Method::POST, &format!("{path}/changes"), Some(&change))
                    .await?;
            }
            self.dns.leave("dns.managedZones.delete", Method::DELETE, &path, None).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ipnet::Ipv4Net;

    use super::*;

    #[test]
    fn names_lead_where_the_fence_is_open() {
        let open: Ipv4Net = crate::clusters::fence::GOOGLE.parse().unwrap();
        assert!(ADDRESSES.iter().all(|text| open.contains(&text.parse::<std::net::Ipv4Addr>().unwrap())));
        for (domain, named) in DOMAINS {
            assert!(named.ends_with(domain));
            let records = records(domain, named);
            assert_eq!(records[1]["rrdatas"], json!([records[0]["name"]]));
        }
    }

    #[test]
    fn only_records_that_differ_are_changed() {
        let wanted = records("gcr.io.", "gcr.io.");
        let fixed = json!({"name": "gcr.io.", "type": "NS", "ttl": 1, "rrdatas": ["n."]});
        let (mut all, mut part) = (wanted.clone(), vec![fixed.clone(), wanted[0].clone()]);
        all.push(fixed);
        assert_eq!(change(&all, &wanted), None);
        assert_eq!(change(&part, &wanted), Some(json!({"additions": [wanted[1]]})));
        part[1]["rrdatas"] = json!(["10.0.0.1"]);
        assert_eq!(change(&part, &wanted), Some(json!({"additions": wanted, "deletions": [part[1]]})));
    }
}
