//! What the site's router tells its peers: the networks of instances and clusters, made and adopted, and never those of endpoints.

use cloud_api::cluster_network;
use futures::try_join;
use ipnet::Ipv4Net;
use model::Segment;

use crate::{
    adopt, endpoints, gateway,
    ground::{Ground, Result},
    link::Link,
    networks,
    shapes::{Advertised, Bgp, Router, only},
};

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
fn advertisement(asn: Option<u32>, networks: &Networks) -> Bgp {
    let Networks { own, adopted, is_picky } = networks;
    let (mode, groups, spaces): (_, &[&str], Vec<&Ipv4Net>) = match (is_picky, adopted.is_empty()) {
        (true, _) => ("CUSTOM", &[], own.iter().chain(adopted).collect()),
        (false, false) => ("CUSTOM", &["ALL_SUBNETS"], adopted.iter().collect()),
        (false, true) => ("DEFAULT", &[], Vec::new()),
    };
    let advertised = |space: &&Ipv4Net| Advertised { range: space.to_string() };
    Bgp {
        asn,
        advertise_mode: Some(mode.to_owned()),
        advertised_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
        advertised_ip_ranges: Some(spaces.iter().map(advertised).collect()),
    }
}

/// Whether a router says what it should.
fn says(bgp: &Bgp, wanted: &Bgp) -> bool {
    fn sorted<T: Ord + Clone>(list: &Option<Vec<T>>) -> Vec<T> {
        let mut list = list.clone().unwrap_or_default();
        list.sort();
        list
    }
    let mode = |bgp: &Bgp| bgp.advertise_mode.clone().unwrap_or_else(|| "DEFAULT".to_owned());
    let same = || {
        sorted(&bgp.advertised_groups) == sorted(&wanted.advertised_groups)
            && sorted(&bgp.advertised_ip_ranges) == sorted(&wanted.advertised_ip_ranges)
    };
    mode(bgp) == mode(wanted) && (mode(bgp) == "DEFAULT" || same())
}

/// What the router should say, if there is one and it says something else. An adopted network that is leaving is not told
/// of any more.
pub(crate) async fn unsettled_router(
    ground: &Ground,
    has_endpoints: bool,
    leaving: Option<&Segment>,
) -> Result<Option<(Link<Router>, Bgp)>> {
    let Some(gateway) = gateway::find(ground).await? else { return Ok(None) };
    let link = ground.router(&gateway.region);
    let (router, own, adopted) =
        try_join!(ground.get(&link), networks::subnets(ground), adopt::adopted(ground))?;
    let Some(bgp) = router.and_then(|router| router.bgp) else { return Ok(None) };
    let is_picky = has_endpoints || own.iter().any(|(name, _)| cluster_network(name).is_some());
    let own = own.into_iter().map(|(_, space)| space).collect();
    let adopted = adopted.into_iter().filter(|one| Some(&one.name) != leaving);
    let networks = Networks { own, adopted: adopted.map(|one| one.space).collect(), is_picky };
    let wanted = advertisement(bgp.asn, &networks);
    Ok((!says(&bgp, &wanted)).then_some((link, wanted)))
}

/// The spaces that the router tells of in so many words; none if there is no router.
pub(crate) async fn told(ground: &Ground) -> Result<Option<Vec<Ipv4Net>>> {
    let Some(gateway) = gateway::find(ground).await? else { return Ok(None) };
    let router = ground.get(&ground.router(&gateway.region)).await?;
    Ok(router.map(|router| {
        let ranges = router.bgp.and_then(|bgp| bgp.advertised_ip_ranges).unwrap_or_default();
        ranges.iter().filter_map(|one| one.range.parse().ok()).collect()
    }))
}

pub(crate) async fn set_router(ground: &Ground, has_endpoints: bool, leaving: Option<&Segment>) -> Result {
    let _turn = ground.router_turn().await;
    match unsettled_router(ground, has_endpoints, leaving).await? {
        Some((router, bgp)) => Ok(ground.compute().patch(&router, &only("bgp", bgp)).await?),
        None => Ok(()),
    }
}

/// The router as it should be by what there is.
pub(crate) async fn settle_router(ground: &Ground, leaving: Option<&Segment>) -> Result {
    let has_endpoints = !endpoints::networks::subnets(ground).await?.is_empty();
    set_router(ground, has_endpoints, leaving).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(adopted: &[&str], is_picky: bool) -> Bgp {
        let spaces = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let networks = Networks { own: spaces(&["10.0.0.0/16"]), adopted: spaces(adopted), is_picky };
        advertisement(Some(64_512), &networks)
    }

    #[test]
    fn a_router_keeps_endpoints_to_itself() {
        let (open, kept) = (told(&[], false), told(&[], true));
        let silent = Bgp { asn: Some(64_512), ..Bgp::default() };
        assert!(says(&silent, &open) && !says(&silent, &kept));
        assert!(says(&kept, &kept) && !says(&kept, &open));
        let shown = r#"{"asn":64512,"advertiseMode":"CUSTOM","advertisedIpRanges":[{"range":"10.0.0.0/16","description":""}]}"#;
        assert!(says(&serde_json::from_str(shown).unwrap(), &kept), "as Google shows it");
        let wider = Bgp { advertised_groups: Some(vec!["ALL_SUBNETS".to_owned()]), ..kept.clone() };
        assert!(!says(&wider, &kept));
    }

    #[test]
    fn a_router_tells_of_adopted_ranges_beside_its_own() {
        let ranges = |bgp: &Bgp| -> Vec<String> {
            bgp.advertised_ip_ranges.iter().flatten().map(|one| one.range.clone()).collect()
        };
        let adopted = told(&["172.22.0.0/20"], false);
        assert_eq!(adopted.advertised_groups, Some(vec!["ALL_SUBNETS".to_owned()]));
        assert_eq!(ranges(&adopted), ["172.22.0.0/20"]);
        let both = told(&["172.22.0.0/20"], true);
        assert_eq!(both.advertised_groups, Some(Vec::new()));
        assert_eq!(ranges(&both), ["10.0.0.0/16", "172.22.0.0/20"]);
        assert!(!says(&adopted, &both) && !says(&adopted, &told(&[], false)));
    }
}
