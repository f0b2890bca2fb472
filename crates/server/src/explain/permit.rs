//! The last word on a resource of a cloud: its permit list.

use std::{net::IpAddr, sync::Arc};

use drivers::span::span_key;
use model::{
    Address, Direction, Open, PermitEntry, ProtocolClass, ResourceName, permit_list,
    policy::output::MemberKind,
};
use orchestrator::execute::{Orchestrator, ResourceView};
use policy::{
    explain::{Endpoint, Explanation, Side, Stage},
    survey::{Listed, Party},
};
use wire::trestle::v1::{ExplainResponse, ExplainedSide, ExplainedStep};

use super::question::Question;

/// The two ends of a question, source first.
pub struct Ends {
    parties: [Party; 2],
    /// Those that are resources.
    resources: [Option<ResourceView>; 2],
}

impl Ends {
    pub fn find(orchestrator: &Orchestrator, asked: [Endpoint; 2]) -> Self {
        let resources = asked.each_ref().map(|end| resource(orchestrator, end));
        Self::new(asked, resources)
    }

    pub(super) fn new(asked: [Endpoint; 2], resources: [Option<ResourceView>; 2]) -> Self {
        let [a, b] = asked;
        let [a_resource, b_resource] = resources;
        let found = [(a, a_resource), (b, b_resource)].map(|(end, resource)| {
            let all = resource.as_ref().and_then(|one| one.ip.as_deref()?.parse::<Address>().ok());
            // To policies a cluster is no workload: they are asked about an address of it, lists about all of it. Of one
            // that is asked about by an address, that is meant.
            let cluster = all.filter(|all| all.single().is_none() && !matches!(end, Endpoint::Address(_)));
            let endpoint = match cluster.and_then(|all| all.net().hosts().next()) {
                Some(first) => Endpoint::Address(first),
                None => end,
            };
            let block = match (&endpoint, cluster) {
                (_, Some(all)) => Some(all),
                (Endpoint::Address(address), None) => Some(Address::from(*address)),
                (Endpoint::Workload { .. }, None) => all,
            };
            let listed = resource
                .as_ref()
                .zip(block)
                .map(|(resource, block)| Listed { block, list: Arc::new(resource.permit_list.clone()) });
            (Party { endpoint, resource: listed }, resource)
        });
        let [(a, a_resource), (b, b_resource)] = found;
        Self { parties: [a, b], resources: [a_resource, b_resource] }
    }

    pub fn parties(&self) -> &[Party; 2] {
        &self.parties
    }

    pub fn endpoints(&self) -> [&Endpoint; 2] {
        self.parties.each_ref().map(|party| &party.endpoint)
    }

    /// All of a cluster that was asked about by its name.
    fn block(&self, at: usize) -> Option<Address> {
        let block = self.parties[at].resource.as_ref()?.block;
        block.single().is_none().then_some(block)
    }

    /// Adds what the permit lists in force say: a resource lets through what policies and its list both do.
    pub fn decide(
        &self,
        explanation: &Explanation,
        question: &Question,
        permits: impl Fn(&Open) -> bool,
        response: &mut ExplainResponse,
    ) {
        let addresses = [explanation.source.address, explanation.destination.address];
        self.name_clusters(response);
        let sides = [
            (Direction::Outbound, &explanation.egress, &mut response.egress),
            (Direction::Inbound, &explanation.ingress, &mut response.ingress),
        ];
        for (at, (direction, side, said)) in sides.into_iter().enumerate() {
            let (Some(resource), Some(said)) = (&self.resources[at], said.as_mut()) else { continue };
            let other = 1 - at;
            let Some(peer) = self.block(other).or_else(|| addresses[other].map(Address::from)) else {
                continue;
            };
            if side.steps.first().is_some_and(|step| step.stage == Stage::Loopback) {
                continue;
            }
            let found = permitting(resource, direction, peer, &permits);
            let is_open = found.is_some();
            if !is_open && !resource.message.is_empty() {
                // Perhaps the rule that would permit it names what is gone.
                response.notes.push(format!("{} is not as wanted: {}", resource.name, resource.message));
            }
            if side.allowed {
                put(said, side, resource, found);
            }
            if side.allowed != is_open && !is_default(side) {
                let text =
                    format!("{} does not have this yet: see `trestle resource get {0}`", resource.name);
                response.notes.push(text);
            } else if !is_open && is_default(side) {
                let peer = self.name(other, addresses[other]);
                response.remedies.extend(remedy(resource, direction, question, &peer));
            }
        }
        self.tell_half(question, response);
        // Both are always there.
        let is_allowed = |side: &Option<ExplainedSide>| side.as_ref().is_some_and(|side| side.allowed);
        response.allowed = is_allowed(&response.egress) && is_allowed(&response.ingress);
    }

