//! networking.k8s.io/v1 NetworkPolicy.

use super::Report;
use crate::policy::{
    convert,
    kubernetes::{NetworkPolicy, Peer, Port},
};

impl Report {
    pub(super) fn network_policy(&mut self, policy: &NetworkPolicy) {
        let spec = &policy.spec;
        self.selector("spec.podSelector", &spec.pod_selector);
        for (i, policy_type) in spec.policy_types.iter().enumerate() {
            if !matches!(policy_type.as_str(), "Ingress" | "Egress") {
                let message = format!("`{policy_type}` is not one of Ingress, Egress");
                self.say(format!("spec.policyTypes[{i}]"), message);
            }
        }
        for (i, rule) in spec.ingress.iter().enumerate() {
            self.kubernetes_rule(&format!("spec.ingress[{i}]"), "from", &rule.from, &rule.ports);
        }
        for (i, rule) in spec.egress.iter().enumerate() {
            self.kubernetes_rule(&format!("spec.egress[{i}]"), "to", &rule.to, &rule.ports);
        }
    }

    fn kubernetes_rule(&mut self, base: &str, side: &str, peers: &[Peer], ports: &[Port]) {
        for (i, port) in ports.iter().enumerate() {
            let path = format!("{base}.ports[{i}]");
            self.check(&path, convert::port(port));
            if port.source_port.is_some() || port.source_end_port.is_some() {
                self.say(
                    format!("{path}.sourcePort"),
                    "source ports are not part of a Kubernetes NetworkPolicy",
                );
            }
        }
        for (i, peer) in peers.iter().enumerate() {
            self.kubernetes_peer(&format!("{base}.{side}[{i}]"), peer);
        }
    }

    fn kubernetes_peer(&mut self, path: &str, peer: &Peer) {
        let selects = peer.pod_selector.is_some() || peer.namespace_selector.is_some();
        match &peer.ip_block {
            Some(_) if selects => {
                self.say(path, "an ipBlock stands alone: put the selectors in a peer of their own")
            }
            None if !selects => {
                self.say(path, "a peer needs a podSelector, a namespaceSelector or an ipBlock")
            }
            Some(_) | None => {}
        }
        if let Some(block) = &peer.ip_block {
            self.check(&format!("{path}.ipBlock"), convert::ip_block(block));
        }
        if let Some(selector) = &peer.pod_selector {
            self.selector(&format!("{path}.podSelector"), selector);
        }
        if let Some(selector) = &peer.namespace_selector {
            self.selector(&format!("{path}.namespaceSelector"), selector);
        }
    }
}
