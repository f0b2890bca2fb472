//! Names of Google's APIs in a site's VPC, as long as there is a network for clusters in it: three private zones that lead to
//! addresses which are reached without the internet. Without them a node, which has no way to the internet, finds neither its images nor
//! Google's APIs.

use cloud_http::Class;
use http::Method;
use serde::de::DeserializeOwned;

use crate::{
    compute::unless,
    google::{Api, json},
    ground::{Ground, Result},
    shapes::{RecordChange, RecordSet, Visibility, VisibleIn, Zone},
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

    /// Asks for something. What is there already is fine.
    async fn create(&self, operation: &str, path: &str, body: String) -> Result {
        let asked = self.0.tell(operation, Method::POST, path, Some(body));
        Ok(unless(Class::Exists, asked.await)?)
    }

    /// Asks for something to go. What is not there is fine.
    async fn leave(&self, operation: &str, method: Method, path: &str, body: Option<String>) -> Result {
        Ok(unless(Class::NotFound, self.0.tell(operation, method, path, body).await)?)
    }

    async fn list<T: DeserializeOwned>(&self, operation: &str, path: &str) -> Result<Vec<T>> {
        Ok(self.0.pages::<Vec<T>>(operation, path).await?.into_iter().flatten().collect())
    }

    async fn records_in(&self, zone: &str) -> Result<Vec<RecordSet>> {
        self.list("dns.resourceRecordSets.list", &format!("{zone}/rrsets")).await
    }
}

fn zone_name(ground: &Ground, domain: &str) -> String {
    ground.names.of("dns", domain)
}

fn zones_path(ground: &Ground) -> String {
    format!("projects/{}/managedZones", ground.project)
}

fn records(domain: &str, named: &str) -> Vec<RecordSet> {
    let record = |name: String, kind: &str, data: &[&str]| RecordSet {
        name,
        kind: kind.to_owned(),
        ttl: TTL,
        rrdatas: data.iter().map(|one| (*one).to_owned()).collect(),
        rest: Default::default(),
    };
    vec![record(named.to_owned(), "A", &ADDRESSES), record(format!("*.{domain}"), "CNAME", &[named])]
}

/// What turns a zone's records into the wanted ones; none if they are there. Others in the zone stay.
fn change(there: &[RecordSet], wanted: &[RecordSet]) -> Option<RecordChange> {
    let is_of = |a: &RecordSet, b: &RecordSet| a.name == b.name && a.kind == b.kind;
    let is_same = |a: &RecordSet, b: &RecordSet| is_of(a, b) && a.ttl == b.ttl && a.rrdatas == b.rrdatas;
    let is_new = |new: &&RecordSet| !there.iter().any(|old| is_same(old, new));
    let additions: Vec<RecordSet> = wanted.iter().filter(is_new).cloned().collect();
    let is_replaced = |old: &&RecordSet| additions.iter().any(|new| is_of(old, new));
    let deletions = there.iter().filter(is_replaced).cloned().collect();
    (!additions.is_empty()).then_some(RecordChange { additions, deletions })
}

/// Makes the zones, and what is in them; what is as it should be is only read.
pub(crate) async fn make_zones(ground: &Ground) -> Result {
    let (dns, zones) = (&ground.apis.dns, zones_path(ground));
    let network_url = format!("https://www.googleapis.com/compute/v1/{}", ground.network());
    let there = zones_of(ground).await?;
    for (domain, named) in DOMAINS {
        let zone = Zone {
            name: zone_name(ground, domain),
            dns_name: domain,
            description: ground.names.mark().into(),
            visibility: "private",
            private_visibility_config: Visibility {
                networks: vec![VisibleIn { network_url: network_url.clone() }],
            },
        };
        if !there.iter().any(|one| one.name == zone.name) {
            dns.create("dns.managedZones.create", &zones, json(&zone)).await?;
        }
        let path = format!("{zones}/{}", zone.name);
        if let Some(change) = change(&dns.records_in(&path).await?, &records(domain, named)) {
            dns.create("dns.changes.create", &format!("{path}/changes"), json(&change)).await?;
        }
    }
    Ok(())
}

async fn zones_of(ground: &Ground) -> Result<Vec<Zone>> {
    let mut found: Vec<Zone> = ground.apis.dns.list("dns.managedZones.list", &zones_path(ground)).await?;
    found.retain(|zone| ground.owns(&zone.description));
    Ok(found)
}

pub(crate) async fn has_zones(ground: &Ground) -> Result<bool> {
    let found = zones_of(ground).await?;
    let is_there = |domain: &str| found.iter().any(|zone| zone.name == zone_name(ground, domain));
    Ok(DOMAINS.iter().all(|(domain, _)| is_there(domain)))
}

pub(crate) async fn remove_zones(ground: &Ground) -> Result {
    let dns = &ground.apis.dns;
    for zone in zones_of(ground).await? {
        let path = format!("{}/{}", zones_path(ground), zone.name);
        let mut deletions = dns.records_in(&path).await?;
        // These Cloud DNS keeps in a zone by itself.
        deletions.retain(|record| !matches!(record.kind.as_str(), "NS" | "SOA"));
        if !deletions.is_empty() {
            let body = json(&RecordChange { deletions, ..RecordChange::default() });
            dns.leave("dns.changes.create", Method::POST, &format!("{path}/changes"), Some(body)).await?;
        }
        dns.leave("dns.managedZones.delete", Method::DELETE, &path, None).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ipnet::Ipv4Net;

    use serde_json::Map;

    use super::*;

    #[test]
    fn names_lead_where_the_fence_is_open() {
        let open: Ipv4Net = crate::clusters::fence::GOOGLE.parse().unwrap();
        assert!(ADDRESSES.iter().all(|text| open.contains(&text.parse::<std::net::Ipv4Addr>().unwrap())));
        for (domain, named) in DOMAINS {
            assert!(named.ends_with(domain));
            let records = records(domain, named);
            assert_eq!(records[1].rrdatas, [records[0].name.clone()]);
        }
    }

    #[test]
    fn only_records_that_differ_are_changed() {
        let wanted = records("gcr.io.", "gcr.io.");
        let fixed = RecordSet {
            name: "gcr.io.".to_owned(),
            kind: "NS".to_owned(),
            ttl: 1,
            rrdatas: vec!["n.".to_owned()],
            rest: Map::new(),
        };
        let (mut all, mut part) = (wanted.clone(), vec![fixed.clone(), wanted[0].clone()]);
        all.push(fixed);
        assert_eq!(change(&all, &wanted), None);
        let missing = RecordChange { additions: vec![wanted[1].clone()], deletions: Vec::new() };
        assert_eq!(change(&part, &wanted), Some(missing));
        part[1].rrdatas = vec!["10.0.0.1".to_owned()];
        let other = RecordChange { additions: wanted.clone(), deletions: vec![part[1].clone()] };
        assert_eq!(change(&part, &wanted), Some(other));
    }
}
