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
    put(service(
        "out",
        &json!({"clusterIP": "10.96.0.2", "externalIPs": ["5.6.7.8"], "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080}]}),
    ));
    catalog.take_changes();
    catalog
}

fn ask(to: &str, node: Option<&str>, from: Option<&str>) -> Explanation {
    let to: std::net::SocketAddr = to.parse().expect("a socket");
    let query = Query {
        node: node.map(str::to_owned),
        from: from.map(|from| from.parse().expect("an address")),
        ..query(to)
    };
    let explanation = explain(&catalog(), &query).expect("it is understood");
    let ipvs = explain(&catalog(), &Query { plane: Plane::Ipvs, ..query }).expect("it is understood");
    assert_eq!(ipvs.port, explanation.port, "planes agree on whose it is");
    explanation
}

fn query(to: std::net::SocketAddr) -> Query {
    Query {
        to: (to.ip(), to.port()),
        protocol: Protocol::Tcp,
        node: Some("n1".to_owned()),
        from: None,
        plane: Plane::Nftables,
        pod_prefixes: vec!["10.0.0.0/8".parse().expect("a prefix")],
        service_prefixes: Vec::new(),
        excluded: Vec::new(),
        masquerade_all: false,
        refuse_external_ips: false,
    }
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
    for plane in [Plane::Nftables, Plane::Ipvs] {
        let service_prefixes = vec!["10.96.0.0/12".parse().expect("a prefix")];
        let nobody = "10.96.0.9:80".parse().expect("a socket");
        let query = Query { service_prefixes, plane, ..query(nobody) };
        let answer = explain(&catalog(), &query).expect("it is understood");
        assert_eq!(answer.fate, Fate::Dropped);
        assert!(answer.reasons[1].contains("out of which services get theirs"), "{:?}", answer.reasons);
    }
    let wrong_port = ask("10.96.0.1:81", Some("n1"), None);
    assert_eq!(wrong_port.fate, Fate::Rejected);
    assert!(wrong_port.reasons.join("\n").contains("has no port 81/tcp"), "{:?}", wrong_port.reasons);
}

#[test]
fn what_the_agent_was_told_counts() {
    for plane in [Plane::Nftables, Plane::Ipvs] {
        let query = |to: &str| Query { plane, ..query(to.parse().expect("a socket")) };
        let ask = |query: Query| explain(&catalog(), &query).expect("it is understood");
        let hidden = ask(Query { masquerade_all: true, ..query("10.96.0.1:80") });
        assert_eq!(endpoints(&hidden), ["10.0.0.1:8080 true", "10.0.0.2:8080 true"]);
        let external = ask(query("5.6.7.8:80"));
        assert_eq!(external.frontend, Some(FrontendKind::ExternalIp));
        let refused = ask(Query { refuse_external_ips: true, ..query("5.6.7.8:80") });
        assert_eq!((&refused.fate, refused.frontend), (&Fate::Passed, None));
        assert!(refused.reasons[1].contains("are not served here"), "{:?}", refused.reasons);
        let excluded = vec!["5.6.7.0/24".parse().expect("a prefix")];
        let excluded = ask(Query { excluded, ..query("5.6.7.8:80") });
        assert_eq!((&excluded.fate, excluded.frontend), (&Fate::Passed, None));
        assert!(excluded.reasons[1].contains("left alone"), "{:?}", excluded.reasons);
    }
}
