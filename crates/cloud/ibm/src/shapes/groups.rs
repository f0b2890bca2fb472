//! Security groups and their rules.

use model::Direction;
use serde::{Deserialize, Serialize};

use super::{Ip, Reference};

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SecurityGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) vpc: Reference,
    pub(crate) rules: Vec<GroupRule>,
    pub(crate) targets: Vec<Target>,
}

/// What a group is on. Interfaces have an address.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) id: String,
    pub(crate) primary_ip: Option<Ip>,
}

impl SecurityGroup {
    /// Whether it is on an interface.
    pub(crate) fn targets(&self, interface: &str) -> bool {
        self.targets.iter().any(|target| target.id == interface)
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct GroupRequest {
    pub(crate) name: String,
    pub(crate) vpc: Reference,
    pub(crate) rules: Vec<RuleRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupRule {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) direction: Direction,
    pub(crate) protocol: String,
    pub(crate) port_min: Option<u16>,
    pub(crate) port_max: Option<u16>,
    /// One kind of ICMP.
    pub(crate) r#type: Option<u16>,
    pub(crate) remote: Remote,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RuleRequest {
    pub(crate) name: String,
    pub(crate) direction: Direction,
    pub(crate) protocol: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port_min: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port_max: Option<u16>,
    pub(crate) remote: Remote,
}

/// Whom a rule lets in or out to: an address, a prefix, or the members of a group, which has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remote {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cidr_block: Option<String>,
}

/// As IBM would show them.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    impl SecurityGroup {
        pub(crate) fn with(rules: Vec<GroupRule>) -> Self {
            Self { id: "g".into(), name: "x".into(), vpc: Reference::to("v"), rules, targets: Vec::new() }
        }

        pub(crate) fn named(name: &str) -> Self {
            Self { name: name.into(), ..Self::with(Vec::new()) }
        }
    }

    impl RuleRequest {
        /// Through the JSON of both, with an id.
        pub(crate) fn shown(&self, id: &str) -> GroupRule {
            let mut shown = serde_json::to_value(self).unwrap();
            shown.as_object_mut().unwrap().insert("id".into(), id.into());
            serde_json::from_value(shown).unwrap()
        }
    }
}
