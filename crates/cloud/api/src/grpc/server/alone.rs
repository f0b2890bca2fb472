//! What callers leave out who know Paraglider's protocol only, and leave to the plugin: the network of a new resource, a
//! gateway's AS number, the addresses inside tunnels, and which entry a rule is that has no id.
//!
//! What is chosen follows from names alone, so that it is the same after a restart.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use model::{CloudTraits, PermitEntry, Segment, Site};
use wire::{
    invisinetspb::{Namespace, PermitListRule},
    permit::traffic,
};

use super::{PluginService, parse, parse_all};
use crate::{At, CloudError, CloudErrorKind, Result};

impl PluginService {
    /// The region of a new resource, with a network there.
    pub(super) async fn home(&self, at: &At, name: &Segment, description: &str) -> Result<Segment> {
        let region = self.cloud.inspect_resource(at, name, description).await?;
        let listing = self.cloud.list(at).await?;
        if !listing.networks.iter().any(|(there, _)| *there == region) {
            let space = self.unused_space(at, &region).await?;
            self.cloud.ensure_network(at, &region, space).await?;
        }
        Ok(region)
    }

    async fn unused_space(&self, at: &At, region: &Segment) -> Result<Ipv4Net> {
        let Some(orchestrator) = &self.orchestrator else {
            let message = format!(
                "there is no network in {region} yet, and its address space is the orchestrator's to say; start the \
                 plugin with --orchestrator"
            );
            return Err(CloudError::new(CloudErrorKind::Conflict, message));
        };
        let namespace = Namespace { namespace: at.site.namespace.to_string() };
        let found = orchestrator.clone().find_unused_address_space(namespace).await?;
        parse("prefix", &found.get_ref().address)
    }

    /// The number of a gateway that is there, or of one that is to be.
    pub(super) async fn number(&self, at: &At) -> Result<u32> {
        if let Some(gateway) = self.cloud.list(at).await?.gateway {
            return Ok(gateway.asn);
        }
        Ok(asn_of(&at.site, &self.cloud.describe().await?))
    }

    /// This end's addresses inside the tunnels: those that were given, or else those that follow from the names.
    pub(super) async fn inside(&self, at: &At, peer: &Site, given: &[String]) -> Result<Vec<Ipv4Addr>> {
        if given.is_empty() {
            return Ok(bgp_of(&at.site, peer, &self.cloud.describe().await?));
        }
        parse_all("address", given)
    }
}

/// FNV-1a: the same for every version and on every machine.
fn hash(parts: &[&Site]) -> u32 {
    let bytes = parts.iter().flat_map(|site| site.to_string().into_bytes().into_iter().chain([0]));
    bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A private number that the cloud takes.
fn asn_of(site: &Site, traits: &CloudTraits) -> u32 {
    const FIRST: u32 = 64_512;
    const COUNT: u32 = 1_023;
    if let Some(fixed) = traits.asn {
        return fixed;
    }
    let is_free = |asn: &u32| !traits.asn_reserved.iter().any(|(first, last)| (*first..=*last).contains(asn));
    let start = hash(&[site]) % COUNT;
    (0..COUNT).map(|step| FIRST + (start + step) % COUNT).find(is_free).unwrap_or(FIRST)
}

/// Both ends of a link find the same /30s if their clouds use the same range; the first by name takes the first address.
fn bgp_of(own: &Site, peer: &Site, traits: &CloudTraits) -> Vec<Ipv4Addr> {
    let (first, last) = (u32::from(traits.bgp_first), u32::from(traits.bgp_last));
    let count = last.saturating_sub(first) / 4 + 1;
    let ends = if own < peer { [own, peer] } else { [peer, own] };
    let host = if own < peer || traits.bgp_first_host { 1 } else { 2 };
    let start = hash(&ends) % count;
    let blocks = (0..count).map(|step| first + (start + step) % count * 4);
    let is_free =
        |block: &u32| !traits.bgp_reserved.iter().any(|kept| kept.contains(&Ipv4Addr::from(*block)));
    let tunnels = usize::from(traits.tunnels.max(1));
    blocks.filter(is_free).take(tunnels).map(|block| Ipv4Addr::from(block + host)).collect()
}

/// The entries of a list that are meant by rules: a rule is its content, whatever name either has. One that is not there is
/// gone already; one whose id says something else now is not what the caller wants gone.
pub(super) fn meant(rules: &[PermitListRule], list: Vec<PermitEntry>) -> Result<Vec<PermitEntry>> {
    let mut gone = Vec::new();
    for rule in rules {
        let traffic =
            traffic(rule).map_err(|err| CloudError::invalid(format!("a rule is not acceptable: {err}")))?;
        let targets = parse_all("target", &rule.targets)?.into_iter().collect();
        let is_it = |entry: &&PermitEntry| {
            let same_peers = match rule.targets.is_empty() {
                true => entry.tags.iter().eq(&rule
                    .tags
                    .iter()
                    .cloned()
                    .collect::<std::collections::BTreeSet<_>>()),
                false => *entry.targets() == targets,
            };
            entry.traffic == traffic && same_peers
        };
        let found: Vec<_> = list.iter().filter(is_it).cloned().collect();
        let named = list.iter().find(|entry| !rule.id.is_empty() && entry.name.as_str() == rule.id);
        match (found.is_empty(), named) {
            (true, Some(entry)) => {
                let message = format!("rule {} says something else by now; read the list again", entry.name);
                return Err(CloudError::new(CloudErrorKind::Conflict, message));
            }
            _ => gone.extend(found),
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Site {
        text.parse().unwrap()
    }

    #[test]
    fn both_ends_of_a_link_find_addresses_that_face_each_other() {
        let (a, b, traits) = (site("ns.a"), site("ns.b"), CloudTraits::default());
        let (of_a, of_b) = (bgp_of(&a, &b, &traits), bgp_of(&b, &a, &traits));
        assert_eq!((of_a.len(), of_b.len()), (2, 2));
        for (one, other) in of_a.iter().zip(&of_b) {
            assert_eq!(
                u32::from(*one) ^ 3,
                u32::from(*other),
                "{one} and {other} are the two hosts of a /30"
            );
        }
        assert_ne!(of_a, bgp_of(&a, &site("ns.c"), &traits), "links have addresses of their own");
    }

    #[test]
    fn a_number_is_private_and_none_that_the_cloud_refuses() {
        let traits = CloudTraits { asn_reserved: vec![(64_512, 65_000)], ..CloudTraits::default() };
        for name in ["ns.a", "ns.b", "other.a"] {
            let asn = asn_of(&site(name), &traits);
            assert!((65_001..=65_534).contains(&asn), "{asn}");
        }
        assert_eq!(asn_of(&site("ns.a"), &CloudTraits { asn: Some(65_515), ..traits }), 65_515);
    }
}
