//! Firewalls of a network, and policies that come before or after them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Network;
use crate::{link::Link, mark::Remark};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Firewall {
    pub name: String,
    pub network: Link<Network>,
    #[serde(default)]
    pub description: Remark,
    #[serde(default)]
    pub direction: Flow,
    /// Lower comes first; of equals the one that denies.
    #[serde(default)]
    pub priority: u32,
    #[serde(default)]
    pub disabled: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Traffic>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Traffic>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_ranges: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination_ranges: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_tags: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Flow {
    #[default]
    Ingress,
    Egress,
}

/// A protocol, by name or number, with ports if not all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    #[serde(rename = "IPProtocol")]
    pub protocol: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
}

impl Traffic {
    pub(crate) fn all() -> Self {
        Self { protocol: "all".to_owned(), ports: Vec::new() }
    }
}

impl Firewall {
    /// A firewall for some ranges at the other side, that neither allows nor denies anything yet.
    pub(crate) fn towards(direction: Flow, ranges: Vec<String>) -> Self {
        match direction {
            Flow::Ingress => Self { direction, source_ranges: ranges, ..Self::default() },
            Flow::Egress => Self { direction, destination_ranges: ranges, ..Self::default() },
        }
    }

    /// The ranges of the other side.
    pub(crate) fn ranges(&self) -> &[String] {
        match self.direction {
            Flow::Ingress => &self.source_ranges,
            Flow::Egress => &self.destination_ranges,
        }
    }

    /// Whether it does the same as another of its name.
    pub(crate) fn does_as(&self, other: &Self) -> bool {
        fn terms(one: &Firewall) -> impl PartialEq {
            let how = (one.direction, one.priority, one.disabled);
            (&one.description, how, &one.allowed, &one.denied, one.ranges(), &one.target_tags)
        }
        terms(self) == terms(other)
    }
}

/// A policy: rules for all instances of the networks that it is associated with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(default, skip_serializing)]
    pub rules: Vec<Rule>,
    #[serde(default, skip_serializing)]
    pub associations: Vec<Association>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Association {
    pub name: String,
    pub attachment_target: Link<Network>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule_name: String,
    #[serde(default)]
    pub description: Remark,
    /// Of one that has no place in its policy yet: 0.
    #[serde(default, skip_serializing_if = "is_unplaced")]
    pub priority: u64,
    #[serde(default)]
    pub direction: Flow,
    /// `allow`, `deny`, `goto_next`, or something that hands over to a service of Google's.
    pub action: String,
    #[serde(default)]
    pub disabled: bool,
    #[serde(default, rename = "match")]
    pub matched: Match,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_unplaced(priority: &u64) -> bool {
    *priority == 0
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub src_ip_ranges: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dest_ip_ranges: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layer4_configs: Vec<Layer4>,
    /// Whatever else narrows a rule: ours have nothing.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The same as [`Traffic`], spelled as policies do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer4 {
    pub ip_protocol: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
}

impl From<Traffic> for Layer4 {
    fn from(Traffic { protocol, ports }: Traffic) -> Self {
        Self { ip_protocol: protocol, ports }
    }
}

impl From<Layer4> for Traffic {
    fn from(Layer4 { ip_protocol, ports }: Layer4) -> Self {
        Self { protocol: ip_protocol, ports }
    }
}

/// What is in force for an instance, in Google's own words.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Effective {
    #[serde(default)]
    pub firewalls: Vec<Firewall>,
    /// Google's spelling.
    #[serde(default, rename = "firewallPolicys")]
    pub policies: Vec<EffectivePolicy>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EffectivePolicy {
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub short_name: String,
    pub display_name: String,
    pub rules: Vec<Rule>,
}
