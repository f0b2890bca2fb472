//! The cases. What Kubernetes promises of services, one paragraph each.

use std::collections::BTreeMap;

use super::{
    BLOCKED, CLIENT, Case, Expected, LOCAL, NODE, POD, REMOTE, Row, Stage, endpoint, http, http_slice, ip,
    name, port, prefix, slice,
};
use crate::{Ingress, IngressMode, Protocol, Service, ServiceKind, Slice, SliceEndpoint};

use Protocol::{Sctp, Tcp, Udp};

const BALANCER: &str = "1.2.3.4";
const EXTERNAL: &str = "50.60.70.81";
/// Where the outside finds the service of [`everywhere`].
const OUTSIDE: [(&str, u16); 3] = [(EXTERNAL, 80), (BALANCER, 80), (NODE, 3001)];

pub fn all() -> Vec<Case> {
    vec![
        cluster_addresses(),
        no_endpoints(),
        source_ranges(),
        source_ranges_of_shared_addresses(),
        external_policy_local(),
        external_policy_cluster(),
        internal_policy(),
        terminating_endpoints(),
        topology_hints(),
        ports_and_slices(),
        balancer_modes(),
        types_and_labels(),
        shared_addresses(),
        shared_node_ports(),
        session_affinity(),
        services_come_and_go(),
    ]
}

fn both(port: u16) -> Expected {
    by(&[LOCAL, REMOTE], port, false)
}

fn by(addresses: &[&str], port: u16, hidden: bool) -> Expected {
    Expected::Answered { by: addresses.iter().map(|one| (ip(one), port)).collect(), hidden }
}

fn row(protocol: Protocol, from: &str, to: (&str, u16), expected: Expected) -> Row {
    Row { protocol, from: ip(from), to: (ip(to.0), to.1), expected, with_ipvs: None }
}

fn tcp(from: &str, to: (&str, u16), expected: Expected) -> Row {
    row(Tcp, from, to, expected)
}

impl Row {
    fn ipvs(self, expected: Expected) -> Self {
        Self { with_ipvs: Some(expected), ..self }
    }
}

/// Pairs of service and its slices, and rows.
fn stage<const N: usize>(services: [(&str, Service, Vec<Slice>); N], rows: Vec<Row>) -> Stage {
    let mut stage = Stage { rows, ..Stage::default() };
    for (service, value, slices) in services {
        stage.services.push((name(service), value));
        let keyed = slices.into_iter().enumerate();
        stage.slices.extend(keyed.map(|(index, slice)| (format!("{service}-{index}"), slice)));
    }
    stage
}

fn web(service: Service, endpoints: &[&str], rows: Vec<Row>) -> Stage {
    stage([("web", service, vec![http_slice("web", endpoints)])], rows)
}

/// A balancer, an external address and node port 3001.
fn everywhere() -> Service {
    Service {
        kind: ServiceKind::LoadBalancer,
        external_ips: vec![ip(EXTERNAL)],
        load_balancers: vec![Ingress { address: ip(BALANCER), mode: IngressMode::Vip }],
        ..http("172.30.0.41", 3001)
    }
}

