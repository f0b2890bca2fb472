//! From each kind of object to the tables.

use std::net::IpAddr;

use model::policy::{
    Kind, Labels, Object, ObjectId, ObjectMeta,
    antrea::NamespacedName,
    external::{ExternalEntity, ExternalNode, HOST_LABEL},
    output::{MemberKind, NamedPort, Protocol},
    workload::{HOST_NETWORK_LABEL, Node, Pod},
};
use smallvec::SmallVec;

use super::{Engine, dependents::Dependency, entities::Described, matching::LabelSet, tables::Symbol};
use crate::selection::SERVICE_ACCOUNT_LABEL;

impl Engine {
    pub(super) fn apply(&mut self, object: &Object) {
        match object {
            Object::Namespace(o) => {
                self.apply_namespace(&o.metadata.name, &o.metadata.labels, &o.metadata.annotations)
            }
            Object::Node(o) => self.apply_node(o),
            Object::Pod(o) => self.apply_pod(o),
            Object::Service(o) => {
                self.lookups.services.insert(key(&o.metadata), o.spec.selector.clone());
                self.service_changed(&key(&o.metadata));
            }
            // Policies select workloads, not endpoints.
            Object::EndpointSlice(_) => {}
            Object::ExternalNode(o) => self.apply_external_node(o),
            Object::ExternalEntity(o) => {
                self.lookups.explicit_entities.insert(key(&o.metadata));
                self.put_external_entity(o);
            }
            Object::Tier(o) => {
                self.lookups.tiers.insert(o.metadata.name.clone(), o.spec.priority);
                self.depended_on_changed(&Dependency::Tier(o.metadata.name.clone()));
            }
            Object::ClusterGroup(o) => self.apply_group(String::new(), o),
            Object::Group(o) => self.apply_group(o.metadata.namespace.clone(), o),
            Object::NetworkPolicy(o) => self.apply_kubernetes_policy(o),
            Object::AntreaNetworkPolicy(o) => {
                self.apply_antrea_policy(Kind::AntreaNetworkPolicy, &o.metadata.namespace, o);
            }
            Object::AntreaClusterNetworkPolicy(o) => {
                self.apply_antrea_policy(Kind::AntreaClusterNetworkPolicy, "", o)
            }
            Object::ClusterNetworkPolicy(_)
            | Object::AdminNetworkPolicy(_)
            | Object::BaselineAdminNetworkPolicy(_) => {
                let policy = object.cluster_policy().expect("these are its kinds");
                self.apply_cluster_policy(object.kind(), &policy);
            }
            // What must be so decides nothing.
            Object::PolicyTest(_) => {}
        }
    }

    pub(super) fn delete(&mut self, id: &ObjectId) {
        let ObjectId { kind, namespace, name } = id;
        let key = NamespacedName { namespace: namespace.clone(), name: name.clone() };
        match kind {
            Kind::Namespace => self.delete_namespace(name),
            Kind::Node => self.delete_entity(MemberKind::Node, "", name),
            Kind::Pod => self.delete_entity(MemberKind::Pod, namespace, name),
            Kind::Service => {
                self.lookups.services.remove(&key);
                self.service_changed(&key);
            }
            Kind::EndpointSlice | Kind::PolicyTest => {}
            Kind::ExternalNode => self.delete_external_node(namespace, name),
            Kind::ExternalEntity => {
                self.lookups.explicit_entities.remove(&key);
                self.remake_entity(&key);
            }
            Kind::Tier => {
                self.lookups.tiers.remove(name);
                self.depended_on_changed(&Dependency::Tier(name.clone()));
            }
            Kind::ClusterGroup | Kind::Group => {
                self.set_problems(id.clone(), Vec::new());
                self.set_group(&key, None);
            }
            Kind::NetworkPolicy
            | Kind::AntreaNetworkPolicy
            | Kind::AntreaClusterNetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::AdminNetworkPolicy
            | Kind::BaselineAdminNetworkPolicy => self.delete_policy(id),
        }
    }

    fn apply_pod(&mut self, pod: &Pod) {
        let account = match pod.spec.service_account_name.as_str() {
            "" => "default",
            account => account,
        };
        let own = |key: &str| key == SERVICE_ACCOUNT_LABEL || key == HOST_NETWORK_LABEL;
        let labels = pod.metadata.labels.iter().filter(|(key, _)| !own(key));
        let mut labels: SmallVec<[(Symbol, Symbol); 8]> =
            labels.map(|(k, v)| (self.symbols.intern(k), self.symbols.intern(v))).collect();
        labels.push((self.service_account, self.symbols.intern(account)));
        if pod.spec.host_network {
            labels.push((self.symbols.intern(HOST_NETWORK_LABEL), self.symbols.intern("true")));
        }
        labels.sort_unstable();
        let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
        let ports =
            ports.filter_map(|port| named_port(&port.name, port.container_port, &port.protocol)).collect();
        self.put_entity(Described {
            kind: MemberKind::Pod,
            namespace: &pod.metadata.namespace,
            name: &pod.metadata.name,
            labels,
            enforced: !pod.spec.host_network && !pod.status.is_terminated(),
            addresses: pod.status.addresses().filter_map(|text| text.parse::<IpAddr>().ok()).collect(),
            ports,
            node: Some(pod.spec.node_name.as_str()).filter(|node| !node.is_empty()),
        });
    }

