//! What takes from each node what was put there.

use serde_json::{Value, json};

use super::{
    Install, host_path, labels,
    node::{BIN_DIR, CONF_DIR},
};

pub const NAME: &str = "trestle-leave";
const COMPONENT: &str = "leave";
const STATE: &str = "/host/lib";

/// Ready on a node when nothing of Trestle's is left there.
pub fn daemon_set(install: &Install) -> Value {
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let capabilities = json!({"drop": ["ALL"], "add": ["NET_ADMIN", "DAC_OVERRIDE"]});
    let mut set = install.object("apps/v1", "DaemonSet", NAME);
    set["spec"] = json!({
        "selector": {"matchLabels": labels(COMPONENT)},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        "template": {"metadata": {"labels": labels(COMPONENT)}, "spec": {
            "automountServiceAccountToken": false,
            "hostNetwork": true,
            "dnsPolicy": "Default",
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "initContainers": [{
                "name": "leave", "image": install.image,
                "args": ["cni", "remove", "--bin-dir", BIN_DIR, "--conf-dir", CONF_DIR, "--agent", format!("{STATE}/trestle")],
                "securityContext": {"runAsUser": 0, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": capabilities},
                "volumeMounts": [mount("cni-bin", BIN_DIR), mount("cni-conf", CONF_DIR), mount("state", STATE)],
            }],
            "containers": [{
                "name": "left", "image": install.image, "args": ["cni", "remove", "--bin-dir", "/nowhere", "--conf-dir", "/nowhere", "--stay"],
                "securityContext": {"runAsUser": 65532, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
            "volumes": [
                host_path("cni-bin", &install.cni_bin_dir, "DirectoryOrCreate"),
                host_path("cni-conf", &install.cni_conf_dir, "DirectoryOrCreate"),
                host_path("state", "/var/lib", "Directory"),
            ],
        }},
    });
    set
}
