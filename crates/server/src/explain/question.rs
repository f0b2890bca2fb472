//! What is asked: which protocols, ports and source ports; and what of it is open.

use model::{Open, Openings, ProtocolClass, Share, policy::output::Protocol};
use policy::explain::{Endpoint, Query};
use wire::trestle::v1::ExplainRequest;

use super::{port, protocol};
use crate::failure::Failure;

/// The question, its two ends aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Never empty.
    pub classes: Vec<ProtocolClass>,
    pub port: Option<u16>,
    pub source_port: Option<u16>,
}

/// A single packet: of TCP and the like its destination and source port, of ICMP type and code, else its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub class: ProtocolClass,
    pub major: u16,
    pub minor: u16,
}

impl Question {
    pub fn new(request: &ExplainRequest) -> Result<Self, Failure> {
        let (port, source_port) = (port(request.port)?, port(request.source_port)?);
        let classes = match (request.protocol.as_str(), port.or(source_port)) {
            ("", None) => ProtocolClass::ALL.to_vec(),
            ("", Some(_)) => vec![ProtocolClass::Tcp],
            (text, _) => vec![protocol(text)?],
        };
        // What has no ports is open or not, whichever is asked about.
        let has_ports = classes.iter().all(|class| class.has_ports());
        Ok(Self { classes, port: port.filter(|_| has_ports), source_port: source_port.filter(|_| has_ports) })
    }

    /// Whether it leaves no port open, so that there is one thing that would permit it.
    pub fn is_one(&self) -> bool {
        self.classes.len() == 1 && (self.port.is_some() || !self.classes[0].has_ports())
    }

    /// As in `tcp 5432`, `icmp` and `all`.
    pub fn name(&self) -> String {
        match (self.classes.as_slice(), self.port) {
            ([class], Some(port)) => format!("{class} {port}"),
            ([class], None) => class.to_string(),
            _ => "all".to_owned(),
        }
    }

    /// What of an answer is about the question.
    pub fn of(&self, open: &Open, class: ProtocolClass) -> Openings {
        let openings = open.of(class);
        let openings = self.port.map_or_else(|| openings.clone(), |port| openings.at(port));
        match self.source_port {
            None => openings,
            Some(port) => {
                let (majors, minors) = Openings::every(class);
                let from_it = openings.intersect(&Openings::new(class, [(majors, (port, port))]));
                // Whatever is open from it is open for all that was asked about.
                let majors = from_it.majors();
                Openings::new(class, majors.into_iter().map(|major| (major, minors)))
            }
        }
    }

    pub fn share_of(&self, open: &Open, class: ProtocolClass) -> Share {
        let openings = self.of(open, class);
        self.port.map_or_else(|| openings.share(), |port| openings.share_of(port))
    }

    pub fn share(&self, open: &Open) -> Share {
        let mut shares = self.classes.iter().map(|class| self.share_of(open, *class));
        let first = shares.next().unwrap_or(Share::None);
        if shares.all(|share| share == first) { first } else { Share::Some }
    }

    /// Something asked about that is open, or that is not; of one class if that has both.
    pub fn example(&self, open: &Open, is_open: bool) -> Option<Place> {
        let of = |class: ProtocolClass| {
            let openings = self.of(open, class);
            let (major, minor) = match (is_open, self.port) {
                (true, _) => openings.an_open_one()?,
                (false, None) => openings.a_closed_one()?,
                (false, Some(port)) => (port, openings.a_closed_minor(port)?),
            };
            Some(Place { class, major, minor: self.source_port.unwrap_or(minor) })
        };
        let partly = self.classes.iter().filter(|class| self.share_of(open, **class) == Share::Some);
        partly.chain(&self.classes).find_map(|class| of(*class))
    }

    /// As it was asked: only rules that say nothing of what it leaves open match.
    pub fn query(&self, source: &Endpoint, destination: &Endpoint) -> Query {
        let protocol = match self.classes.as_slice() {
            [class] => named(*class),
            _ => None,
        };
        Query {
            source: source.clone(),
            destination: destination.clone(),
            protocol,
            port: self.port,
            source_port: self.source_port,
            icmp: None,
            family: None,
        }
    }
}

impl Place {
    pub fn query(&self, source: &Endpoint, destination: &Endpoint) -> Query {
        let small = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
        let has_ports = self.class.has_ports();
        let icmp = (self.class == ProtocolClass::Icmp).then(|| (small(self.major), small(self.minor)));
        let is_igmp = self.major == u16::from(Protocol::Igmp.number(false));
        Query {
            source: source.clone(),
            destination: destination.clone(),
            protocol: named(self.class).or_else(|| is_igmp.then_some(Protocol::Igmp)),
            port: has_ports.then_some(self.major),
            source_port: has_ports.then_some(self.minor),
            icmp,
            family: None,
        }
    }

    pub fn is_in(&self, open: &Open) -> bool {
        open.of(self.class).contains(self.major, self.minor)
    }

    /// As in `tcp port 22`; with the source port or code where that matters.
    pub fn name(&self, open: &Open) -> String {
        let matters = open.of(self.class).share_of(self.major) == Share::Some;
        let (major, minor) = (self.major, self.minor);
        match self.class {
            ProtocolClass::Icmp if matters => format!("icmp type {major} code {minor}"),
            ProtocolClass::Icmp => format!("icmp type {major}"),
            ProtocolClass::Other => format!("protocol {major}"),
            class if matters => format!("{class} port {major} from source port {minor}"),
            class => format!("{class} port {major}"),
        }
    }
}

/// As rules name it; none for those that they do not.
fn named(class: ProtocolClass) -> Option<Protocol> {
    match class {
        ProtocolClass::Tcp => Some(Protocol::Tcp),
        ProtocolClass::Udp => Some(Protocol::Udp),
        ProtocolClass::Sctp => Some(Protocol::Sctp),
        ProtocolClass::Icmp => Some(Protocol::Icmp),
        ProtocolClass::Other => None,
    }
}
