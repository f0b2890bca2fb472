//! The oracle: everything from scratch, one object and one workload at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::policy::{
    Kind, LabelSelector, Labels, Object, ObjectId,
    antrea::{GroupSpec, NamespacedName, SYSTEM_TIERS},
    external::ExternalEntity,
    output::{
        Identifier, Member, MemberKind, NamedPort, NetworkPolicy, PolicySource, Problem, Protocol, Rule,
    },
};
use policy::{GroupRef, Scope, Selection, World, antrea_policy, kubernetes_policy, resolve};
use uuid::Uuid;

use crate::state::{GroupKind, GroupState, PolicyState, State, key_and_rest};

#[derive(Debug, Clone, Default)]
pub(crate) struct Objects(pub(crate) BTreeMap<ObjectId, Object>);

impl Objects {
    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.0.get(&ObjectId { kind, namespace: namespace.into(), name: name.into() })
    }

    pub(crate) fn namespace_labels(&self, name: &str) -> Option<Labels> {
        let mut labels = self.get(Kind::Namespace, "", name)?.metadata().labels.clone();
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
        Some(labels)
    }

    pub(crate) fn workloads(&self) -> Vec<(Labels, Arc<Member>)> {
        let mut workloads = Vec::new();
        let mut entities: BTreeMap<(String, String), ExternalEntity> = BTreeMap::new();
        // Descending, so that of several ExternalNodes that make one entity the first remains, and real ones win.
        for object in self.0.values().rev() {
            match object {
                Object::Pod(pod) => {
                    let account = Some(&pod.spec.service_account_name).filter(|a| !a.is_empty());
                    let account = account.cloned().unwrap_or("default".into());
                    let mut labels = pod.metadata.labels.clone();
                    labels.insert("internal.antrea.io/service-account".into(), account);
                    let ports = pod.spec.containers.iter().flat_map(|c| &c.ports);
                    workloads.push((
                        labels,
                        Arc::new(Member {
                            kind: MemberKind::Pod,
                            enforced: !pod.spec.host_network && !pod.status.is_terminated(),
                            namespace: pod.metadata.namespace.as_str().into(),
                            name: pod.metadata.name.as_str().into(),
                            addresses: pod
                                .status
                                .addresses()
                                .filter_map(|ip| ip.parse::<IpAddr>().ok())
                                .collect(),
                            ports: ports
                                .filter_map(|p| port(&p.name, p.container_port, &p.protocol))
                                .collect(),
                            node: Some(pod.spec.node_name.as_str().into())
                                .filter(|node: &Arc<str>| !node.is_empty()),
                        }),
                    ));
                }
                Object::Node(node) => workloads.push((
                    node.metadata.labels.clone(),
                    Arc::new(Member {
                        kind: MemberKind::Node,
                        enforced: true,
                        namespace: "".into(),
                        name: node.metadata.name.as_str().into(),
                        addresses: node.addresses().filter_map(|ip| ip.parse::<IpAddr>().ok()).collect(),
                        ports: Box::default(),
                        node: Some(node.metadata.name.as_str().into()),
                    }),
                )),
                Object::ExternalNode(node) => {
                    let entity = node.entity();
                    let key = (entity.metadata.namespace.clone(), entity.metadata.name.clone());
                    let real = self.get(Kind::ExternalEntity, &key.0, &key.1).is_some();
                    if !real {
                        entities.insert(key, entity);
                    }
                }
                Object::ExternalEntity(entity) => {
                    entities.insert(
                        (entity.metadata.namespace.clone(), entity.metadata.name.clone()),
                        entity.clone(),
                    );
                }
                _ => {}
            }
        }
        for entity in entities.into_values() {
            let member = Member {
                kind: MemberKind::ExternalEntity,
                enforced: true,
                namespace: entity.metadata.namespace.as_str().into(),
                name: entity.metadata.name.as_str().into(),
                addresses: entity.spec.endpoints.iter().filter_map(|e| e.ip.parse::<IpAddr>().ok()).collect(),
                ports: entity.spec.ports.iter().filter_map(|p| port(&p.name, p.port, &p.protocol)).collect(),
                node: entity.span_key().map(Into::into),
            };
            workloads.push((entity.metadata.labels, Arc::new(member)));
        }
        workloads
    }

    pub(crate) fn selects(&self, selection: &Selection<'_>, labels: &Labels, member: &Member) -> bool {
        let in_scope = match &selection.scope {
            Scope::Namespace(name) => **name == *member.namespace,
            Scope::Everywhere => true,
            Scope::Matching(selector) if selector.is_empty() => true,
            Scope::Matching(selector) => {
                self.namespace_labels(&member.namespace).is_some_and(|labels| selector.matches(&labels))
            }
        };
        in_scope
            && selection.kind == member.kind
            && selection
                .selector
                .as_ref()
                .is_none_or(|selector: &std::borrow::Cow<'_, LabelSelector>| selector.matches(labels))
    }
}

