//! PolicyTest: what policies must come to, written beside them by those who rely on it.
//!
//! ```yaml
//! apiVersion: trestle.dev/v1
//! kind: PolicyTest
//! metadata: {name: shop, namespace: shop}
//! spec:
//!   tests:
//!   - {from: shop/app=web, to: shop/db-0, port: 5432, expect: allow}
//!   - {from: 198.51.100.7, to: shop/app=db, expect: deny}
//! ```
//!
//! Not here: what the ends are, and whether it is so (`server::policy_tests`).

use serde::{Deserialize, Serialize};

use super::meta::{ObjectMeta, null_as_default};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyTest {
    pub metadata: ObjectMeta,
    pub spec: PolicyTestSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyTestSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub tests: Vec<Expectation>,
}

/// One line of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Expectation {
    /// What `explain` takes, or all workloads of a namespace with some labels, as in `shop/app=web,tier=front`.
    pub from: String,
    pub to: String,
    /// As `explain` takes it: `tcp`, `udp`, `sctp`, `icmp` or `other`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// Absent: every port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// `allow`: all of it is open. `deny`: nothing of it is.
    pub expect: String,
}

/// What must be so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Allow,
    Deny,
}

impl Expectation {
    /// None where it is neither of the two words.
    pub fn expected(&self) -> Option<Expected> {
        match self.expect.as_str() {
            "allow" => Some(Expected::Allow),
            "deny" => Some(Expected::Deny),
            _ => None,
        }
    }
}
