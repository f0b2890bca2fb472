//! The node agent: a controller's stream in, the kernel's state out, and nothing lost in between.
//!
//! ```text
//!   controller ── stream ──► feed ──► worker ──► parts ──► kernel
//!   attach, detach ──► local ─────────► │ held, endpoints
//!   a container runtime ──► cni ──► local └──► journal, registry on disk
//! ```
//!
//! In: messages of the node protocol (`docs/node-protocol.md`), attachments of Pods, an earlier run's state on disk. Out:
//! what the parts make true, reports, health and metrics. Holds: the objects that concern the node ([`held`]), the Pods
//! attached to it ([`endpoints`]).
//! Not here: what objects mean for the kernel (the `node` rooms, behind [`part::Part`]), flags (`trestle`).

mod agent;
pub mod cni;
mod coverage;
pub mod cri;
pub mod endpoints;
mod feed;
pub mod flows;
mod health;
pub mod held;
pub mod host;
pub mod join;
pub mod journal;
pub mod local;
mod metrics;
pub mod part;
mod policy;
mod pulse;
pub mod registry;
pub mod renewal;
mod servers;
pub mod services;
mod status;
pub mod watcher;
pub mod worker;

use node_kernel::policy::PolicyError;
use node_policy::Options;
use part::Part;

/// How policies are enforced, apart from what they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// Interfaces whose name begins so are Pods': one that is not attached gets nothing through.
    pub guard: Vec<String>,
    /// Links to other network namespaces whose name begins so are Pods' too: they are looked for, and reported if nobody
    /// has attached them.
    pub pods: Vec<String>,
    /// Links whose name begins so lead to containers and virtual machines on the node.
    pub inner: Vec<String>,
    /// Cut established connections that a new policy forbids, instead of letting them end by themselves.
    pub cut_established: bool,
    /// What stays open at the node itself.
    pub fail_safes: host::FailSafes,
    /// Refuse nothing, and count what would be refused.
    pub observe: bool,
    /// What is refused is told to [`flows::LOG_GROUP`].
    pub log_refused: bool,
}

impl PolicySettings {
    /// Links that lead to what lives on the node and is not the node: Pods too.
    pub fn inner_prefixes(&self) -> Vec<String> {
        [&self.guard[..], &self.pods, &self.inner].concat()
    }
}

/// The parts of an agent on a real node. They act in the network namespace of the calling thread.
pub fn parts(node: &str, settings: &PolicySettings) -> Result<Vec<Box<dyn Part>>, PolicyError> {
    let options = Options {
        node: node.to_owned(),
        guarded_prefixes: settings.guard.clone(),
        inner_prefixes: settings.inner_prefixes(),
        cut_established: settings.cut_established && !settings.observe,
        observe: settings.observe,
        log_refused: settings.log_refused.then_some(flows::LOG_GROUP),
        ..Options::default()
    };
    Ok(vec![Box::new(policy::Policies::open(options, settings)?)])
}

/// Takes what policies have put into the kernel out of it, whether an agent runs or not; how many tables that were. Nothing is guarded
/// from here on.
pub fn take_out() -> Result<usize, PolicyError> {
    node_kernel::policy::take_out()
}

/// The part that keeps services, and how others see it.
pub fn services(settings: services::ServiceSettings) -> (Box<dyn Part>, services::Services) {
    let (part, services) = services::ServicesPart::new(settings);
    (Box::new(part), services)
}

pub use agent::{Agent, AgentError, Config, boot};
pub use feed::Uplink;
pub use metrics::Metrics;
pub use status::{Connection, ErrorView, HostStatus, PodProblem, State, StatusView};
pub use worker::{Patience, has_run, is_run, prepare};
