use super::*;
use crate::policy::TypeMeta;

fn parse(json: &str) -> Object {
    let kind = serde_json::from_str::<TypeMeta>(json).unwrap().kind().unwrap();
    kind.deserialize(&mut serde_json::Deserializer::from_str(json)).unwrap()
}

fn paths(json: &str) -> Vec<String> {
    validate(&parse(json)).into_iter().map(|problem| problem.path).collect()
}

#[test]
fn an_except_outside_its_cidr_is_named_by_its_path() {
    let json = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a","namespace":"b"},
      "spec":{"podSelector":{},"ingress":[{"from":[{"podSelector":{}},
        {"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]}}]}]}}"#;
    assert_eq!(paths(json), ["spec.ingress[0].from[1].ipBlock.except[0]"]);
}

#[test]
fn a_policy_as_users_have_it_passes() {
    let json = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy",
      "metadata":{"name":"db","namespace":"prod","creationTimestamp":null,"labels":null},
      "spec":{"podSelector":{"matchLabels":{"app":"db"}},"policyTypes":["Ingress","Egress"],
        "ingress":[{"from":[{"namespaceSelector":{},"podSelector":{"matchExpressions":[
            {"key":"role","operator":"In","values":["api"]}]}},{"ipBlock":{"cidr":"10.1.2.3/8"}}],
          "ports":[{"protocol":"TCP","port":5432},{"port":"metrics"},{"port":1000,"endPort":2000,"protocol":"SCTP"}]}],
        "egress":[{}]},"status":{}}"#;
    assert_eq!(paths(json), Vec::<String>::new());
}

#[test]
fn ports_operators_and_types_are_checked() {
    let json = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a","namespace":"b"},
      "spec":{"podSelector":{"matchExpressions":[{"key":"k","operator":"in","values":["x"]}]},"policyTypes":["Engress"],
        "egress":[{"ports":[{"port":70000},{"port":"http","endPort":90},{"protocol":"tcp"},{"port":9,"endPort":8}],
                   "to":[{},{"ipBlock":{"cidr":"10.0.0.0/33"},"podSelector":{}}]}]}}"#;
    assert_eq!(
        paths(json),
        [
            "spec.podSelector.matchExpressions[0].operator",
            "spec.policyTypes[0]",
            "spec.egress[0].ports[0].port",
            "spec.egress[0].ports[1].endPort",
            "spec.egress[0].ports[2].protocol",
            "spec.egress[0].ports[3].endPort",
            "spec.egress[0].to[0]",
            "spec.egress[0].to[1]",
            "spec.egress[0].to[1].ipBlock.cidr",
        ]
    );
}

#[test]
fn antrea_rules_are_checked_against_their_own_law() {
    let json = r#"{"apiVersion":"crd.antrea.io/v1beta1","kind":"NetworkPolicy","metadata":{"name":"a","namespace":"b"},
      "spec":{"tier":"baseline","priority":0,"appliedTo":[{"podSelector":{},"namespaceSelector":{}}],
        "ingress":[{"action":"Pass","from":[{"namespaces":{"match":"Self"}},{"fqdn":"a.b"}]},
                   {"action":"Deny","name":"x","appliedTo":[{"podSelector":{}}]}],
        "egress":[{"action":"Drop","name":"x","toServices":[{"namespace":"n","name":"s"}],"to":[{"podSelector":{}}]}]}}"#;
    assert_eq!(
        paths(json),
        [
            "spec.priority",
            "spec.appliedTo[0].namespaceSelector",
            "spec.ingress[0].action",
            "spec.ingress[0].from[0].namespaces",
            "spec.ingress[0].from[1].fqdn",
            "spec.ingress[1].action",
            "spec.ingress[1].appliedTo",
            "spec.egress[0].toServices",
            "spec.egress[0].name",
        ]
    );
}

#[test]
fn groups_tiers_and_workloads_are_checked() {
    let group = r#"{"apiVersion":"crd.antrea.io/v1beta1","kind":"Group","metadata":{"name":"g","namespace":"b"},
      "spec":{"podSelector":{},"ipBlocks":[{"cidr":"x"}],"childGroups":["g"]}}"#;
    assert_eq!(paths(group), ["spec", "spec.ipBlocks[0].cidr", "spec.childGroups[0]"]);
    let tier = r#"{"apiVersion":"crd.antrea.io/v1beta1","kind":"Tier","metadata":{"name":"t"},"spec":{"priority":250}}"#;
    assert_eq!(paths(tier), ["spec.priority"]);
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"P"},"spec":{"containers":[{"image":"x"}]},
      "status":{"podIPs":[{"ip":"1.2.3"}]}}"#;
    assert_eq!(paths(pod), ["metadata.name", "metadata.namespace", "status.podIPs[0].ip"]);
}

