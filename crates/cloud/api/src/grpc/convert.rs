//! Messages and model types, for both sides.

use std::{collections::BTreeSet, fmt::Display, str::FromStr};

use model::{
    CloudTraits, ConnectionStatus, Cost, Effort, ExistingNetwork, GatewayState, PermitEntry, ResourceState,
    Segment, Site,
};
use wire::{
    invisinetspb::{InvisinetsDeployment, PermitListRule},
    permit::permit_entry,
    trestle::v1,
};

use crate::{At, Attachment, CloudError, Listing, Result};

/// The region of resources whose plugin cannot say.
pub(super) const ONLY_REGION: &str = "default";

/// For everything that only the extension has.
pub(super) fn cannot(what: &str) -> CloudError {
    CloudError::unsupported(format!(
        "its plugin has Paraglider's methods only, and they cannot {what}; it needs trestle.v1.CloudExtension"
    ))
}

/// What a plugin of Paraglider's leaves undone; the rest is what whoever connects knows of such a cloud.
pub(super) fn traits_of_original(bounds: CloudTraits) -> CloudTraits {
    CloudTraits {
        places_resources: true,
        lists_everything: false,
        deletes: false,
        names_entries: false,
        ..bounds
    }
}

/// The id of a resource that is to be made: where it is to be, and its name.
pub(super) fn id_of_resource(deployment: &str, name: &str) -> String {
    match deployment {
        "" => name.to_owned(),
        deployment => format!("{}/{name}", deployment.trim_end_matches('/')),
    }
}

/// The deployment and the name in a resource's id, as callers of the first revisions send it.
pub(super) fn parts_of_id(id: &str) -> (String, &str) {
    let (parent, name) = id.rsplit_once('/').unwrap_or(("", id));
    let deployment = match parent.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", project, ..] => format!("projects/{project}"),
        _ => parent.split("/providers/").next().unwrap_or_default().to_owned(),
    };
    (deployment, name)
}

pub(super) fn parse<T: FromStr<Err: Display>>(what: &str, text: &str) -> Result<T> {
    text.parse().map_err(|err| CloudError::invalid(format!("{what} {text:?} is not acceptable: {err}")))
}

pub(super) fn parse_all<T: FromStr<Err: Display>>(what: &str, texts: &[String]) -> Result<Vec<T>> {
    texts.iter().map(|text| parse(what, text)).collect()
}

pub(super) fn texts<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

pub(super) fn site_message(at: &At) -> v1::CloudSite {
    v1::CloudSite {
        namespace: at.site.namespace.to_string(),
        cloud: at.site.cloud.to_string(),
        deployment: at.deployment.clone(),
    }
}

pub(super) fn at(message: Option<v1::CloudSite>) -> Result<At> {
    let message = message.ok_or_else(|| CloudError::invalid("the site is missing"))?;
    let site =
        Site { namespace: parse("namespace", &message.namespace)?, cloud: parse("cloud", &message.cloud)? };
    Ok(At { site, deployment: message.deployment })
}

pub(super) fn deployment(at: &At, asn: u32) -> InvisinetsDeployment {
    InvisinetsDeployment {
        id: at.deployment.clone(),
        namespace: at.site.namespace.to_string(),
        cloud: at.site.cloud.to_string(),
        asn,
    }
}

/// Where a call in Paraglider's protocol acts. A caller that does not know the extension names no cloud.
pub(super) fn deployed(message: Option<InvisinetsDeployment>, namespace: &str, own: &Segment) -> Result<At> {
    let message = message.unwrap_or_default();
    let namespace = if message.namespace.is_empty() { namespace } else { &message.namespace };
    let cloud = if message.cloud.is_empty() { own.clone() } else { parse("cloud", &message.cloud)? };
    Ok(At { site: Site { namespace: parse("namespace", namespace)?, cloud }, deployment: message.id })
}

pub(super) fn entries(rules: &[PermitListRule]) -> Result<Vec<PermitEntry>> {
    let read = |rule| {
        permit_entry(rule).map_err(|err| CloudError::invalid(format!("a rule is not acceptable: {err}")))
    };
    rules.iter().map(read).collect()
}

/// Those of a list that another does not have.
pub(super) fn rules_without(list: &[PermitEntry], other: &[PermitEntry]) -> Vec<PermitListRule> {
    let other: BTreeSet<&PermitEntry> = other.iter().collect();
    list.iter().filter(|entry| !other.contains(entry)).map(PermitListRule::from).collect()
}

pub(super) fn traits_message(traits: &CloudTraits) -> v1::CloudTraits {
    v1::CloudTraits {
        bgp_first: traits.bgp_first.to_string(),
        bgp_last: traits.bgp_last.to_string(),
        bgp_reserved: texts(&traits.bgp_reserved),
        asn: traits.asn.unwrap_or_default(),
        tunnels: traits.tunnels.into(),
        bgp: traits.bgp,
        addresses: traits.addresses.into(),
        late_addresses: traits.late_addresses,
        bgp_first_host: traits.bgp_first_host,
        asn_reserved: traits
            .asn_reserved
            .iter()
            .map(|(first, last)| v1::AsnRange { first: *first, last: *last })
            .collect(),
        gateway: traits.gateway.map(effort_message),
        connection: traits.connection.map(effort_message),
    }
}

fn effort_message(effort: Effort) -> v1::CloudEffort {
    v1::CloudEffort { seconds: effort.seconds, hourly: effort.cost == Cost::Hourly }
}

