mod everything;

use serde::Deserialize as _;
use serde_json::json;

use super::*;
use crate::policy::TypeMeta;

fn told(kind: Kind, document: &Value) -> Vec<String> {
    let unknown = unknown(kind, document);
    let is_of_kind = TypeMeta::deserialize(document).unwrap().kind().is_ok_and(|other| other == kind);
    // Read from text and from a value alike.
    let text = document.to_string();
    let mut from_text = serde_json::Deserializer::from_str(&text);
    let known = [is_known(kind, document).unwrap(), is_known(kind, &mut from_text).unwrap()];
    assert_eq!(known, [unknown.is_empty() && is_of_kind; 2], "{document}");
    unknown.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
}

fn policy(spec: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": spec})
}

#[test]
fn a_slip_of_the_fingers_is_named_with_its_path_and_what_was_meant() {
    for (spec, expected) in [
        (json!({"ingress": [{"form": []}]}), "spec.ingress[0].form: unknown field; did you mean \"from\"?"),
        (json!({"ingres": []}), "spec.ingres: unknown field; did you mean \"ingress\"?"),
        (
            json!({"egress": [{"to": [{}, {"podselector": {}}]}]}),
            "spec.egress[0].to[1].podselector: unknown field; did you mean \"podSelector\"?",
        ),
        (
            json!({"podSelector": {"matchLabel": {}}}),
            "spec.podSelector.matchLabel: unknown field; did you mean \"matchLabels\"?",
        ),
        (json!({"somethingElse": null}), "spec.somethingElse: unknown field"),
    ] {
        assert_eq!(told(Kind::NetworkPolicy, &policy(&spec)), [expected]);
    }
}

#[test]
fn keys_that_are_the_users_own_are_not_fields() {
    let spec = json!({"podSelector": {"matchLabels": {"form": "x", "ingres": "y"}}});
    let mut document = policy(&spec);
    document["metadata"]["labels"] = json!({"nme": "z"});
    document["metadata"]["annotations"] = json!({"lables": "z"});
    assert_eq!(told(Kind::NetworkPolicy, &document), [""; 0]);
}

#[test]
fn versions_that_are_not_known_are_told() {
    let mut document = policy(&json!({}));
    for version in ["networking.k8s.io/v9", "networking.k8s.io/", ""] {
        document["apiVersion"] = version.into();
        let told = told(Kind::NetworkPolicy, &document);
        assert!(told.len() == 1 && told[0].starts_with("apiVersion: "), "{told:?}");
    }
}

#[test]
fn of_a_pod_the_way_to_what_is_read_is_strict_and_the_rest_is_not_looked_into() {
    let pod =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
    let exported = json!({
        "nodeName": "n", "volumes": [{"ever": {"new": 1}}], "securityContext": {"newer": true},
        "containers": [{"name": "c", "image": "i", "env": [{"what": "ever"}], "ports": [{"containerPort": 80}]}],
    });
    assert_eq!(told(Kind::Pod, &pod(exported)), [""; 0]);
    let typing = json!({"nodename": "n", "containers": [{"ports": [{"containerport": 80}]}]});
    assert_eq!(
        told(Kind::Pod, &pod(typing)),
        [
            "spec.containers[0].ports[0].containerport: unknown field; did you mean \"containerPort\"?",
            "spec.nodename: unknown field; did you mean \"nodeName\"?",
        ]
    );
}

#[test]
fn what_antrea_knows_and_trestle_cannot_keep_is_told() {
    let document = json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy", "metadata": {"name": "a"},
        "spec": {"priority": 1, "ingress": [{"action": "Allow", "from": [{"scope": "ClusterSet"}]}]},
    });
    let told = told(Kind::AntreaClusterNetworkPolicy, &document);
    assert!(
        told.len() == 1 && told[0].starts_with("spec.ingress[0].from[0].scope: is not supported"),
        "{told:?}"
    );
}

#[test]
fn no_name_stands_twice_in_one_place() {
    fn check(shape: &Shape) {
        match shape {
            Shape::Object(object) | Shape::Open(object) => {
                let mut names: Vec<_> = object.names().collect();
                names.sort_unstable();
                assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
                object.within.iter().for_each(|(_, shape)| check(shape));
            }
            Shape::List(entry) => check(entry),
            Shape::Any | Shape::Unsupported(_) => {}
        }
    }
    Kind::ALL.into_iter().for_each(|kind| check(shape(kind)));
}

#[test]
fn every_field_that_is_read_is_known() {
    /// The shapes of both dialects share one type of port; source ports are Antrea's alone.
    const NOT_OF_KUBERNETES: [&str; 2] = ["sourcePort", "sourceEndPort"];
    for kind in Kind::ALL {
        let document = everything::read_by(kind);
        let problems = unknown(kind, &document).into_iter().filter(|problem| {
            let is_source = NOT_OF_KUBERNETES.iter().any(|name| problem.path.ends_with(name));
            problem.path != "apiVersion" && !(kind == Kind::NetworkPolicy && is_source)
        });
        assert_eq!(problems.collect::<Vec<_>>(), []);
    }
}

/// The page offers what may stand where it is written: a field with fields in it, a list of them, or `null`.
#[test]
fn the_page_knows_every_field() {
    fn tree(shape: &Shape) -> Value {
        match shape {
            Shape::List(entry) => json!([tree(entry)]),
            Shape::Object(object) | Shape::Open(object) => {
                let within = object.within.iter().map(|(name, shape)| (*name, tree(shape)));
                let known = object.known.iter().map(|name| (*name, Value::Null));
                within.chain(known).map(|(name, tree)| (name.to_owned(), tree)).collect()
            }
            Shape::Any | Shape::Unsupported(_) => Value::Null,
        }
    }
    let kinds = Kind::ALL.map(|kind| {
        let written = |version: &str, name: &str| {
            let meta = TypeMeta { api_version: version.to_owned(), kind: name.to_owned() };
            meta.kind().is_ok_and(|found| found == kind)
        };
        let names = Kind::ALL.map(Kind::as_str);
        let name = names.into_iter().find(|name| written(versions(kind)[0], name)).unwrap();
        json!({"kind": name, "versions": versions(kind), "fields": tree(shape(kind))})
    });
    let known = format!("{}\n", serde_json::to_string(&kinds).unwrap());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/fields.json");
    if std::env::var_os("TRESTLE_BLESS").is_some() {
        std::fs::write(&path, &known).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == known, "web/src/fields.json is not what there is; renew it with `make openapi`");
}
