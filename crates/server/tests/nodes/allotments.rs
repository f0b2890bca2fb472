//! Addresses and node ports for Services that come without, through the whole controller.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tonic::{Code, Status};
use wire::trestle::v1::{
    Applied, ApplyObjectsRequest, DeleteObjectsRequest, ObjectRef, objects_client::ObjectsClient,
};

use testkit_controllers::nodes::Harness;

fn service(name: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name, "namespace": "shop" });
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec })
}

fn reference(name: &str) -> ObjectRef {
    ObjectRef { kind: "Service".into(), namespace: "shop".into(), name: name.into() }
}

async fn apply(harness: &Harness, documents: &[Value], dry_run: bool) -> Result<Vec<Applied>, Status> {
    let documents = documents.iter().map(|document| document.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, dry_run, ..ApplyObjectsRequest::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    Ok(objects.apply_objects(harness.as_admin(request)).await?.into_inner().applied)
}

async fn get(harness: &Harness, name: &str) -> Value {
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    let stored = objects.get_object(harness.as_admin(reference(name))).await.unwrap().into_inner();
    serde_json::from_slice::<Value>(&stored.document).unwrap()["spec"].clone()
}

async fn delete(harness: &Harness, name: &str) {
    let request = DeleteObjectsRequest { objects: vec![reference(name)], ..Default::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    objects.delete_objects(harness.as_admin(request)).await.unwrap();
}

#[tokio::test]
async fn a_service_without_gets_its_own_keeps_it_and_gives_it_back() {
    let harness = Harness::synced().await;
    let bare = service(
        "web",
        json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }] }),
    );
    let planned = apply(&harness, std::slice::from_ref(&bare), true).await.unwrap();
    assert!(planned[0].difference.contains("+ spec.clusterIP: 10."), "{}", planned[0].difference);
    apply(&harness, std::slice::from_ref(&bare), false).await.unwrap();
    let first = get(&harness, "web").await;
    let address: std::net::Ipv4Addr = first["clusterIP"].as_str().unwrap().parse().unwrap();
    assert!((96..112).contains(&address.octets()[1]), "{address}");
    assert_eq!(first["clusterIPs"], json!([address.to_string()]));
    let ports: BTreeSet<_> =
        [&first["ports"][0]["nodePort"], &first["ports"][1]["nodePort"], &first["healthCheckNodePort"]]
            .map(|port| port.as_u64().unwrap())
            .into();
    assert!(ports.len() == 3 && ports.iter().all(|port| (30_000..=32_767).contains(port)), "{ports:?}");
    // Applied again nothing changes, not even the generation.
    let again = apply(&harness, std::slice::from_ref(&bare), false).await.unwrap();
    assert_eq!(again[0].difference, "");
    let harness = harness.restart().await;
    harness.source.synced();
    let again = apply(&harness, std::slice::from_ref(&bare), false).await.unwrap();
    assert_eq!((again[0].difference.as_str(), get(&harness, "web").await), ("", first.clone()));

    // Nobody else can have it.
    let thief = |spec| service("thief", spec);
    for (spec, what) in [
        (
            json!({ "clusterIP": address.to_string(), "ports": [{ "port": 1 }] }),
            format!("cluster address {address}"),
        ),
        (
            json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": first["ports"][0]["nodePort"] }] }),
            format!("node port {}", first["ports"][0]["nodePort"]),
        ),
        (
            json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": first["healthCheckNodePort"] }] }),
            format!("node port {}", first["healthCheckNodePort"]),
        ),
    ] {
        let refused = apply(&harness, &[thief(spec)], false).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        let text = format!("Service shop/thief: {what} is taken by Service shop/web");
        assert!(refused.message().contains(&text), "{}", refused.message());
    }
    // Until it is gone, or has become another.
    let node_port = first["ports"][1]["nodePort"].clone();
    let internal = service("web", json!({ "ports": [{ "name": "http", "port": 80 }] }));
    apply(&harness, &[internal], false).await.unwrap();
    assert_eq!(get(&harness, "web").await["clusterIP"], first["clusterIP"], "it keeps its address");
    let heir = |name: &str, spec| service(name, spec);
    let wants_port = json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": node_port }] });
    apply(&harness, &[heir("heir", wants_port)], false).await.unwrap();
    delete(&harness, "web").await;
    let wants_address = json!({ "clusterIP": address.to_string(), "ports": [{ "port": 1 }] });
    apply(&harness, &[heir("second", wants_address)], false).await.unwrap();
}

#[tokio::test]
async fn many_at_once_never_get_the_same() {
    let harness = Harness::synced().await;
    let bare = |number: usize| {
        service(
            &format!("s{number}"),
            json!({ "type": "NodePort", "ports": [{ "name": "http", "port": 80 }] }),
        )
    };
    // Each call reads what is taken, and loses to whoever writes first.
    let calls = (0..12).map(|call| {
        let (harness, documents) = (&harness, [bare(2 * call), bare(2 * call + 1)]);
        async move {
            for _ in 0..50 {
                match apply(harness, &documents, false).await {
                    Ok(_) => return,
                    Err(busy) => assert_eq!(busy.code(), Code::Aborted, "{busy}"),
                }
            }
            panic!("nobody may starve");
        }
    });
    futures::future::join_all(calls).await;
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..24 {
        let spec = get(&harness, &format!("s{number}")).await;
        addresses.insert(spec["clusterIP"].as_str().unwrap().to_owned());
        ports.insert(spec["ports"][0]["nodePort"].as_u64().unwrap());
    }
    assert_eq!((addresses.len(), ports.len()), (24, 24));
}

#[tokio::test]
async fn services_that_come_with_theirs_are_stored_as_they_are() {
    let harness = Harness::synced().await;
    let imported = json!({ "type": "NodePort", "clusterIP": "172.20.0.7", "clusterIPs": ["172.20.0.7", "fd99::7"],
        "ports": [{ "name": "http", "port": 80, "nodePort": 8080 }] });
    apply(&harness, &[service("web", imported.clone())], false).await.unwrap();
    assert_eq!(get(&harness, "web").await, imported);
    for spec in [
        json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }),
        json!({ "type": "ExternalName", "externalName": "example.org" }),
    ] {
        apply(&harness, &[service("bare", spec.clone())], false).await.unwrap();
        assert_eq!(get(&harness, "bare").await, spec);
    }
    let both = service("both", json!({ "ipFamilyPolicy": "RequireDualStack", "ports": [{ "port": 80 }] }));
    let refused = apply(&harness, &[both], false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("`services.cluster_prefixes` has no IPv6 prefix"),
        "{}",
        refused.message()
    );
}
