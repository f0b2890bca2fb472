//! Patches: the difference between two states of one port of a service.

use std::sync::Arc;

use crate::{EndpointInfo, PortId, ServicePortInfo};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    NoOp,
    Create,
    Update,
    Delete,
}

/// The port itself. `before` and `after` are the same for `NoOp`; one of them is absent for `Create` and `Delete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePatch {
    pub op: Operation,
    pub before: Option<Arc<ServicePortInfo>>,
    pub after: Option<Arc<ServicePortInfo>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointPatch {
    /// Never `NoOp`.
    pub op: Operation,
    /// As it is after the patch; as it was if it is deleted.
    pub endpoint: EndpointInfo,
}

/// All mutually dependent operations together: patches of different ports may be carried out in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpointsPatch {
    pub id: PortId,
    pub service: ServicePatch,
    /// In the order of address and port.
    pub endpoints: Vec<EndpointPatch>,
}

impl ServicePatch {
    pub(crate) fn between(before: Option<Arc<ServicePortInfo>>, after: Option<Arc<ServicePortInfo>>) -> Self {
        let op = match (&before, &after) {
            (None, None) => Operation::NoOp,
            (None, Some(_)) => Operation::Create,
            (Some(_), None) => Operation::Delete,
            (Some(before), Some(after)) if before == after => Operation::NoOp,
            (Some(_), Some(_)) => Operation::Update,
        };
        Self { op, before, after }
    }
}

impl ServiceEndpointsPatch {
    pub fn is_empty(&self) -> bool {
        self.service.op == Operation::NoOp && self.endpoints.is_empty()
    }
}
