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
