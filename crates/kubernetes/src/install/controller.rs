//! The controller: its configuration, its Service, and itself.

use serde_json::{Value, json};

use super::{
    AGENT, AUDIENCE, CA, CERTIFICATE, GRPC, HTTP, Install, NAME, Volume, WATCH, host_of, host_path, labels,
    variable,
};

const CONFIG: &str = "trestle-config";
const COMPONENT: &str = "controller";
/// Nobody.
const USER: u32 = 65_532;

pub fn documents(install: &Install) -> Vec<Value> {
    let mut config = install.object("v1", "ConfigMap", CONFIG);
    // JSON is YAML.
    config["data"] = json!({ "trestle.yaml": format!("{:#}\n", configuration(install)) });
    let mut service = install.object("v1", "Service", NAME);
    service["spec"] = json!({
        "selector": labels(COMPONENT),
        "ports": [{"name": "grpc", "port": GRPC, "targetPort": GRPC}, {"name": "https", "port": HTTP, "targetPort": HTTP}],
    });
    vec![config, service, stateful_set(install)]
}

fn configuration(install: &Install) -> Value {
    let Install { namespace, cluster, .. } = install;
    let own = format!("{NAME}.{namespace}.svc");
    let names: Vec<&str> =
        install.server.iter().filter_map(|server| host_of(server)).chain([own.as_str()]).collect();
    json!({
        "data_dir": "/var/lib/trestle/data",
        "listen": {"http": format!("[::]:{HTTP}"), "grpc": format!("[::]:{GRPC}"), "watch": format!("127.0.0.1:{WATCH}")},
        "names": names,
        "kubernetes": [{"name": cluster, "publish_ca": format!("{namespace}/{CA}")}],
        "hosts": {
            "certificate_seconds": CERTIFICATE,
            "identities": [{
                "name": "kubernetes", "kind": "review", "audience": AUDIENCE,
                "admit": [{
                    "when": {"namespace": namespace, "service_account": AGENT},
                    "name_from": "extra.authentication.kubernetes.io/node-name",
                    "replaces": true,
                }],
            }],
        },
    })
}

/// One: its store is its volume's. On its node's network, so that nothing which it decides stands between it and agents.
fn stateful_set(install: &Install) -> Value {
    let args = [
        "serve",
        "--config",
        "/etc/trestle/trestle.yaml",
        "--name",
        "$(TRESTLE_SERVICE_HOST)",
        "--name",
        "$(HOST_IP)",
    ];
    let mut environment = vec![variable("HOST_IP", "status.hostIP")];
    if let Some((host, port)) = &install.api_server {
        environment.push(json!({"name": "KUBERNETES_SERVICE_HOST", "value": host}));
        environment.push(json!({"name": "KUBERNETES_SERVICE_PORT", "value": port.to_string()}));
    }
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": HTTP, "scheme": "HTTPS"}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 6});
    let on_host = matches!(install.volume, Volume::HostPath(_));
    let mut spec = json!({
        "serviceAccountName": NAME,
        "hostNetwork": true,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        // A node may be not ready because its agent waits for this.
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
        ],
        "terminationGracePeriodSeconds": 30,
        "securityContext": security(on_host),
        "containers": [{
            "name": "controller", "image": install.image, "args": args, "env": environment,
            "ports": [{"name": "grpc", "containerPort": GRPC}, {"name": "https", "containerPort": HTTP}],
            "startupProbe": {"httpGet": {"path": "/healthz", "port": HTTP, "scheme": "HTTPS"}, "periodSeconds": 5, "failureThreshold": 60},
            "readinessProbe": probe("/readyz"), "livenessProbe": probe("/healthz"),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/var/lib/trestle"}, {"name": "config", "mountPath": "/etc/trestle", "readOnly": true}],
        }],
        "volumes": [{"name": "config", "configMap": {"name": CONFIG}}],
    });
    if let Some(node) = &install.controller_node {
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    let mut set = install.object("apps/v1", "StatefulSet", NAME);
    set["spec"] = json!({
        "serviceName": NAME, "replicas": 1, "selector": {"matchLabels": labels(COMPONENT)},
        "template": {"metadata": {"labels": labels(COMPONENT)}, "spec": spec},
    });
    match &install.volume {
        Volume::HostPath(path) => {
            let volumes = set["spec"]["template"]["spec"]["volumes"].as_array_mut();
            volumes.expect("it was made above").push(host_path("data", path, "DirectoryOrCreate"));
        }
        Volume::Claim { size, class } => {
            let mut claim =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
            if let Some(class) = class {
                claim["storageClassName"] = class.as_str().into();
            }
            set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": claim}]);
        }
    }
    set
}

/// A directory of the node is root's.
fn security(on_host: bool) -> Value {
    let seccomp = json!({"type": "RuntimeDefault"});
    match on_host {
        true => json!({"runAsUser": 0, "runAsGroup": 0, "seccompProfile": seccomp}),
        // Only once: rights that it has given its files stay.
        false => json!({
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": seccomp,
        }),
    }
}
