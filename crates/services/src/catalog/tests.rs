use std::{collections::BTreeMap, net::IpAddr};

use model::service::SlicePort;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn object(document: Value) -> Object {
    let types: model::policy::TypeMeta = serde_json::from_value(document.clone()).expect("types");
    types.kind().expect("a kind").deserialize(document).expect("an object")
}

fn service(name: &str, spec: Value) -> Object {
    let metadata = json!({"name": name, "namespace": "shop"});
    object(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
}

fn web() -> Value {
    json!({"clusterIP": "10.96.0.1", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]})
}

fn pod(name: &str, labels: Value, status: Value) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "Pod", "status": status,
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
    }))
}

fn ready(address: &str) -> Value {
    json!({"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]})
}

fn slice(name: &str, service: &str, address: &str) -> Object {
    object(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [address]}], "ports": [{"port": 8080}],
    }))
}

fn name(text: &str) -> ServiceName {
    ServiceName::new("shop", text)
}

/// Addresses that a service's slices hold.
fn addresses(catalog: &Catalog, service: &str) -> Vec<String> {
    let entry = catalog.service(&name(service));
    let slices = entry.iter().flat_map(Entry::slices);
    let mut found: Vec<_> =
        slices.flat_map(|(_, slice)| &slice.endpoints).map(|one| one.addresses[0].to_string()).collect();
    found.sort_unstable();
    found
}

#[test]
fn a_service_with_a_selector_needs_no_slices() {
    let mut catalog = Catalog::default();
    catalog.apply(&pod("a", json!({"app": "web"}), ready("10.0.0.1")));
    catalog.apply(&service("web", web()));
    catalog.apply(&pod("b", json!({"app": "web", "more": "x"}), ready("10.0.0.2")));
    catalog.apply(&pod("c", json!({"app": "db"}), ready("10.0.0.3")));
    let changes = catalog.take_changes();
    assert_eq!(changes.len(), 2, "one slice, one service: {changes:?}");
    let entry = catalog.service(&name("web")).expect("it is told");
    assert!(entry.is_derived);
    let (key, slice) = entry.slices().next().expect("a slice");
    assert!(key.starts_with("shop/web#4."), "{key}");
    let http = SlicePort {
        name: Some(String::new()),
        protocol: "TCP".parse().expect("a protocol"),
        port: Some(8080),
    };
    assert_eq!(slice.ports, [http], "named ports are looked up at the Pod");
    assert_eq!(addresses(&catalog, "web"), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(catalog.take_changes(), []);
    catalog.apply(&pod("b", json!({"app": "db"}), ready("10.0.0.2")));
    assert_eq!(catalog.take_changes().len(), 1);
    assert_eq!(addresses(&catalog, "web"), ["10.0.0.1"]);
}

#[test]
fn slices_that_users_give_come_first_and_ours_return_when_they_go() {
    let mut catalog = Catalog::default();
    catalog.apply(&service("web", web()));
    catalog.apply(&pod("a", json!({"app": "web"}), ready("10.0.0.1")));
    catalog.take_changes();
    catalog.apply(&slice("web-1", "web", "10.9.9.9"));
    let changes = catalog.take_changes();
    assert_eq!(changes.len(), 2, "ours goes, theirs comes: {changes:?}");
    assert_eq!(addresses(&catalog, "web"), ["10.9.9.9"]);
    catalog.apply(&pod("a", json!({"app": "web"}), ready("10.0.0.7")));
    assert_eq!(catalog.take_changes(), [], "Pods decide nothing now");
    let id = ObjectId { kind: Kind::EndpointSlice, namespace: "shop".into(), name: "web-1".into() };
    catalog.delete(&id);
    catalog.take_changes();
    assert_eq!(addresses(&catalog, "web"), ["10.0.0.7"]);
}

#[test]
fn a_slice_moves_with_its_label_and_waits_for_its_service() {
    let mut catalog = Catalog::default();
    catalog.apply(&slice("one", "web", "10.0.0.1"));
    assert_eq!(catalog.take_changes(), [], "no service, nothing to tell");
    let ports = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
    catalog.apply(&service("web", ports.clone()));
    catalog.apply(&service("db", ports));
    catalog.take_changes();
    assert_eq!(addresses(&catalog, "web"), ["10.0.0.1"]);
    catalog.apply(&slice("one", "db", "10.0.0.1"));
    catalog.take_changes();
    assert_eq!((addresses(&catalog, "web").len(), addresses(&catalog, "db").len()), (0, 1));
}

#[test]
fn conditions_of_a_pod_become_those_of_its_endpoint() {
    let mut catalog = Catalog::default();
    let condition =
        |status: &str| json!({"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": status}]});
    let conditions = |catalog: &mut Catalog, document: Object, publish: bool| {
        let mut spec = web();
        spec["publishNotReadyAddresses"] = json!(publish);
        catalog.apply(&service("web", spec));
        catalog.apply(&document);
        catalog.take_changes();
        let entry = catalog.service(&name("web")).expect("it is told");
        let endpoint = entry.slices().next().map(|(_, slice)| slice.endpoints[0].clone());
        endpoint.map(|one| (one.ready, one.serving, one.terminating))
    };
    let labels = || json!({"app": "web"});
    let truth = |ready, serving, going| Some((Some(ready), Some(serving), Some(going)));
    let mut see = |document, publish| conditions(&mut catalog, document, publish);
    assert_eq!(see(pod("a", labels(), condition("True")), false), truth(true, true, false));
    assert_eq!(see(pod("a", labels(), condition("False")), false), truth(false, false, false));
    assert_eq!(see(pod("a", labels(), condition("False")), true), truth(true, false, false));
    let mut going = pod("a", labels(), condition("True"));
    going.metadata_mut().deletion_timestamp = Some("2026-01-01T00:00:00Z".into());
    assert_eq!(see(going, false), truth(false, true, true));
    assert_eq!(see(pod("a", labels(), json!({"podIP": "10.0.0.1", "phase": "Succeeded"})), false), None);
    assert_eq!(see(pod("a", labels(), json!({"phase": "Running"})), false), None, "no address");
    assert_eq!(
        see(pod("a", labels(), json!({"podIP": "10.0.0.1", "phase": "Running"})), false),
        truth(true, true, false)
    );
}

