//! The agents, one on each node.

use serde_json::{Value, json};

use super::{AGENT, AGENT_HEALTH, AUDIENCE, CA, Install, host_path, labels, variable};

const COMPONENT: &str = "agent";
/// The node's directories with plugins and with networks, as Pods here see them.
pub const BIN_DIR: &str = "/host/cni/bin";
pub const CONF_DIR: &str = "/host/cni/net.d";
/// Where runtimes keep the network namespaces of Pods.
const NAMESPACES: &str = "/run/netns";

pub fn daemon_set(install: &Install) -> Value {
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let mut set = install.object("apps/v1", "DaemonSet", AGENT);
    set["spec"] = json!({
        "selector": {"matchLabels": labels(COMPONENT)},
        // The kernel goes on between two agents.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {"metadata": {"labels": labels(COMPONENT)}, "spec": {
            "serviceAccountName": AGENT,
            "automountServiceAccountToken": false,
            "hostNetwork": true,
            "dnsPolicy": "Default",
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 10,
            "initContainers": [{
                "name": "plugin", "image": install.image,
                "args": ["cni", "install", "--no-chain", "--bin-dir", BIN_DIR],
                "securityContext": {"runAsUser": 0, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [mount("cni-bin", BIN_DIR)],
            }],
            "containers": [{
                "name": "agent", "image": install.image, "args": args(install),
                "env": [variable("NODE_NAME", "spec.nodeName")],
                "startupProbe": probe("/healthz", 60), "readinessProbe": probe("/readyz", 3), "livenessProbe": probe("/healthz", 6),
                "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
                "securityContext": security(install),
                "volumeMounts": [
                    mount("state", "/var/lib/trestle"), mount("run", "/run/trestle"), mount("cni-conf", CONF_DIR),
                    {"name": "token", "mountPath": "/var/run/secrets/trestle", "readOnly": true},
                    {"name": "ca", "mountPath": "/etc/trestle/ca", "readOnly": true},
                ],
            }],
            "volumes": [
                host_path("state", "/var/lib/trestle", "DirectoryOrCreate"),
                host_path("run", "/run/trestle", "DirectoryOrCreate"),
                host_path("cni-conf", &install.cni_conf_dir, "DirectoryOrCreate"),
                host_path("cni-bin", &install.cni_bin_dir, "DirectoryOrCreate"),
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}}]}},
                {"name": "ca", "configMap": {"name": CA}},
            ],
        }},
    });
    if let Some(socket) = &install.runtime {
        let dir = dir_of(socket).expect("it was checked");
        let spec = &mut set["spec"]["template"]["spec"];
        let mut add = |volume: Value, mount: Value| {
            let place = |list: &mut Value, one| list.as_array_mut().expect("it was made above").push(one);
            place(&mut spec["volumes"], volume);
            place(&mut spec["containers"][0]["volumeMounts"], mount);
        };
        add(host_path("runtime", dir, "DirectoryOrCreate"), mount("runtime", dir));
        // Those that come later too.
        let namespaces =
            json!({"name": "netns", "mountPath": NAMESPACES, "mountPropagation": "HostToContainer"});
        add(host_path("netns", NAMESPACES, "DirectoryOrCreate"), namespaces);
    }
    set
}

/// The directory of a socket.
pub fn dir_of(socket: &str) -> Option<&str> {
    let (dir, name) = socket.rsplit_once('/')?;
    (dir.starts_with('/') && !name.is_empty()).then_some(dir)
}

fn args(install: &Install) -> Vec<String> {
    let mut args: Vec<String> = ["agent", "--kubernetes", "--cni", CONF_DIR].map(str::to_owned).into();
    args.extend(["--server".to_owned(), install.server()]);
    args.extend(["--health".to_owned(), format!("127.0.0.1:{AGENT_HEALTH}")]);
    if install.observe {
        args.push("--observe".to_owned());
    }
    if let Some(mode) = &install.services {
        args.extend([
            "--services".to_owned(),
            mode.clone(),
            "--services-health".to_owned(),
            "0.0.0.0:10256".to_owned(),
        ]);
    }
    if let Some(socket) = &install.runtime {
        args.extend(["--cri".to_owned(), socket.clone()]);
    }
    args.extend(install.agent_flags.iter().cloned());
    args
}

fn probe(path: &str, failures: u32) -> Value {
    json!({"httpGet": {"host": "127.0.0.1", "path": path, "port": AGENT_HEALTH}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": failures})
}

/// Root for the tables of the node's kernel, and no more; who balances Services sets some of the node's settings too, which containers with
/// fewer rights see read-only.
fn security(install: &Install) -> Value {
    match install.services {
        Some(_) => json!({"runAsUser": 0, "readOnlyRootFilesystem": true, "privileged": true}),
        None => json!({
            "runAsUser": 0, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "SYS_NICE"]},
        }),
    }
}
