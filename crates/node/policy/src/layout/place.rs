//! The sets of the table, what their keys are, and which of them belong together.

use model::policy::output::Direction;
use node_nft::{FieldType, SetSchema};

use super::{DIRECTIONS, FAMILIES};

/// The sets of the table. Where a family is said, `true` is IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Address to class.
    Peers(bool),
    /// Range of addresses to class, for addresses that are not in `Peers`.
    Blocks(bool),
    /// Restricted in this direction.
    Subjects(Direction, bool),
    /// Workload and class to function.
    Functions(Direction, bool),
    /// What functions decide, of single ports.
    Ports,
    /// Of ranges of ports.
    Ranges,
    /// Of ranges of source ports; of ICMP, type and code.
    Sources,
    /// Of ranges of source ports and of ports.
    Boxes,
    /// Of the rest of a protocol.
    Protocols,
    /// Of everything else.
    Defaults,
    /// Pairs of addresses of one workload.
    Itself(bool),
    /// Addresses of this node's workloads.
    Locals(bool),
    Interfaces,
    /// Interface and address that belong together.
    Homes(bool),
    /// Decision to verdict.
    Decisions,
    /// The same where the kernel can reject nothing any more: it is dropped.
    LateDecisions,
    /// Addresses of workloads whose decisions the kernel refused: nothing passes. Empty while all is well.
    Closed(bool),
    /// Addresses that are judged by keys with [`ASIDE`], while the others change. Empty but for a moment.
    Aside(Direction, bool),
}

/// What is decided for one direction and family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub direction: Direction,
    pub ipv6: bool,
}

impl Way {
    /// Every element of it begins with the address of a workload, then the class of its peer.
    pub fn place(self) -> Place {
        Place::Functions(self.direction, self.ipv6)
    }

    pub fn address_len(self) -> usize {
        if self.ipv6 { 16 } else { 4 }
    }
}

/// Bit of the class in keys of what holds while what usually holds is replaced.
pub const ASIDE: u32 = 1 << 31;

/// The key of a decision, aside.
pub fn aside(way: Way, key: &[u8]) -> Box<[u8]> {
    let (address, rest) = key.split_at(way.address_len());
    let (class, rest) = rest.split_first_chunk().expect("the class follows the address");
    let class = u32::from_ne_bytes(*class) | ASIDE;
    [address, &class.to_ne_bytes(), rest].concat().into()
}

impl Place {
    pub fn all() -> Vec<Self> {
        let mut places = vec![Self::Interfaces, Self::Decisions, Self::LateDecisions];
        places.extend(OF_FUNCTIONS);
        for ipv6 in FAMILIES {
            let of_family =
                [Self::Peers, Self::Blocks, Self::Itself, Self::Locals, Self::Homes, Self::Closed];
            places.extend(of_family.map(|of| of(ipv6)));
            for direction in DIRECTIONS {
                let of_way = [Self::Subjects, Self::Aside, Self::Functions];
                places.extend(of_way.map(|of| of(direction, ipv6)));
            }
        }
        places
    }

    pub fn name(self) -> String {
        let side = |direction| if direction == Direction::In { "in" } else { "out" };
        let family = |ipv6| if ipv6 { 6 } else { 4 };
        match self {
            Self::Peers(ipv6) => format!("peers{}", family(ipv6)),
            Self::Blocks(ipv6) => format!("blocks{}", family(ipv6)),
            Self::Subjects(direction, ipv6) => format!("{}-subjects{}", side(direction), family(ipv6)),
            Self::Functions(direction, ipv6) => format!("{}-functions{}", side(direction), family(ipv6)),
            // In order of their names they come before who is led to them: so a table is made in pieces.
            Self::Ports => "function-ports".into(),
            Self::Ranges => "function-ranges".into(),
            Self::Sources => "function-sources".into(),
            Self::Boxes => "function-boxes".into(),
            Self::Protocols => "function-protocols".into(),
            Self::Defaults => "function-defaults".into(),
            Self::Itself(ipv6) => format!("itself{}", family(ipv6)),
            Self::Locals(ipv6) => format!("locals{}", family(ipv6)),
            Self::Interfaces => "interfaces".into(),
            Self::Decisions => "decisions".into(),
            Self::LateDecisions => "late-decisions".into(),
            Self::Closed(ipv6) => format!("closed{}", family(ipv6)),
            Self::Homes(ipv6) => format!("homes{}", family(ipv6)),
            Self::Aside(direction, ipv6) => format!("{}-aside{}", side(direction), family(ipv6)),
        }
    }

    pub fn schema(self) -> SetSchema {
        use FieldType::{InterfaceName, Ipv4, Ipv6, Mark, Port, Proto};
        let address = |ipv6| if ipv6 { Ipv6 } else { Ipv4 };
        match self {
            Self::Peers(ipv6) => SetSchema::map([address(ipv6)], [Mark]),
            Self::Blocks(ipv6) => SetSchema::map([address(ipv6)], [Mark]).interval(),
            Self::Subjects(_, ipv6) | Self::Aside(_, ipv6) | Self::Locals(ipv6) | Self::Closed(ipv6) => {
                SetSchema::set([address(ipv6)])
            }
            Self::Functions(_, ipv6) => SetSchema::map([address(ipv6), Mark], [Mark]),
            Self::Ports => SetSchema::map([Mark, Proto, Port], [Mark]),
            Self::Ranges | Self::Sources => {
                SetSchema::map([FieldType::joined(&[Mark, Proto, Port])], [Mark]).interval()
            }
            Self::Boxes => SetSchema::map([Mark, Proto, Port, Port], [Mark]).interval(),
            Self::Protocols => SetSchema::map([Mark, Proto], [Mark]),
            Self::Defaults => SetSchema::map([Mark], [Mark]),
            Self::Itself(ipv6) => SetSchema::set([address(ipv6), address(ipv6)]),
            Self::Interfaces => SetSchema::set([InterfaceName]),
            Self::Decisions | Self::LateDecisions => SetSchema::verdict_map([Mark]),
            Self::Homes(ipv6) => SetSchema::set([InterfaceName, address(ipv6)]),
        }
    }

    /// Which way, if it holds decisions about classes of peers.
    pub fn decides(self) -> Option<Way> {
        match self {
            Self::Functions(direction, ipv6) => Some(Way { direction, ipv6 }),
            _ => None,
        }
    }

    /// Says what a function is.
    pub fn is_of_functions(self) -> bool {
        OF_FUNCTIONS.contains(&self)
    }

    /// Part of what is known of peers, rather than of what is decided about them.
    pub fn is_of_peers(self) -> bool {
        matches!(self, Self::Peers(_) | Self::Blocks(_))
    }
}

const OF_FUNCTIONS: [Place; 6] =
    [Place::Ports, Place::Ranges, Place::Sources, Place::Boxes, Place::Protocols, Place::Defaults];
