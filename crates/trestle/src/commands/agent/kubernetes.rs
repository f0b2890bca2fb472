//! What an agent takes that is a Pod of its node's cluster: its identity from its service account, and the node's runtime.

use std::path::PathBuf;

use agent::{Uplink, renewal::Proof};
use anyhow::Context as _;

use crate::commands::cni::CONF_DIR;

const TOKEN: &str = "/var/run/secrets/trestle/token";
const CA: &str = "/etc/trestle/ca/ca.pem";
pub const CONTAINERD: &str = "/run/containerd/containerd.sock";
const IDENTITY_DIR: &str = "/var/lib/trestle/identity";

#[derive(Debug, clap::Args)]
pub struct KubernetesArgs {
    /// This is a Pod of its node's cluster: join by its service account's token, named as the node (--node, or NODE_NAME)
    #[arg(long)]
    kubernetes: bool,
    /// With --kubernetes: the token, projected for the audience that the controller's configuration names
    #[arg(long, value_name = "FILE", default_value = TOKEN, requires = "kubernetes")]
    token: PathBuf,
    /// With --kubernetes: what the controller's configuration calls this cluster's identities
    #[arg(long, value_name = "NAME", default_value = "kubernetes", requires = "kubernetes")]
    identity: String,
    /// With --kubernetes: where key and certificate are kept
    #[arg(long, value_name = "DIR", default_value = IDENTITY_DIR, requires = "kubernetes")]
    identity_dir: PathBuf,
    /// Keep the CNI plugin in the node's network configuration, in this directory (`trestle cni install` puts it onto the node)
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = CONF_DIR)]
    pub cni: Option<PathBuf>,
    /// Ask the node's container runtime at this socket (CRI) for Pods that nobody has attached, beside looking at routes
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = CONTAINERD)]
    pub cri: Option<PathBuf>,
}

impl KubernetesArgs {
    /// How the agent reaches controllers, and what proves the node to them; none if it is no Pod.
    pub fn uplink(
        &self,
        node: Option<String>,
        servers: Vec<String>,
        ca: Option<PathBuf>,
    ) -> anyhow::Result<Option<(Uplink, Proof)>> {
        if !self.kubernetes {
            return Ok(None);
        }
        let node = node.or_else(|| std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty()));
        let node = node.context(
            "the node's name is not known: give --node, or NODE_NAME from the Pod's spec.nodeName (downward API)",
        )?;
        let dir = &self.identity_dir;
        files::closed_dir(dir).with_context(|| format!("cannot use {}", dir.display()))?;
        let uplink = Uplink {
            node,
            servers,
            ca: Some(ca.unwrap_or_else(|| CA.into())),
            identity: Some((dir.join("node.pem"), dir.join("node.key"))),
        };
        Ok(Some((uplink, Proof::Statement { identity: self.identity.clone(), file: self.token.clone() })))
    }
}