fn cluster_addresses() -> Case {
    let one = (http("172.30.0.41", 0), vec![http_slice("one", &[LOCAL])]);
    let ports = [
        ("http", Tcp, 80),
        ("https", Tcp, 443),
        ("dns", Udp, 53),
        ("dns-tcp", Tcp, 53),
        ("dns-sctp", Sctp, 53),
    ];
    let two = Service {
        ports: ports.iter().map(|(name, protocol, number)| port(name, *protocol, *number, 0)).collect(),
        ..http("172.30.0.42", 0)
    };
    let targets = [
        ("http", Tcp, 80),
        ("https", Tcp, 8443),
        ("dns", Udp, 53),
        ("dns-tcp", Tcp, 5353),
        ("dns-sctp", Sctp, 53),
    ];
    let two_slices = vec![slice("two", vec![endpoint(LOCAL), endpoint(REMOTE)], &targets)];
    let rows = vec![
        tcp(POD, ("172.30.0.41", 80), by(&[LOCAL], 80, false)),
        tcp(LOCAL, ("172.30.0.41", 80), by(&[LOCAL], 80, true)),
        tcp(CLIENT, ("172.30.0.41", 80), by(&[LOCAL], 80, true)),
        tcp(NODE, ("172.30.0.42", 80), by(&[LOCAL, REMOTE], 80, true)),
        tcp(POD, ("172.30.0.42", 80), both(80)),
        tcp(POD, ("172.30.0.42", 443), both(8443)),
        tcp(POD, ("172.30.0.42", 53), both(5353)),
        row(Udp, POD, ("172.30.0.42", 53), both(53)),
        row(Sctp, POD, ("172.30.0.42", 53), both(53)),
        row(Udp, POD, ("172.30.0.42", 80), Expected::Refused),
        tcp(POD, ("172.30.0.41", 443), Expected::Refused),
        tcp(POD, ("172.30.0.50", 80), Expected::Silent),
    ];
    Case {
        name: "cluster addresses balance every protocol, and a Pod reaches itself",
        stages: vec![stage([("one", one.0, one.1), ("two", two, two_slices)], rows)],
    }
}

fn refused_everywhere() -> Vec<Row> {
    let mut rows = vec![tcp(POD, ("172.30.0.41", 80), Expected::Refused)];
    for to in OUTSIDE {
        rows.extend([POD, CLIENT].map(|from| tcp(from, to, Expected::Refused)));
    }
    rows
}

fn no_endpoints() -> Case {
    let answered = vec![tcp(POD, ("172.30.0.41", 80), by(&[LOCAL], 80, false))];
    Case {
        name: "without endpoints clients are refused, whichever way they come",
        stages: vec![
            stage([("web", everywhere(), vec![])], refused_everywhere()),
            web(everywhere(), &[LOCAL], answered),
            web(everywhere(), &[], refused_everywhere()),
            stage([("web", everywhere(), vec![])], refused_everywhere()),
        ],
    }
}

fn source_ranges() -> Case {
    let ingress = |address| Ingress { address: ip(address), mode: IngressMode::Vip };
    let guarded = Service {
        kind: ServiceKind::LoadBalancer,
        load_balancers: vec![ingress(BALANCER), ingress("5.6.7.8")],
        source_ranges: vec![prefix("192.168.0.0/24"), prefix("203.0.113.0/25")],
        ..http("172.30.0.41", 3001)
    };
    let local = |hidden| by(&[LOCAL], 80, hidden);
    let mut rows = vec![
        tcp(POD, ("172.30.0.41", 80), local(false)),
        tcp(CLIENT, (NODE, 3001), local(true)),
        tcp(BLOCKED, (NODE, 3001), local(true)),
        tcp(POD, (BALANCER, 80), Expected::Silent),
        tcp(NODE, (BALANCER, 80), local(true)),
    ];
    for balancer in [BALANCER, "5.6.7.8"] {
        rows.push(tcp(CLIENT, (balancer, 80), local(true)));
        rows.push(tcp(BLOCKED, (balancer, 80), Expected::Silent));
    }
    let open = vec![tcp(BLOCKED, (BALANCER, 80), local(true)), tcp(POD, (BALANCER, 80), local(true))];
    let everyone =
        Service { source_ranges: vec![prefix("0.0.0.0/0"), prefix("10.9.9.0/24")], ..guarded.clone() };
    let cleared = Service { source_ranges: Vec::new(), ..guarded.clone() };
    Case {
        name: "source ranges guard the balancer's addresses and nothing else",
        stages: vec![
            web(guarded.clone(), &[LOCAL], rows.clone()),
            web(everyone, &[LOCAL], open.clone()),
            web(guarded, &[LOCAL], rows),
            web(cleared, &[LOCAL], open),
        ],
    }
}

