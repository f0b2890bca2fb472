//! Firewalls of a network, and policies that come before or after them.

use serde::{Deserialize, Serialize};

use super::Network;
use crate::{link::Link, mark::Remark};

shapes! {
    Firewall {
        both { name: String, network: Link<Network>, }
        sent {
            description: Remark,
            direction: Flow,
            /// Lower comes first; of equals the one that denies.
            priority: u32,
            disabled: bool,
        }
        maybe {
            allowed: Vec<Traffic>,
            denied: Vec<Traffic>,
            source_ranges: Vec<String>,
            destination_ranges: Vec<String>,
            target_tags: Vec<String>,
        }
    }

    /// A protocol, by name or number, with ports if not all.
    Traffic {
        both { #[serde(rename = "IPProtocol")] protocol: String, }
        maybe { ports: Vec<String>, }
    }

    /// Rules for all instances of the networks that it is associated with.
    Policy {
        both { name: String, }
        sent { description: Remark, }
        told { rules: Vec<Rule>, associations: Vec<Association>, }
    }

    Association {
        both { name: String, attachment_target: Link<Network>, }
    }

    Rule {
        both {
            /// `allow`, `deny`, `goto_next`, or something that hands over to a service of Google's.
            action: String,
        }
        sent { description: Remark, direction: Flow, disabled: bool, #[serde(rename = "match")] matched: Match, }
        maybe {
            rule_name: String,
            /// Of one that has no place in its policy yet: 0.
            priority: u64,
        }
    }

    /// What a rule is for. Whatever else narrows it is in `rest`: ours have nothing there.
    Match {
        maybe { src_ip_ranges: Vec<String>, dest_ip_ranges: Vec<String>, layer4_configs: Vec<Layer4>, }
        rest { rest }
    }

    /// The same as [`Traffic`], spelled as policies do.
    Layer4 {
        both { ip_protocol: String, }
        maybe { ports: Vec<String>, }
    }

    /// What is in force for an instance, in Google's own words.
    Effective {
        told { firewalls: Vec<Firewall>, #[serde(rename = "firewallPolicys")] policies: Vec<EffectivePolicy>, }
    }

    EffectivePolicy {
        told {
            #[serde(rename = "type")]
            kind: String,
            name: String,
            short_name: String,
            display_name: String,
            rules: Vec<Rule>,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Flow {
    #[default]
    Ingress,
    Egress,
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
            let ranges = (&one.source_ranges, &one.destination_ranges);
            (&one.description, how, &one.allowed, &one.denied, ranges, &one.target_tags)
        }
        terms(self) == terms(other)
    }
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
