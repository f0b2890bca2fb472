//! Random objects from a small world, so that they meet: few names, few labels, few addresses.

use model::policy::{
    LabelSelector, Labels, Object, ObjectMeta, Operator, OwnerReference, Requirement,
    antrea::*,
    external::{
        Endpoint, EntityPort, ExternalEntity, ExternalEntitySpec, ExternalNode, ExternalNodeSpec, Interface,
    },
    kubernetes::{self, IntOrString, IpBlock, NetworkPolicySpec, Port},
    service::{Service, ServiceSpec},
    workload::*,
};

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    pub fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }

    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn some<T>(&mut self, percent: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.percent(percent) { Some(make(self)) } else { None }
    }

    fn list<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn labels(&mut self) -> Labels {
        let mut labels = Labels::new();
        for (key, values) in [("app", &["web", "db", "api"][..]), ("tier", &["1", "2"]), ("env", &["a", "b"])]
        {
            if self.percent(60) {
                labels.insert(key.into(), self.pick(values).into());
            }
        }
        labels
    }

    fn selector(&mut self) -> LabelSelector {
        let mut selector = LabelSelector::default();
        if self.percent(50) {
            let labels = self.labels();
            selector.match_labels = labels.into_iter().take(1).collect();
        }
        selector.match_expressions = self.list(2, |r| {
            let key = r.pick(&["app", "tier", "env"]).to_string();
            let values = |r: &mut Random| r.list(2, |r| r.pick(&["web", "db", "1", "a", "b"]).to_string());
            match r.below(20) {
                0..7 => Requirement {
                    key,
                    operator: Operator::In,
                    values: [vec!["web".into()], values(r)].concat(),
                },
                7..12 => Requirement {
                    key,
                    operator: Operator::NotIn,
                    values: [vec!["b".into()], values(r)].concat(),
                },
                12..16 => Requirement { key, operator: Operator::Exists, values: vec![] },
                16..19 => Requirement { key, operator: Operator::DoesNotExist, values: vec![] },
                _ => Requirement { key, operator: Operator::Unknown("in".into()), values: values(r) },
            }
        });
        selector
    }

    fn namespace(&mut self) -> String {
        self.pick(&["n0", "n1", "n2"]).into()
    }

    fn meta(&mut self, name: &str, namespaced: bool) -> ObjectMeta {
        let namespace = if namespaced { self.namespace() } else { String::new() };
        ObjectMeta { name: name.into(), namespace, labels: self.labels(), ..ObjectMeta::default() }
    }

    fn address(&mut self) -> String {
        match self.below(30) {
            0 => "nonsense".into(),
            n @ 1..8 => format!("fd00::{n}"),
            n => format!("10.0.0.{n}"),
        }
    }

    fn port_of_workload(&mut self) -> (String, i32, String) {
        let name = self.pick(&["http", "dns", ""]).to_string();
        (name, [80, 53, 70000][self.below(3)], self.pick(&["TCP", "UDP", "", "XYZ"]).into())
    }

    pub fn object(&mut self) -> Object {
        match self.below(100) {
            0..6 => {
                let name = self.pick(&["n0", "n1", "n2"]);
                let mut metadata = self.meta(name, false);
                if self.percent(20) {
                    metadata
                        .annotations
                        .insert("networkpolicy.antrea.io/enable-logging".into(), "true".into());
                }
                Object::Namespace(Namespace { metadata })
            }
            6..11 => {
                let name = self.pick(&["k0", "k1", "k2"]);
                let addresses = self.list(3, |r| NodeAddress {
                    kind: r.pick(&["InternalIP", "ExternalIP", "Hostname"]).into(),
                    address: r.address(),
                });
                let pod_cidrs =
                    self.list(2, |r| r.pick(&["10.9.0.0/24", "fd09::/64", "10.8.0.0/24"]).to_string());
                Object::Node(Node {
                    metadata: self.meta(name, false),
                    spec: NodeSpec { pod_cidrs, ..NodeSpec::default() },
                    status: NodeStatus { addresses },
                })
            }
            11..50 => self.pod(),
            50..54 => {
                let name = self.pick(&["s0", "s1"]);
                let selector = self.labels();
                let metadata = self.meta(name, true);
                let spec = ServiceSpec { selector, ..ServiceSpec::default() };
                Object::Service(Service { metadata, spec, ..Service::default() })
            }
            54..57 => {
                let name = self.pick(&["v0", "v1", "v0-3e616"]);
                let interface =
                    Interface { name: self.pick(&["", "eth0"]).into(), ips: self.list(2, Self::address) };
                let spec = ExternalNodeSpec { interfaces: vec![interface] };
                Object::ExternalNode(ExternalNode { metadata: self.meta(name, true), spec })
            }
            57..65 => self.entity(),
            65..67 => {
                let name = self.pick(&["t0", "emergency"]);
                let spec = TierSpec { priority: [10, 253, 60][self.below(3)] };
                Object::Tier(Tier { metadata: self.meta(name, false), spec })
            }
            67..75 => self.group(),
            75..87 => self.kubernetes_policy(),
            _ => self.antrea_policy(),
        }
    }

    pub fn pod(&mut self) -> Object {
        let name = self.pick(&["p0", "p1", "p2", "p3"]);
        let ports = self.list(1, |r| {
            let (name, container_port, protocol) = r.port_of_workload();
            ContainerPort { name, container_port, protocol }
        });
        let spec = PodSpec {
            node_name: self.pick(&["k0", "k1", "k2", "k0", "k1", ""]).into(),
            host_network: self.percent(8),
            service_account_name: self.pick(&["", "robot"]).into(),
            containers: vec![Container { ports }],
        };
        let pod_ips = self.list(2, |r| PodIp { ip: r.address() });
        let phase = self.pick(&["Running", "Running", "Running", "Pending", "Succeeded", "Failed"]).into();
        let status = PodStatus { phase, pod_ips, ..PodStatus::default() };
        Object::Pod(Pod { metadata: self.meta(name, true), spec, status })
    }

    fn entity(&mut self) -> Object {
        let name = self.pick(&["e0", "e1", "v0", "v0-3e616"]);
        let mut metadata = self.meta(name, true);
        if self.percent(40) {
            metadata
                .owner_references
                .push(OwnerReference { kind: self.pick(&["ExternalNode", "Vm"]).into(), name: "x".into() });
        }
        let spec = ExternalEntitySpec {
            endpoints: self.list(2, |r| Endpoint { ip: r.address(), name: String::new() }),
            ports: self.list(1, |r| {
                let (name, port, protocol) = r.port_of_workload();
                EntityPort { name, port, protocol }
            }),
            external_node: self.pick(&["cloud", "vm", ""]).into(),
        };
        Object::ExternalEntity(ExternalEntity { metadata, spec })
    }

    fn group(&mut self) -> Object {
        let name = self.pick(&["g0", "g1", "g2"]);
        let cluster = self.percent(50);
        let mut metadata = self.meta(name, !cluster);
        metadata.uid = self.pick(&["", "u1", "0f4789f6-6f28-5440-8ad4-46d8ac276643"]).into();
        let mut spec = GroupSpec::default();
        match self.below(8) {
            0..2 => {
                spec.pod_selector = Some(self.selector());
                spec.namespace_selector = self.some(30, Self::selector);
            }
            2 => spec.namespace_selector = Some(self.selector()),
            3 => spec.external_entity_selector = Some(self.selector()),
            4 => spec.service_reference = Some(self.service_name()),
            5 => spec.ip_blocks = self.list(2, Self::ip_block),
            6 => spec.node_selector = Some(self.selector()),
            _ => spec.child_groups = self.list(2, |r| r.pick(&["g0", "g1", "g2", "g3"]).into()),
        }
        let group = Group { metadata, spec };
        if cluster { Object::ClusterGroup(group) } else { Object::Group(group) }
    }

    fn service_name(&mut self) -> NamespacedName {
        NamespacedName { namespace: self.namespace(), name: self.pick(&["s0", "s1"]).into() }
    }

    fn ip_block(&mut self) -> IpBlock {
        let cidr = self.pick(&["10.0.0.0/24", "10.0.0.9/8", "fd00::/64", "0.0.0.0/0", "10.0.0/8"]);
        IpBlock {
            cidr: cidr.into(),
            except: self.list(1, |r| r.pick(&["10.0.0.16/28", "10.0.0.8/30", "fd00::4/127"]).into()),
        }
    }

    fn port(&mut self) -> Port {
        let port = match self.below(6) {
            0 => None,
            1 | 2 => Some(IntOrString::Name(self.pick(&["http", "dns", "no good"]).into())),
            _ => Some(IntOrString::Int([80, 53, 1000, -1][self.below(4)])),
        };
        Port {
            protocol: self.some(60, |r| r.pick(&["TCP", "UDP", "SCTP", "tcp"]).into()),
            port,
            end_port: self.some(15, |r| [90, 2000][r.below(2)]),
            ..Port::default()
        }
    }

    fn policy_meta(&mut self, namespaced: bool) -> ObjectMeta {
        let name = self.pick(&["a", "b", "c"]);
        let mut metadata = self.meta(name, namespaced);
        metadata.uid = match self.below(12) {
            0 => String::new(),
            1..4 => self.pick(&["dup-1", "dup-2", "11111111-2222-3333-4444-555555555555"]).into(),
            n => format!("{}-{}-{}", metadata.namespace, name, n % 3),
        };
        metadata.generation = self.below(3) as i64;
        metadata
    }

    fn kubernetes_policy(&mut self) -> Object {
        let peers = |r: &mut Random| {
            r.list(2, |r| match r.below(8) {
                0..2 => kubernetes::Peer { ip_block: Some(r.ip_block()), ..Default::default() },
                2 => kubernetes::Peer { namespace_selector: Some(r.selector()), ..Default::default() },
                3 => kubernetes::Peer {
                    namespace_selector: Some(r.selector()),
                    pod_selector: Some(r.selector()),
                    ip_block: r.some(10, Self::ip_block),
                },
                4..7 => kubernetes::Peer { pod_selector: Some(r.selector()), ..Default::default() },
                _ => kubernetes::Peer::default(),
            })
        };
        let spec = NetworkPolicySpec {
            pod_selector: self.selector(),
            policy_types: self.list(2, |r| r.pick(&["Ingress", "Egress"]).into()),
            ingress: self
                .list(2, |r| kubernetes::IngressRule { ports: r.list(2, Self::port), from: peers(r) }),
            egress: self.list(2, |r| kubernetes::EgressRule { ports: r.list(2, Self::port), to: peers(r) }),
        };
        Object::NetworkPolicy(kubernetes::NetworkPolicy { metadata: self.policy_meta(true), spec })
    }

    fn antrea_policy(&mut self) -> Object {
        let cluster = self.percent(60);
        let per_rule = self.percent(30);
        let rule = |r: &mut Random, out: bool| {
            let peers = r.list(2, |r| r.antrea_peer(cluster));
            Rule {
                name: r.pick(&["", "named"]).into(),
                action: r.pick(&["Allow", "Drop", "Reject", "Pass", "Allow", "Drop", "Deny"]).into(),
                ports: if r.percent(40) { r.list(2, Self::port) } else { vec![] },
                protocols: if r.percent(15) {
                    vec![Protocol {
                        icmp: Some(Icmp { icmp_type: Some(8), icmp_code: r.some(30, |_| 300) }),
                        igmp: None,
                    }]
                } else {
                    vec![]
                },
                from: if out { vec![] } else { peers.clone() },
                to: if out { peers } else { vec![] },
                to_services: if out && r.percent(5) { vec![r.service_meant()] } else { vec![] },
                enable_logging: r.percent(20),
                applied_to: if per_rule { r.list(2, |r| r.applied_to(cluster)) } else { vec![] },
                ..Rule::default()
            }
        };
        let spec = PolicySpec {
            tier: self.pick(&["", "emergency", "baseline", "Baseline", "t0", "nowhere"]).into(),
            priority: [1.0, 5.0, 5.5, 5.0, f64::NAN][self.below(5)],
            applied_to: if per_rule { vec![] } else { self.list(2, |r| r.applied_to(cluster)) },
            ingress: self.list(2, |r| rule(r, false)),
            egress: self.list(2, |r| rule(r, true)),
        };
        let policy = Policy { metadata: self.policy_meta(!cluster), spec };
        if cluster { Object::AntreaClusterNetworkPolicy(policy) } else { Object::AntreaNetworkPolicy(policy) }
    }

    fn service_meant(&mut self) -> NamespacedName {
        let mut name = self.service_name();
        if self.percent(40) {
            name.namespace.clear();
        }
        name
    }

    fn account(&mut self) -> NamespacedName {
        NamespacedName { namespace: self.namespace(), name: self.pick(&["default", "robot"]).into() }
    }

    fn applied_to(&mut self, cluster: bool) -> AppliedTo {
        let mut to = AppliedTo::default();
        match self.below(12) {
            0..5 => {
                to.pod_selector = Some(self.selector());
                to.namespace_selector = if cluster { self.some(50, Self::selector) } else { None };
            }
            5 => to.namespace_selector = Some(self.selector()),
            6..8 => to.external_entity_selector = Some(self.selector()),
            8 => to.group = Some(self.pick(&["g0", "g1", "g2"]).into()),
            9 => to.service_account = Some(self.account()),
            10 => to.service = Some(self.service_name()),
            _ => to.node_selector = Some(self.selector()),
        }
        to
    }

    fn antrea_peer(&mut self, cluster: bool) -> Peer {
        let mut peer = Peer::default();
        match self.below(16) {
            0..3 => {
                peer.pod_selector = Some(self.selector());
                peer.namespace_selector = self.some(40, Self::selector);
            }
            3 => peer.namespace_selector = Some(self.selector()),
            4 => {
                peer.external_entity_selector = Some(self.selector());
                peer.namespace_selector = self.some(40, Self::selector);
            }
            5..7 => peer.ip_block = Some(self.ip_block()),
            7..9 => peer.group = Some(self.pick(&["g0", "g1", "g2"]).into()),
            9 => peer.service_account = Some(self.account()),
            10 => peer.node_selector = Some(self.selector()),
            11 => peer.fqdn = Some("*.example.com".into()),
            12..14 if cluster || self.percent(10) => {
                peer.namespaces = Some(PeerNamespaces { matching: "Self".into(), same_labels: vec![] });
                peer.pod_selector = self.some(50, Self::selector);
            }
            14 if cluster => {
                let keys = [vec!["env".to_string()], vec!["tier".into(), "env".into()]];
                let same_labels = keys[self.below(2)].clone();
                peer.namespaces = Some(PeerNamespaces { matching: String::new(), same_labels });
            }
            _ => peer.pod_selector = Some(LabelSelector::default()),
        }
        peer
    }
}