fn source_ranges_of_shared_addresses() -> Case {
    let guarded = || Service {
        kind: ServiceKind::LoadBalancer,
        load_balancers: vec![Ingress { address: ip(BALANCER), mode: IngressMode::Vip }],
        source_ranges: vec![prefix("203.0.113.0/25")],
        ..http("172.30.0.42", 3002)
    };
    let rows = |endpoint: &str| {
        vec![
            tcp(CLIENT, (BALANCER, 80), by(&[endpoint], 80, true)),
            tcp(BLOCKED, (BALANCER, 80), Expected::Silent),
        ]
    };
    // The first by name has the address and restricts nobody; the balancer behind it does.
    let open = || Service { external_ips: vec![ip(BALANCER)], ..http("172.30.0.41", 3001) };
    let a = || ("a", open(), vec![http_slice("a", &[LOCAL])]);
    let b = || ("b", guarded(), vec![http_slice("b", &[REMOTE])]);
    let twice = Service { external_ips: vec![ip(BALANCER)], ..guarded() };
    let unguarded = vec![tcp(BLOCKED, (BALANCER, 80), by(&[LOCAL], 80, true))];
    Case {
        name: "source ranges guard the balancer's address, whoever claims it beside the balancer",
        stages: vec![
            web(twice, &[LOCAL], rows(LOCAL)),
            stage([a(), b()], rows(LOCAL)),
            stage([b()], rows(REMOTE)),
            stage([b(), a()], rows(LOCAL)),
            stage([a()], unguarded),
        ],
    }
}

fn external_policy_local() -> Case {
    let service = || Service { external_local: true, ..everywhere() };
    let mut here = vec![tcp(POD, ("172.30.0.41", 80), both(80))];
    let mut elsewhere = vec![tcp(POD, ("172.30.0.41", 80), by(&[REMOTE], 80, false))];
    for to in OUTSIDE {
        here.push(tcp(POD, to, both(80)).ipvs(by(&[LOCAL], 80, false)));
        here.push(tcp(CLIENT, to, by(&[LOCAL], 80, false)));
        elsewhere.push(tcp(POD, to, by(&[REMOTE], 80, false)).ipvs(Expected::Silent));
        elsewhere.push(tcp(CLIENT, to, Expected::Silent));
    }
    Case {
        name: "an external policy of Local keeps the source and the node; Pods go where they like",
        stages: vec![
            web(service(), &[LOCAL, REMOTE], here),
            web(service(), &[REMOTE], elsewhere),
            web(service(), &[], refused_everywhere()),
        ],
    }
}

fn external_policy_cluster() -> Case {
    let rows = |endpoints: &[&str]| {
        let mut rows = vec![tcp(POD, ("172.30.0.41", 80), by(endpoints, 80, false))];
        for to in OUTSIDE {
            rows.extend([POD, CLIENT].map(|from| tcp(from, to, by(endpoints, 80, true))));
        }
        rows
    };
    let local = Service { external_local: true, ..everywhere() };
    let kept = vec![tcp(CLIENT, (BALANCER, 80), by(&[LOCAL], 80, false))];
    Case {
        name: "an external policy of Cluster hides the source; it can be switched",
        stages: vec![
            web(everywhere(), &[LOCAL, REMOTE], rows(&[LOCAL, REMOTE])),
            web(local, &[LOCAL, REMOTE], kept),
            web(everywhere(), &[REMOTE], rows(&[REMOTE])),
        ],
    }
}

fn internal_policy() -> Case {
    let local = || Service { internal_local: true, ..http("172.30.0.41", 0) };
    let to = ("172.30.0.41", 80);
    Case {
        name: "an internal policy of Local keeps traffic on the node, or drops it",
        stages: vec![
            web(http("172.30.0.41", 0), &[LOCAL, REMOTE], vec![tcp(POD, to, both(80))]),
            web(local(), &[LOCAL, REMOTE], vec![tcp(POD, to, by(&[LOCAL], 80, false))]),
            web(local(), &[REMOTE], vec![tcp(POD, to, Expected::Silent)]),
            web(local(), &[], vec![tcp(POD, to, Expected::Refused)]),
        ],
    }
}

