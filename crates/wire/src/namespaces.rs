//! Namespaces between wire and model.

use model::{NameError, Namespace, NamespaceError};

use crate::trestle::v1;

/// Why a namespace message is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceMessageError {
    #[error("the namespace's name is not legal")]
    Name(#[source] NameError),
    #[error("a deployment's cloud is not legal")]
    Cloud(#[source] NameError),
    #[error("the namespace's deployments are not acceptable")]
    Deployments(#[source] NamespaceError),
}

impl TryFrom<v1::Namespace> for Namespace {
    type Error = NamespaceMessageError;

    fn try_from(message: v1::Namespace) -> Result<Self, NamespaceMessageError> {
        let name = message.name.parse().map_err(NamespaceMessageError::Name)?;
        let mut deployments = Vec::with_capacity(message.deployments.len());
        for deployment in message.deployments {
            deployments
                .push((deployment.cloud.parse().map_err(NamespaceMessageError::Cloud)?, deployment.id));
        }
        Namespace::new(name, deployments).map_err(NamespaceMessageError::Deployments)
    }
}

impl From<Namespace> for v1::Namespace {
    fn from(namespace: Namespace) -> Self {
        let deployments = namespace
            .deployments
            .into_iter()
            .map(|(cloud, id)| v1::Deployment { cloud: cloud.to_string(), id: id.as_str().to_owned() })
            .collect();
        Self { name: namespace.name.to_string(), deployments }
    }
}
