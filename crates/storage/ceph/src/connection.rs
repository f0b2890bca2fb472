//! Connection details under Rook's names, as its importer of external clusters reads them. Pure.
//!
//! In: a consumer, its key, and what the monitors say of themselves. Out: named items, in the order of the original:
//! monitors first, then secrets, then the storage class that names them.

use serde_json::Value;
use storage_provider::{ConnectionItem, ConsumerId};

use crate::cluster::{monitors, pool_of, text, user_of};

pub(crate) fn items(consumer: ConsumerId, key: &str, dump: &Value) -> Vec<ConnectionItem> {
    let endpoints: Vec<String> =
        monitors(dump).iter().map(|(name, address)| format!("{name}={address}")).collect();
    let name = user_of(consumer);
    let user = name.trim_start_matches("client.");
    let fsid = text(&dump["fsid"]);
    let secret = |name| item(name, "Secret", [("userID", user), ("userKey", key)]);
    vec![
        item(
            "rook-ceph-mon-endpoints",
            "ConfigMap",
            [("data", &endpoints.join(",")), ("maxMonId", "0"), ("mapping", "{}")],
        ),
        item(
            "rook-ceph-mon",
            "Secret",
            [("fsid", &fsid), ("mon-secret", "mon-secret"), ("ceph-username", &name), ("ceph-secret", key)],
        ),
        secret("rook-csi-rbd-node"),
        secret("rook-csi-rbd-provisioner"),
        item(
            "ceph-rbd",
            "StorageClass",
            [
                ("clusterID", &fsid),
                ("pool", &pool_of(consumer)),
                ("imageFeatures", "layering"),
                ("imageFormat", "2"),
                ("csi.storage.k8s.io/fstype", "ext4"),
                ("csi.storage.k8s.io/provisioner-secret-name", "rook-csi-rbd-provisioner"),
                ("csi.storage.k8s.io/controller-expand-secret-name", "rook-csi-rbd-provisioner"),
                ("csi.storage.k8s.io/node-stage-secret-name", "rook-csi-rbd-node"),
            ],
        ),
    ]
}

fn item<const N: usize>(name: &str, kind: &str, data: [(&str, &str); N]) -> ConnectionItem {
    ConnectionItem::new(name, kind, data.map(|(key, value)| (key, value.to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use storage_provider::connection_json;
    use uuid::Uuid;

    use super::*;

    /// Names, kinds, keys and order are a contract with importers that nobody here can change.
    #[test]
    fn the_details_are_the_golden_ones_byte_for_byte() {
        let monitor = |name: &str, host: &str| {
            let address =
                |kind: &str, port: u16| json!({"type": kind, "addr": format!("{host}:{port}"), "nonce": 0});
            json!({"name": name, "public_addrs": {"addrvec": [address("v2", 3300), address("v1", 6789)]}})
        };
        let dump = json!({
            "fsid": "f3b1c9de-6f0a-4f5e-9a0e-2d0f6c1b7a11",
            "mons": [monitor("a", "10.0.0.1"), monitor("b", "10.0.0.2"), monitor("c", "[fd00::3]")],
        });
        let consumer = ConsumerId::new(Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
        let key = "AQCMpH9YM4Q1BhAAXGNQyyOne8ZsXqWGon/dIQ==";
        let sent = connection_json(&items(consumer, key, &dump));
        // One item on each line, so that a change can be read.
        let lines = String::from_utf8(sent).unwrap().replace("},{\"name\"", "},\n{\"name\"") + "\n";
        assert_eq!(lines, include_str!("../tests/data/connection.json"));
    }
}