fn with(address: &str, ready: bool, serving: bool, terminating: bool) -> SliceEndpoint {
    SliceEndpoint {
        ready: Some(ready),
        serving: Some(serving),
        terminating: Some(terminating),
        ..endpoint(address)
    }
}

fn terminating_endpoints() -> Case {
    let http_port = [("http", Tcp, 80)];
    let cluster = ("172.30.0.41", 80);
    let of = |service: Service, endpoints: Vec<SliceEndpoint>, rows| {
        stage([("web", service, vec![slice("web", endpoints, &http_port)])], rows)
    };
    let local = || Service { external_local: true, ..everywhere() };
    let (ready, drains, ended) = ((true, true, false), (false, true, true), (false, false, true));
    let at = |address, (ready, serving, terminating)| with(address, ready, serving, terminating);
    Case {
        name: "endpoints that terminate serve while nobody else does",
        stages: vec![
            of(
                everywhere(),
                vec![at(LOCAL, drains), at(REMOTE, ready)],
                vec![
                    tcp(POD, cluster, by(&[REMOTE], 80, false)),
                    tcp(CLIENT, (BALANCER, 80), by(&[REMOTE], 80, true)),
                ],
            ),
            of(
                everywhere(),
                vec![at(LOCAL, drains), at(REMOTE, ended)],
                vec![
                    tcp(POD, cluster, by(&[LOCAL], 80, false)),
                    tcp(CLIENT, (BALANCER, 80), by(&[LOCAL], 80, true)),
                ],
            ),
            of(
                local(),
                vec![at(LOCAL, drains), at(REMOTE, ready)],
                vec![
                    tcp(POD, cluster, by(&[REMOTE], 80, false)),
                    tcp(CLIENT, (BALANCER, 80), by(&[LOCAL], 80, false)),
                ],
            ),
            of(
                local(),
                vec![at(LOCAL, ended), at(REMOTE, ready)],
                vec![tcp(CLIENT, (BALANCER, 80), Expected::Silent)],
            ),
            of(everywhere(), vec![at(LOCAL, ended), at(REMOTE, (false, false, false))], refused_everywhere()),
        ],
    }
}

fn topology_hints() -> Case {
    let hinted = |address, zones: &[&str], nodes: &[&str]| SliceEndpoint {
        zone_hints: zones.iter().map(|zone| (*zone).to_owned()).collect(),
        node_hints: nodes.iter().map(|node| (*node).to_owned()).collect(),
        ..endpoint(address)
    };
    let cluster = ("172.30.0.41", 80);
    let of = |endpoints: Vec<SliceEndpoint>, expected: Expected| {
        let slices = vec![slice("web", endpoints, &[("http", Tcp, 80)])];
        stage([("web", http("172.30.0.41", 0), slices)], vec![tcp(POD, cluster, expected)])
    };
    Case {
        name: "hints are kept if all endpoints have them and one means us",
        stages: vec![
            of(vec![hinted(LOCAL, &["a"], &[]), hinted(REMOTE, &["b"], &[])], by(&[LOCAL], 80, false)),
            of(vec![hinted(LOCAL, &["b"], &[]), hinted(REMOTE, &["a"], &[])], by(&[REMOTE], 80, false)),
            of(vec![hinted(LOCAL, &["b"], &[]), hinted(REMOTE, &["b"], &[])], both(80)),
            of(vec![hinted(LOCAL, &["a"], &[]), hinted(REMOTE, &[], &[])], both(80)),
            of(
                vec![hinted(LOCAL, &["a"], &["there"]), hinted(REMOTE, &["a"], &["here"])],
                by(&[REMOTE], 80, false),
            ),
            of(vec![hinted(REMOTE, &["b"], &["there"])], by(&[REMOTE], 80, false)),
        ],
    }
}

