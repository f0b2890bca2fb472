use serde_json::json;

use super::*;
use crate::policy::{Kind, Object, fields, output::Action, validate};

fn read(kind: Kind, spec: Value) -> Object {
    kind.deserialize(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
}

fn antrea(kind: Kind, spec: Value) -> (PolicySpec, Vec<String>) {
    let object = read(kind, spec);
    let (spec, problems) = object.cluster_policy().unwrap().as_antrea();
    (spec, problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect())
}

fn with(ingress: Value, egress: Value) -> (PolicySpec, Vec<String>) {
    let spec = json!({"tier": "Admin", "priority": 10, "subject": {"namespaces": {}}, "ingress": ingress, "egress": egress});
    antrea(Kind::ClusterNetworkPolicy, spec)
}

#[test]
fn a_policy_of_today_becomes_rules_in_its_own_tier() {
    let web = json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}, "podSelector": {"matchLabels": {"app": "web"}}});
    let (spec, problems) = antrea(
        Kind::ClusterNetworkPolicy,
        json!({"tier": "Baseline", "priority": 0, "subject": {"pods": web},
               "ingress": [{"name": "a", "action": "Accept", "from": [{"namespaces": {"matchLabels": {"env": "prod"}}}, {"pods": web}],
                            "protocols": [{"tcp": {"destinationPort": {"number": 80}}}, {"udp": {"destinationPort": {"range": {"start": 5, "end": 9}}}},
                                          {"sctp": {}}, {"destinationNamedPort": "http"}]}],
               "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8", "fd00::/8"]}, {"nodes": {}}]},
                          {"action": "Accept", "to": [{"domainNames": ["*.example.com"]}]}, {"action": "Pass", "to": [{"namespaces": {}}]}]}),
    );
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!((spec.tier.as_str(), spec.priority), (BASELINE_TIER, 1.0));
    assert_eq!((spec.applied_to.len(), spec.ingress.len(), spec.egress.len()), (1, 1, 3));
    let rule = &spec.ingress[0];
    assert_eq!((rule.name.as_str(), rule.action.as_str(), rule.from.len()), ("a", "Allow", 2));
    let ports: Vec<_> = rule.ports.iter().map(|port| serde_json::to_string(port).unwrap()).collect();
    assert_eq!(ports[0], r#"{"protocol":"TCP","port":80}"#);
    assert_eq!(ports[1], r#"{"protocol":"UDP","port":5,"endPort":9}"#);
    assert_eq!(ports[2], r#"{"protocol":"SCTP"}"#);
    assert_eq!(
        ports[3..],
        ["TCP", "UDP", "SCTP"].map(|protocol| format!(r#"{{"protocol":"{protocol}","port":"http"}}"#))
    );
    assert_eq!((spec.egress[0].action.as_str(), spec.egress[0].to.len()), ("Drop", 3));
    assert_eq!(spec.egress[1].to[0].fqdn.as_deref(), Some("*.example.com"));
    assert_eq!(convert::action(&spec.egress[2].action), Ok(Action::Pass));
}

#[test]
fn pods_on_their_nodes_network_are_no_subjects_and_no_peers() {
    let (spec, _) = with(json!([{"action": "Deny", "from": [{"namespaces": {}}]}]), json!([]));
    let on_node = [(HOST_NETWORK_LABEL.to_owned(), "true".to_owned())].into_iter().collect();
    for selector in [&spec.applied_to[0].pod_selector, &spec.ingress[0].from[0].pod_selector] {
        let selector = selector.as_ref().unwrap();
        assert!(!selector.matches(&on_node) && selector.matches(&Default::default()));
    }
}

/// As the API has it: what accepts matches nothing, all else denies everything.
#[test]
fn a_rule_that_is_not_understood_is_closed_and_the_others_stand() {
    let good = json!({"action": "Accept", "from": [{"namespaces": {}}]});
    for (fault, path) in [
        (json!({"from": [{"newer": {}}]}), "from[0].newer: unknown field"),
        (json!({"from": [{"namespaces": {}}, {}]}), "from[1]: exactly one kind of peer"),
        (
            json!({"from": [{"namespaces": {}, "pods": {"namespaceSelector": {}, "podSelector": {}}}]}),
            "from[0]: exactly one",
        ),
        (json!({"from": [{"networks": ["10.0.0.0/8"]}]}), "from[0]: is a peer of egress rules only"),
        (json!({"from": []}), "from: at least one peer"),
        (json!({"from": [{"namespaces": {}}], "to": [{"namespaces": {}}]}), "to: peers of this direction"),
        (
            json!({"from": [{"namespaces": {"matchLabels": {"a b": "c"}}}]}),
            "from[0].namespaces.matchLabels[a b]",
        ),
        (json!({"from": [{"namespaces": {}}], "protocols": [{}]}), "protocols[0]: exactly one of tcp"),
        (
            json!({"from": [{"namespaces": {}}], "protocols": [{"icmp": {}}]}),
            "protocols[0].icmp: unknown field",
        ),
        (
            json!({"from": [{"namespaces": {}}], "protocols": [{"tcp": {"sourcePort": 5}}]}),
            "protocols[0].sourcePort: unknown",
        ),
        (
            json!({"from": [{"namespaces": {}}], "protocols": [{"tcp": {"destinationPort": {"number": 70000}}}]}),
            "protocols[0].port: 70000",
        ),
        (json!({"from": [{"namespaces": {}}], "newer": 1}), "newer: unknown field"),
    ] {
        for action in ["Accept", "Deny", "Pass", "Maybe"] {
            let mut rule = fault.clone();
            rule["action"] = action.into();
            let (spec, problems) = with(json!([rule, good]), json!([]));
            assert!(problems[0].starts_with("spec.ingress[0]."), "{problems:?}");
            assert!(problems.iter().any(|problem| problem.contains(path)), "{path}: {problems:?}");
            let closed = &spec.ingress[0];
            if action == "Accept" {
                let selector = closed.from[0].pod_selector.as_ref().unwrap();
                let anybody = [
                    Default::default(),
                    [(HOST_NETWORK_LABEL.to_owned(), String::new())].into_iter().collect(),
                ];
                assert!(
                    closed.from.len() == 1 && anybody.iter().all(|labels| !selector.matches(labels)),
                    "{closed:?}"
                );
                convert::selector(selector).unwrap();
            } else {
                assert!(
                    closed.action == "Drop" && closed.from.is_empty() && closed.ports.is_empty(),
                    "{closed:?}"
                );
            }
            assert_eq!((spec.ingress[1].action.as_str(), spec.ingress[1].from.len()), ("Allow", 1));
        }
    }
    let names = json!([{"action": "Deny", "to": [{"domainNames": ["a.example"]}]}]);
    assert!(with(json!([]), names).1[0].contains("can be accepted only"));
}

#[test]
fn what_the_policy_itself_says_wrong_is_named() {
    let (spec, problems) =
        antrea(Kind::ClusterNetworkPolicy, json!({"tier": "Top", "priority": 1001, "subject": {}}));
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert_eq!((spec.tier.as_str(), spec.priority), (ADMIN_TIER, 1001.0));
    assert!(
        !spec.applied_to[0].pod_selector.as_ref().unwrap().matches(&Default::default()),
        "it is for nobody"
    );
}

#[test]
fn earlier_kinds_are_read_in_the_words_of_today() {
    let spec = json!({"priority": 7, "subject": {"namespaces": {}},
        "ingress": [{"action": "Allow", "from": [{"namespaces": {}}],
                     "ports": [{"portNumber": {"protocol": "TCP", "port": 80}}, {"portRange": {"protocol": "UDP", "start": 5, "end": 9}}, {"namedPort": "http"}]},
                    {"action": "Deny", "from": [{"namespaces": {}}], "ports": [{"newer": 5}]}]});
    let (today, problems) = antrea(Kind::AdminNetworkPolicy, spec.clone());
    assert_eq!((today.tier.as_str(), today.priority), (ADMIN_TIER, 8.0));
    assert_eq!((today.ingress[0].action.as_str(), today.ingress[0].ports.len()), ("Allow", 5));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(today.ingress[1].action == "Drop" && today.ingress[1].ports.is_empty());
    let (today, _) = antrea(Kind::BaselineAdminNetworkPolicy, json!({"subject": {"namespaces": {}}}));
    assert_eq!((today.tier.as_str(), today.priority), (BASELINE_TIER, 1001.0));
}

#[test]
fn it_is_refused_where_it_is_stored_and_written_as_it_was_read() {
    let spec = json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"newer": 1}]}]});
    let document = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": "a"}, "spec": spec});
    assert!(
        fields::unknown(Kind::ClusterNetworkPolicy, &document).is_empty(),
        "the rule is closed, not the policy"
    );
    let object = Kind::ClusterNetworkPolicy.deserialize(&document).unwrap();
    assert_eq!(validate(&object).len(), 1);
    let written = serde_json::to_value(&object).unwrap();
    assert_eq!(Kind::ClusterNetworkPolicy.deserialize(&written).unwrap(), object);
    let mut newer = document;
    newer["spec"]["subject"]["nodes"] = json!({});
    assert_eq!(fields::unknown(Kind::ClusterNetworkPolicy, &newer)[0].path, "spec.subject.nodes");
}
