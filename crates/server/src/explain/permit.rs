//! The last word on a resource of a cloud: its permit list.

use std::net::IpAddr;

use drivers::span::span_key;
use model::{
    Address, Direction, Packet, PermitEntry, ResourceName,
    policy::output::{MemberKind, Protocol},
};
use orchestrator::execute::{Orchestrator, ResourceView};
use policy::explain::{Endpoint, Explanation, Query, Side, Stage};
use wire::trestle::v1::{ExplainResponse, ExplainedSide, ExplainedStep};

/// Replaces the engine's default, which is open, by what the permit lists in force say. Ends that are clusters come with
/// their blocks, all of which must be permitted.
pub fn decide(
    orchestrator: &Orchestrator,
    query: &Query,
    blocks: [Option<Address>; 2],
    explanation: &Explanation,
    response: &mut ExplainResponse,
) {
    let (source, destination) = (&explanation.source, &explanation.destination);
    let ends = [&query.source, &query.destination].map(|end| resource(orchestrator, end));
    let names = [(&ends[0], source.address), (&ends[1], destination.address)].map(|(end, address)| {
        let name = end.as_ref().map(|resource| resource.name.to_string());
        name.or_else(|| address.map(|address| address.to_string())).unwrap_or_default()
    });
    for (told, end) in [&mut response.source, &mut response.destination].into_iter().zip(&ends) {
        let (Some(told), Some(resource)) = (told.as_mut(), end) else { continue };
        let address = resource.ip.as_deref().and_then(|ip| ip.parse::<Address>().ok());
        // The engine knows no clusters. It may not know a new machine yet either, which is none.
        if address.is_some_and(|address| address.single().is_none()) {
            told.workloads = vec![format!("cluster {}", resource.name)];
            told.enforced_on = vec![span_key(&resource.name.cloud)];
        }
    }
    let sides = [
        (Direction::Outbound, &ends[0], destination.address, &explanation.egress, &mut response.egress),
        (Direction::Inbound, &ends[1], source.address, &explanation.ingress, &mut response.ingress),
    ];
    let (mut notes, mut remedies) = (Vec::new(), Vec::new());
    for (place, (direction, end, peer, side, said)) in sides.into_iter().enumerate() {
        let (Some(resource), Some(peer), Some(said)) = (end, peer, said.as_mut()) else { continue };
        let peer = blocks[1 - place].unwrap_or(peer.into());
        let found = permitting(resource, direction, peer, &packet(query));
        if side.steps.last().is_some_and(|step| step.stage == Stage::Default) {
            put(said, resource, found.clone());
            if found.is_none() {
                let flags = flags(direction, query, &names[1 - place]);
                remedies.push(format!("trestle rule add {} {flags}", resource.name));
            }
        } else if is_behind(side, found.is_some()) {
            notes.push(format!("{} does not have this yet: see `trestle resource get {0}`", resource.name));
        }
    }
    response.notes.extend(notes);
    response.remedies.extend(remedies);
    response.allowed = [&response.egress, &response.ingress].iter().all(|side| {
        // Both are always there.
        side.as_ref().is_some_and(|side| side.allowed)
    });
}

/// The block of the cluster that is asked about, and an address of it: to policies a cluster is no workload.
pub fn of_cluster(orchestrator: &Orchestrator, end: &Endpoint) -> Option<(Address, IpAddr)> {
    let name = named(end)?;
    let (.., block) = orchestrator.placed().into_iter().find(|(placed, ..)| *placed == name)?;
    match block.single() {
        Some(_) => None,
        None => Some((block, block.net().hosts().next()?)),
    }
}

fn named(end: &Endpoint) -> Option<ResourceName> {
    match end {
        Endpoint::Workload { kind: MemberKind::ExternalEntity, namespace, name } => {
            format!("{namespace}.{name}").parse().ok()
        }
        _ => None,
    }
}

fn resource(orchestrator: &Orchestrator, end: &Endpoint) -> Option<ResourceView> {
    let name: ResourceName = match end {
        Endpoint::Workload { .. } => named(end)?,
        Endpoint::Address(address) => {
            let placed = orchestrator.placed();
            placed.into_iter().find(|(_, _, at)| at.net().contains(address)).map(|(name, ..)| name)?
        }
    };
    orchestrator.resource(&name).ok()
}

/// The entry that permits it, as people read it.
fn permitting(
    resource: &ResourceView,
    direction: Direction,
    peer: Address,
    packet: &Packet,
) -> Option<String> {
    let covers = |entry: &&PermitEntry| {
        entry.traffic.covers(direction, packet)
            && entry.targets().iter().any(|target| target.net().contains(&peer.net()))
    };
    let entry = resource.permit_list.iter().find(covers)?;
    let tags: Vec<&str> = entry.tags.iter().map(String::as_str).collect();
    Some(format!("rule {} of {} ({}): {}", entry.name, resource.name, entry.traffic, tags.join(", ")))
}

fn put(said: &mut ExplainedSide, resource: &ResourceView, found: Option<String>) {
    said.allowed = found.is_some();
    let step = |stage: &str, outcome: &str, details| ExplainedStep {
        stage: stage.to_owned(),
        outcome: outcome.to_owned(),
        details,
    };
    said.steps.pop();
    match found {
        Some(entry) => said.steps.push(step("permit list", "allow", vec![entry])),
        None => {
            let none = format!(
                "none of the {} entries of {} permits it, and what is not permitted is denied",
                resource.permit_list.len(),
                resource.name
            );
            said.steps.push(step("permit list", "no match", vec![none]));
            said.steps.push(step("default", "drop", Vec::new()));
        }
    }
}

/// Whether the list in force differs from what policies say.
fn is_behind(side: &Side, is_permitted: bool) -> bool {
    let is_loopback = side.steps.first().is_some_and(|step| step.stage == Stage::Loopback);
    !is_loopback && side.allowed != is_permitted
}

fn packet(query: &Query) -> Packet {
    let protocol = match query.protocol {
        Protocol::Icmp => 1,
        Protocol::Igmp => 2,
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    };
    // Ports that the question leaves open are those of a usual client.
    Packet {
        protocol,
        src_port: query.source_port.unwrap_or(if protocol <= 2 { 0 } else { 49_152 }),
        dst_port: query.port.unwrap_or(0),
    }
}

fn flags(direction: Direction, query: &Query, peer: &str) -> String {
    let direction = match direction {
        Direction::Inbound => "in",
        Direction::Outbound => "out",
    };
    let protocol = query.protocol.to_string().to_lowercase();
    let port = query.port.map(|port| format!(" --port {port}")).unwrap_or_default();
    format!("--{direction} --protocol {protocol}{port} --peer {peer}")
}
