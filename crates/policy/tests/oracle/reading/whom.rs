//! Whom a selection means: its name, and everyone it selects.

use std::{collections::BTreeSet, sync::Arc};

use model::policy::{
    Kind, LabelSelector, Labels, Operator,
    antrea::{GroupSpec, NamespacedName},
    output::{Addresses, Identifier, Member, MemberKind},
};
use policy::{World, name_uuid};

use testkit::policies::{
    objects::Objects,
    state::{GroupKind, GroupState, key_and_rest},
};

const ACCOUNT: &str = "internal.antrea.io/service-account";

#[derive(Clone)]
pub(crate) enum Place {
    In(String),
    Matching(LabelSelector),
    Anywhere,
}

/// Whom a group means.
#[derive(Clone)]
pub(crate) enum Whom {
    Selected(MemberKind, Place, Option<LabelSelector>),
    Group(NamespacedName),
    Service(NamespacedName),
}

pub(crate) fn account(name: &NamespacedName) -> Whom {
    let selector = LabelSelector::of_labels([(ACCOUNT, name.name.as_str())]);
    Whom::Selected(MemberKind::Pod, Place::In(name.namespace.clone()), Some(selector))
}

fn spelled(selector: &LabelSelector) -> String {
    let mut terms: Vec<(String, u8, Vec<String>)> =
        selector.match_labels.iter().map(|(k, v)| (k.clone(), 0, vec![v.clone()])).collect();
    for requirement in &selector.match_expressions {
        let rank = [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]
            .iter()
            .position(|operator| *operator == requirement.operator)
            .expect("valid selectors have known operators");
        let values: BTreeSet<String> = requirement.values.iter().cloned().collect();
        terms.push((requirement.key.clone(), rank as u8 + 1, values.into_iter().collect()));
    }
    terms.sort();
    let term = |(key, rank, values): &(String, u8, Vec<String>)| match rank {
        0 => format!("{key}={}", values[0]),
        1 => format!("{key} in ({})", values.join(",")),
        2 => format!("{key} notin ({})", values.join(",")),
        3 => key.clone(),
        _ => format!("!{key}"),
    };
    terms.iter().map(term).collect::<Vec<_>>().join(",")
}

pub(crate) fn name(whom: &Whom) -> Identifier {
    match whom {
        Whom::Group(group) if group.namespace.is_empty() => Identifier::Text(group.name.as_str().into()),
        Whom::Group(group) => Identifier::Text(format!("{}/{}", group.namespace, group.name).into()),
        Whom::Service(service) => {
            Identifier::Uuid(name_uuid(&format!("{}/{}", service.namespace, service.name)))
        }
        Whom::Selected(kind, place, selector) => {
            let mut parts = match place {
                Place::In(namespace) => vec![format!("namespace={namespace}")],
                Place::Matching(selector) => vec![format!("namespaceSelector={}", spelled(selector))],
                Place::Anywhere => vec![],
            };
            let key = match kind {
                MemberKind::ExternalEntity => "eeSelector",
                MemberKind::Node => "nodeSelector",
                MemberKind::Pod | MemberKind::Service => "podSelector",
            };
            parts.extend(selector.as_ref().map(|selector| format!("{key}={}", spelled(selector))));
            parts.sort();
            Identifier::Uuid(name_uuid(&parts.join(" And ")))
        }
    }
}

pub(crate) fn names(whom: &[Whom]) -> Vec<Identifier> {
    whom.iter().map(name).collect::<BTreeSet<_>>().into_iter().collect()
}

fn children(objects: &Objects, group: &NamespacedName) -> Vec<NamespacedName> {
    let names = objects.group(group).map(|spec| spec.child_groups.clone()).unwrap_or_default();
    names.into_iter().map(|name| NamespacedName { namespace: group.namespace.clone(), name }).collect()
}

/// A child with children: too deep, and every cycle.
pub(crate) fn is_broken(objects: &Objects, group: &NamespacedName) -> bool {
    children(objects, group).iter().any(|child| !children(objects, child).is_empty())
}

