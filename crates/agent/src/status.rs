//! The agent as others see it: the controller through reports, people through `trestle agent status`.

use serde::{Deserialize, Serialize};
use wire::trestle::v1::{NodeObjectError, NodeReport};

use crate::held::{Key, Token};

/// What the worker has made true, and what not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The moment of the controller that is in force.
    pub token: Option<Token>,
    /// Whether the stream that is open has brought the node to the controller's present.
    pub synced: bool,
    /// Sources that the controller waits for.
    pub waiting: Vec<String>,
    pub objects: usize,
    pub endpoints: usize,
    pub closed: usize,
    /// Objects that are not in force.
    pub errors: Vec<(Key, String)>,
    /// What ails the node as a whole.
    pub failures: Vec<String>,
    /// Messages that were not understood since the stream began.
    pub skipped: u64,
    /// The stream of this number said something that cannot be.
    pub nonsense: Option<(u64, String)>,
    pub journal_bytes: u64,
}

impl State {
    /// Whether what was last told is in force, whole.
    pub fn is_in_force(&self) -> bool {
        self.token.is_some() && self.failures.is_empty()
    }

    /// What the controller is told. Troubles of the node as a whole are errors of no kind of object.
    pub fn report(&self) -> NodeReport {
        let failures = self.failures.iter().map(|text| NodeObjectError {
            kind: 0,
            name: "node".to_owned(),
            message: text.clone(),
        });
        let errors = self.errors.iter().map(|(key, text)| NodeObjectError {
            kind: key.kind,
            name: key.name.clone(),
            message: text.clone(),
        });
        NodeReport {
            revision: self.token.map(|token| token.revision).unwrap_or_default(),
            errors: failures.chain(errors).take(MAX_ERRORS).collect(),
            skipped: self.skipped,
        }
    }
}

/// A controller keeps no more of one node.
const MAX_ERRORS: usize = 100;

/// The connection to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    pub connected: bool,
    pub server: String,
    /// Why the last stream ended, or could not be opened.
    pub last_error: String,
    pub connects: u64,
}

/// Both together, as `trestle agent status` shows them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatusView {
    pub node: String,
    pub version: String,
    pub ready: bool,
    pub connected: bool,
    pub synced: bool,
    pub server: String,
    pub revision: Option<u64>,
    pub objects: usize,
    pub endpoints: usize,
    pub closed: usize,
    pub waiting: Vec<String>,
    pub failures: Vec<String>,
    pub errors: Vec<ErrorView>,
    pub last_error: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ErrorView {
    pub kind: i32,
    pub name: String,
    pub message: String,
}

impl StatusView {
    pub fn new(node: &str, state: &State, connection: &Connection) -> Self {
        let error = |(key, message): &(Key, String)| ErrorView {
            kind: key.kind,
            name: key.name.clone(),
            message: message.clone(),
        };
        Self {
            node: node.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: state.is_in_force(),
            connected: connection.connected,
            synced: state.synced,
            server: connection.server.clone(),
            revision: state.token.map(|token| token.revision),
            objects: state.objects,
            endpoints: state.endpoints,
            closed: state.closed,
            waiting: state.waiting.clone(),
            failures: state.failures.clone(),
            errors: state.errors.iter().map(error).collect(),
            last_error: connection.last_error.clone(),
        }
    }
}
