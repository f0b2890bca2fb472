//! The objects, and where each Pod is.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

pub const PODS: usize = 10;
const POLICIES: usize = 20;
const HOSTS: usize = 24;
const NAMESPACES: usize = 240;
/// Of each kind: ports, ranges, namespaces, Pods, blocks, exceptions.
const EACH: usize = 5;

/// How much there is of everything.
pub struct Shape {
    pub hosts: usize,
    pub namespaces: usize,
}

/// A policy, and by what is seen that it is in force.
pub struct Policy {
    pub namespace: String,
    pub name: String,
    pub document: Value,
    /// Who is asked from where.
    pub pod: Ipv4Addr,
    pub port: u16,
    pub from: Ipv4Addr,
    /// Where the Pod is.
    pub host: usize,
}

impl Shape {
    pub fn new(share: usize) -> Self {
        let of = |whole: usize, least: usize| (whole / share.max(1)).max(least);
        Self { hosts: of(HOSTS, 2), namespaces: of(NAMESPACES, 2 * EACH) }
    }

    /// Index of its host.
    fn host_of(&self, namespace: usize, pod: usize) -> usize {
        (namespace * PODS + pod) % self.hosts
    }

    pub fn address(&self, namespace: usize, pod: usize) -> Ipv4Addr {
        let [_, _, high, low] = u32::try_from(namespace * PODS + pod).unwrap_or_default().to_be_bytes();
        Ipv4Addr::new(10, octet(self.host_of(namespace, pod) + 1), high, low)
    }

    /// Of each host: namespace, name and address.
    pub fn pods_of(&self, host: usize) -> Vec<(String, String, Ipv4Addr)> {
        let all = (0..self.namespaces).flat_map(|namespace| (0..PODS).map(move |pod| (namespace, pod)));
        let here = all.filter(|(namespace, pod)| self.host_of(*namespace, *pod) == host);
        here.map(|(of, pod)| (name_of(of), format!("pod-{pod}"), self.address(of, pod))).collect()
    }

    pub fn pods(&self) -> Vec<Value> {
        let mut documents = Vec::new();
        for namespace in 0..self.namespaces {
            let name = name_of(namespace);
            documents.push(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"ns": name}}}));
            for pod in 0..PODS {
                let ip = self.address(namespace, pod);
                documents.push(json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"namespace": name, "name": format!("pod-{pod}"), "labels": {"pod": format!("pod-{pod}")}},
                    "spec": {"nodeName": host_name(self.host_of(namespace, pod))},
                    "status": {"podIP": ip, "podIPs": [{"ip": ip}]}}));
            }
        }
        documents
    }

    pub fn denials(&self) -> Vec<Value> {
        let deny = |namespace| {
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"namespace": name_of(namespace), "name": "deny-all"},
                "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}})
        };
        (0..self.namespaces).map(deny).collect()
    }

    /// Of all namespaces in turn, so that neighbours in time are not neighbours in the network.
    pub fn policies(&self, except: bool) -> Vec<Policy> {
        let each = (0..POLICIES).flat_map(|number| (0..self.namespaces).map(move |of| (of, number)));
        each.map(|(namespace, number)| self.policy(namespace, number, except)).collect()
    }

    fn policy(&self, namespace: usize, number: usize, except: bool) -> Policy {
        let port = |index: usize| u16::try_from(1_024 + number * EACH + index).expect("there are few");
        let range =
            |index: usize| u16::try_from(10_000 + (number * EACH + index) * 100).expect("there are few");
        let single = (0..EACH).map(|index| json!({"protocol": "UDP", "port": port(index)}));
        let ranges = (0..EACH)
            .map(|index| json!({"protocol": "UDP", "port": range(index), "endPort": range(index) + 49}));
        let block = |index: usize| {
            let blocks = (namespace * POLICIES + number) * EACH + index;
            Ipv4Addr::from(0x0b00_0000 + u32::try_from(blocks << 8).expect("they fit into 11.0.0.0/8"))
        };
        let blocks = (0..EACH).map(|index| {
            let [a, b, c, _] = block(index).octets();
            let except: Vec<String> =
                (1..=EACH).filter(|_| except).map(|part| format!("{a}.{b}.{c}.{}/28", part * 32)).collect();
            json!({"ipBlock": {"cidr": format!("{a}.{b}.{c}.0/24"), "except": except}})
        });
        let namespaces = (0..EACH).map(|index| {
            let other = (namespace + 1 + number * EACH + index) % self.namespaces;
            json!({"namespaceSelector": {"matchLabels": {"ns": name_of(other)}}})
        });
        let pods = (0..EACH).map(|index| {
            json!({"podSelector": {"matchLabels": {"pod": format!("pod-{}", (number + index) % PODS)}}})
        });
        let (name, policy) = (name_of(namespace), format!("open-{number}"));
        let document = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"namespace": name, "name": policy},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{
                "from": namespaces.chain(pods).chain(blocks).collect::<Vec<_>>(),
                "ports": single.chain(ranges).collect::<Vec<_>>()}]}});
        // Half of them are asked at a port, half in the middle of a range.
        let (pod, [a, b, c, _]) = (number % PODS, block(number % EACH).octets());
        Policy {
            document,
            pod: self.address(namespace, pod),
            port: if number.is_multiple_of(2) { port(EACH - 1) } else { range(EACH - 1) + 25 },
            from: Ipv4Addr::new(a, b, c, 1),
            host: self.host_of(namespace, pod),
            namespace: name,
            name: policy,
        }
    }
}

pub fn host_name(host: usize) -> String {
    format!("host-{host}")
}

fn name_of(namespace: usize) -> String {
    format!("ns-{namespace}")
}

pub fn octet(number: usize) -> u8 {
    u8::try_from(number).expect("there are fewer hosts")
}
