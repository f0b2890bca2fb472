//! All objects there are, looked up and read the slow way.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use model::policy::{
    Kind, Labels, Object, ObjectId,
    antrea::{GroupSpec, NamespacedName, SYSTEM_TIERS},
    cluster,
    external::ExternalEntity,
    output::{Member, MemberKind, NamedPort, Protocol},
    workload::HOST_NETWORK_LABEL,
};
use policy::World;

#[derive(Debug, Clone, Default)]
pub struct Objects(pub BTreeMap<ObjectId, Object>);

impl Objects {
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.0.get(&ObjectId { kind, namespace: namespace.into(), name: name.into() })
    }

    pub fn namespace_labels(&self, name: &str) -> Option<Labels> {
        let mut labels = self.get(Kind::Namespace, "", name)?.metadata().labels.clone();
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
        Some(labels)
    }

    pub fn workloads(&self) -> Vec<(Labels, Arc<Member>)> {
        let mut workloads = Vec::new();
        let mut entities: BTreeMap<(String, String), ExternalEntity> = BTreeMap::new();
        // Descending, so that of several ExternalNodes that make one entity the first remains, and real ones win.
        for object in self.0.values().rev() {
            match object {
                Object::Pod(pod) => {
                    let account = Some(&pod.spec.service_account_name).filter(|a| !a.is_empty());
                    let account = account.cloned().unwrap_or("default".into());
                    let mut labels: Labels = pod
                        .metadata
                        .labels
                        .clone()
                        .into_iter()
                        .filter(|(key, _)| key != HOST_NETWORK_LABEL)
                        .collect();
                    labels.insert("internal.antrea.io/service-account".into(), account);
                    if pod.spec.host_network {
                        labels.insert(HOST_NETWORK_LABEL.into(), "true".into());
                    }
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
                        addresses: node.addresses().into_iter().collect(),
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
}

fn port(name: &str, port: i32, protocol: &str) -> Option<NamedPort> {
    let (port, protocol) = (u16::try_from(port).ok()?, Protocol::parse(protocol)?);
    (!name.is_empty()).then(|| NamedPort { name: name.into(), port, protocol })
}

impl World for Objects {
    fn tier_priority(&self, name: &str) -> Option<i32> {
        match self.get(Kind::Tier, "", name) {
            Some(Object::Tier(tier)) => Some(tier.spec.priority),
            _ => SYSTEM_TIERS
                .iter()
                .chain(&cluster::TIERS)
                .find(|(tier, _)| *tier == name)
                .map(|(_, priority)| *priority),
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
