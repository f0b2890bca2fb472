//! The desired state of a client: connection details as Kubernetes objects, as clients from 4.19 on reconcile them.
//!
//! In: a consumer, its client, and the items of its backend. Out: objects, named so that several consumers fit into one
//! cluster, and a hash that changes if and only if they do.
//!
//! A pool on Ceph is what such a client expects: a connection, a profile, two secrets and a storage class of Ceph's CSI
//! driver. A volume over NBD has no driver there: its secret is a Secret, everything else a ConfigMap.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{client::Client, connection::ConnectionItem, consumer::Consumer};

/// The driver that OCS's clients run for block devices.
const RBD: &str = "openshift-storage.rbd.csi.ceph.com";
/// Names of secrets in parameters of a storage class end so; their namespace stands beside them.
const SECRET_NAME: &str = "-secret-name";
const SECRET_NAMESPACE: &str = "-secret-namespace";

/// What a client is to have.
#[derive(Clone, PartialEq, Eq)]
pub struct DesiredState {
    /// Each a Kubernetes object in JSON, in a fixed order.
    pub objects: Vec<Vec<u8>>,
    pub hash: String,
}

/// The state of a consumer whose client says where its objects go.
pub fn desired_state(consumer: &Consumer, client: &Client, items: &[ConnectionItem]) -> DesiredState {
    let made = Making { suffix: consumer.id.to_string().chars().take(8).collect(), client, items };
    let mut objects: Vec<_> = made.objects().iter().map(|object| object.to_string().into_bytes()).collect();
    objects.sort();
    let mut context = digest::Context::new(&digest::SHA256);
    for object in &objects {
        context.update(&(object.len() as u64).to_be_bytes());
        context.update(object);
    }
    DesiredState { objects, hash: common::hex(context.finish().as_ref()) }
}

struct Making<'a> {
    suffix: String,
    client: &'a Client,
    items: &'a [ConnectionItem],
}

