//! What the site's router tells its peers: the networks of instances and clusters, made and adopted, and never those of endpoints.

use cloud_api::cluster_network;
use futures::try_join;
use ipnet::Ipv4Net;
use model::Segment;
use serde_json::{Value, json};

use crate::cloud::{GcpCloud, Ground, Result};

/// Networks that a router may tell of.
#[derive(Debug, Default)]
struct Networks {
    /// In the site's own VPC, of instances and clusters.
    own: Vec<Ipv4Net>,
    adopted: Vec<Ipv4Net>,
    /// The subnets of the VPC are not what is to be told: some are of endpoints, or are parts of a cluster's space.
    is_picky: bool,
}

/// The router's part on BGP. All that is in its VPC goes without saying, unless it is to be picked.
fn advertisement(asn: &Value, networks: &Networks) -> Value {
    let Networks { own, adopted, is_picky } = networks;
    let (mode, groups, spaces): (_, &[&str], Vec<&Ipv4Net>) = match (is_picky, adopted.is_empty()) {
        (true, _) => ("CUSTOM", &[], own.iter().chain(adopted).collect()),
        (false, false) => ("CUSTOM", &["ALL_SUBNETS"], adopted.iter().collect()),
        (false, true) => ("DEFAULT", &[], Vec::new()),
    };
    let ranges: Vec<Value> = spaces.iter().map(|space| json!({"range": space.to_string()})).collect();
    json!({"asn": asn, "advertiseMode": mode, "advertisedGroups": groups, "advertisedIpRanges": ranges})
}

/// Whether a router says what it should.
fn says(bgp: &Value, wanted: &Value) -> bool {
    let mode = |bgp: &Value| bgp["advertiseMode"].as_str().unwrap_or("DEFAULT").to_owned();
    let list = |bgp: &Value, field: &str| {
        let all = bgp[field].as_array().into_iter().flatten();
        let mut texts: Vec<String> = all.map(|one| one.get("range").unwrap_or(one).to_string()).collect();
        texts.sort();
        texts
    };
    let same = |field: &&str| list(bgp, field) == list(wanted, field);
    mode(bgp) == mode(wanted)
        && (mode(bgp) == "DEFAULT" || ["advertisedGroups", "advertisedIpRanges"].iter().all(same))
}

impl GcpCloud {
    /// What the router should say, if there is one and it says something else: its region and that. An adopted network
    /// that is leaving is not told of any more.
    pub(crate) async fn unsettled_router(
        &self,
        ground: &Ground,
        has_endpoints: bool,
        leaving: Option<&Segment>,
    ) -> Result<Option<(String, Value)>> {
        let Some(gateway) = self.gateway(ground).await? else { return Ok(None) };
        let (place, name) = (ground.region(&gateway.region), ground.names.router());
        let router = async { Ok(self.compute.get(&place, "routers", &name).await?) };
        let (router, own, adopted) = try_join!(router, self.subnets(ground), self.adopted(ground))?;
        let Some(router) = router else { return Ok(None) };
        let is_picky = has_endpoints || own.iter().any(|(name, _)| cluster_network(name).is_some());
        let own = own.into_iter().map(|(_, space)| space).collect();
        let adopted = adopted.into_iter().filter(|one| Some(&one.name) != leaving);
        let networks = Networks { own, adopted: adopted.map(|one| one.space).collect(), is_picky };
        let wanted = advertisement(&router["bgp"]["asn"], &networks);
        Ok((!says(&router["bgp"], &wanted)).then_some((gateway.region, wanted)))
    }

    /// The spaces that the router tells of in so many words; none if there is no router.
    pub(crate) async fn told(&self, ground: &Ground) -> Result<Option<Vec<Ipv4Net>>> {
        let Some(gateway) = self.gateway(ground).await? else { return Ok(None) };
        let place = ground.region(&gateway.region);
        let router = self.compute.get(&place, "routers", &ground.names.router()).await?;
        Ok(router.map(|router| {
            let ranges = router["bgp"]["advertisedIpRanges"].as_array().into_iter().flatten();
            ranges.filter_map(|one| one["range"].as_str()?.parse().ok()).collect()
        }))
    }

    pub(crate) async fn set_router(
        &self,
        ground: &Ground,
        has_endpoints: bool,
        leaving: Option<&Segment>,
    ) -> Result<()> {
        // The router has no version, so whoever changes it holds the turn.
        let _turn = self.turns.take(&format!("router {}", ground.site)).await;
        let unsettled = self.unsettled_router(ground, has_endpoints, leaving).await?;
        let Some((region, bgp)) = unsettled else { return Ok(()) };
        let body = json!({ "bgp": bgp });
        Ok(self.compute.patch(&ground.region(&region), "routers", &ground.names.router(), &body).await?)
    }

    /// The router as it should be by what there is.
    pub(crate) async fn settle_router(&self, ground: &Ground, leaving: Option<&Segment>) -> Result<()> {
        let has_endpoints = !self.endpoint_subnets(ground).await?.is_empty();
        self.set_router(ground, has_endpoints, leaving).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(adopted: &[&str], is_picky: bool) -> Value {
        let spaces = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let networks = Networks { own: spaces(&["10.0.0.0/16"]), adopted: spaces(adopted), is_picky };
        advertisement(&json!(64_512), &networks)
    }

    #[test]
    fn a_router_keeps_endpoints_to_itself() {
        let (open, kept) = (told(&[], false), told(&[], true));
        assert!(says(&json!({"asn": 64_512}), &open) && !says(&json!({"asn": 64_512}), &kept));
        assert!(says(&kept, &kept) && !says(&kept, &open));
        // As Google shows it.
        assert!(says(
            &json!({"advertiseMode": "CUSTOM", "advertisedIpRanges": [{"range": "10.0.0.0/16", "description": ""}]}),
            &kept
        ));
        let mut wider = kept.clone();
        wider["advertisedGroups"] = json!(["ALL_SUBNETS"]);
        assert!(!says(&wider, &kept));
    }

    #[test]
    fn a_router_tells_of_adopted_ranges_beside_its_own() {
        let adopted = told(&["172.22.0.0/20"], false);
        assert_eq!(adopted["advertisedGroups"], json!(["ALL_SUBNETS"]));
        assert_eq!(adopted["advertisedIpRanges"], json!([{"range": "172.22.0.0/20"}]));
        let both = told(&["172.22.0.0/20"], true);
        assert_eq!(both["advertisedGroups"], json!([]));
        assert_eq!(both["advertisedIpRanges"], json!([{"range": "10.0.0.0/16"}, {"range": "172.22.0.0/20"}]));
        assert!(!says(&adopted, &both) && !says(&adopted, &told(&[], false)));
    }
}
