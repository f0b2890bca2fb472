use serde_json::{Value, json};

use super::*;
use crate::policy::{Object, TypeMeta, validate};

fn read(document: Value) -> Object {
    let types: TypeMeta = serde_json::from_value(document.clone()).unwrap();
    types.kind().unwrap().deserialize(document).unwrap()
}

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
}

fn slice(fields: Value) -> Value {
    let mut document = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
    });
    document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    document
}

fn problems(document: Value) -> Vec<String> {
    validate(&read(document)).into_iter().map(|problem| problem.path).collect()
}

#[test]
fn everything_a_proxy_needs_is_taken_over() {
    let mut document = service(json!({
        "type": "LoadBalancer", "clusterIP": "010.96.000.010", "clusterIPs": ["010.96.000.010", "fd00::a"],
        "ports": [
            {"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ],
        "externalIPs": ["198.51.100.7"], "loadBalancerSourceRanges": [" 203.0.113.0/25", "0.0.0.0/0"],
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
        "trafficDistribution": "PreferSameZone", "allocateLoadBalancerNodePorts": true,
        "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
    }));
    document["status"] = json!({"loadBalancer": {"ingress": [
        {"ip": "1.2.3.4"}, {"ip": "1.2.3.5", "ipMode": "Proxy", "ports": []}, {"hostname": "lb.example"},
    ]}});
    document["metadata"]["annotations"] = json!({"trestle/ipvs-scheduler": "lc"});
    assert_eq!(problems(document.clone()), Vec::<String>::new());
    let Object::Service(written) = read(document) else { panic!("not a Service") };
    let service = Service::from(&written);
    assert_eq!(service.kind, ServiceKind::LoadBalancer);
    assert_eq!(service.cluster_ips, ["10.96.0.10", "fd00::a"].map(|text| text.parse::<IpAddr>().unwrap()));
    assert_eq!(service.ports.len(), 2);
    assert_eq!((service.ports[0].node_port, service.ports[1].protocol), (30080, Protocol::Udp));
    assert_eq!((service.affinity, service.health_check_node_port), (Some(60), 31000));
    assert!(service.internal_local && service.external_local);
    let modes: Vec<_> = service.load_balancers.iter().map(|one| one.mode).collect();
    assert_eq!(modes, [IngressMode::Vip, IngressMode::Proxy]);
    assert_eq!((service.source_ranges.len(), service.scheduler.as_deref()), (2, Some("lc")));
}

#[test]
fn what_a_type_does_not_have_is_left_out() {
    let Object::Service(written) = read(service(json!({
        "clusterIP": "10.96.0.1", "ports": [{"port": 80, "nodePort": 30080}], "healthCheckNodePort": 31000,
        "sessionAffinity": "ClientIP",
    }))) else {
        panic!("not a Service")
    };
    let service = Service::from(&written);
    assert_eq!((service.ports[0].node_port, service.health_check_node_port), (0, 0));
    assert_eq!(service.affinity, Some(10_800), "the default of Kubernetes");
    let Object::Service(headless) = read(self::service(json!({"clusterIP": "None"}))) else { panic!() };
    assert_eq!(Service::from(&headless).cluster_ips, Vec::<IpAddr>::new());
}

#[test]
fn source_ranges_that_cannot_be_read_permit_nobody() {
    assert_eq!(source_ranges(&[]), []);
    let nobody = source_ranges(&["rubbish".into()]);
    assert!(nobody.iter().all(|range| range.addr().is_unspecified() && range.prefix_len() >= 32));
}

#[test]
fn a_slice_is_read_with_its_hints_and_without_strangers() {
    let document = slice(json!({
        "endpoints": [{
            "addresses": ["10.0.0.01"], "conditions": {"ready": false, "serving": true, "terminating": true},
            "nodeName": "n1", "zone": "a", "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]},
            "targetRef": {"kind": "Pod", "name": "web-1"},
        }],
        "ports": [{"port": 8080}, {"name": "dns", "protocol": "UDP", "port": 53}],
    }));
    assert_eq!(problems(document.clone()), Vec::<String>::new());
    let Object::EndpointSlice(written) = read(document) else { panic!("not a slice") };
    let slice = Slice::read(&written).unwrap();
    assert_eq!(slice.service, ServiceName::new("shop", "web"));
    assert_eq!(slice.ports[0].name.as_deref(), Some(""), "the API fills in the empty name");
    let endpoint = &slice.endpoints[0];
    assert_eq!(endpoint.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        (endpoint.ready, endpoint.serving, endpoint.terminating),
        (Some(false), Some(true), Some(true))
    );
    assert_eq!((&endpoint.zone_hints[..], &endpoint.node_hints[..]), (&["a".into()][..], &["n1".into()][..]));
    let mut wrong = written.clone();
    wrong.endpoints[0].addresses.push("fd00::1".into());
    assert_eq!(Slice::read(&wrong).unwrap().endpoints[0].addresses.len(), 1, "wrong family");
    wrong.endpoints[0].addresses.push("10.0.0.2".into());
    assert_eq!(
        Slice::read(&wrong).unwrap().endpoints[0].addresses.len(),
        1,
        "the first stands for the endpoint"
    );
    wrong.address_type = "FQDN".into();
    assert_eq!(Slice::read(&wrong), None);
    wrong = written;
    wrong.metadata.labels = Labels::new();
    assert_eq!(Slice::read(&wrong), None, "belongs to nobody");
}

#[test]
fn faults_of_services_are_named_by_their_path() {
    let good =
        json!({"clusterIP": "10.96.0.1", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
    assert_eq!(problems(service(good.clone())), Vec::<String>::new());
    for (change, path) in [
        (json!({"type": "Balancer"}), "spec.type"),
        (json!({"clusterIP": "10.96.0.256"}), "spec.clusterIP"),
        (json!({"clusterIPs": ["10.96.0.2"]}), "spec.clusterIPs[0]"),
        (json!({"clusterIPs": ["10.96.0.1", "10.96.0.2"]}), "spec.clusterIPs[1]"),
        (json!({"ports": []}), "spec.ports"),
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 80, "protocol": "HTTP"}]}), "spec.ports[0].protocol"),
        (json!({"ports": [{"port": 80, "targetPort": 70000}]}), "spec.ports[0].targetPort"),
        (json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}), "spec.ports[1].name"),
        (json!({"ports": [{"name": "a", "port": 80}, {"port": 81}]}), "spec.ports[1].name"),
        (json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}), "spec.ports[1].port"),
        (
            json!({"type": "NodePort", "ports": [
                {"name": "a", "port": 80, "nodePort": 30000}, {"name": "b", "port": 81, "nodePort": 30000},
            ]}),
            "spec.ports[1].nodePort",
        ),
        (json!({"externalIPs": ["example.org"]}), "spec.externalIPs[0]"),
        (json!({"loadBalancerSourceRanges": ["10.0.0.0"]}), "spec.loadBalancerSourceRanges[0]"),
        (json!({"sessionAffinity": "Cookie"}), "spec.sessionAffinity"),
        (
            json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        ),
        (json!({"internalTrafficPolicy": "Zone"}), "spec.internalTrafficPolicy"),
        (json!({"externalTrafficPolicy": "Local"}), "spec.externalTrafficPolicy"),
        (json!({"trafficDistribution": "PreferFar"}), "spec.trafficDistribution"),
    ] {
        let mut spec = good.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(problems(service(spec)), [path], "{change}");
    }
    let mut scheduled = service(good);
    scheduled["metadata"]["annotations"] = json!({"trestle/ipvs-scheduler": "Round Robin!"});
    assert_eq!(problems(scheduled), ["metadata.annotations[trestle/ipvs-scheduler]"]);
}

