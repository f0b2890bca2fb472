use model::policy::{Kind, Object, ObjectId};
use serde_json::json;

use super::*;

fn service(name: &str, external_ips: &[&str], port: u16) -> Object {
    let document = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"clusterIP": format!("10.96.0.{}", name.len()), "externalIPs": external_ips, "ports": [{"port": port}]}});
    Kind::Service.deserialize(document).expect("it is a Service")
}

/// What is told of services: their names and addresses from outside.
fn told(view: &mut LocalView, catalog: &Catalog, due: &[&str]) -> Vec<(String, Vec<String>)> {
    let services = due.iter().map(|name| ServiceName::new("shop", *name)).collect();
    let items = view.next(catalog, &Due { services, nodes: BTreeSet::new() });
    let services = items.into_iter().filter_map(|item| match item.op {
        Some(Op::Set(Value { bytes, .. })) => localv1::Service::decode(bytes.as_slice()).ok(),
        _ => None,
    });
    let external = |one: &localv1::Service| one.ips.as_ref().and_then(|ips| ips.external_ips.clone());
    services.map(|one| (one.name.clone(), external(&one).unwrap_or_default().v4)).collect()
}

#[test]
fn an_external_address_that_two_services_claim_is_told_of_the_first_by_name() {
    let mut catalog = Catalog::default();
    let put = |catalog: &mut Catalog, object: &Object| {
        catalog.apply(object);
        catalog.take_changes();
    };
    let mut view = LocalView::new("n1".into());
    put(&mut catalog, &service("bb", &["5.6.7.8", "5.6.7.9"], 80));
    put(&mut catalog, &service("ccc", &["5.6.7.8"], 81));
    let of = |name: &str, addresses: &[&str]| {
        (name.to_owned(), addresses.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
    };
    let both = ["5.6.7.8", "5.6.7.9"];
    assert_eq!(told(&mut view, &catalog, &[]), [of("bb", &both), of("ccc", &["5.6.7.8"])], "other ports");
    // One comes that is first by name: the other loses the address, and has it again when it goes.
    put(&mut catalog, &service("a", &["5.6.7.8"], 80));
    assert_eq!(told(&mut view, &catalog, &["a"]), [of("a", &["5.6.7.8"]), of("bb", &["5.6.7.9"])]);
    put(&mut catalog, &service("a", &[], 80));
    assert_eq!(told(&mut view, &catalog, &["a"]), [of("a", &[]), of("bb", &both)]);
    put(&mut catalog, &service("a", &["5.6.7.8"], 80));
    told(&mut view, &catalog, &["a"]);
    catalog.delete(&ObjectId { kind: Kind::Service, namespace: "shop".into(), name: "a".into() });
    catalog.take_changes();
    assert_eq!(told(&mut view, &catalog, &["a"]), [of("bb", &both)]);
}