/// The group and its children, as far as they exist.
pub(crate) fn parts<'a>(
    objects: &'a Objects,
    group: &NamespacedName,
) -> Vec<(NamespacedName, &'a GroupSpec)> {
    if is_broken(objects, group) {
        return vec![];
    }
    let all = [vec![group.clone()], children(objects, group)].concat();
    all.into_iter().filter_map(|name| objects.group(&name).map(|spec| (name, spec))).collect()
}

/// Whom one part of a group means.
pub(crate) fn whom(objects: &Objects, name: &NamespacedName, spec: &GroupSpec) -> Vec<Whom> {
    let place = match &spec.namespace_selector {
        Some(over) => Place::Matching(over.clone()),
        None if name.namespace.is_empty() => Place::Anywhere,
        None => Place::In(name.namespace.clone()),
    };
    if let Some(service) = &spec.service_reference {
        let selector = objects.service_selector(service).filter(|selector| !selector.is_empty());
        let selector = selector.map(|selector| LabelSelector::of_labels(selector.clone()));
        let place = Place::In(service.namespace.clone());
        return selector
            .into_iter()
            .map(|s| Whom::Selected(MemberKind::Pod, place.clone(), Some(s)))
            .collect();
    }
    if let Some(selector) = &spec.node_selector {
        return vec![Whom::Selected(MemberKind::Node, Place::Anywhere, Some(selector.clone()))];
    }
    if let Some(selector) = &spec.external_entity_selector {
        return vec![Whom::Selected(MemberKind::ExternalEntity, place, Some(selector.clone()))];
    }
    match spec.pod_selector.is_some() || spec.namespace_selector.is_some() {
        true => vec![Whom::Selected(MemberKind::Pod, place, spec.pod_selector.clone())],
        false => vec![],
    }
}

fn means(objects: &Objects, meant: &Whom, labels: &Labels, member: &Member) -> bool {
    match meant {
        Whom::Service(_) => member.kind == MemberKind::Node,
        Whom::Group(group) => parts(objects, group)
            .iter()
            .flat_map(|(name, spec)| whom(objects, name, spec))
            .any(|part| means(objects, &part, labels, member)),
        Whom::Selected(kind, place, selector) => {
            let is_there = match place {
                Place::In(namespace) => **namespace == *member.namespace,
                Place::Anywhere => true,
                Place::Matching(over) => {
                    over.is_empty()
                        || objects.namespace_labels(&member.namespace).is_some_and(|l| over.matches(&l))
                }
            };
            is_there && *kind == member.kind && selector.as_ref().is_none_or(|s| s.matches(labels))
        }
    }
}

pub(crate) fn group(
    objects: &Objects,
    workloads: &[(Labels, Arc<Member>)],
    kind: GroupKind,
    meant: &Whom,
) -> GroupState {
    let uid = match meant {
        Whom::Group(group) => {
            let object_kind = if group.namespace.is_empty() { Kind::ClusterGroup } else { Kind::Group };
            let object = objects.get(object_kind, &group.namespace, &group.name);
            let uid = object.map(|object| object.metadata().uid.clone()).filter(|uid| !uid.is_empty());
            uid.unwrap_or_else(|| name_uuid(&name(meant).to_string()).to_string())
        }
        _ => name(meant).to_string(),
    };
    let mut made = GroupState { uid, ..GroupState::default() };
    for (_, member) in workloads.iter().filter(|(labels, member)| means(objects, meant, labels, member)) {
        let is_member = match (kind, meant) {
            (GroupKind::Address, _) => member.enforced && !member.addresses.is_empty(),
            // A Group of a namespace is applied in that namespace only.
            (GroupKind::AppliedTo, Whom::Group(group)) if !group.namespace.is_empty() => {
                member.enforced && member.node.is_some() && *member.namespace == *group.namespace
            }
            (GroupKind::AppliedTo, _) => member.enforced && member.node.is_some(),
        };
        if !is_member {
            continue;
        }
        let mut member = (**member).clone();
        if let Whom::Service(service) = meant {
            member.kind = MemberKind::Service;
            (member.namespace, member.name) =
                (service.namespace.as_str().into(), service.name.as_str().into());
            member.addresses = Addresses::None;
        }
        if kind == GroupKind::AppliedTo {
            made.span.extend(member.node.iter().map(ToString::to_string));
        }
        let (key, rest) = key_and_rest(kind, &member);
        made.members.insert(key, rest);
    }
    made
}