/// What Antrea's admission refuses of rules whose parts do not go together, one fault each.
#[test]
fn what_does_not_go_together_is_refused_as_antrea_refuses_it() {
    let faults = |spec: &str| {
        paths(&format!(
            r#"{{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{{"name":"a"}},"spec":{{"priority":5,{spec}}}}}"#
        ))
    };
    let pods = r#""appliedTo":[{"podSelector":{}}]"#;
    let service = r#""appliedTo":[{"service":{"namespace":"n","name":"s"}}]"#;
    let all = r#"{"cidr":"10.0.0.0/8"}"#;
    for (spec, path) in [
        (
            r#""appliedTo":[{"service":{"namespace":"n","name":"s"}},{"podSelector":{}}]"#.into(),
            "spec.appliedTo",
        ),
        (format!(r#"{service},"egress":[{{"action":"Drop"}}]"#), "spec.appliedTo"),
        (format!(r#""egress":[{{"action":"Drop",{service}}}]"#), "spec.egress[0].appliedTo"),
        (
            format!(
                r#"{service},"ingress":[{{"action":"Drop","from":[{{"ipBlock":{all}}},{{"podSelector":{{}}}}]}}]"#
            ),
            "spec.ingress[0].from[1]",
        ),
        (
            format!(
                r#"{pods},"ingress":[{{"action":"Drop","from":[{{"namespaces":{{"sameLabels":["a b"]}}}}]}}]"#
            ),
            "spec.ingress[0].from[0].namespaces.sameLabels[0]",
        ),
        (
            format!(
                r#"{pods},"ingress":[{{"action":"Allow","l7Protocols":[{{"http":{{}}}}],"ports":[{{"protocol":"UDP","port":53}}]}}]"#
            ),
            "spec.ingress[0].ports[0].protocol",
        ),
        (
            format!(
                r#"{pods},"ingress":[{{"action":"Allow","l7Protocols":[{{"http":{{}}}}],"protocols":[{{"icmp":{{}}}}]}}]"#
            ),
            "spec.ingress[0].protocols",
        ),
        (
            format!(
                r#"{pods},"egress":[{{"action":"Allow","l7Protocols":[{{"tls":{{}}}}],"toServices":[{{"namespace":"n","name":"s"}}]}}]"#
            ),
            "spec.egress[0].l7Protocols",
        ),
        (
            format!(r#"{pods},"ingress":[{{"action":"Pass","protocols":[{{"igmp":{{}}}}]}}]"#),
            "spec.ingress[0].action",
        ),
        (
            format!(
                r#"{pods},"ingress":[{{"action":"Drop","protocols":[{{"igmp":{{}}}}],"from":[{{"podSelector":{{}}}}]}}]"#
            ),
            "spec.ingress[0].protocols",
        ),
        (
            format!(
                r#"{pods},"egress":[{{"action":"Drop","to":[{{"ipBlock":{all}}},{{"ipBlock":{{"cidr":"239.0.0.0/8"}}}}]}}]"#
            ),
            "spec.egress[0].to",
        ),
        (
            format!(
                r#"{pods},"egress":[{{"action":"Reject","to":[{{"ipBlock":{{"cidr":"239.0.0.0/8"}}}}]}}]"#
            ),
            "spec.egress[0].action",
        ),
        (format!(r#""tier":"Baseline",{pods},"egress":[{{"action":"Pass"}}]"#), "spec.egress[0].action"),
        (
            format!(r#"{pods},"egress":[{{"action":"Drop","to":[{{"fqdn":"a_b.c"}}]}}]"#),
            "spec.egress[0].to[0].fqdn",
        ),
    ] {
        assert_eq!(faults(&spec), [path], "{spec}");
    }
    let group = r#"{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterGroup","metadata":{"name":"g"},
      "spec":{"ipBlocks":[{"cidr":"10.0.0.0/8"},{"cidr":"ff02::/16"}]}}"#;
    assert_eq!(paths(group), ["spec.ipBlocks"]);
    let accepted = format!(
        r#"{service},"ingress":[{{"action":"Drop","from":[{{"ipBlock":{all}}}]}},{{"action":"Allow"}}]"#
    );
    assert_eq!(faults(&accepted), Vec::<String>::new());
    let entities = format!(
        r#"{pods},"ingress":[{{"action":"Drop","from":[{{"namespaces":{{"match":"Self"}},"externalEntitySelector":{{}}}}]}}]"#
    );
    assert_eq!(faults(&entities), Vec::<String>::new());
}

#[test]
fn names_are_bounded_as_a_whole_and_those_of_namespaces_and_services_in_their_parts() {
    let long = "a".repeat(200);
    let faults = |kind: &str, version: &str, name: &str, more: &str| {
        paths(&format!(
            r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"{name}","namespace":"b"}}{more}}}"#
        ))
    };
    let slice = r#","addressType":"IPv4","endpoints":[]"#;
    assert_eq!(faults("Pod", "v1", &long, ""), Vec::<String>::new());
    assert_eq!(faults("EndpointSlice", "discovery.k8s.io/v1", &long, slice), Vec::<String>::new());
    assert_eq!(faults("Pod", "v1", &"a".repeat(254), ""), ["metadata.name"]);
    assert_eq!(faults("Pod", "v1", "a..b", ""), ["metadata.name"]);
    assert_eq!(faults("Namespace", "v1", &"a".repeat(64), ""), ["metadata.name"]);
    assert_eq!(faults("Service", "v1", &"a".repeat(64), "")[0], "metadata.name");
}