fn ports_and_slices() -> Case {
    let ports = vec![port("http", Tcp, 80, 3001), port("dns", Udp, 80, 3001)];
    let service = Service { kind: ServiceKind::NodePort, ports, ..http("172.30.0.41", 0) };
    let slices = vec![
        slice("web", vec![endpoint(LOCAL)], &[("http", Tcp, 8443), ("dns", Udp, 53)]),
        slice("web", vec![endpoint(REMOTE)], &[("http", Tcp, 80)]),
        // The same endpoint once more, and one of another family.
        slice("web", vec![endpoint(REMOTE), endpoint("fd99::1")], &[("http", Tcp, 80), ("other", Tcp, 5353)]),
    ];
    let http_both = |hidden| Expected::Answered { by: vec![(ip(LOCAL), 8443), (ip(REMOTE), 80)], hidden };
    let rows = vec![
        tcp(POD, ("172.30.0.41", 80), http_both(false)),
        tcp(CLIENT, (NODE, 3001), http_both(true)),
        row(Udp, POD, ("172.30.0.41", 80), by(&[LOCAL], 53, false)),
        row(Udp, CLIENT, (NODE, 3001), by(&[LOCAL], 53, true)),
        tcp(CLIENT, (NODE, 3002), Expected::Passed),
    ];
    Case {
        name: "a port has its own number at each endpoint, in several slices, and one number serves two protocols",
        stages: vec![stage([("web", service, slices)], rows)],
    }
}

fn balancer_modes() -> Case {
    let ingress = |address, mode| Ingress { address: ip(address), mode };
    let service = Service {
        kind: ServiceKind::LoadBalancer,
        load_balancers: vec![ingress(BALANCER, IngressMode::Proxy), ingress("5.6.7.8", IngressMode::Vip)],
        ..http("172.30.0.41", 0)
    };
    let rows = vec![
        tcp(CLIENT, ("5.6.7.8", 80), by(&[LOCAL], 80, true)),
        tcp(POD, (BALANCER, 80), Expected::Passed),
        tcp(CLIENT, (NODE, 3001), Expected::Passed),
    ];
    Case {
        name: "a balancer that translates itself is left alone, and node ports are no must",
        stages: vec![web(service, &[LOCAL], rows)],
    }
}

fn types_and_labels() -> Case {
    let label = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
    let to = ("172.30.0.41", 80);
    let served =
        || vec![tcp(POD, to, by(&[LOCAL], 80, false)), tcp(CLIENT, (NODE, 3001), by(&[LOCAL], 80, true))];
    let gone = || vec![tcp(POD, to, Expected::Silent), tcp(CLIENT, (NODE, 3001), Expected::Passed)];
    let service = || http("172.30.0.41", 3001);
    let not_ours = Service { labels: label(model::service::PROXY_NAME_LABEL), ..service() };
    let headless = Service { labels: label(model::service::HEADLESS_LABEL), ..service() };
    let named = Service { kind: ServiceKind::ExternalName, ..service() };
    let internal = vec![tcp(POD, to, by(&[LOCAL], 80, false)), tcp(CLIENT, (NODE, 3001), Expected::Passed)];
    Case {
        name: "types and labels change what is served, there and back",
        stages: vec![
            web(service(), &[LOCAL], served()),
            web(not_ours, &[LOCAL], gone()),
            web(service(), &[LOCAL], served()),
            web(headless, &[LOCAL], gone()),
            web(http("172.30.0.41", 0), &[LOCAL], internal),
            web(named, &[LOCAL], gone()),
            web(service(), &[LOCAL], served()),
        ],
    }
}

