//! Who calls: a role and a name, and how both are written in a certificate.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{NameError, ParseRoleError, Role, TagName};

/// The prefix of the URI that names a subject in a certificate.
const URI_PREFIX: &str = "spiffe://trestle/";

/// A caller's identity. Names follow the rules of tag names, so that node names and ids of consumers fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    pub role: Role,
    pub name: TagName,
}

/// Why a URI names no subject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSubjectError {
    #[error("the URI is not of the form {URI_PREFIX}<role>/<name>")]
    Form,
    #[error("the role in the URI is not known")]
    Role(#[from] ParseRoleError),
    #[error("the name in the URI is not legal")]
    Name(#[from] NameError),
}

impl Subject {
    /// The URI that stands for the subject in a certificate's alternative names.
    pub fn uri(&self) -> String {
        format!("{URI_PREFIX}{}/{}", self.role, self.name)
    }

    pub fn from_uri(uri: &str) -> Result<Self, ParseSubjectError> {
        let rest = uri.strip_prefix(URI_PREFIX).ok_or(ParseSubjectError::Form)?;
        let (role, name) = rest.split_once('/').ok_or(ParseSubjectError::Form)?;
        Ok(Self { role: Role::from_str(role)?, name: name.parse()? })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_read_back_from_its_uri() {
        let subject = Subject { role: Role::Node, name: "node-1.example".parse().unwrap() };
        assert_eq!(Subject::from_uri(&subject.uri()), Ok(subject));
    }

    #[test]
    fn foreign_uris_name_nobody() {
        for bad in [
            "",
            "spiffe://other/admin/a",
            "spiffe://trestle/admin",
            "spiffe://trestle/root/a",
            "spiffe://trestle/admin/",
            "spiffe://trestle/admin/a/b",
        ] {
            assert!(Subject::from_uri(bad).is_err(), "{bad:?}");
        }
    }
}
