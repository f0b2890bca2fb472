//! Truth tables: three namespaces of three Pods, every pair, ports 80 and 81, TCP and UDP. Each case states in plain
//! names who may reach whom, after the documented meaning of NetworkPolicy, and every cell of the table is asked.

use model::policy::output::{MemberKind, Protocol};
use policy::explain::{Endpoint, Query};

use crate::harness::{World, cluster_policy, namespace, network_policy};

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const PODS: [&str; 3] = ["a", "b", "c"];

fn world() -> String {
    let mut yaml = String::new();
    for (i, ns) in NAMESPACES.iter().enumerate() {
        yaml += &namespace(ns, &format!("{{ns: {ns}}}"));
        for (j, name) in PODS.iter().enumerate() {
            let ports = "[{name: serve-80-tcp, containerPort: 80, protocol: TCP}, \
                          {name: serve-81-tcp, containerPort: 81, protocol: TCP}, \
                          {name: serve-80-udp, containerPort: 80, protocol: UDP}]";
            yaml += &format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {ns}, labels: {{pod: {name}}}}}\n\
                 spec: {{nodeName: n{j}, containers: [{{name: c, image: i, ports: {ports}}}]}}\n\
                 status: {{phase: Running, podIPs: [{{ip: 10.0.{i}.{}}}]}}\n---\n",
                j + 1
            );
        }
    }
    yaml
}

/// One cell: `from` and `to` are written `x/a`.
struct Cell<'a> {
    from: &'a str,
    to: &'a str,
    port: u16,
    is_tcp: bool,
}

impl Cell<'_> {
    fn from(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.from.starts_with(name))
    }

    fn to(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.to.starts_with(name))
    }
}

