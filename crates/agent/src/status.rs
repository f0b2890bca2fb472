//! The agent as others see it: the controller through reports, people through `trestle agent status`.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use wire::trestle::v1::{NodeHost, NodeInterface, NodeObjectError, NodeReport};

use crate::{
    held::{Key, Token},
    host::Interface,
    part::HostView,
    pulse::Pulse,
};

/// Heard within this: the controller is there. A little more than it takes to find that it is not.
pub const ALIVE: Duration = Duration::from_secs(8);

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
    /// Nothing is known of what should be true: what is in the kernel stays, and the rest is closed.
    pub holding: bool,
    /// What should be on disk and is not: until a controller is heard, nothing is known.
    pub lost: Vec<String>,
    /// Pods that wait, and links that nobody has attached.
    pub pods: Vec<PodProblem>,
    /// Messages that were not understood since the stream began.
    pub skipped: u64,
    /// The stream of this number said something that cannot be.
    pub nonsense: Option<(u64, String)>,
    pub journal_bytes: u64,
    /// The node itself, if it is guarded here.
    pub host: Option<HostView>,
}

/// What is the matter with a Pod or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    /// `Pod NAMESPACE/NAME`, or `interface NAME`.
    pub subject: String,
    pub message: String,
}

impl State {
    /// Whether what was last told is in force, whole.
    pub fn is_in_force(&self) -> bool {
        self.token.is_some() && self.failures.is_empty()
    }

    /// What the controller is told. Troubles of the node as a whole are errors of no kind of object.
    pub fn report(&self) -> NodeReport {
        let failures = self.failures.iter().chain(&self.lost).map(|text| NodeObjectError {
            kind: 0,
            name: "node".to_owned(),
            message: text.clone(),
        });
        let pods = self.pods.iter().map(|problem| NodeObjectError {
            kind: 0,
            name: problem.subject.clone(),
            message: problem.message.clone(),
        });
        let errors = self.errors.iter().map(|(key, text)| NodeObjectError {
            kind: key.kind,
            name: key.name.clone(),
            message: text.clone(),
        });
        NodeReport {
            revision: self.token.map(|token| token.revision).unwrap_or_default(),
            errors: failures.chain(errors).chain(pods).take(MAX_ERRORS).collect(),
            skipped: self.skipped,
            host: self.host.as_ref().map(told),
        }
    }
}

fn told(host: &HostView) -> NodeHost {
    let interface = |interface: &Interface| NodeInterface {
        name: interface.name.clone(),
        addresses: interface.addresses.iter().map(ToString::to_string).collect(),
    };
    NodeHost {
        interfaces: host.interfaces.iter().map(interface).collect(),
        restricts_input: host.input,
        restricts_output: host.output,
        fail_safes: host.fail_safes.clone(),
        observed: host.observed,
    }
}

/// A controller keeps no more of one node.
const MAX_ERRORS: usize = 100;

/// The connection to the controller.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// A stream is open, for all that is known.
    pub open: bool,
    /// When the controller of the last stream was last heard; the agent's start, if there was none.
    pub heard: Pulse,
    pub server: String,
    /// Why the last stream ended, or could not be opened.
    pub last_error: String,
    pub connects: u64,
}

impl Connection {
    /// For how long no controller was heard; none while one is there: a stream is open, and something came on it within
    /// the time in which a mute one is found.
    pub fn gone_for(&self) -> Option<Duration> {
        let age = self.heard.age();
        (!self.open || age >= ALIVE).then_some(age)
    }
}

/// Both together, as `trestle agent status` shows them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatusView {
    pub node: String,
    pub version: String,
    pub ready: bool,
    /// A controller was heard within the last seconds.
    pub connected: bool,
    /// When a controller was last heard, if none is there: what is in force is of then.
    #[serde(default)]
    pub disconnected_since: Option<String>,
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
    /// The node itself, if it is guarded here.
    #[serde(default)]
    pub host: Option<HostStatus>,
}

/// The node itself, as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    pub interfaces: Vec<Interface>,
    /// Policies restrict what comes in, and what goes out.
    pub restricts_input: bool,
    pub restricts_output: bool,
    pub fail_safes: Vec<String>,
    /// Nothing is refused: so many packets would have been.
    pub observed: Option<u64>,
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
        let pods = state.pods.iter().map(|problem| ErrorView {
            kind: 0,
            name: problem.subject.clone(),
            message: problem.message.clone(),
        });
        let gone = connection.gone_for();
        Self {
            node: node.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: state.is_in_force(),
            connected: gone.is_none(),
            disconnected_since: gone.map(ago),
            synced: state.synced && gone.is_none(),
            server: connection.server.clone(),
            revision: state.token.map(|token| token.revision),
            objects: state.objects,
            endpoints: state.endpoints,
            closed: state.closed,
            waiting: state.waiting.clone(),
            failures: state.failures.iter().chain(&state.lost).cloned().collect(),
            errors: state.errors.iter().map(error).chain(pods).collect(),
            last_error: connection.last_error.clone(),
            host: state.host.clone().map(|host| HostStatus {
                interfaces: host.interfaces,
                restricts_input: host.input,
                restricts_output: host.output,
                fail_safes: host.fail_safes,
                observed: host.observed,
            }),
        }
    }
}

/// A time as people write it, from an age, which is certain also if somebody has set the clock.
fn ago(age: Duration) -> String {
    let now = Timestamp::now();
    written(now.checked_sub(age).unwrap_or(now))
}

/// The same, of seconds since 1970.
pub fn at(second: i64) -> String {
    Timestamp::from_second(second).map(written).unwrap_or_default()
}

fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn heard(seconds: u64) -> Pulse {
        Pulse::since(
            Instant::now().checked_sub(Duration::from_secs(seconds)).expect("the machine runs that long"),
        )
    }

    #[test]
    fn a_stream_on_which_nothing_is_heard_is_no_connection() {
        let synced = State { synced: true, token: Some(Token { epoch: 1, revision: 7 }), ..State::default() };
        let view = |open, seconds| {
            let connection = Connection { open, heard: heard(seconds), ..Connection::default() };
            let view = StatusView::new("n", &synced, &connection);
            (view.ready, view.connected, view.synced, view.disconnected_since.is_some())
        };
        assert_eq!(view(true, 3), (true, true, true, false));
        assert_eq!(view(true, 9), (true, false, false, true), "open, and mute");
        assert_eq!(view(false, 1), (true, false, false, true));
    }

    #[test]
    fn since_when_nobody_was_heard_is_told_by_the_clock_on_the_wall() {
        let connection = Connection { heard: heard(60), ..Connection::default() };
        let view = StatusView::new("n", &State::default(), &connection);
        let since: Timestamp = view.disconnected_since.expect("nobody is there").parse().expect("a time");
        let age = Timestamp::now().duration_since(since).as_secs();
        assert!((59..120).contains(&age), "{age}");
    }

    #[test]
    fn a_pulse_beats() {
        let pulse = heard(60);
        assert!(pulse.age() >= Duration::from_secs(60));
        pulse.beat();
        assert!(pulse.age() < Duration::from_secs(30));
    }
}
