//! What a cluster needs so that Trestle runs in it, as documents (pure). [`Installer`] puts them there and takes them away.
//!
//! ```text
//!   controller, one, on its node's network ─ reads the API server, keeps its CA in a ConfigMap, believes it about tokens
//!   agents, one on each node ─ trust that CA ─ show their token ─► a certificate for their node's name
//!     before each: the CNI plugin's program, onto the node
//! ```
//!
//! In: [`Install`], the few things that differ. Out: documents, in the order in which they are made. Nothing here waits for what it guards:
//! the controller is no Pod that agents attach, and nodes find it without the cluster's DNS; where they balance its Services too, without
//! those.

mod controller;
mod csi;
mod leave;
mod node;
mod write;

use serde_json::{Value, json};

use crate::rbac;

pub use self::{
    csi::Csi,
    write::{InstallError, Installer},
};

/// Of the objects, and of the service account that reads the cluster.
pub const NAME: &str = "trestle";
const AGENT: &str = "trestle-agent";
const CA: &str = "trestle-ca";
/// For whom agents' tokens are made.
const AUDIENCE: &str = "trestle";
/// On the node's network, where many want 8080.
const HTTP: u16 = 9380;
const GRPC: u16 = 9381;
const WATCH: u16 = 9382;
const AGENT_HEALTH: u16 = 9383;
/// Seconds for which a node's certificate is good.
const CERTIFICATE: u32 = 86_400;

/// What differs from cluster to cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    pub namespace: String,
    /// What the cluster is called: the value of the label `trestle.dev/cluster`.
    pub cluster: String,
    pub image: String,
    /// How agents reach the controller; none: by the address of its Service, which somebody else must balance.
    pub server: Option<String>,
    /// How the controller reaches the API server (host and port); none: as Pods do.
    pub api_server: Option<(String, u16)>,
    pub volume: Volume,
    /// The node on which the controller is to run; none: any.
    pub controller_node: Option<String>,
    /// Refuse nothing, count what would be refused.
    pub observe: bool,
    /// Flags of all agents beside those that are needed.
    pub agent_flags: Vec<String>,
    /// nftables or ipvs: agents balance Services, in place of kube-proxy.
    pub services: Option<String>,
    /// The socket of the nodes' container runtime, which agents ask for Pods that were there before; none: they look at routes alone.
    pub runtime: Option<String>,
    pub cni_bin_dir: String,
    pub cni_conf_dir: String,
}

/// Where the controller keeps what it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// Of a storage class, or of the one that is the default.
    Claim { size: String, class: Option<String> },
    /// A directory of its node.
    HostPath(String),
}

/// Why what was asked for would not work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallFault {
    #[error(
        "agents that balance Services must reach the controller without them: say where it is (--server https://HOST:{GRPC}), and on which \
         node it runs (--controller-node)"
    )]
    Server,
    #[error(
        "agents that balance Services do so for the API server too, which the controller must reach before: say where it is \
         (--api-server HOST:PORT)"
    )]
    ApiServer,
    #[error("a directory of a node is only there: say which node (--controller-node)")]
    Node,
    #[error("{0:?} cannot be used as {1}")]
    Word(String, &'static str),
}

impl Install {
    pub fn check(&self) -> Result<(), InstallFault> {
        let is_label = |text: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            (1..=63).contains(&text.len())
                && text.chars().all(|c| inner(c) || c == '-')
                && text.starts_with(inner)
                && text.ends_with(inner)
        };
        let is_others = self.namespace == "default" || self.namespace.starts_with("kube-");
        if !is_label(&self.namespace) || is_others {
            return Err(InstallFault::Word(self.namespace.clone(), "a namespace of Trestle's own"));
        }
        if self.image.is_empty() || self.image.contains(char::is_whitespace) {
            return Err(InstallFault::Word(self.image.clone(), "an image"));
        }
        if let Some(server) = self.server.as_ref().filter(|server| host_of(server).is_none()) {
            return Err(InstallFault::Word(server.clone(), "the controller's URL, https://HOST:PORT"));
        }
        if self.services.is_some() && (self.server.is_none() || self.controller_node.is_none()) {
            return Err(InstallFault::Server);
        }
        if self.services.is_some() && self.api_server.is_none() {
            return Err(InstallFault::ApiServer);
        }
        if let Some(socket) = self.runtime.as_ref().filter(|socket| node::dir_of(socket).is_none()) {
            return Err(InstallFault::Word(socket.clone(), "the path of a socket"));
        }
        if matches!(self.volume, Volume::HostPath(_)) && self.controller_node.is_none() {
            return Err(InstallFault::Node);
        }
        Ok(())
    }

    /// All of it, in the order in which it is made; what follows may need what comes before.
    pub fn documents(&self) -> Vec<Value> {
        let mut all = vec![json!({
            "apiVersion": "v1", "kind": "Namespace",
            // Its Pods are on the network of their nodes.
            "metadata": {"name": self.namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        })];
        all.extend(self.rights());
        all.push(self.object("v1", "ConfigMap", CA));
        all.extend(controller::documents(self));
        all.push(node::daemon_set(self));
        all
    }

    /// What takes from each node what agents and the plugin have put there; made when the agents are gone.
    pub fn leaving(&self) -> Value {
        leave::daemon_set(self)
    }

    /// What the controller may do: read the cluster and tell it, ask about tokens, and hold its CA in one ConfigMap. Agents may do nothing.
    fn rights(&self) -> Vec<Value> {
        let mut all = rbac::documents(NAME, &self.namespace);
        for document in &mut all {
            if let Some(rules) = document.get_mut("rules").and_then(Value::as_array_mut) {
                rules.push(json!({"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}));
            }
        }
        let mut agent = self.object("v1", "ServiceAccount", AGENT);
        agent["automountServiceAccountToken"] = false.into();
        all.push(agent);
        let group = "rbac.authorization.k8s.io";
        let mut role = self.object(&format!("{group}/v1"), "Role", NAME);
        role["rules"] = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CA], "verbs": ["patch"]}]);
        let mut binding = self.object(&format!("{group}/v1"), "RoleBinding", NAME);
        binding["roleRef"] = json!({"apiGroup": group, "kind": "Role", "name": NAME});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": self.namespace}]);
        all.extend([role, binding]);
        all
    }

    fn object(&self, version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}})
    }

    /// As agents are told.
    fn server(&self) -> String {
        // The Service's address as a Pod's environment has it: there is no DNS on the way, which may be a Pod that waits for its agent.
        self.server.clone().unwrap_or_else(|| format!("https://$(TRESTLE_SERVICE_HOST):{GRPC}"))
    }
}

/// The host of a URL.
fn host_of(url: &str) -> Option<&str> {
    let (host, port) = url.strip_prefix("https://")?.trim_end_matches('/').rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()).then_some(host)
}

/// What the Pods of one kind are known by.
fn labels(component: &str) -> Value {
    json!({"app.kubernetes.io/name": "trestle", "app.kubernetes.io/component": component})
}

fn host_path(name: &str, path: &str, kind: &str) -> Value {
    json!({"name": name, "hostPath": {"path": path, "type": kind}})
}

fn variable(name: &str, field: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}})
}

#[cfg(test)]
pub(crate) mod tests;
