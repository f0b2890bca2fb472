//! What rooms have, as messages: what gRPC and REST answer alike, and the command line prints.
//!
//! In: values of the orchestrator. Out: messages, whose JSON is defined with them (`wire`). Not here: nodes, policies
//! and services, which have modules of their own.

use std::sync::Arc;

use model::{ConnectionStatus, PermitRule, ResourceName, Site};
use orchestrator::{
    execute::{CloudView, Job, LinkView, Orchestrator, OrchestratorError, ResourceView, TagView},
    plan::{Plan, RuleStanding, Scope},
};
use wire::{
    invisinetspb::PermitListRule,
    permit::permit_list_rule,
    tagservicepb::TagMapping,
    trestle::v1::{
        CloudEndStatus, CloudInfo, JobInfo, LinkEnd, LinkInfo, PlanInfo, ResourceInfo, RuleInfo, TagInfo,
    },
};

/// Rules without an answer that are told of one resource, or of all.
pub const MOST_HALVES: usize = 10;

pub fn job(job: &Job) -> JobInfo {
    JobInfo {
        id: job.id.clone(),
        what: job.what.clone(),
        state: job.state.to_string(),
        message: job.message.clone(),
        created_at: job.created_at.to_string(),
        ended_at: job.ended_at.map(|at| at.to_string()).unwrap_or_default(),
        steps_left: u32::try_from(job.steps_left).unwrap_or(u32::MAX),
        steps: u32::try_from(job.steps).unwrap_or(u32::MAX),
    }
}

pub fn plan(plan: &Plan) -> PlanInfo {
    PlanInfo {
        steps: plan.steps.iter().map(|step| step.action.to_string()).collect(),
        problems: plan.problems.iter().map(ToString::to_string).collect(),
        notes: plan.notes.iter().map(ToString::to_string).collect(),
    }
}

pub fn resource(view: ResourceView) -> ResourceInfo {
    ResourceInfo {
        name: view.name.to_string(),
        region: view.region.to_string(),
        state: view.state.to_owned(),
        uri: view.uri.unwrap_or_default(),
        ip: view.ip.unwrap_or_default(),
        message: view.message,
        permit_list: view.permit_list.iter().map(PermitListRule::from).collect(),
        notes: Vec::new(),
    }
}

/// A resource with what is to be known of its rules: those that the other end does not answer.
pub fn resource_with_notes(orchestrator: &Orchestrator, view: ResourceView) -> ResourceInfo {
    let halves = orchestrator.halves(Some(&view.name), MOST_HALVES);
    ResourceInfo { notes: halves.iter().map(ToString::to_string).collect(), ..resource(view) }
}

/// The rules of a resource, each with the targets it has in the permit list in force.
pub fn rules(
    orchestrator: &Arc<Orchestrator>,
    name: &ResourceName,
) -> Result<Vec<PermitListRule>, OrchestratorError> {
    let rules = orchestrator.rules(name)?;
    let in_force = orchestrator.resource(name)?.permit_list;
    let with_targets = |rule: &PermitRule| {
        let entry = in_force.iter().find(|entry| entry.name.as_str() == rule.name.as_str());
        let targets = entry.map(|entry| entry.targets().iter().map(ToString::to_string).collect());
        PermitListRule { targets: targets.unwrap_or_default(), ..PermitListRule::from(rule) }
    };
    Ok(rules.iter().map(with_targets).collect())
}

/// The clouds that are to be, with what is wanted in each.
pub fn clouds(orchestrator: &Orchestrator) -> Vec<CloudInfo> {
    let resources = orchestrator.resources();
    orchestrator.cloud_views().into_iter().map(|view| cloud(view, &resources)).collect()
}

pub fn cloud(view: CloudView, resources: &[ResourceView]) -> CloudInfo {
    let CloudView { name, plugin, state, since, message } = view;
    CloudInfo {
        resources: count(resources.iter().filter(|resource| resource.name.cloud == name).count()),
        name: name.to_string(),
        plugin,
        state: state.to_string(),
        since: since.to_string(),
        message,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What is in force, and from where.
pub fn rules_in_force(
    orchestrator: &Orchestrator,
    scope: &Scope,
) -> Result<Vec<RuleInfo>, OrchestratorError> {
    Ok(orchestrator.rules_in_force(scope)?.iter().map(rule_in_force).collect())
}

fn rule_in_force(standing: &RuleStanding) -> RuleInfo {
    let targets = standing.targets.iter().map(ToString::to_string).collect();
    let peers = standing.peers.iter().cloned().collect();
    RuleInfo {
        from: standing.from.to_string(),
        rule: Some(permit_list_rule(standing.name.clone(), &standing.traffic, targets, peers)),
        state: standing.state().to_owned(),
        message: standing.message(),
        in_force: standing.in_force.iter().map(ToString::to_string).collect(),
        not_in_force: standing.lacking.keys().map(ToString::to_string).collect(),
    }
}

pub fn tag(view: TagView) -> TagInfo {
    let TagView { name, value, owner, rules, named_by, trouble } = view;
    let TagMapping { child_tags, uri, ip, .. } =
        value.map(|value| TagMapping::from((name.clone(), value))).unwrap_or_default();
    TagInfo {
        name: name.to_string(),
        uri,
        ip,
        child_tags,
        from: owner.to_owned(),
        rules: count(rules),
        named_by: count(named_by),
        message: trouble.map(|trouble| trouble.to_string()).unwrap_or_default(),
    }
}

pub fn link(view: LinkView) -> LinkInfo {
    let [a, b] = view.name.ends().map(Clone::clone);
    let [asn_a, asn_b] = view.asns;
    let [spaces_a, spaces_b] = view.spaces;
    let [status_a, status_b] = view.ends;
    let end = |site: Site, asn: Option<u32>, spaces: Vec<ipnet::Ipv4Net>, bgp: Vec<String>, status| LinkEnd {
        site: site.to_string(),
        asn: asn.unwrap_or_default(),
        address_spaces: spaces.iter().map(ToString::to_string).collect(),
        bgp_addresses: bgp,
        status,
    };
    let bgp_a = view.bgp.iter().map(|pair| pair.a.to_string()).collect();
    let bgp_b = view.bgp.iter().map(|pair| pair.b.to_string()).collect();
    LinkInfo {
        a: Some(end(a, asn_a, spaces_a, bgp_a, status_a.map(end_status))),
        b: Some(end(b, asn_b, spaces_b, bgp_b, status_b.map(end_status))),
        state: view.state.to_owned(),
        pinned: view.pinned,
        message: view.message,
    }
}

fn end_status(status: ConnectionStatus) -> CloudEndStatus {
    CloudEndStatus {
        tunnels: status.tunnels,
        tunnels_up: status.tunnels_up,
        bgp_established: status.bgp_established,
        routes: status.routes.iter().map(ToString::to_string).collect(),
        bytes_in: status.bytes_in,
        bytes_out: status.bytes_out,
    }
}
