//! The oracle: everything from scratch, one object and one workload at a time.

use std::{collections::BTreeSet, sync::Arc};

use model::policy::{
    Kind, Labels, Object, ObjectId,
    antrea::NamespacedName,
    output::{Addresses, Identifier, Member, MemberKind, NetworkPolicy, PolicySource, Problem, Rule},
};
use policy::{GroupRef, Scope, Selection, antrea_policy, kubernetes_policy, name_uuid, resolve};

use super::{
    objects::Objects,
    state::{GroupKind, GroupState, PolicyState, State, key_and_rest},
};

fn uuid(text: &str) -> Identifier {
    Identifier::Uuid(name_uuid(text))
}

/// The whole truth about a set of objects.
pub fn compute(objects: &Objects) -> State {
    let workloads = objects.workloads();
    let mut state = State::default();
    for (id, object) in &objects.0 {
        let namespace = id.namespace.clone();
        let cluster_policy = object.cluster_policy().map(|policy| policy.as_antrea());
        let (translation, logging) = match object {
            _ if let Some((spec, faults)) = &cluster_policy => {
                let mut translation = antrea_policy(spec, "", objects);
                translation.problems = [faults.clone(), translation.problems].concat();
                (translation, false)
            }
            Object::NetworkPolicy(policy) => (kubernetes_policy(policy), logs(objects, &namespace)),
            Object::AntreaNetworkPolicy(policy) | Object::AntreaClusterNetworkPolicy(policy) => {
                (antrea_policy(&policy.spec, &namespace, objects), false)
            }
            Object::Group(_) | Object::ClusterGroup(_) => {
                let name = NamespacedName { namespace, name: id.name.clone() };
                let problems = resolve(objects, &name).expect("it exists").problems;
                state.report(id, problems);
                continue;
            }
            _ => continue,
        };
        let groups = |refs: &[GroupRef<'_>]| refs.iter().map(GroupRef::name).collect::<BTreeSet<_>>();
        let all_applied: Vec<GroupRef<'_>> = translation
            .applied_to
            .iter()
            .chain(translation.rules.iter().flat_map(|r| &r.applied_to))
            .cloned()
            .collect();
        let mut span = BTreeSet::new();
        for group in &all_applied {
            span.extend(state.group(objects, &workloads, GroupKind::AppliedTo, group).span.iter().cloned());
        }
        for group in translation.rules.iter().flat_map(|rule| &rule.groups) {
            state.group(objects, &workloads, GroupKind::Address, group).span.extend(span.iter().cloned());
        }
        let rules = translation.rules.iter().map(|rule| Rule {
            direction: rule.direction,
            action: rule.action,
            priority: rule.priority,
            enable_logging: rule.enable_logging || logging,
            address_groups: groups(&rule.groups).into_iter().collect(),
            applied_to_groups: groups(&rule.applied_to).into_iter().collect(),
            detail: rule.detail.clone(),
        });
        let uid = own_uid(id, object);
        let name = name_among_rivals(objects, id, &uid);
        let policy = NetworkPolicy {
            uid: name.clone(),
            generation: object.metadata().generation,
            source: PolicySource {
                kind: id.kind,
                namespace: id.namespace.as_str().into(),
                name: id.name.as_str().into(),
                uid,
            },
            tier_priority: translation.tier_priority,
            priority: translation.priority,
            rules: rules.collect(),
            applied_to_groups: groups(&all_applied).into_iter().collect(),
            applied_to_per_rule: translation.applied_to_per_rule,
        };
        state.policies.insert(name.to_string(), PolicyState { policy, span });
        state.report(id, translation.problems);
    }
    state
}

pub fn logs(objects: &Objects, namespace: &str) -> bool {
    let annotations = objects.get(Kind::Namespace, "", namespace).map(|ns| &ns.metadata().annotations);
    let logging = annotations.and_then(|a| a.get("networkpolicy.antrea.io/enable-logging"));
    logging.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

pub fn own_uid(id: &ObjectId, object: &Object) -> Identifier {
    match object.metadata().uid.as_str() {
        "" => uuid(&id.to_string()),
        uid => Identifier::parse(uid),
    }
}

pub fn name_among_rivals(objects: &Objects, id: &ObjectId, uid: &Identifier) -> Identifier {
    let is_policy = |kind: Kind| kind >= Kind::NetworkPolicy;
    let mut rivals =
        objects.0.iter().filter(|(other, object)| is_policy(other.kind) && own_uid(other, object) == *uid);
    let (first, _) = rivals.next().expect("it is among them");
    if first == id { uid.clone() } else { uuid(&format!("{uid} {id}")) }
}

impl State {
    fn report(&mut self, id: &ObjectId, problems: Vec<Problem>) {
        if !problems.is_empty() {
            self.problems.insert(id.clone(), problems);
        }
    }

    fn group(
        &mut self,
        objects: &Objects,
        workloads: &[(Labels, Arc<Member>)],
        kind: GroupKind,
        group: &GroupRef<'_>,
    ) -> &mut GroupState {
        let groups = match kind {
            GroupKind::AppliedTo => &mut self.applied_to,
            GroupKind::Address => &mut self.address,
        };
        groups.entry(group.name().to_string()).or_insert_with(|| make_group(objects, workloads, kind, group))
    }
}

fn make_group(
    objects: &Objects,
    workloads: &[(Labels, Arc<Member>)],
    kind: GroupKind,
    group: &GroupRef<'_>,
) -> GroupState {
    let (mut uid, mut only_in) = (group.name().to_string(), None);
    let selections = match group {
        GroupRef::Selection(selection) => vec![selection.clone().into_owned()],
        GroupRef::Service(_) => {
            vec![Selection { kind: MemberKind::Node, scope: Scope::Everywhere, selector: None }]
        }
        GroupRef::Named(name) => {
            let object_kind = if name.namespace.is_empty() { Kind::ClusterGroup } else { Kind::Group };
            let object = objects.get(object_kind, &name.namespace, &name.name);
            uid = match object.map(|object| object.metadata().uid.as_str()) {
                None | Some("") => uuid(&group.name().to_string()).to_string(),
                Some(uid) => uid.to_string(),
            };
            only_in =
                Some(name.namespace.clone()).filter(|ns| !ns.is_empty() && kind == GroupKind::AppliedTo);
            resolve(objects, name).unwrap_or_default().selections
        }
    };
    let mut made = GroupState { uid, ..GroupState::default() };
    for (labels, member) in workloads {
        let selected = selections.iter().any(|selection| selects(objects, selection, labels, member));
        let eligible = match kind {
            GroupKind::Address => member.is_address_member(),
            GroupKind::AppliedTo => {
                member.is_applied_to_member() && only_in.as_ref().is_none_or(|ns| **ns == *member.namespace)
            }
        };
        if !selected || !eligible {
            continue;
        }
        let mut member = (**member).clone();
        if let GroupRef::Service(service) = group {
            member.kind = MemberKind::Service;
            member.namespace = service.namespace.as_str().into();
            member.name = service.name.as_str().into();
            member.addresses = Addresses::None;
        }
        if kind == GroupKind::AppliedTo {
            made.span.extend(member.node.as_ref().map(|node| node.to_string()));
        }
        let (key, rest) = key_and_rest(kind, &member);
        made.members.insert(key, rest);
    }
    made
}

fn selects(objects: &Objects, selection: &Selection<'_>, labels: &Labels, member: &Member) -> bool {
    let in_scope = match &selection.scope {
        Scope::Namespace(name) => **name == *member.namespace,
        Scope::Everywhere => true,
        Scope::Matching(selector) if selector.is_empty() => true,
        Scope::Matching(selector) => {
            objects.namespace_labels(&member.namespace).is_some_and(|labels| selector.matches(&labels))
        }
    };
    in_scope
        && selection.kind == member.kind
        && selection.selector.as_ref().is_none_or(|selector| selector.matches(labels))
}