impl Making<'_> {
    fn objects(&self) -> Vec<Value> {
        let monitors = self.items.iter().find(|item| item.name == "rook-ceph-mon-endpoints");
        let on_ceph = monitors.map(|monitors| self.ceph(monitors)).unwrap_or_default();
        // What the connection and the profile say is not said again.
        let items =
            self.items.iter().filter(|item| on_ceph.is_empty() || !item.name.starts_with("rook-ceph-mon"));
        let rest = items.map(|item| match item.kind.as_str() {
            "Secret" => self.secret(item),
            "StorageClass" if !on_ceph.is_empty() => self.class(item),
            _ => self.object("v1", "ConfigMap", &item.name, &[("data", json!(self.words(item)))]),
        });
        rest.chain(on_ceph.iter().cloned()).collect()
    }

    /// The connection and the profile, which the driver's operator reads.
    fn ceph(&self, monitors: &ConnectionItem) -> Vec<Value> {
        let endpoints = monitors.data.get("data").map(String::as_str).unwrap_or_default();
        let endpoints: Vec<_> =
            endpoints.split(',').filter_map(|entry| Some(entry.split_once('=')?.1)).collect();
        let connection = self.object(
            "csi.ceph.io/v1",
            "CephConnection",
            "trestle",
            &[("spec", json!({ "monitors": endpoints }))],
        );
        let secret =
            |name: &str| json!({ "name": self.named(name), "namespace": self.client.operator_namespace });
        let profile = json!({
            "cephConnectionRef": { "name": self.named("trestle") },
            "rbd": { "cephCsiSecrets": {
                "controllerPublishSecret": secret("rook-csi-rbd-provisioner"),
                "nodePublishSecret": secret("rook-csi-rbd-node"),
            } },
        });
        vec![connection, self.object("csi.ceph.io/v1", "ClientProfile", "trestle", &[("spec", profile)])]
    }

    fn secret(&self, item: &ConnectionItem) -> Value {
        let data: BTreeMap<_, _> =
            item.data.iter().map(|(key, value)| (key, STANDARD.encode(value))).collect();
        self.object("v1", "Secret", &item.name, &[("type", json!("Opaque")), ("data", json!(data))])
    }

    /// As they are, but for the names of what is named anew.
    fn words(&self, item: &ConnectionItem) -> BTreeMap<String, String> {
        let word = |(key, value): (&String, &String)| match key.ends_with("secret-name") {
            true => (key.clone(), self.named(value)),
            false => (key.clone(), value.clone()),
        };
        item.data.iter().map(word).collect()
    }

    /// Classes are of the whole cluster and have no namespace.
    fn class(&self, item: &ConnectionItem) -> Value {
        let mut parameters = BTreeMap::new();
        for (key, value) in &item.data {
            match key.strip_suffix(SECRET_NAME) {
                Some(of) => {
                    parameters.insert(key.clone(), self.named(value));
                    parameters
                        .insert(format!("{of}{SECRET_NAMESPACE}"), self.client.operator_namespace.clone());
                }
                None => {
                    parameters.insert(key.clone(), value.clone());
                }
            }
        }
        parameters.insert("clusterID".to_owned(), self.named("trestle"));
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": self.named(&item.name) },
            "provisioner": RBD,
            "reclaimPolicy": "Delete",
            "allowVolumeExpansion": true,
            "parameters": parameters,
        })
    }

    fn object(&self, version: &str, kind: &str, name: &str, rest: &[(&str, Value)]) -> Value {
        let metadata = json!({ "name": self.named(name), "namespace": self.client.operator_namespace });
        let head = [("apiVersion", json!(version)), ("kind", json!(kind)), ("metadata", metadata)];
        let fields = head.into_iter().chain(rest.iter().cloned());
        Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    }

    fn named(&self, name: &str) -> String {
        format!("{name}-{}", self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::tests::example;

    fn client() -> Client {
        Client { operator_namespace: "storage-client".into(), ..Client::default() }
    }

    fn item<const N: usize>(name: &str, kind: &str, data: [(&str, &str); N]) -> ConnectionItem {
        ConnectionItem::new(name, kind, data.map(|(key, value)| (key, value.to_owned())))
    }

    fn read(state: &DesiredState, kind: &str) -> Vec<Value> {
        let objects = state.objects.iter().map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap());
        objects.filter(|object| object["kind"] == kind).collect()
    }

    #[test]
    fn a_pool_on_ceph_is_what_the_csi_driver_reads() {
        let items = [
            item("rook-ceph-mon-endpoints", "ConfigMap", [("data", "a=192.0.2.1:3300,b=192.0.2.2:3300")]),
            item("rook-ceph-mon", "Secret", [("ceph-secret", "k")]),
            item("rook-csi-rbd-node", "Secret", [("userID", "c"), ("userKey", "k")]),
            item("rook-csi-rbd-provisioner", "Secret", [("userID", "c"), ("userKey", "k")]),
            item(
                "ceph-rbd",
                "StorageClass",
                [
                    ("clusterID", "fsid"),
                    ("pool", "p"),
                    ("csi.storage.k8s.io/node-stage-secret-name", "rook-csi-rbd-node"),
                ],
            ),
        ];
        let state = desired_state(&example(1, 10), &client(), &items);
        let [connection] = &read(&state, "CephConnection")[..] else { panic!("one connection") };
        assert_eq!(connection["spec"]["monitors"], json!(["192.0.2.1:3300", "192.0.2.2:3300"]));
        let [profile] = &read(&state, "ClientProfile")[..] else { panic!("one profile") };
        assert_eq!(profile["spec"]["cephConnectionRef"]["name"], connection["metadata"]["name"]);
        let [class] = &read(&state, "StorageClass")[..] else { panic!("one class") };
        assert_eq!(class["parameters"]["clusterID"], profile["metadata"]["name"]);
        assert_eq!(class["provisioner"], RBD);
        let secrets = read(&state, "Secret");
        let stage = &class["parameters"]["csi.storage.k8s.io/node-stage-secret-name"];
        assert!(secrets.iter().any(|secret| secret["metadata"]["name"] == *stage));
        assert_eq!(class["parameters"]["csi.storage.k8s.io/node-stage-secret-namespace"], "storage-client");
        assert_eq!((secrets.len(), &secrets[0]["data"]["userKey"]), (2, &json!("aw==")));
        assert!(read(&state, "ConfigMap").is_empty());
    }

    #[test]
    fn a_volume_over_nbd_is_a_secret_and_words() {
        let items = [
            item("nbd-endpoint", "NBDServer", [("port", "10809")]),
            item("nbd-client", "Secret", [("key", "k")]),
            item("nbd", "StorageClass", [("uri", "nbds://x"), ("secret-name", "nbd-client")]),
        ];
        let state = desired_state(&example(1, 10), &client(), &items);
        assert_eq!((read(&state, "Secret").len(), read(&state, "ConfigMap").len()), (1, 2));
        let words = read(&state, "ConfigMap");
        let named = words.iter().find_map(|map| map["data"].get("secret-name")).unwrap();
        assert_eq!(*named, read(&state, "Secret")[0]["metadata"]["name"]);
        for object in state.objects.iter().map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap()) {
            assert_eq!(object["metadata"]["namespace"], "storage-client");
            assert!(object["metadata"]["name"].as_str().unwrap().ends_with("-00000000"));
        }
    }

    #[test]
    fn the_hash_is_of_everything_and_of_nothing_else() {
        let items = |key| [item("a", "Secret", [("k", key)]), item("b", "Secret", [])];
        let hash = |n, items: &[ConnectionItem]| desired_state(&example(n, 10), &client(), items).hash;
        let [a, b] = items("1");
        assert_eq!(hash(1, &items("1")), hash(1, &[b, a]));
        assert_ne!(hash(1, &items("1")), hash(1, &items("2")));
        // Of a consumer, only what is told counts.
        assert_eq!(hash(1, &items("1")), desired_state(&example(1, 99), &client(), &items("1")).hash);
    }
}
