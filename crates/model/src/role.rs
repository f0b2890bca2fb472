//! Roles: what a caller may be.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What a caller is. Which calls a role may make is one table in `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, including who else may call.
    Admin,
    /// Reads and changes intent.
    Operator,
    /// Reads.
    Viewer,
    /// A node agent.
    Node,
    /// A cloud plugin.
    Plugin,
    /// A storage consumer.
    Consumer,
}

impl Role {
    pub const ALL: [Self; 6] =
        [Self::Admin, Self::Operator, Self::Viewer, Self::Node, Self::Plugin, Self::Consumer];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Node => "node",
            Self::Plugin => "plugin",
            Self::Consumer => "consumer",
        }
    }
}

/// The text names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no role; there are admin, operator, viewer, node, plugin and consumer")]
pub struct ParseRoleError {
    text: String,
}

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| ParseRoleError { text: text.chars().take(64).collect() })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_parses_as_it_prints() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }
}
