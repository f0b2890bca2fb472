//! What controllers tell each other, as it is written.
//!
//! ```text
//!   peers/ID/about                  {"name": …, "reached": 4711}
//!   peers/ID/nodes/NODE             {"connected": true, …}
//!   peers/ID/reports/POLICY/SHELF   {"NODE": [generation, when, why it failed or null], …}
//! ```
//!
//! Reports of a policy lie on shelves, by node: one report changes a small value, and many make few keys.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use ::transport::SessionView;
use model::policy::output::Identifier;
use serde::{Deserialize, Serialize};
use store::{Key, Prefix, Revision};
use watch::{Millis, Outcome};

use crate::transport::NODE;

/// Shelves of one policy.
const SHELVES: u8 = 64;
/// Characters told of one error's text.
const MESSAGE: usize = 256;
/// Behind for less is on its way, and changes too fast to be told.
const BEHIND_SECONDS: i64 = 5;

/// A controller. Written after what it says of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// For people.
    pub name: String,
    /// The nodes that are said to be caught up have what concerns them in all objects up to here.
    pub reached: Revision,
}

/// A node that is or was connected. What changes with every message to it is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeWord {
    pub connected: bool,
    /// Whether it says what it has applied; those on Azure NPM's protocol do not.
    pub acknowledges: bool,
    pub peer: String,
    pub version: String,
    /// Seconds since 1970.
    pub connected_at: i64,
    pub disconnected_at: Option<i64>,
    /// It has applied all that its controller had for it.
    pub is_caught_up: bool,
    /// Since when it is not, if that is long ago.
    pub behind_since: Option<i64>,
    pub errors: Vec<ErrorWord>,
    pub skipped: u64,
    pub last_end: String,
}

/// An object that is not in force on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorWord {
    pub kind: u8,
    pub name: String,
    pub message: String,
}

/// The generation reported, when, and why it is not in force, if so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportWord(pub i64, pub Millis, pub Option<String>);

/// By node.
pub type Shelf = BTreeMap<String, ReportWord>;

/// Of two claims on a node the larger one counts: who is connected, and then who was later.
pub type Rank = (bool, Option<i64>);

impl NodeWord {
    /// `before` is what was said of the same node last.
    pub fn of(view: &SessionView, now: i64, before: Option<&Self>) -> Self {
        let lag = i64::try_from(view.lag.as_secs()).unwrap_or(i64::MAX);
        let since = (view.connected && lag >= BEHIND_SECONDS).then(|| now.saturating_sub(lag));
        // Two roundings of one moment are not a change.
        let said = before.and_then(|before| before.behind_since);
        let behind_since = since.map(|since| said.filter(|said| said.abs_diff(since) <= 1).unwrap_or(since));
        let error = |(key, message): &(::transport::Key, String)| ErrorWord {
            kind: key.kind.0,
            name: key.name.to_string(),
            message: message.chars().take(MESSAGE).collect(),
        };
        Self {
            connected: view.connected,
            acknowledges: view.dialect == NODE,
            peer: view.peer.clone(),
            version: view.version.clone(),
            connected_at: seconds(view.connected_at),
            disconnected_at: view.disconnected_at.map(seconds),
            is_caught_up: is_caught_up(view),
            behind_since,
            errors: view.errors.iter().map(error).collect(),
            skipped: view.skipped,
            last_end: view.last_end.as_ref().map(|end| end.message.clone()).unwrap_or_default(),
        }
    }

    pub fn rank(&self) -> Rank {
        (self.connected, if self.connected { Some(self.connected_at) } else { self.disconnected_at })
    }
}

impl ReportWord {
    pub fn outcome(&self) -> Outcome {
        self.2.clone().map_or(Ok(()), Err)
    }
}

/// Whether a node says that it has applied all that concerns it.
pub fn is_caught_up(view: &SessionView) -> bool {
    view.dialect == NODE && view.applied.is_some_and(|applied| applied >= view.revision)
}

/// Where something is written, below one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    About,
    Node(String),
    Shelf(Identifier, u8),
}

impl Place {
    /// None for names that no key can hold.
    pub fn key(&self, controller: &str) -> Option<Key> {
        let below = prefix().child(controller).ok()?;
        match self {
            Self::About => below.key("about").ok(),
            Self::Node(name) => below.child("nodes").ok()?.key(name).ok(),
            Self::Shelf(policy, shelf) => {
                below.child("reports").ok()?.child(&policy.to_string()).ok()?.key(&shelf.to_string()).ok()
            }
        }
    }

    /// The controller and the place; none if this version knows no such place.
    pub fn read(key: &Key) -> Option<(String, Self)> {
        let controller = prefix().segment_of(key)?.ok()?;
        let segments: Vec<&str> = key.segments().skip(2).collect();
        let place = match segments.as_slice() {
            ["about"] => Self::About,
            ["nodes", _] => Self::Node(key.name().ok()?),
            ["reports", _, shelf] => {
                let policies = prefix().child(&controller).ok()?.child("reports").ok()?;
                let policy = policies.segment_of(key)?.ok()?;
                Self::Shelf(Identifier::parse(&policy), shelf.parse().ok()?)
            }
            _ => return None,
        };
        Some((controller, place))
    }
}

pub fn prefix() -> Prefix {
    Prefix::below("peers").expect("a fixed path is a legal prefix")
}

/// All shelves.
pub fn shelves() -> impl Iterator<Item = u8> {
    0..SHELVES
}

/// Where a node's reports lie, by FNV-1a: all controllers must look in the same place.
pub fn shelf_of(node: &str) -> u8 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = node.bytes().fold(0x811c_9dc5, mix);
    u8::try_from(hash % u32::from(SHELVES)).expect("it is below a u8")
}

pub fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