    fn apply_node(&mut self, node: &Node) {
        let labels = self.host_labels(&node.metadata.labels, &node.metadata.name);
        self.put_entity(Described {
            kind: MemberKind::Node,
            namespace: "",
            name: &node.metadata.name,
            labels,
            enforced: true,
            addresses: node.addresses().into_iter().collect(),
            ports: Box::default(),
            node: Some(&node.metadata.name),
        });
    }

    /// With a label that names the host, so that a policy can select one; nobody else may give it.
    fn host_labels(&mut self, labels: &Labels, name: &str) -> SmallVec<[(Symbol, Symbol); 8]> {
        let labels = pairs(labels).filter(|(key, _)| *key != HOST_LABEL).chain([(HOST_LABEL, name)]);
        SmallVec::from_slice(&self.intern_labels(labels))
    }

    fn put_external_entity(&mut self, entity: &ExternalEntity) {
        let labels = match entity.host() {
            Some(name) => self.host_labels(&entity.metadata.labels, name),
            None => SmallVec::from_slice(&self.intern_labels(pairs(&entity.metadata.labels))),
        };
        let ports =
            entity.spec.ports.iter().filter_map(|port| named_port(&port.name, port.port, &port.protocol));
        let endpoints = entity.spec.endpoints.iter();
        self.put_entity(Described {
            kind: MemberKind::ExternalEntity,
            namespace: &entity.metadata.namespace,
            name: &entity.metadata.name,
            labels,
            enforced: true,
            addresses: endpoints.filter_map(|endpoint| endpoint.ip.parse::<IpAddr>().ok()).collect(),
            ports: ports.collect(),
            node: entity.span_key().as_deref(),
        });
    }

    fn apply_external_node(&mut self, node: &ExternalNode) {
        let entity = node.entity();
        let key = key(&entity.metadata);
        self.forget_external_node(&node.metadata.namespace, &node.metadata.name, Some(&key));
        self.lookups
            .external_nodes
            .entry(key.clone())
            .or_default()
            .insert(node.metadata.name.clone(), entity);
        if !self.lookups.explicit_entities.contains(&key) {
            self.remake_entity(&key);
        }
    }

    fn delete_external_node(&mut self, namespace: &str, name: &str) {
        self.forget_external_node(namespace, name, None);
    }

    /// Its entity's name follows its interface, so an update may leave an entity of another name behind.
    fn forget_external_node(&mut self, namespace: &str, name: &str, except: Option<&NamespacedName>) {
        let first = NamespacedName { namespace: namespace.into(), name: name.into() };
        let made_by = self
            .lookups
            .external_nodes
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace && key.name.starts_with(name));
        let stale: Vec<NamespacedName> = made_by
            .filter(|(key, makers)| makers.contains_key(name) && Some(*key) != except)
            .map(|(key, _)| key.clone())
            .collect();
        for key in stale {
            if let Some(makers) = self.lookups.external_nodes.get_mut(&key) {
                makers.remove(name);
                if makers.is_empty() {
                    self.lookups.external_nodes.remove(&key);
                }
            }
            if !self.lookups.explicit_entities.contains(&key) {
                self.remake_entity(&key);
            }
        }
    }

    /// The entity as ExternalNodes would have it, or none.
    fn remake_entity(&mut self, key: &NamespacedName) {
        let made = self.lookups.external_nodes.get(key).and_then(|makers| makers.values().next()).cloned();
        match made {
            Some(entity) => self.put_external_entity(&entity),
            None => self.delete_entity(MemberKind::ExternalEntity, &key.namespace, &key.name),
        }
    }

    pub(super) fn intern_labels<'a>(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> LabelSet {
        let mut labels: Vec<_> =
            labels.map(|(k, v)| (self.symbols.intern(k), self.symbols.intern(v))).collect();
        labels.sort_unstable();
        labels.into()
    }

    pub(super) fn acquire_label(&mut self, key: Symbol, value: Symbol) {
        self.symbols.acquire(key);
        self.symbols.acquire(value);
    }

    pub(super) fn release_labels(&mut self, labels: &[(Symbol, Symbol)]) {
        for (key, value) in labels {
            self.release_symbol(*key);
            self.release_symbol(*value);
        }
    }

    pub(super) fn release_symbol(&mut self, symbol: Symbol) {
        if self.symbols.release(symbol) {
            self.symbols.forget(symbol);
        }
    }
}

fn pairs(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

fn key(metadata: &ObjectMeta) -> NamespacedName {
    NamespacedName { namespace: metadata.namespace.clone(), name: metadata.name.clone() }
}

fn named_port(name: &str, port: i32, protocol: &str) -> Option<NamedPort> {
    let (port, protocol) = (u16::try_from(port).ok()?, Protocol::parse(protocol)?);
    (!name.is_empty()).then(|| NamedPort { name: name.into(), port, protocol })
}
