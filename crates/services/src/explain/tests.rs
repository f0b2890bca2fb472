use model::policy::{Object, TypeMeta};
use serde_json::{Value, json};

use super::*;

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let mut put = |document: Value| {
        let types: TypeMeta = serde_json::from_value(document.clone()).expect("types");
        let object: Object = types.kind().expect("a kind").deserialize(document).expect("an object");
        catalog.apply(&object);
    };
    for (name, zone, address) in [("n1", "a", "192.168.0.1"), ("n2", "b", "192.168.0.2")] {
        put(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]}}));
        put(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{name}"), "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"nodeName": name}, "status": {"podIP": format!("10.0.0.{}", &name[1..])}}));
    }
    let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1", "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}],
        "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["203.0.113.0/24"]});
    let service = |name: &str, spec: &Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": spec,
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
    };
    put(service("web", &spec));
    put(service("zweb", &json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]})));
    catalog.take_changes();
    catalog
}

fn ask(to: &str, node: Option<&str>, from: Option<&str>) -> Explanation {
    let to: std::net::SocketAddr = to.parse().expect("a socket");
    let query = Query {
        to: (to.ip(), to.port()),
        protocol: Protocol::Tcp,
        node: node.map(str::to_owned),
        from: from.map(|from| from.parse().expect("an address")),
        plane: Plane::Nftables,
        pod_prefixes: vec!["10.0.0.0/8".parse().expect("a prefix")],
    };
    let explanation = explain(&catalog(), &query).expect("it is understood");
    let ipvs = explain(&catalog(), &Query { plane: Plane::Ipvs, ..query }).expect("it is understood");
    assert_eq!(ipvs.port, explanation.port, "planes agree on whose it is");
    explanation
}

fn endpoints(explanation: &Explanation) -> Vec<String> {
    match &explanation.fate {
        Fate::Balanced(all) => {
            all.iter().map(|((address, port), hidden)| format!("{address}:{port} {hidden}")).collect()
        }
        other => vec![format!("{other:?}")],
    }
}

#[test]
fn a_pod_is_balanced_and_the_rival_is_named() {
    let answer = ask("10.96.0.1:80", Some("n1"), None);
    assert_eq!(endpoints(&answer), ["10.0.0.1:8080 false", "10.0.0.2:8080 false"]);
    assert_eq!(answer.frontend, Some(FrontendKind::ClusterIp));
    let text = answer.reasons.join("\n");
    assert!(text.contains("shop/zweb claims the same") && text.contains("node n1 in zone a"), "{text}");
    assert_eq!(answer.judged.len(), 2);
}

#[test]
fn a_local_policy_depends_on_the_node() {
    let from = Some("203.0.113.9");
    assert_eq!(endpoints(&ask("1.2.3.4:80", Some("n1"), from)), ["10.0.0.1:8080 false"]);
    assert_eq!(endpoints(&ask("192.168.0.2:30080", Some("n2"), from)), ["10.0.0.2:8080 false"]);
    let nowhere = ask("1.2.3.4:80", None, from);
    assert_eq!(nowhere.fate, Fate::Dropped);
    assert!(nowhere.reasons.join("\n").contains("only on other nodes"), "{:?}", nowhere.reasons);
    let judged = &ask("1.2.3.4:80", Some("n1"), from).judged;
    assert!(judged[0].reason.starts_with("for all traffic"), "{judged:?}");
    assert!(judged[1].reason.starts_with("for traffic that may leave"), "{judged:?}");
}

#[test]
fn strangers_are_told_why_they_may_not_enter() {
    let answer = ask("1.2.3.4:80", Some("n1"), Some("198.51.100.1"));
    assert_eq!(answer.fate, Fate::Dropped);
    assert!(answer.reasons.join("\n").contains("only 203.0.113.0/24 may use the load balancer"));
}

#[test]
fn what_is_no_service_is_said_to_be_none() {
    let answer = ask("10.96.0.9:80", Some("n1"), None);
    assert_eq!((answer.fate.clone(), answer.port.clone()), (Fate::Passed, None));
    let wrong_port = ask("10.96.0.1:81", Some("n1"), None);
    assert_eq!(wrong_port.fate, Fate::Rejected);
    assert!(wrong_port.reasons.join("\n").contains("has no port 81/tcp"), "{:?}", wrong_port.reasons);
}
