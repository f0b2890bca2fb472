//! Roles between wire and model.

use model::Role;

use crate::trestle::v1;

impl From<Role> for v1::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Admin => Self::Admin,
            Role::Operator => Self::Operator,
            Role::Viewer => Self::Viewer,
            Role::Node => Self::Node,
            Role::Plugin => Self::Plugin,
            Role::Consumer => Self::Consumer,
        }
    }
}

/// The role on the wire is unspecified or from a newer version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("role {0} is not known; name one of admin, operator, viewer, node, plugin, consumer")]
pub struct UnknownRole(pub i32);

/// Reads a role field.
pub fn role(number: i32) -> Result<Role, UnknownRole> {
    match v1::Role::try_from(number) {
        Ok(v1::Role::Admin) => Ok(Role::Admin),
        Ok(v1::Role::Operator) => Ok(Role::Operator),
        Ok(v1::Role::Viewer) => Ok(Role::Viewer),
        Ok(v1::Role::Node) => Ok(Role::Node),
        Ok(v1::Role::Plugin) => Ok(Role::Plugin),
        Ok(v1::Role::Consumer) => Ok(Role::Consumer),
        Ok(v1::Role::Unspecified) | Err(_) => Err(UnknownRole(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_survive_the_wire_and_strangers_are_refused() {
        for known in Role::ALL {
            assert_eq!(role(v1::Role::from(known) as i32), Ok(known));
        }
        assert_eq!(role(0), Err(UnknownRole(0)));
        assert_eq!(role(99), Err(UnknownRole(99)));
    }
}