#[test]
fn faults_of_slices_are_named_by_their_path() {
    for (change, path) in [
        (json!({"addressType": "MAC"}), "addressType"),
        (json!({"endpoints": [{"addresses": []}]}), "endpoints[0].addresses"),
        (json!({"endpoints": [{"addresses": ["fd00::1"]}]}), "endpoints[0].addresses[0]"),
        (json!({"endpoints": [{"addresses": ["10.0.0"]}]}), "endpoints[0].addresses[0]"),
        (json!({"ports": [{"port": 65536}]}), "ports[0].port"),
        (json!({"ports": [{"port": 1}, {"port": 2}]}), "ports[1].name"),
        (json!({"endpoints": vec![json!({"addresses": ["10.0.0.1"]}); 1_001]}), "endpoints"),
    ] {
        assert_eq!(problems(slice(change.clone())), [path], "{change}");
    }
    let any = slice(json!({"ports": [{"name": "all"}], "endpoints": null}));
    assert_eq!(problems(any), Vec::<String>::new());
}

#[test]
fn a_node_tells_its_zone_and_whether_it_leaves() {
    let Object::Node(node) = read(json!({
        "apiVersion": "v1", "kind": "Node", "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]},
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}},
        "status": {"addresses": [
            {"type": "Hostname", "address": "n1"}, {"type": "ExternalIP", "address": "198.51.100.1"},
            {"type": "InternalIP", "address": "192.168.0.2"},
        ]},
    })) else {
        panic!("not a Node")
    };
    let facts = NodeFacts::from(&node);
    assert_eq!((facts.zone.as_deref(), facts.leaving), (Some("a"), true));
    assert_eq!(facts.addresses, ["192.168.0.2".parse::<IpAddr>().unwrap()]);
}
