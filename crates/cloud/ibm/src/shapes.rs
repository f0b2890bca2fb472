//! What IBM's APIs are asked and what they answer with: the fields that this plugin uses, under IBM's names.
//!
//! A field that IBM always shows is required, and its absence is an error that tells where; what may be absent is an
//! `Option`, or has a default. Other fields are ignored: no object is read, changed and written back whole.

mod groups;
mod links;
mod machines;
mod networks;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub(crate) use self::{groups::*, links::*, machines::*, networks::*};
use crate::Result;

/// Another object. In requests its id says which; answers also have what is known of it there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) id: String,
    #[serde(default, skip_serializing)]
    crn: Option<String>,
    #[serde(default, skip_serializing)]
    pub(crate) name: Option<String>,
}

impl Reference {
    pub(crate) fn to(id: impl Into<String>) -> Self {
        Self { id: id.into(), crn: None, name: None }
    }

    /// Its name in the whole account, where IBM tells it.
    pub(crate) fn crn(&self) -> Result<&str> {
        self.crn.as_deref().ok_or_else(|| {
            cloud_api::CloudError::unavailable(format!("IBM Cloud shows {} without its CRN", self.id))
        })
    }
}

/// What is known by its name alone, as zones are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn of(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

/// An address; unspecified while there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ip {
    pub(crate) address: IpAddr,
}
