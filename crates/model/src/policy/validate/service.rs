//! Services and EndpointSlices.
//!
//! What the Kubernetes API accepts is accepted: objects exported from a cluster pass unchanged.

use std::collections::BTreeSet;

use super::{Report, labels::namespace_name};
use crate::policy::{
    endpoint_slice::{Endpoint, EndpointSlice, SERVICE_NAME_LABEL},
    kubernetes::IntOrString,
    selector::object_name,
    service::{SCHEDULER_ANNOTATION, Service, ServicePort, ServiceSpec, parse_address, parse_prefix},
};

/// Limits of the Kubernetes API.
const MAX_ENDPOINTS: usize = 1_000;
const MAX_SLICE_PORTS: usize = 20_000;
const MAX_ENDPOINT_ADDRESSES: usize = 100;
const MAX_AFFINITY_SECONDS: i32 = 86_400;
/// IPVS knows schedulers by names shorter than this.
const SCHEDULER_NAME: usize = 16;

impl Report {
    pub(super) fn service(&mut self, service: &Service) {
        let spec = &service.spec;
        let kinds = ["", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
        self.one_of("spec.type", &spec.kind, &kinds);
        self.labels("spec.selector", &spec.selector);
        self.cluster_ips(spec);
        let policies = ["", "SingleStack", "PreferDualStack", "RequireDualStack"];
        self.one_of("spec.ipFamilyPolicy", &spec.ip_family_policy, &policies);
        for (i, family) in spec.ip_families.iter().enumerate() {
            self.one_of(&format!("spec.ipFamilies[{i}]"), family, &["IPv4", "IPv6"]);
        }
        for (i, address) in spec.external_ips.iter().enumerate() {
            self.any_address(&format!("spec.externalIPs[{i}]"), address);
        }
        for (i, ingress) in service.status.load_balancer.ingress.iter().enumerate() {
            let base = format!("status.loadBalancer.ingress[{i}]");
            if !ingress.ip.is_empty() {
                self.any_address(&format!("{base}.ip"), &ingress.ip);
            }
            let mode = ingress.ip_mode.as_deref().unwrap_or_default();
            self.one_of(&format!("{base}.ipMode"), mode, &["", "VIP", "Proxy"]);
        }
        for (i, range) in spec.load_balancer_source_ranges.iter().enumerate() {
            if parse_prefix(range).is_none() {
                let path = format!("spec.loadBalancerSourceRanges[{i}]");
                self.say(path, format!("`{range}` is not a range of addresses like 192.0.2.0/24"));
            }
        }
        self.service_ports(spec);
        self.service_policies(spec);
        let scheduler = service.metadata.annotations.get(SCHEDULER_ANNOTATION);
        if let Some(name) = scheduler
            && !(!name.is_empty()
                && name.len() < SCHEDULER_NAME
                && name.bytes().all(|byte| byte.is_ascii_lowercase()))
        {
            let path = format!("metadata.annotations[{}]", SCHEDULER_ANNOTATION);
            self.say(path, format!("`{name}` is not the name of an IPVS scheduler like rr, wrr, lc, sh, mh"));
        }
    }

    fn cluster_ips(&mut self, spec: &ServiceSpec) {
        if !spec.cluster_ip.is_empty() && spec.cluster_ip != "None" {
            self.any_address("spec.clusterIP", &spec.cluster_ip);
        }
        let first = spec.cluster_ips.first();
        if first.is_some_and(|first| !spec.cluster_ip.is_empty() && *first != spec.cluster_ip) {
            self.say("spec.clusterIPs[0]", "must be the same as spec.clusterIP");
        }
        let mut families = BTreeSet::new();
        for (i, text) in spec.cluster_ips.iter().enumerate() {
            let path = format!("spec.clusterIPs[{i}]");
            match parse_address(text) {
                Some(address) if !families.insert(address.is_ipv6()) => {
                    self.say(path, "a Service has at most one cluster address of each family");
                }
                Some(_) => {}
                None if text == "None" && spec.cluster_ips.len() == 1 => {}
                None => self.say(path, format!("`{text}` is not an IP address")),
            }
        }
    }

    fn service_ports(&mut self, spec: &ServiceSpec) {
        let is_headless = spec.cluster_ip == "None" || spec.cluster_ips.iter().any(|one| one == "None");
        if spec.ports.is_empty() && !is_headless && spec.kind != "ExternalName" {
            self.say("spec.ports", "at least one port is needed");
        }
        let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (i, port) in spec.ports.iter().enumerate() {
            let base = format!("spec.ports[{i}]");
            self.endpoint_port(&base, ".port", port.port, &port.protocol);
            self.target_port(&base, port);
            if port.name.is_empty() && spec.ports.len() > 1 {
                self.say(format!("{base}.name"), "must be given if there are several ports");
            } else if !names.insert(&port.name) {
                self.say(format!("{base}.name"), format!("`{}` is the name of two ports", port.name));
            }
            if !numbers.insert((&port.protocol, port.port)) {
                self.say(format!("{base}.port"), format!("{} is given twice", port.port));
            }
            if !(0..=65535).contains(&port.node_port) {
                self.say(format!("{base}.nodePort"), format!("{} is not a port", port.node_port));
            } else if port.node_port != 0 && !node_ports.insert((&port.protocol, port.node_port)) {
                self.say(format!("{base}.nodePort"), format!("{} is given twice", port.node_port));
            }
        }
    }

    fn target_port(&mut self, base: &str, port: &ServicePort) {
        let path = || format!("{base}.targetPort");
        match &port.target_port {
            Some(IntOrString::Int(number)) if !(0..=65535).contains(number) => {
                self.say(path(), format!("{number} is not a port between 1 and 65535"));
            }
            Some(IntOrString::Name(name)) if name.is_empty() || name.len() > 15 => {
                self.say(path(), format!("`{name}` is not the name of a port: 1 to 15 letters, digits, `-`"));
            }
            _ => {}
        }
    }

    fn service_policies(&mut self, spec: &ServiceSpec) {
        let policies = ["", "Cluster", "Local"];
        self.one_of("spec.internalTrafficPolicy", &spec.internal_traffic_policy, &policies);
        self.one_of("spec.externalTrafficPolicy", &spec.external_traffic_policy, &policies);
        self.one_of("spec.sessionAffinity", &spec.session_affinity, &["", "None", "ClientIP"]);
        let is_external =
            matches!(spec.kind.as_str(), "NodePort" | "LoadBalancer") || !spec.external_ips.is_empty();
        if !spec.external_traffic_policy.is_empty() && !is_external {
            self.say("spec.externalTrafficPolicy", "only for Services that can be reached from outside");
        }
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        if let Some(seconds) = config.and_then(|config| config.timeout_seconds)
            && !(1..=MAX_AFFINITY_SECONDS).contains(&seconds)
        {
            let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            self.say(path, format!("{seconds} is not between 1 and {MAX_AFFINITY_SECONDS}"));
        }
        if !(0..=65535).contains(&spec.health_check_node_port) {
            let message = format!("{} is not a port", spec.health_check_node_port);
            self.say("spec.healthCheckNodePort", message);
        }
        if let Some(text) = &spec.traffic_distribution {
            let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
            self.one_of("spec.trafficDistribution", text, &known);
        }
    }

    pub(super) fn endpoint_slice(&mut self, slice: &EndpointSlice) {
        self.one_of("addressType", &slice.address_type, &["IPv4", "IPv6", "FQDN"]);
        if let Some(name) = slice.metadata.labels.get(SERVICE_NAME_LABEL)
            && let Err(message) = namespace_name(name)
        {
            self.say(format!("metadata.labels[{SERVICE_NAME_LABEL}]"), message);
        }
        self.at_most("endpoints", slice.endpoints.len(), MAX_ENDPOINTS);
        self.at_most("ports", slice.ports.len(), MAX_SLICE_PORTS);
        for (i, endpoint) in slice.endpoints.iter().enumerate() {
            self.endpoint(&format!("endpoints[{i}]"), endpoint, &slice.address_type);
        }
        let mut names = BTreeSet::new();
        for (i, port) in slice.ports.iter().enumerate() {
            let base = format!("ports[{i}]");
            let protocol = port.protocol.as_deref().unwrap_or_default();
            // Without a number it stands for all ports.
            self.endpoint_port(&base, ".port", port.port.unwrap_or(1), protocol);
            if !names.insert(port.name.as_deref().unwrap_or_default()) {
                self.say(format!("{base}.name"), "two ports have this name");
            }
        }
    }

    fn endpoint(&mut self, base: &str, endpoint: &Endpoint, address_type: &str) {
        if endpoint.addresses.is_empty() {
            self.say(format!("{base}.addresses"), "at least one address is needed");
        }
        self.at_most(&format!("{base}.addresses"), endpoint.addresses.len(), MAX_ENDPOINT_ADDRESSES);
        for (i, text) in endpoint.addresses.iter().enumerate() {
            let path = format!("{base}.addresses[{i}]");
            match (address_type, parse_address(text)) {
                ("IPv4" | "IPv6", None) => self.say(path, format!("`{text}` is not an IP address")),
                ("IPv4", Some(address)) if address.is_ipv6() => {
                    self.say(path, format!("`{text}` is not an IPv4 address, which addressType demands"));
                }
                ("IPv6", Some(address)) if address.is_ipv4() => {
                    self.say(path, format!("`{text}` is not an IPv6 address, which addressType demands"));
                }
                ("FQDN", _) => {
                    if let Err(message) = object_name(text) {
                        self.say(path, message);
                    }
                }
                _ => {}
            }
        }
    }

    /// An address as clusters have accepted them for years: leading zeros are forgiven.
    fn any_address(&mut self, path: &str, text: &str) {
        if parse_address(text).is_none() {
            self.say(path, format!("`{text}` is not an IP address"));
        }
    }

    fn one_of(&mut self, path: &str, text: &str, known: &[&str]) {
        if !known.contains(&text) {
            let known: Vec<_> = known.iter().copied().filter(|one| !one.is_empty()).collect();
            self.say(path, format!("`{text}` is not one of {}", known.join(", ")));
        }
    }

    fn at_most(&mut self, path: &str, count: usize, most: usize) {
        if count > most {
            self.say(path, format!("{count} are too many; at most {most} are allowed"));
        }
    }
}