fn effort(message: &v1::CloudEffort) -> Effort {
    let cost = if message.hourly { Cost::Hourly } else { Cost::Free };
    Effort { seconds: message.seconds, cost }
}

pub(super) fn traits(message: &v1::CloudTraits) -> Result<CloudTraits> {
    Ok(CloudTraits {
        bgp_first: parse("address", &message.bgp_first)?,
        bgp_last: parse("address", &message.bgp_last)?,
        bgp_reserved: parse_all("prefix", &message.bgp_reserved)?,
        asn: (message.asn != 0).then_some(message.asn),
        tunnels: u8::try_from(message.tunnels).map_err(|_| CloudError::invalid("too many tunnels"))?,
        bgp: message.bgp,
        addresses: match message.addresses {
            0 => CloudTraits::default().addresses,
            some => u8::try_from(some).map_err(|_| CloudError::invalid("too many addresses"))?,
        },
        late_addresses: message.late_addresses,
        bgp_first_host: message.bgp_first_host,
        asn_reserved: message.asn_reserved.iter().map(|range| (range.first, range.last)).collect(),
        gateway: message.gateway.as_ref().map(effort),
        connection: message.connection.as_ref().map(effort),
        // Who describes himself keeps the whole contract.
        ..CloudTraits::default()
    })
}

pub(super) fn resource_message(name: &Segment, state: &ResourceState) -> v1::CloudResource {
    v1::CloudResource {
        name: name.to_string(),
        uri: state.uri.clone(),
        ip: state.address.to_string(),
        region: state.region.to_string(),
    }
}

pub(super) fn resource(message: v1::CloudResource) -> Result<(Segment, ResourceState)> {
    let state = ResourceState {
        address: parse("address", &message.ip)?,
        region: parse("region", &message.region)?,
        uri: message.uri,
    };
    Ok((parse("name", &message.name)?, state))
}

pub(super) fn attachment_message(found: Attachment) -> v1::InspectAttachmentResponse {
    let (space, beside) = found.network.map(|network| (network.space, network.beside)).unzip();
    v1::InspectAttachmentResponse {
        changes: found.changes,
        region: found.region.to_string(),
        address_space: space.map(|space| space.to_string()).unwrap_or_default(),
        other_spaces: texts(&beside.unwrap_or_default()),
        ip: found.address.map(|address| address.to_string()).unwrap_or_default(),
    }
}

pub(super) fn attachment(message: v1::InspectAttachmentResponse) -> Result<Attachment> {
    let is_given = |text: &String| !text.is_empty();
    let space = Some(&message.address_space).filter(|text| is_given(text));
    let network = space.map(|space| {
        let beside = parse_all("prefix", &message.other_spaces)?;
        Ok::<_, CloudError>(ExistingNetwork { space: parse("prefix", space)?, beside })
    });
    Ok(Attachment {
        region: parse("region", if message.region.is_empty() { "attached" } else { &message.region })?,
        network: network.transpose()?,
        address: Some(&message.ip)
            .filter(|text| is_given(text))
            .map(|ip| parse("address", ip))
            .transpose()?,
        changes: message.changes,
    })
}

pub(super) fn listing_message(at: &At, listing: &Listing) -> v1::SiteListing {
    let network = |(region, space): &(Segment, ipnet::Ipv4Net)| v1::CloudNetwork {
        site: Some(site_message(at)),
        region: region.to_string(),
        address_space: space.to_string(),
    };
    v1::SiteListing {
        networks: listing.networks.iter().map(network).collect(),
        resources: listing.resources.iter().map(|(name, state)| resource_message(name, state)).collect(),
        peerings: texts(&listing.peerings),
        nats: texts(&listing.nats),
        gateway_asn: listing.gateway.as_ref().map_or(0, |gateway| gateway.asn),
        gateway_addresses: listing
            .gateway
            .as_ref()
            .map_or_else(Vec::new, |gateway| texts(&gateway.addresses)),
        connections: texts(&listing.connections),
    }
}

pub(super) fn listing(message: v1::SiteListing) -> Result<Listing> {
    let network = |network: &v1::CloudNetwork| {
        Ok((parse("region", &network.region)?, parse("prefix", &network.address_space)?))
    };
    let gateway = match message.gateway_asn {
        0 => None,
        asn => Some(GatewayState { asn, addresses: parse_all("address", &message.gateway_addresses)? }),
    };
    Ok(Listing {
        networks: message.networks.iter().map(network).collect::<Result<_>>()?,
        resources: message.resources.into_iter().map(resource).collect::<Result<_, _>>()?,
        peerings: parse_all("peering", &message.peerings)?,
        nats: parse_all("region", &message.nats)?,
        gateway,
        connections: parse_all("site", &message.connections)?,
    })
}

pub(super) fn status_message(status: &ConnectionStatus) -> v1::CloudConnectionStatus {
    v1::CloudConnectionStatus {
        tunnels: status.tunnels,
        tunnels_up: status.tunnels_up,
        bgp_established: status.bgp_established,
        routes: texts(&status.routes),
        bytes_in: status.bytes_in,
        bytes_out: status.bytes_out,
    }
}

pub(super) fn status(message: &v1::CloudConnectionStatus) -> Result<ConnectionStatus> {
    Ok(ConnectionStatus {
        tunnels: message.tunnels,
        tunnels_up: message.tunnels_up,
        bgp_established: message.bgp_established,
        routes: parse_all("prefix", &message.routes)?,
        bytes_in: message.bytes_in,
        bytes_out: message.bytes_out,
    })
}
