//! The strict half of reading: every fault of an object, each with the path of its field.
//!
//! In: a parsed [`Object`]. Out: all problems found, none if the object may be stored. Not here: rules that need other
//! objects (a group that does not exist, a tier still in use): those are statuses of the engine, not faults of the text.

mod antrea;
mod kubernetes;
mod labels;
mod policy_test;
mod service;

use std::net::IpAddr;

use super::{Object, convert, external, output::Problem, selector::object_name, workload};

pub fn validate(object: &Object) -> Vec<Problem> {
    let mut report = Report::default();
    report.metadata(object);
    match object {
        Object::Namespace(_) => {}
        Object::Service(service) => report.service(service),
        Object::EndpointSlice(slice) => report.endpoint_slice(slice),
        Object::Node(node) => report.node(node),
        Object::Pod(pod) => report.pod(pod),
        Object::ExternalNode(node) => report.external_node(node),
        Object::ExternalEntity(entity) => report.external_entity(entity),
        Object::Tier(tier) => report.tier(tier),
        Object::ClusterGroup(group) => report.group(group, true),
        Object::Group(group) => report.group(group, false),
        Object::NetworkPolicy(policy) => report.network_policy(policy),
        Object::AntreaNetworkPolicy(policy) => report.antrea_policy(policy, false),
        Object::AntreaClusterNetworkPolicy(policy) => report.antrea_policy(policy, true),
        Object::ClusterNetworkPolicy(_)
        | Object::AdminNetworkPolicy(_)
        | Object::BaselineAdminNetworkPolicy(_) => {
            let policy = object.cluster_policy().expect("these are its kinds");
            report.problems.extend(policy.as_antrea().1);
        }
        Object::PolicyTest(test) => report.policy_test(test),
    }
    report.problems
}

#[derive(Default)]
struct Report {
    problems: Vec<Problem>,
}

impl Report {
    fn say(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    fn check<T>(&mut self, base: &str, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem.under(base))).ok()
    }

    fn metadata(&mut self, object: &Object) {
        let metadata = object.metadata();
        let name = object_name(&metadata.name).and_then(|()| match object {
            Object::Namespace(_) | Object::Service(_) => labels::label_name(&metadata.name),
            _ => Ok(()),
        });
        if let Err(message) = name {
            self.say("metadata.name", message);
        }
        if object.kind().is_namespaced()
            && let Err(message) = labels::namespace_name(&metadata.namespace)
        {
            self.say("metadata.namespace", message);
        }
        self.labels("metadata.labels", &metadata.labels);
    }

    fn address(&mut self, path: &str, text: &str) {
        if text.parse::<IpAddr>().is_err() {
            self.say(path, format!("`{text}` is not an IP address"));
        }
    }

    fn node(&mut self, node: &workload::Node) {
        for (i, prefix) in node.spec.pod_cidrs.iter().enumerate() {
            self.check(&format!("spec.podCIDRs[{i}]"), convert::prefix(prefix));
        }
        if !node.spec.pod_cidr.is_empty() {
            self.check("spec.podCIDR", convert::prefix(&node.spec.pod_cidr));
        }
        for (i, address) in node.status.addresses.iter().enumerate() {
            if address.kind.ends_with("IP") {
                self.address(&format!("status.addresses[{i}].address"), &address.address);
            }
        }
    }

    fn pod(&mut self, pod: &workload::Pod) {
        for (i, ip) in pod.status.pod_ips.iter().enumerate() {
            self.address(&format!("status.podIPs[{i}].ip"), &ip.ip);
        }
        if !pod.status.pod_ip.is_empty() {
            self.address("status.podIP", &pod.status.pod_ip);
        }
        for (c, container) in pod.spec.containers.iter().enumerate() {
            for (p, port) in container.ports.iter().enumerate() {
                let base = format!("spec.containers[{c}].ports[{p}]");
                self.endpoint_port(&base, ".containerPort", port.container_port, &port.protocol);
            }
        }
    }

    fn endpoint_port(&mut self, base: &str, field: &str, port: i32, protocol: &str) {
        if !(1..=65535).contains(&port) {
            self.say(format!("{base}{field}"), format!("{port} is not a port between 1 and 65535"));
        }
        if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
            self.say(format!("{base}.protocol"), format!("`{protocol}` is not one of TCP, UDP, SCTP"));
        }
    }

    fn external_entity(&mut self, entity: &external::ExternalEntity) {
        for (i, endpoint) in entity.spec.endpoints.iter().enumerate() {
            self.address(&format!("spec.endpoints[{i}].ip"), &endpoint.ip);
        }
        for (i, port) in entity.spec.ports.iter().enumerate() {
            self.endpoint_port(&format!("spec.ports[{i}]"), ".port", port.port, &port.protocol);
        }
    }

    fn external_node(&mut self, node: &external::ExternalNode) {
        if node.spec.interfaces.is_empty() {
            self.say("spec.interfaces", "at least one interface is needed");
        }
        for (i, interface) in node.spec.interfaces.iter().enumerate() {
            for (j, ip) in interface.ips.iter().enumerate() {
                self.address(&format!("spec.interfaces[{i}].ips[{j}]"), ip);
            }
        }
    }
}

#[cfg(test)]
mod tests;
