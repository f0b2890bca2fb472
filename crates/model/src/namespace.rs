//! Namespaces, and where each lives in each cloud.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Segment;

/// A namespace: the unit in which resources are named and networks are kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    pub name: Segment,
    /// By cloud; at most one deployment per cloud by construction.
    pub deployments: BTreeMap<Segment, Deployment>,
}

/// A cloud's own id for where a namespace lives: a subscription and resource group, a project, an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deployment(String);

/// Why deployments are not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    #[error(
        "the deployment of cloud {cloud} is empty, longer than {MAX_DEPLOYMENT} bytes, or holds control characters"
    )]
    Deployment { cloud: Segment },
    #[error("cloud {cloud} is listed twice; a namespace has one deployment per cloud")]
    Duplicate { cloud: Segment },
}

/// Longest deployment id accepted; Azure's, the longest known, stay below 200 bytes.
const MAX_DEPLOYMENT: usize = 1024;

impl Namespace {
    pub fn new(
        name: Segment,
        list: impl IntoIterator<Item = (Segment, String)>,
    ) -> Result<Self, NamespaceError> {
        let mut deployments = BTreeMap::new();
        for (cloud, id) in list {
            if id.is_empty() || id.len() > MAX_DEPLOYMENT || id.chars().any(char::is_control) {
                return Err(NamespaceError::Deployment { cloud });
            }
            if deployments.insert(cloud.clone(), Deployment(id)).is_some() {
                return Err(NamespaceError::Duplicate { cloud });
            }
        }
        Ok(Self { name, deployments })
    }
}

impl Deployment {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: &str) -> Segment {
        text.parse().unwrap()
    }

    #[test]
    fn one_deployment_per_cloud() {
        let twice = [(segment("gcp"), "projects/a".to_owned()), (segment("gcp"), "projects/b".to_owned())];
        assert_eq!(
            Namespace::new(segment("ns"), twice),
            Err(NamespaceError::Duplicate { cloud: segment("gcp") })
        );
    }

    #[test]
    fn a_deployment_is_printable_and_bounded() {
        for bad in ["", "a\nb", &"x".repeat(MAX_DEPLOYMENT + 1)] {
            assert!(Namespace::new(segment("ns"), [(segment("gcp"), bad.to_owned())]).is_err());
        }
    }
}