fn port(name: &str, port: i32, protocol: &str) -> Option<NamedPort> {
    let (port, protocol) = (u16::try_from(port).ok()?, Protocol::parse(protocol)?);
    (!name.is_empty()).then(|| NamedPort { name: name.into(), port, protocol })
}

impl World for Objects {
    fn tier_priority(&self, name: &str) -> Option<i32> {
        match self.get(Kind::Tier, "", name) {
            Some(Object::Tier(tier)) => Some(tier.spec.priority),
            _ => SYSTEM_TIERS.iter().find(|(tier, _)| *tier == name).map(|(_, priority)| *priority),
        }
    }

    fn group(&self, name: &NamespacedName) -> Option<&GroupSpec> {
        let kind = if name.namespace.is_empty() { Kind::ClusterGroup } else { Kind::Group };
        match self.get(kind, &name.namespace, &name.name)? {
            Object::ClusterGroup(group) | Object::Group(group) => Some(&group.spec),
            _ => None,
        }
    }

    fn service_selector(&self, name: &NamespacedName) -> Option<&Labels> {
        match self.get(Kind::Service, &name.namespace, &name.name)? {
            Object::Service(service) => Some(&service.spec.selector),
            _ => None,
        }
    }

    fn namespaces(&self) -> Vec<(Arc<str>, Labels)> {
        let names = self.0.keys().filter(|id| id.kind == Kind::Namespace).map(|id| id.name.as_str());
        names.map(|name| (name.into(), self.namespace_labels(name).expect("it exists"))).collect()
    }
}

fn uuid(text: &str) -> Identifier {
    let space = Uuid::from_u128(0xe4f2_4a48_ca1f_4d5b_819c_ea76_32b2_2115);
    Identifier::Uuid(Uuid::new_v5(&space, text.as_bytes()))
}

/// The whole truth about a set of objects.
pub(crate) fn compute(objects: &Objects) -> State {
    let workloads = objects.workloads();
    let mut state = State::default();
    for (id, object) in &objects.0 {
        let namespace = id.namespace.clone();
        let (translation, logging) = match object {
            Object::NetworkPolicy(policy) => {
                let annotations =
                    objects.get(Kind::Namespace, "", &namespace).map(|ns| &ns.metadata().annotations);
                let logging = annotations.and_then(|a| a.get("networkpolicy.antrea.io/enable-logging"));
                (kubernetes_policy(policy), logging.is_some_and(|value| value.eq_ignore_ascii_case("true")))
            }
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
            detail: Arc::clone(&rule.detail),
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

fn own_uid(id: &ObjectId, object: &Object) -> Identifier {
    match object.metadata().uid.as_str() {
        "" => uuid(&id.to_string()),
        uid => Identifier::parse(uid),
    }
}

fn name_among_rivals(objects: &Objects, id: &ObjectId, uid: &Identifier) -> Identifier {
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
        let selected = selections.iter().any(|selection| objects.selects(selection, labels, member));
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
        }
        if kind == GroupKind::AppliedTo {
            made.span.extend(member.node.as_ref().map(|node| node.to_string()));
        }
        let (key, rest) = key_and_rest(kind, &member);
        made.members.insert(key, rest);
    }
    made
}
