//! A part of the agent: makes one family of objects true in the kernel.
//!
//! The worker owns the parts and calls them one after the other, on one thread, which stays in the network namespace
//! the agent was started in. A part reads what it needs from the [`View`]; what it keeps for itself it can rebuild from
//! there, so `Changed::All` is always a legal call, and the first one is that.

use std::collections::BTreeMap;

use wire::trestle::v1::ObjectKind;

use crate::{
    endpoints::Endpoints,
    held::{Differences, Held, Key},
};

/// The whole state to be made true.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The node's name.
    pub node: &'a str,
    pub held: &'a Held,
    pub endpoints: &'a Endpoints,
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
    /// Kernel transactions this call took.
    pub transactions: u64,
}

/// One family of objects.
pub trait Part: Send {
    /// For logs and metrics.
    fn name(&self) -> &'static str;

    /// The kinds it makes true. A kind that no part names is reported as an error.
    fn kinds(&self) -> &'static [ObjectKind];

    /// Makes the view true. One step of the controller takes effect at once or not at all.
    fn apply(&mut self, view: &View<'_>, changed: Changed<'_>) -> Outcome;

    /// Looks whether others have touched what is ours, and mends it. Called every second, so the look must be cheap;
    /// none if there was nothing to mend.
    fn mend(&mut self, view: &View<'_>) -> Option<Outcome>;
}
