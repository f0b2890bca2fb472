//! What one rule means, whichever way it was written.

use std::collections::BTreeSet;

use cloud_api::rules::{everywhere, span};
use model::{Address, Direction, Protocol, Traffic};

use super::Rule;
use crate::types::RuleProperties;

/// What a rule lets through or denies: direction, access, protocol, prefixes and ports of both sides.
pub type Shape<'r> = ([String; 3], [BTreeSet<&'r str>; 4]);
/// And its place and its words.
pub type Whole<'r> = (Shape<'r>, &'r str, u32, Option<&'r str>);

impl Rule {
    pub fn is_ours(&self) -> bool {
        self.name.starts_with("t-")
    }

    /// `Allow` or `Deny`.
    pub fn is(&self, access: &str) -> bool {
        self.properties.access.eq_ignore_ascii_case(access)
    }

    pub fn direction(&self) -> Direction {
        match self.properties.direction.eq_ignore_ascii_case("Outbound") {
            true => Direction::Outbound,
            false => Direction::Inbound,
        }
    }

    pub fn traffic(&self) -> Traffic {
        let protocol = match self.properties.protocol.to_ascii_lowercase().as_str() {
            "tcp" => Protocol::TCP,
            "udp" => Protocol::UDP,
            "icmp" => Protocol::ICMP,
            "esp" => Protocol::Number(50),
            "ah" => Protocol::Number(51),
            _ => Protocol::Any,
        };
        let [src_ports, dst_ports] = self.properties.ports().map(span);
        Traffic { direction: self.direction(), protocol, src_ports, dst_ports }
    }

    /// The other side's addresses; what Azure calls by a name of its own counts as everything.
    pub fn targets(&self) -> BTreeSet<Address> {
        let prefixes = match self.direction() {
            Direction::Inbound => self.properties.sources(),
            Direction::Outbound => self.properties.destinations(),
        };
        prefixes.iter().map(|text| text.parse().unwrap_or_else(|_| everywhere())).collect()
    }

    pub fn whole(&self) -> Whole<'_> {
        let RuleProperties { priority, description, .. } = &self.properties;
        (self.properties.shape(), self.name.as_str(), *priority, description.as_deref())
    }
}

/// What stands alone, and what is in a list.
fn both<'r>(alone: &'r Option<String>, listed: &'r Option<Vec<String>>) -> BTreeSet<&'r str> {
    let alone = alone.iter().filter(|text| !text.is_empty());
    alone.chain(listed.iter().flatten()).map(String::as_str).collect()
}

impl RuleProperties {
    pub fn sources(&self) -> BTreeSet<&str> {
        both(&self.source_address_prefix, &self.source_address_prefixes)
    }

    pub fn destinations(&self) -> BTreeSet<&str> {
        both(&self.destination_address_prefix, &self.destination_address_prefixes)
    }

    fn ports(&self) -> [BTreeSet<&str>; 2] {
        [
            both(&self.source_port_range, &self.source_port_ranges),
            both(&self.destination_port_range, &self.destination_port_ranges),
        ]
    }

    pub fn shape(&self) -> Shape<'_> {
        let words = [&self.direction, &self.access, &self.protocol].map(|word| word.to_ascii_lowercase());
        let [source_ports, destination_ports] = self.ports();
        (words, [self.sources(), self.destinations(), source_ports, destination_ports])
    }
}
