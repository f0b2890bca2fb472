//! What people ask: who is in a group, which groups a Pod or an address is in, which rule decides between two Pods.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use drivers::policy::Policy;
use model::policy::{antrea::NamespacedName, output::MemberKind};
use policy::explain::{Endpoint, Evaluation};
use tonic::Code;
use watch::{Encoding, NotSynced, asked, document, proto, read_body};

use super::{
    reports::content_type,
    resources::{Pairs, accepted, not_synced, reply},
};
use crate::failure::Failure;

/// The place of a policy that isolates and has no rule for it: after all rules.
const ISOLATION: i32 = i32::MAX;

pub(super) async fn cluster_group_members(
    state: State<Arc<Policy>>,
    Path(name): Path<String>,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    members(state, NamespacedName { namespace: String::new(), name }, pairs, &headers)
}

pub(super) async fn group_members(
    state: State<Arc<Policy>>,
    Path((namespace, name)): Path<(String, String)>,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    members(state, NamespacedName { namespace, name }, pairs, &headers)
}

fn members(
    State(policy): State<Arc<Policy>>,
    group: NamespacedName,
    pairs: Pairs,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let Query(pairs) = pairs.map_err(|err| Failure::invalid(&err))?;
    let page = asked::Page::parse(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let (page, encoding) = (page.map_err(|err| Failure::invalid(&err))?, accepted(headers)?);
    check_synced(&policy)?;
    let found = policy.ask(|engine| engine.group_members(&group));
    let kind = if group.namespace.is_empty() { "ClusterGroup" } else { "Group" };
    let found = found.ok_or_else(|| not_found(kind, &group.namespace, &group.name))?;
    let body = asked::group_members(&group, &found.uid, &found.members, &found.ip_blocks, page, encoding);
    Ok(reply(encoding, body))
}

pub(super) async fn groups_of_pod(
    State(policy): State<Arc<Policy>>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let encoding = accepted(&headers)?;
    check_synced(&policy)?;
    let found = policy.ask(|engine| engine.groups_of_workload(MemberKind::Pod, &namespace, &name));
    let groups = found.ok_or_else(|| not_found("Pod", &namespace, &name))?;
    Ok(reply(encoding, asked::groups_of_pod(&namespace, &name, &groups, encoding)))
}

pub(super) async fn groups_of_address(
    State(policy): State<Arc<Policy>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let encoding = accepted(&headers)?;
    let address: IpAddr = name.parse().map_err(|_| {
        let name: String = name.chars().take(64).collect();
        Failure::new(Code::InvalidArgument, format!("{name:?} is not an IP address"))
    })?;
    check_synced(&policy)?;
    let groups = policy.ask(|engine| engine.groups_of_address(address));
    Ok(reply(encoding, asked::groups_of_address(address, &groups, encoding)))
}

pub(super) async fn evaluate(
    State(policy): State<Arc<Policy>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let encoding = accepted(&headers)?;
    let mut evaluation: proto::NetworkPolicyEvaluation =
        read_body(content_type(&headers), &body).map_err(|err| Failure::invalid(&err))?;
    let request = evaluation.request.as_ref();
    let source = request.and_then(|request| endpoint(&request.source));
    let destination = request.and_then(|request| endpoint(&request.destination));
    let (Some(source), Some(destination)) = (source, destination) else {
        let text = "request.source.pod and request.destination.pod each need a namespace and a name";
        return Err(Failure::new(Code::InvalidArgument, text));
    };
    check_synced(&policy)?;
    let found = policy.ask(|engine| engine.evaluate(source, destination));
    let found = found.map_err(|err| Failure::from_error(Code::NotFound, &err))?;
    evaluation.response = found.as_ref().map(response);
    let created = (StatusCode::CREATED, reply(encoding, document(json_for(encoding), &evaluation)));
    Ok(created.into_response())
}

/// There is no table of an answer.
fn json_for(encoding: Encoding) -> Encoding {
    if encoding == Encoding::Table { Encoding::Json } else { encoding }
}

fn endpoint(end: &proto::EvaluationEnd) -> Option<Endpoint> {
    let pod = end.pod.as_ref().filter(|pod| !pod.namespace.is_empty() && !pod.name.is_empty())?;
    let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
    Some(Endpoint::Workload { kind: MemberKind::Pod, namespace, name })
}

fn response(evaluation: &Evaluation) -> proto::EvaluationResponse {
    let Evaluation { policy, uid, direction, rule } = evaluation;
    proto::EvaluationResponse {
        network_policy: proto::SourceRef {
            kind: watch::source_kind(policy.kind).to_owned(),
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
            uid: uid.to_string(),
        },
        rule_index: rule.as_ref().map_or(ISOLATION, |rule| i32::try_from(rule.index).unwrap_or(ISOLATION)),
        rule: proto::EvaluatedRule {
            direction: watch::direction_name(*direction).to_owned(),
            name: rule.as_ref().map(|rule| rule.name.clone()).unwrap_or_default(),
            action: Some(rule.as_ref().map_or("Drop", |rule| watch::action_name(rule.action)).to_owned()),
        },
    }
}

fn check_synced(policy: &Arc<Policy>) -> Result<(), Failure> {
    if policy.is_synced() { Ok(()) } else { Err(not_synced(NotSynced)) }
}

fn not_found(kind: &str, namespace: &str, name: &str) -> Failure {
    let text = |text: &str| text.chars().take(256).collect::<String>();
    let place = if namespace.is_empty() { String::new() } else { format!("{}/", text(namespace)) };
    Failure::new(Code::NotFound, format!("there is no {kind} {place}{}", text(name)))
}