#[test]
fn hints_follow_the_zone_of_the_node() {
    let mut catalog = Catalog::default();
    let node = |zone: &str| {
        let metadata = json!({"name": "n1", "labels": {"topology.kubernetes.io/zone": zone}});
        object(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
    };
    let mut spec = web();
    spec["trafficDistribution"] = json!("PreferSameNode");
    catalog.apply(&node("a"));
    catalog.apply(&service("web", spec));
    catalog.apply(&pod("a", json!({"app": "web"}), ready("10.0.0.1")));
    catalog.take_changes();
    let hints = |catalog: &Catalog| {
        let entry = catalog.service(&name("web")).expect("it is told");
        let endpoint = entry.slices().next().expect("a slice").1.endpoints[0].clone();
        (endpoint.zone_hints, endpoint.node_hints)
    };
    assert_eq!(hints(&catalog), (vec!["a".to_owned()], vec!["n1".to_owned()]));
    catalog.apply(&node("b"));
    let changes = catalog.take_changes();
    assert_eq!(changes.len(), 2, "the node and one slice: {changes:?}");
    assert_eq!(hints(&catalog).0, ["b"]);
}

#[test]
fn services_without_an_address_or_of_another_proxy_are_not_told() {
    let mut catalog = Catalog::default();
    let spec = |fields: Value| {
        let mut spec = web();
        spec.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        spec
    };
    catalog.apply(&pod("a", json!({"app": "web"}), ready("10.0.0.1")));
    catalog.apply(&service("headless", spec(json!({"clusterIP": "None"}))));
    catalog.apply(&service("unborn", spec(json!({"clusterIP": ""}))));
    catalog.apply(&service("dns", spec(json!({"type": "ExternalName", "externalName": "example.org"}))));
    let mut other = service("other", web());
    other.metadata_mut().labels.insert("service.kubernetes.io/service-proxy-name".into(), "cilium".into());
    catalog.apply(&other);
    assert_eq!(catalog.take_changes(), []);
    catalog.apply(&service("other", web()));
    assert_eq!(catalog.take_changes().len(), 2, "the label went: it is ours, with its slice");
    catalog.apply(&other);
    assert_eq!(catalog.take_changes().len(), 2, "and not ours again");
}

#[test]
fn one_pod_of_ten_thousand_rewrites_one_slice() {
    let mut catalog = Catalog::default();
    catalog.apply(&service("web", web()));
    for number in 0..10_000_u32 {
        let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes()).to_string();
        catalog.apply(&pod(&format!("web-{number}"), json!({"app": "web"}), ready(&address)));
    }
    let all = catalog.take_changes().len();
    assert!(all > 1_000, "{all} slices of at most three endpoints");
    catalog.apply(&pod("web-77", json!({"app": "web"}), json!({"podIP": "10.0.0.77", "phase": "Pending"})));
    assert_eq!(catalog.take_changes().len(), 1);
    let id = ObjectId { kind: Kind::Pod, namespace: "shop".into(), name: "web-4711".into() };
    catalog.delete(&id);
    let changes = catalog.take_changes().len();
    assert!((1..=5).contains(&changes), "a slice, or two that were joined: {changes}");
    assert_eq!(addresses(&catalog, "web").len(), 9_999);
}

/// Slices and services as a node has them that took in every change.
#[derive(Debug, Default, PartialEq)]
struct Replica {
    slices: BTreeMap<String, Slice>,
    services: BTreeMap<ServiceName, Service>,
    nodes: BTreeMap<String, NodeFacts>,
}