/// `expected` is asked for every pair of different Pods; a Pod always reaches itself.
#[track_caller]
fn holds(title: &str, policies: &str, expected: impl Fn(&Cell<'_>) -> bool) {
    let world = World::of(&(world() + policies));
    let all: Vec<String> =
        NAMESPACES.iter().flat_map(|ns| PODS.iter().map(move |pod| format!("{ns}/{pod}"))).collect();
    let endpoint = |path: &str| {
        let (namespace, name) = path.split_once('/').expect("a namespace and a name");
        Endpoint::Workload { kind: MemberKind::Pod, namespace: namespace.into(), name: name.into() }
    };
    let mut wrong = Vec::new();
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))) {
        for (port, is_tcp) in [(80, true), (81, true), (80, false)] {
            let query = Query {
                source: endpoint(from),
                destination: endpoint(to),
                protocol: Some(if is_tcp { Protocol::Tcp } else { Protocol::Udp }),
                port: Some(port),
                source_port: None,
                icmp: None,
                family: None,
            };
            let told = world.engine.explain(&query).expect("both ends exist").allowed;
            let right = from == to || expected(&Cell { from, to, port, is_tcp });
            if told != right {
                wrong.push(format!("{from} -> {to}:{port} tcp={is_tcp}: told {told}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{title}:\n{}", wrong.join("\n"));
}

const TO_A: &str = "podSelector: {matchLabels: {pod: a}}";

fn into_a(from: &str) -> String {
    network_policy("x", "p", &format!("{{{TO_A}, policyTypes: [Ingress], ingress: [{from}]}}"))
}

fn out_of_a(to: &str) -> String {
    network_policy("x", "p", &format!("{{{TO_A}, policyTypes: [Egress], egress: [{to}]}}"))
}

#[test]
fn isolation() {
    holds("no policy", "", |_| true);
    let deny =
        |types: &str| network_policy("x", "deny", &format!("{{podSelector: {{}}, policyTypes: [{types}]}}"));
    holds("deny ingress", &deny("Ingress"), |c| !c.to(&["x/"]));
    holds("deny egress", &deny("Egress"), |c| !c.from(&["x/"]));
    holds("deny both", &deny("Ingress, Egress"), |c| !c.to(&["x/"]) && !c.from(&["x/"]));
    holds("types are defaulted", &network_policy("x", "p", "{podSelector: {}}"), |c| !c.to(&["x/"]));
    holds("one Pod only", &network_policy("x", "p", &format!("{{{TO_A}}}")), |c| !c.to(&["x/a"]));
    let all = network_policy("x", "all", "{podSelector: {}, ingress: [{}]}");
    holds("allow all", &all, |_| true);
    holds("allow all wins over deny", &(deny("Ingress") + &all), |_| true);
    let out = network_policy("x", "out", "{podSelector: {}, policyTypes: [Egress], egress: [{}]}");
    holds("allow all out", &(deny("Egress") + &out), |_| true);
}

#[test]
fn peers_of_ingress() {
    let same = into_a("{from: [{podSelector: {matchLabels: {pod: b}}}]}");
    holds("Pods of the same namespace", &same, |c| !c.to(&["x/a"]) || c.from(&["x/b"]));
    let everyone_here = into_a("{from: [{podSelector: {}}]}");
    holds("all of the same namespace", &everyone_here, |c| !c.to(&["x/a"]) || c.from(&["x/"]));
    let y = into_a("{from: [{namespaceSelector: {matchLabels: {ns: y}}}]}");
    holds("a namespace", &y, |c| !c.to(&["x/a"]) || c.from(&["y/"]));
    let any = into_a("{from: [{namespaceSelector: {}}]}");
    holds("all namespaces", &any, |_| true);
    let both =
        into_a("{from: [{namespaceSelector: {matchLabels: {ns: y}}, podSelector: {matchLabels: {pod: b}}}]}");
    holds("one peer: both", &both, |c| !c.to(&["x/a"]) || c.from(&["y/b"]));
    let either = into_a(
        "{from: [{namespaceSelector: {matchLabels: {ns: y}}}, {podSelector: {matchLabels: {pod: b}}}]}",
    );
    holds("two peers: either", &either, |c| !c.to(&["x/a"]) || c.from(&["y/", "x/b"]));
    let by_name = into_a("{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: z}}}]}");
    holds("a namespace by its name", &by_name, |c| !c.to(&["x/a"]) || c.from(&["z/"]));
    let not = into_a(
        "{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}]}",
    );
    holds("NotIn", &not, |c| !c.to(&["x/a"]) || c.from(&["y/", "z/"]));
    let several =
        into_a("{from: [{podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}}]}");
    holds("In", &several, |c| !c.to(&["x/a"]) || c.from(&["x/b", "x/c"]));
    let absent = into_a("{from: [{podSelector: {matchExpressions: [{key: pod, operator: DoesNotExist}]}}]}");
    holds("DoesNotExist", &absent, |c| !c.to(&["x/a"]));
    let exists = into_a("{from: [{podSelector: {matchExpressions: [{key: pod, operator: Exists}]}}]}");
    holds("Exists", &exists, |c| !c.to(&["x/a"]) || c.from(&["x/"]));
}

#[test]
fn ports_and_protocols() {
    let port = |ports: &str| into_a(&format!("{{ports: [{ports}]}}"));
    let open = |c: &Cell<'_>| !c.to(&["x/a"]);
    holds("a number", &port("{port: 80}"), |c| open(c) || (c.port == 80 && c.is_tcp));
    holds("UDP", &port("{port: 80, protocol: UDP}"), |c| open(c) || !c.is_tcp);
    holds("two", &port("{port: 81}, {port: 80, protocol: UDP}"), |c| open(c) || c.port == 81 || !c.is_tcp);
    holds("a name", &port("{port: serve-81-tcp}"), |c| open(c) || c.port == 81);
    holds("a name of UDP", &port("{port: serve-80-udp, protocol: UDP}"), |c| open(c) || !c.is_tcp);
    holds("a name under the wrong protocol", &port("{port: serve-80-udp}"), open);
    holds("a range", &port("{port: 80, endPort: 90}"), |c| open(c) || c.is_tcp);
    holds("a range below", &port("{port: 1, endPort: 80}"), |c| open(c) || (c.port == 80 && c.is_tcp));
    holds("no number", &port("{protocol: TCP}"), |c| open(c) || c.is_tcp);
    let both = into_a("{ports: [{port: 80}], from: [{namespaceSelector: {matchLabels: {ns: y}}}]}");
    holds("port and peer", &both, |c| open(c) || (c.from(&["y/"]) && c.port == 80 && c.is_tcp));
    let two = into_a("{ports: [{port: 80}]}, {from: [{namespaceSelector: {matchLabels: {ns: y}}}]}");
    holds("two rules", &two, |c| open(c) || (c.port == 80 && c.is_tcp) || c.from(&["y/"]));
}

#[test]
fn egress_and_both_sides() {
    let to_y = out_of_a("{to: [{namespaceSelector: {matchLabels: {ns: y}}}]}");
    holds("to a namespace", &to_y, |c| !c.from(&["x/a"]) || c.to(&["y/"]));
    let to_port = out_of_a("{ports: [{port: serve-81-tcp}]}");
    holds("to a named port", &to_port, |c| !c.from(&["x/a"]) || c.port == 81);
    let udp = out_of_a("{to: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80, protocol: UDP}]}");
    holds("to a peer and port", &udp, |c| !c.from(&["x/a"]) || (c.to(&["x/b"]) && !c.is_tcp));
    // What the source may send and what the destination takes are two questions.
    let takes_z = network_policy(
        "y",
        "in",
        "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: z}}}]}]}",
    );
    holds("both must agree", &(to_y + &takes_z), |c| {
        (!c.from(&["x/a"]) || c.to(&["y/"])) && (!c.to(&["y/"]) || c.from(&["z/"]))
    });
}

#[test]
fn blocks() {
    let block = |text: &str| into_a(&format!("{{from: [{{ipBlock: {text}}}]}}"));
    holds("a block", &block("{cidr: 10.0.1.0/24}"), |c| !c.to(&["x/a"]) || c.from(&["y/"]));
    holds("one address", &block("{cidr: 10.0.2.3/32}"), |c| !c.to(&["x/a"]) || c.from(&["z/c"]));
    holds("except", &block("{cidr: 10.0.0.0/16, except: [10.0.1.0/24]}"), |c| {
        !c.to(&["x/a"]) || c.from(&["x/", "z/"])
    });
    let out = out_of_a("{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.2.0/24, 10.0.1.2/32]}}]}");
    holds("except out", &out, |c| !c.from(&["x/a"]) || !c.to(&["z/", "y/b"]));
}

#[test]
fn policies_add_up() {
    let first = into_a("{from: [{namespaceSelector: {matchLabels: {ns: y}}}], ports: [{port: 80}]}");
    let second = network_policy(
        "x",
        "q",
        "{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 81}]}]}",
    );
    holds("the union", &(first + &second), |c| {
        let by_first = c.from(&["y/"]) && c.port == 80 && c.is_tcp;
        !c.to(&["x/a"]) || by_first || (c.from(&["x/"]) && c.port == 81)
    });
}

#[test]
fn tiers_around_kubernetes_policies() {
    let from_y = "appliedTo: [{namespaceSelector: {matchLabels: {ns: x}}}], \
                  ingress: [{action: ACTION, from: [{namespaceSelector: {matchLabels: {ns: y}}}]}]";
    let acnp = |tier: &str, action: &str| {
        cluster_policy(tier, &format!("{{tier: {tier}, priority: 5, {}}}", from_y.replace("ACTION", action)))
    };
    let deny = network_policy("x", "deny", "{podSelector: {matchLabels: {pod: a}}}");
    let allow = into_a("{from: [{namespaceSelector: {matchLabels: {ns: y}}}]}");
    holds("drop", &acnp("securityops", "Drop"), |c| !(c.to(&["x/"]) && c.from(&["y/"])));
    holds("reject", &acnp("securityops", "Reject"), |c| !(c.to(&["x/"]) && c.from(&["y/"])));
    holds("drop before allow", &(acnp("securityops", "Drop") + &allow), |c| {
        !(c.to(&["x/"]) && c.from(&["y/"])) && (!c.to(&["x/a"]) || c.from(&["y/"]))
    });
    holds("allow before isolation", &(acnp("emergency", "Allow") + &deny), |c| {
        !c.to(&["x/a"]) || c.from(&["y/"])
    });
    holds(
        "pass leaves isolation",
        &(acnp("emergency", "Pass") + &acnp("application", "Drop") + &deny),
        |c| !c.to(&["x/a"]),
    );
    holds("baseline after isolation", &(acnp("baseline", "Drop") + &allow), |c| match c.to(&["x/a"]) {
        true => c.from(&["y/"]),
        false => !(c.to(&["x/"]) && c.from(&["y/"])),
    });
    let own = cluster_policy(
        "own",
        "{priority: 1, tier: baseline, appliedTo: [{namespaceSelector: {}}], ingress: \
         [{action: Allow, from: [{namespaces: {match: Self}}]}, {action: Drop, from: [{namespaceSelector: {}}]}]}",
    );
    holds("namespaces keep to themselves", &own, |c| c.from[..2] == c.to[..2]);
}