fn shared_addresses() -> Case {
    let a = || ("a", http("172.30.0.41", 3001), vec![http_slice("a", &[LOCAL])]);
    let b = || ("b", http("172.30.0.41", 3001), vec![http_slice("b", &[REMOTE])]);
    let rows = |endpoint: &str| {
        vec![
            tcp(POD, ("172.30.0.41", 80), by(&[endpoint], 80, false)),
            tcp(CLIENT, (NODE, 3001), by(&[endpoint], 80, true)),
        ]
    };
    Case {
        name: "of two services with the same address and port the first by name is served, then the other",
        stages: vec![
            stage([b()], rows(REMOTE)),
            stage([a(), b()], rows(LOCAL)),
            stage([b()], rows(REMOTE)),
            stage([b(), a()], rows(LOCAL)),
            stage([a()], rows(LOCAL)),
        ],
    }
}

fn shared_node_ports() -> Case {
    let a = || ("a", http("172.30.0.41", 3001), vec![http_slice("a", &[LOCAL])]);
    let b = || ("b", http("172.30.0.42", 3001), vec![http_slice("b", &[REMOTE])]);
    let own = || {
        vec![
            tcp(POD, ("172.30.0.41", 80), by(&[LOCAL], 80, false)),
            tcp(POD, ("172.30.0.42", 80), by(&[REMOTE], 80, false)),
        ]
    };
    let at_node = |endpoint| tcp(CLIENT, (NODE, 3001), by(&[endpoint], 80, true));
    let elsewhere = || ("a", http("172.30.0.41", 3002), vec![http_slice("a", &[LOCAL])]);
    let both_ports = vec![at_node(REMOTE), tcp(CLIENT, (NODE, 3002), by(&[LOCAL], 80, true))];
    Case {
        name: "two services with one node port keep their own addresses, and the first by name has the port",
        stages: vec![
            stage([b()], vec![at_node(REMOTE)]),
            stage([a(), b()], [own(), vec![at_node(LOCAL)]].concat()),
            stage([elsewhere(), b()], [own(), both_ports].concat()),
            stage([b()], vec![at_node(REMOTE)]),
        ],
    }
}

fn session_affinity() -> Case {
    let sticky = || Service { affinity: Some(60), ..everywhere() };
    let one = |from, to| tcp(from, to, Expected::Sticky(vec![(ip(LOCAL), 80), (ip(REMOTE), 80)]));
    let gone = vec![tcp(POD, ("172.30.0.41", 80), by(&[REMOTE], 80, false))];
    Case {
        name: "with affinity a client keeps its endpoint for as long as there is one",
        stages: vec![
            web(sticky(), &[LOCAL, REMOTE], vec![one(POD, ("172.30.0.41", 80)), one(CLIENT, (BALANCER, 80))]),
            web(sticky(), &[REMOTE], gone),
            web(everywhere(), &[LOCAL, REMOTE], vec![tcp(POD, ("172.30.0.41", 80), both(80))]),
        ],
    }
}

fn services_come_and_go() -> Case {
    let to = ("172.30.0.41", 80);
    let moved = Service { cluster_ips: vec![ip("172.30.0.44")], ..everywhere() };
    Case {
        name: "services are made, moved and unmade, and nothing of them stays",
        stages: vec![
            web(everywhere(), &[LOCAL], vec![tcp(POD, to, by(&[LOCAL], 80, false))]),
            web(
                moved,
                &[LOCAL],
                vec![
                    tcp(POD, to, Expected::Silent),
                    tcp(POD, ("172.30.0.44", 80), by(&[LOCAL], 80, false)),
                    tcp(CLIENT, (BALANCER, 80), by(&[LOCAL], 80, true)),
                ],
            ),
            stage(
                [],
                vec![
                    tcp(POD, to, Expected::Silent),
                    tcp(POD, ("172.30.0.44", 80), Expected::Silent),
                    tcp(CLIENT, (NODE, 3001), Expected::Passed),
                ],
            ),
        ],
    }
}
