//! What a cluster needs to use volumes of a Trestle elsewhere (pure): the CSI driver with the helpers that Kubernetes has for all drivers.
//!
//! ```text
//!   controller, one ─ provisioner, attacher, resizer, snapshotter ─► driver ─► the storage, with the consumer's certificate
//!   nodes, each     ─ registrar, kubelet                           ─► driver ─► bridges, devices, mounts
//! ```
//!
//! All of them come with the same ticket, which is in a Secret, and are the same consumer. Where the image is from, and what the
//! storage is, stands in [`Csi`].

use serde_json::{Value, json};

use super::{InstallFault, host_of, host_path, variable};

/// Of the objects, and of the driver.
const NAME: &str = "trestle-csi";
const DRIVER: &str = "csi.trestle.dev";
const SOCKET_DIR: &str = "/csi";
/// What is given to the driver, as its Pods see it.
const GIVEN: &str = "/etc/trestle-csi";
/// On the node's disk in memory: what is attached ends with the node's run, and so does this.
const STATE: &str = "/run/trestle-csi";

/// What differs from cluster to cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csi {
    pub namespace: String,
    pub image: String,
    /// The storage's controller, as nodes and Pods reach it.
    pub server: String,
    /// What its certificate is from, in PEM.
    pub ca: String,
    pub ticket: String,
    pub capacity: String,
    pub class: String,
    /// Claims that name no class get this one.
    pub is_default: bool,
    /// The cluster has the kinds of volume snapshots.
    pub snapshots: bool,
    pub keep_deleted: bool,
    pub kubelet_dir: String,
}

impl Csi {
    pub fn check(&self) -> Result<(), InstallFault> {
        let word = |text: &str, what| Err(InstallFault::Word(text.to_owned(), what));
        if host_of(&self.server).is_none() {
            return word(&self.server, "the controller's URL, https://HOST:PORT");
        }
        if !self.ca.contains("BEGIN CERTIFICATE") {
            return word("the CA's file", "certificates in PEM");
        }
        if self.ticket.trim().is_empty() {
            return word("the ticket's file", "a ticket");
        }
        if !self.kubelet_dir.starts_with('/') {
            return word(&self.kubelet_dir, "the directory of kubelets");
        }
        Ok(())
    }