impl Replica {
    fn take(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Slice { key, slice: Some(slice), .. } => {
                    drop(self.slices.insert(key, (*slice).clone()))
                }
                Change::Slice { key, slice: None, .. } => {
                    self.slices.remove(&key).expect("only what was told goes");
                }
                Change::Service(name, Some(service)) => drop(self.services.insert(name, (*service).clone())),
                Change::Service(name, None) => {
                    self.services.remove(&name).expect("only what was told goes");
                }
                Change::Node(name, Some(facts)) => drop(self.nodes.insert(name, facts)),
                Change::Node(name, None) => drop(self.nodes.remove(&name)),
            }
        }
    }
}

fn objects() -> impl Strategy<Value = Object> {
    let app = || prop_oneof![Just("web"), Just("db")];
    let services = (0..3_u8, app(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(number, app, tier, headless, named)| {
            let mut selector = json!({"app": app});
            if tier {
                selector["tier"] = json!("x");
            }
            let target = if named { json!("http") } else { json!(9000) };
            let address = if headless { "None".to_owned() } else { format!("10.96.0.{number}") };
            service(
                &format!("s{number}"),
                json!({"clusterIP": address, "selector": selector, "trafficDistribution": "PreferSameZone",
                    "ports": [{"port": 80, "targetPort": target}]}),
            )
        },
    );
    let pods = (0..12_u8, app(), any::<bool>(), any::<bool>()).prop_map(|(number, app, tier, up)| {
        let mut labels = json!({"app": app});
        if tier {
            labels["tier"] = json!("x");
        }
        let condition = if up { "True" } else { "False" };
        let status = json!({"podIP": format!("10.0.0.{number}"), "conditions": [{"type": "Ready", "status": condition}]});
        pod(&format!("p{number}"), labels, status)
    });
    let slices = (0..2_u8, 0..3_u8, 0..9_u8).prop_map(|(number, service, address)| {
        slice(&format!("e{number}"), &format!("s{service}"), &format!("10.7.0.{address}"))
    });
    let nodes = prop_oneof![Just("a"), Just("b")].prop_map(|zone| {
        let metadata = json!({"name": "n1", "labels": {"topology.kubernetes.io/zone": zone}});
        object(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
    });
    prop_oneof![3 => services, 8 => pods, 1 => slices, 1 => nodes]
}

proptest! {
    /// Whatever happened, nodes hold what they would hold had only the present objects ever been there.
    #[test]
    fn any_order_of_events_leads_to_the_same_state(
        events in proptest::collection::vec((objects(), any::<bool>(), any::<bool>()), 0..60)
    ) {
        let (mut catalog, mut replica, mut present) = (Catalog::default(), Replica::default(), BTreeMap::new());
        for (object, is_deleted, told) in events {
            let id = object.id();
            if is_deleted && present.contains_key(&id) {
                present.remove(&id);
                catalog.delete(&id);
            } else {
                catalog.apply(&object);
                present.insert(id, object);
            }
            if told {
                replica.take(catalog.take_changes());
            }
        }
        replica.take(catalog.take_changes());
        let (mut fresh, mut expected) = (Catalog::default(), Replica::default());
        present.values().rev().for_each(|object| fresh.apply(object));
        expected.take(fresh.take_changes());
        replica.nodes.retain(|name, _| expected.nodes.contains_key(name));
        prop_assert_eq!(&replica, &expected);
        for slice in replica.slices.values() {
            prop_assert!(slice.endpoints.len() <= 3);
        }
        prop_assert_eq!(endpoints_of(&replica), naive(&present));
    }
}

/// Service and address of every endpoint, with its port and whether it is ready.
type Flat = BTreeSet<(ServiceName, IpAddr, Option<u16>, Option<bool>)>;

fn endpoints_of(replica: &Replica) -> Flat {
    let mut flat = Flat::new();
    for slice in replica.slices.values() {
        for endpoint in &slice.endpoints {
            flat.insert((slice.service.clone(), endpoint.addresses[0], slice.ports[0].port, endpoint.ready));
        }
    }
    flat
}

/// The same, said in the plainest way.
fn naive(present: &BTreeMap<ObjectId, Object>) -> Flat {
    let mut flat = Flat::new();
    for object in present.values() {
        let Object::Service(service) = object else { continue };
        if service.spec.cluster_ip == "None" {
            continue;
        }
        let name = ServiceName::from(&service.metadata);
        let given = present.values().filter_map(|object| match object {
            Object::EndpointSlice(slice) => Slice::read(slice).filter(|slice| slice.service == name),
            _ => None,
        });
        let given: Vec<_> = given.collect();
        for slice in &given {
            flat.insert((
                name.clone(),
                slice.endpoints[0].addresses[0],
                slice.ports[0].port,
                slice.endpoints[0].ready,
            ));
        }
        for object in present.values().filter(|_| given.is_empty()) {
            let Object::Pod(pod) = object else { continue };
            if service.spec.selector.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value)) {
                let named = matches!(
                    &service.spec.ports[0].target_port,
                    Some(model::policy::kubernetes::IntOrString::Name(_))
                );
                let port = if named { 8080 } else { 9000 };
                let address = pod.status.pod_ip.parse().expect("an address");
                flat.insert((name.clone(), address, Some(port), Some(pod.status.is_ready())));
            }
        }
    }
    flat
}
