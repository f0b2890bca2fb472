//! A part of the agent: makes one family of objects true in the kernel.
//!
//! The worker owns the parts and calls them one after the other, on one thread, which stays in the network namespace
//! the agent was started in. A part reads what it needs from the [`View`]; what it keeps for itself it can rebuild from
//! there, so `Changed::All` is always a legal call, and the first one is that.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    os::fd::OwnedFd,
    time::Duration,
};

use wire::trestle::v1::ObjectKind;

use crate::{
    endpoints::Endpoints,
    flows::{Named, Seen},
    held::{Differences, Held, Key},
    host::{HostRecord, Interface},
    registry::Unnamed,
};

/// The whole state to be made true.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The node's name.
    pub node: &'a str,
    pub held: &'a Held,
    pub endpoints: &'a Endpoints,
    /// Links of Pods nobody knows the names of: closed.
    pub unnamed: &'a Unnamed,
    /// What is kept of the node itself.
    pub host: &'a HostRecord,
}

/// What differs from the view of the last call.
#[derive(Clone, Copy, Debug)]
pub enum Changed<'a> {
    /// Anything: compare all, also with what an earlier run left in the kernel.
    All,
    /// These objects, of whatever kind, and perhaps the endpoints.
    Some { objects: &'a Differences, endpoints: bool },
}

/// What is true now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Every object that is not in force, and why.
    pub errors: BTreeMap<Key, String>,
    /// Why the part as a whole is not in the state it should be in. It is called again, with `Changed::All`.
    pub failure: Option<String>,
    /// What somebody must look at, although the part is in the state it should be in.
    pub problem: Option<String>,
    /// Kernel transactions this call took.
    pub transactions: u64,
    /// The longest time that one of them kept others out.
    pub longest: Duration,
}

/// What is true while nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub outcome: Outcome,
    /// Links of Pods that an earlier run has left in the kernel, with their addresses; none: it has left nothing.
    pub left: Option<Unnamed>,
}

/// A link of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// Addresses that are reached through it alone.
    pub addresses: BTreeSet<IpAddr>,
    /// Its other end is in another network namespace, and its name is as Pods' links are called.
    pub is_a_pods: bool,
    /// Nothing passes through it unless it is attached.
    pub guarded: bool,
}

/// The node itself, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostView {
    pub interfaces: Vec<Interface>,
    /// Policies restrict what comes in, and what goes out.
    pub input: bool,
    pub output: bool,
    /// What stays open: `in tcp:22`.
    pub fail_safes: Vec<String>,
    /// Nothing is refused, only counted: so many packets until now.
    pub observed: Option<u64>,
}

/// One family of objects.
pub trait Part: Send {
    /// For logs and metrics.
    fn name(&self) -> &'static str;

    /// The kinds it makes true. A kind that no part names is reported as an error.
    fn kinds(&self) -> &'static [ObjectKind];

    /// Makes the view true. One step of the controller takes effect at once or not at all.
    fn apply(&mut self, view: &View<'_>, changed: Changed<'_>) -> Outcome;

    /// Nobody knows what should be true: what an earlier run has left in the kernel stays, and Pods that it does not know
    /// are closed. Also called again and again, and must be cheap when nothing has changed.
    fn hold(&mut self, _view: &View<'_>) -> Holding {
        Holding::default()
    }

    /// The links of this node; none if this part does not know them. Addresses are looked for only if there are links of
    /// Pods that are not attached: a node may have very many routes.
    fn survey(&mut self, _attached: &Endpoints) -> Option<Vec<Link>> {
        None
    }

    /// The node itself; none if this part does not guard it. Called every half second.
    fn host(&mut self) -> Option<HostView> {
        None
    }

    /// Names connections that were seen, with the rules that decide if those are wanted; none if this part knows of no connections.
    fn name_flows(&mut self, _seen: Vec<Seen>, _rules: bool) -> Vec<Named> {
        Vec::new()
    }

    /// Whether it is the one who does.
    fn knows_flows(&self) -> bool {
        false
    }

    /// Readable when somebody may have touched what is ours: then it is looked after at once.
    fn alarm(&self) -> Option<OwnedFd> {
        None
    }

    /// Looks whether others have touched what is ours, and mends it. Called every second, so the look must be cheap;
    /// none if there was nothing to mend.
    fn mend(&mut self, view: &View<'_>) -> Option<Outcome>;
}