    /// All of it, in the order in which it is made.
    pub fn documents(&self) -> Vec<Value> {
        let mut all = vec![json!({
            "apiVersion": "v1", "kind": "Namespace",
            // Its Pods on nodes mount what Pods use.
            "metadata": {"name": self.namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        })];
        let mut secret = self.object("v1", "Secret", NAME);
        secret["stringData"] = json!({"ticket": self.ticket.trim(), "ca.pem": self.ca});
        all.push(secret);
        all.extend(self.rights());
        all.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"]},
        }));
        all.push(self.storage_class());
        if self.snapshots {
            all.push(json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": self.class},
                "driver": DRIVER, "deletionPolicy": "Delete",
            }));
        }
        all.extend([self.controller(), self.nodes()]);
        all
    }

    fn object(&self, version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}})
    }

    fn storage_class(&self) -> Value {
        let default = if self.is_default { "true" } else { "false" };
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.class, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": DRIVER, "parameters": {"csi.storage.k8s.io/fstype": "ext4"},
            "reclaimPolicy": "Delete", "allowVolumeExpansion": true,
            // A volume is made for a Pod that was given a node, so that the node has this storage.
            "volumeBindingMode": "WaitForFirstConsumer",
        })
    }

    /// The helpers' own: volumes, claims, attachments, snapshots. The driver itself calls no API server, and nodes have no rights.
    fn rights(&self) -> Vec<Value> {
        let group = "rbac.authorization.k8s.io";
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let read = &["get", "list", "watch"];
        let mut rules = vec![
            rule(
                "",
                &["persistentvolumes"],
                &["get", "list", "watch", "create", "patch", "update", "delete"],
            ),
            rule("", &["persistentvolumeclaims"], &["get", "list", "watch", "update", "patch"]),
            rule("", &["persistentvolumeclaims/status"], &["update", "patch"]),
            rule("", &["events"], &["list", "watch", "create", "update", "patch"]),
            rule("", &["nodes", "pods"], read),
            rule("storage.k8s.io", &["storageclasses", "csinodes", "volumeattributesclasses"], read),
            rule("storage.k8s.io", &["volumeattachments"], &["get", "list", "watch", "patch"]),
            rule("storage.k8s.io", &["volumeattachments/status"], &["patch"]),
        ];
        if self.snapshots {
            let snapshots = "snapshot.storage.k8s.io";
            rules.push(rule(snapshots, &["volumesnapshotclasses", "volumesnapshots"], read));
            rules.push(rule(
                snapshots,
                &["volumesnapshotcontents"],
                &["get", "list", "watch", "update", "patch"],
            ));
            rules.push(rule(snapshots, &["volumesnapshotcontents/status"], &["update", "patch"]));
        }
        let subject = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": self.namespace}]);
        let mut nodes = self.object("v1", "ServiceAccount", "trestle-csi-node");
        nodes["automountServiceAccountToken"] = false.into();
        let mut role = self.object(&format!("{group}/v1"), "Role", NAME);
        // Of several helpers one acts.
        role["rules"] = json!([rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "watch", "create", "update", "patch", "delete"]
        )]);
        let mut binding = self.object(&format!("{group}/v1"), "RoleBinding", NAME);
        binding["roleRef"] = json!({"apiGroup": group, "kind": "Role", "name": NAME});
        binding["subjects"] = subject.clone();
        vec![
            self.object("v1", "ServiceAccount", NAME),
            nodes,
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules}),
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
                   "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": NAME}, "subjects": subject}),
            role,
            binding,
        ]
    }

    fn driver(&self, services: &str, credentials: &str) -> Value {
        let mut args =
            vec!["--server", &self.server, "--ca", "/etc/trestle-csi/ca.pem", "csi", "--services", services];
        args.extend(["--endpoint", "unix:///csi/csi.sock", "--credentials", credentials]);
        if services == "node" {
            // A kubelet makes a host's directory for everybody to enter; below it the driver makes its own.
            args.extend(["--state", "/run/trestle-csi/state"]);
        }
        args.extend(["--ticket-file", "/etc/trestle-csi/ticket", "--capacity", &self.capacity]);
        if self.keep_deleted {
            args.push("--keep-deleted");
        }
        json!({"name": "driver", "image": self.image, "args": args,
               "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}}})
    }

    fn controller(&self) -> Value {
        let mounts = json!([{"name": "socket", "mountPath": SOCKET_DIR}]);
        let helper = |name: &str, image: &str, more: &[&str]| {
            let mut args = vec!["--csi-address=/csi/csi.sock", "--leader-election"];
            args.extend(more);
            json!({"name": name, "image": format!("registry.k8s.io/sig-storage/{image}"), "args": args,
                   "env": [variable("NAMESPACE", "metadata.namespace")], "volumeMounts": mounts,
                   "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}}, "securityContext": confined()})
        };
        let mut driver = self.driver("controller", "/credentials/storage");
        driver["securityContext"] = confined();
        driver["volumeMounts"] = json!([
            {"name": "socket", "mountPath": SOCKET_DIR}, {"name": "credentials", "mountPath": "/credentials"},
            {"name": "given", "mountPath": GIVEN, "readOnly": true},
        ]);
        let mut containers = vec![
            driver,
            helper(
                "provisioner",
                "csi-provisioner:v5.2.0",
                &["--feature-gates=Topology=true", "--extra-create-metadata", "--timeout=120s"],
            ),
            helper("attacher", "csi-attacher:v4.8.1", &["--timeout=60s"]),
            helper("resizer", "csi-resizer:v1.13.2", &["--timeout=60s"]),
        ];
        if self.snapshots {
            containers.push(helper("snapshotter", "csi-snapshotter:v8.2.1", &["--timeout=120s"]));
        }
        let mut deployment = self.object("apps/v1", "Deployment", "trestle-csi-controller");
        deployment["spec"] = json!({
            "replicas": 1, "selector": {"matchLabels": labels("controller")},
            "template": {"metadata": {"labels": labels("controller")}, "spec": {
                "serviceAccountName": NAME, "priorityClassName": "system-cluster-critical",
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "runAsGroup": 65_532, "fsGroup": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": containers,
                "volumes": [
                    {"name": "socket", "emptyDir": {"medium": "Memory"}}, {"name": "credentials", "emptyDir": {"medium": "Memory"}},
                    {"name": "given", "secret": {"secretName": NAME}},
                ],
            }},
        });
        deployment
    }

    fn nodes(&self) -> Value {
        let plugin = format!("{}/plugins/{DRIVER}", self.kubelet_dir);
        let mut driver = self.driver("node", &format!("{STATE}/credentials"));
        driver["env"] = json!([variable("NODE_NAME", "spec.nodeName")]);
        // Devices, mounts that kubelet sees, and the growth of a mounted ext4 need all of it.
        driver["securityContext"] = json!({"privileged": true, "runAsUser": 0});
        driver["volumeMounts"] = json!([
            {"name": "socket", "mountPath": SOCKET_DIR}, {"name": "state", "mountPath": STATE},
            {"name": "kubelet", "mountPath": self.kubelet_dir, "mountPropagation": "Bidirectional"},
            {"name": "dev", "mountPath": "/dev"}, {"name": "modules", "mountPath": "/lib/modules", "readOnly": true},
            {"name": "given", "mountPath": GIVEN, "readOnly": true},
        ]);
        let registrar = json!({
            "name": "registrar", "image": "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0",
            "args": ["--csi-address=/csi/csi.sock", format!("--kubelet-registration-path={plugin}/csi.sock")],
            "volumeMounts": [{"name": "socket", "mountPath": SOCKET_DIR}, {"name": "registry", "mountPath": "/registration"}],
            "resources": {"requests": {"cpu": "5m", "memory": "10Mi"}},
        });
        let mut set = self.object("apps/v1", "DaemonSet", "trestle-csi-node");
        set["spec"] = json!({
            "selector": {"matchLabels": labels("node")},
            // Bridges end with their Pod: what is mounted on a node waits for the next one, so one after the other.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels("node")}, "spec": {
                "serviceAccountName": "trestle-csi-node", "automountServiceAccountToken": false,
                "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet", "priorityClassName": "system-node-critical",
                "tolerations": [{"operator": "Exists"}],
                "containers": [driver, registrar],
                "volumes": [
                    host_path("socket", &plugin, "DirectoryOrCreate"), host_path("registry", &format!("{}/plugins_registry", self.kubelet_dir), "Directory"),
                    host_path("state", STATE, "DirectoryOrCreate"), host_path("kubelet", &self.kubelet_dir, "Directory"),
                    host_path("dev", "/dev", "Directory"), host_path("modules", "/lib/modules", "DirectoryOrCreate"),
                    {"name": "given", "secret": {"secretName": NAME}},
                ],
            }},
        });
        set
    }
}

fn labels(component: &str) -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": component})
}