    /// Where one of two resources permits it and the other one does not, that is said, with the one command for both.
    fn tell_half(&self, question: &Question, response: &mut ExplainResponse) {
        let [Some(source), Some(destination)] = &self.resources else { return };
        if response.remedies.is_empty() {
            return;
        }
        let open =
            [&response.egress, &response.ingress].map(|side| side.as_ref().is_some_and(|side| side.allowed));
        let half = match open {
            [true, false] => Some((&source.name, &destination.name)),
            [false, true] => Some((&destination.name, &source.name)),
            _ => None,
        };
        let half = half.map(|(one, other)| {
            format!("{one} permits it, but the other end, {other}, does not permit it yet")
        });
        response.notes.extend(half);
        let class = question.classes.first().filter(|_| question.is_one());
        let traffic = class.and_then(|class| match (class, question.port) {
            (ProtocolClass::Icmp, _) => Some("--ping".to_owned()),
            (ProtocolClass::Other, _) | (_, None) => None,
            (ProtocolClass::Tcp, Some(port)) => Some(format!("--port {port}")),
            (class, Some(port)) => Some(format!("--port {port}/{class}")),
        });
        let both =
            traffic.map(|traffic| format!("trestle allow {} {} {traffic}", source.name, destination.name));
        response.remedies.extend(both);
    }

    fn name(&self, at: usize, address: Option<IpAddr>) -> String {
        let name = self.resources[at].as_ref().map(|resource| resource.name.to_string());
        name.or_else(|| address.map(|address| address.to_string())).unwrap_or_default()
    }

    /// The engine knows no clusters. It may not know a new machine yet either, which is none.
    fn name_clusters(&self, response: &mut ExplainResponse) {
        let told = [&mut response.source, &mut response.destination];
        for (told, resource) in told.into_iter().zip(&self.resources) {
            let (Some(told), Some(resource)) = (told.as_mut(), resource) else { continue };
            let address = resource.ip.as_deref().and_then(|ip| ip.parse::<Address>().ok());
            if address.is_some_and(|address| address.single().is_none()) {
                told.workloads = vec![format!("cluster {}", resource.name)];
                told.enforced_on = vec![span_key(&resource.name.cloud)];
            }
        }
    }
}

fn resource(orchestrator: &Orchestrator, end: &Endpoint) -> Option<ResourceView> {
    let name: ResourceName = match end {
        Endpoint::Workload { kind: MemberKind::ExternalEntity, namespace, name } => {
            format!("{namespace}.{name}").parse().ok()?
        }
        Endpoint::Workload { .. } => return None,
        Endpoint::Address(address) => {
            let placed = orchestrator.placed();
            placed.into_iter().find(|(_, _, at)| at.net().contains(address)).map(|(name, ..)| name)?
        }
    };
    orchestrator.resource(&name).ok()
}

/// What permits it, as people read it: one entry, or several together.
fn permitting(
    resource: &ResourceView,
    direction: Direction,
    peer: Address,
    permits: impl Fn(&Open) -> bool,
) -> Option<String> {
    let list = &resource.permit_list;
    if !permits(&permit_list::permitted(list, direction, peer)) {
        return None;
    }
    let alone = |entry: &&PermitEntry| permits(&permit_list::permitted([*entry], direction, peer));
    Some(match list.iter().find(alone) {
        Some(entry) => {
            let tags: Vec<&str> = entry.tags.iter().map(String::as_str).collect();
            format!("rule {} of {} ({}): {}", entry.name, resource.name, entry.traffic, tags.join(", "))
        }
        None => format!("several rules of {} together", resource.name),
    })
}

/// Whether policies leave it to the default.
fn is_default(side: &Side) -> bool {
    side.steps.last().is_some_and(|step| step.stage == Stage::Default)
}

fn put(said: &mut ExplainedSide, side: &Side, resource: &ResourceView, found: Option<String>) {
    said.allowed = found.is_some();
    let step = |stage: &str, outcome: &str, details| ExplainedStep {
        stage: stage.to_owned(),
        outcome: outcome.to_owned(),
        details,
    };
    if is_default(side) {
        said.steps.pop();
    }
    match found {
        // What a policy permits is in the list by that policy.
        Some(entry) if is_default(side) => said.steps.push(step("permit list", "allow", vec![entry])),
        Some(_) => {}
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

/// The rule that would permit it; none if the question is about more than one.
fn remedy(resource: &ResourceView, direction: Direction, question: &Question, peer: &str) -> Option<String> {
    let class =
        question.classes.first().filter(|class| question.is_one() && **class != ProtocolClass::Other)?;
    let direction = match direction {
        Direction::Inbound => "in",
        Direction::Outbound => "out",
    };
    let port = question.port.map(|port| format!(" --port {port}")).unwrap_or_default();
    Some(format!("trestle rule add {} --{direction} --protocol {class}{port} --peer {peer}", resource.name))
}