fn confined() -> Value {
    json!({"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

#[cfg(test)]
mod tests {
    use super::{super::write::path, *};

    pub(crate) fn csi() -> Csi {
        Csi {
            namespace: "trestle-csi".to_owned(),
            image: "trestle:1".to_owned(),
            server: "https://storage.example.org:8081".to_owned(),
            ca: "-----BEGIN CERTIFICATE-----".to_owned(),
            ticket: "ticket\n".to_owned(),
            capacity: "100Gi".to_owned(),
            class: "trestle".to_owned(),
            is_default: true,
            snapshots: true,
            keep_deleted: false,
            kubelet_dir: "/var/lib/kubelet".to_owned(),
        }
    }

    fn of<'a>(all: &'a [Value], kind: &str) -> Vec<&'a Value> {
        all.iter().filter(|document| document["kind"] == kind).collect()
    }

    #[test]
    fn nodes_have_no_rights_and_only_their_driver_all_of_the_machine() {
        let all = csi().documents();
        let bound: Vec<_> =
            all.iter().flat_map(|one| one["subjects"].as_array().into_iter().flatten()).collect();
        assert!(!bound.is_empty() && bound.iter().all(|subject| subject["name"] == NAME), "{bound:?}");
        let spec = &of(&all, "DaemonSet")[0]["spec"]["template"]["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        let privileged: Vec<_> = spec["containers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["securityContext"]["privileged"] == true)
            .collect();
        assert!(privileged.len() == 1 && privileged[0]["name"] == "driver");
        let kubelet = privileged[0]["volumeMounts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|mount| mount["name"] == "kubelet")
            .unwrap();
        assert_eq!(kubelet["mountPropagation"], "Bidirectional");
        let controller = &of(&all, "Deployment")[0]["spec"]["template"]["spec"];
        assert!(!controller.to_string().contains("privileged"));
    }

    #[test]
    fn the_ticket_is_in_the_secret_alone() {
        let all = Csi { ticket: "s3cret".to_owned(), ..csi() }.documents();
        let holding: Vec<_> = all.iter().filter(|document| document.to_string().contains("s3cret")).collect();
        assert!(holding.len() == 1 && holding[0]["kind"] == "Secret");
    }

    #[test]
    fn a_cluster_without_kinds_of_snapshots_gets_none() {
        let all = Csi { snapshots: false, is_default: false, ..csi() }.documents();
        assert!(!all.iter().any(|document| document.to_string().contains("snapshot")));
        let paths: Vec<_> = csi().documents().iter().map(path).collect();
        for one in [
            "/apis/storage.k8s.io/v1/storageclasses",
            "/apis/storage.k8s.io/v1/csidrivers",
            "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses",
        ] {
            assert!(paths.iter().any(|path| path == one), "{one}: {paths:?}");
        }
    }

    #[test]
    fn what_would_not_work_is_refused() {
        assert_eq!(csi().check(), Ok(()));
        for odd in [
            Csi { server: "storage:8081".to_owned(), ..csi() },
            Csi { ca: "PEM".to_owned(), ..csi() },
            Csi { ticket: " \n".to_owned(), ..csi() },
            Csi { kubelet_dir: "kubelet".to_owned(), ..csi() },
        ] {
            assert!(matches!(odd.check(), Err(InstallFault::Word(..))), "{odd:?}");
        }
    }
}
