//! Permissions: who may open which connections to whom, as one thing that a user asked for.
//!
//! ```text
//!   text ── guess ──► End ─┐
//!   text ── guess ──► End ─┼─► Permission ─► what both ends need, worked out from it wherever it matters
//!   protocols, ports ──────┘      name: made of the content, so that the same permission twice is one
//! ```
//!
//! In: ends and passages. Out: a permission, its name and its texts. Not here: who is at an end (`orchestrator`, `drivers`),
//! what a permission comes to.

mod guess;

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    Address, NameError, ParseAddressError, PermitError, Ports, Protocol, ResourceName, ResourceNameError,
    Segment, TagName,
};

pub use guess::{GuessError, Known, guess};

/// Longest name of a Kubernetes object.
const MAX_OBJECT_NAME: usize = 253;

/// One end of a permission. Written with its kind before it: `tag:web`, `pod:shop/web-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    Resource(ResourceName),
    /// A host that has joined, by its name.
    Host(TagName),
    Pod {
        namespace: ObjectName,
        name: ObjectName,
    },
    /// Whatever is in it, now and later.
    Tag(TagName),
    /// All Pods and all resources of a namespace, now and later.
    Namespace(ObjectName),
    /// An address or a prefix. Nothing is guarded there: only the other end is opened.
    Address(Address),
}

/// The name of a Pod or of a namespace, as Kubernetes has them: lower-case letters, digits, `-` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

/// Why a text is no end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndError {
    #[error("{text:?} has no kind before it: write resource:, host:, pod:, tag:, namespace: or ip:")]
    Kind { text: String },
    #[error(
        "{text:?} is no name of a Pod or a namespace: lower-case letters, digits, '-' and '.' are allowed"
    )]
    ObjectName { text: String },
    #[error("{text:?} is no Pod: write pod:NAMESPACE/NAME")]
    Pod { text: String },
    #[error(transparent)]
    Resource(#[from] ResourceNameError),
    #[error("it is no name of a tag or a host")]
    Name(#[from] NameError),
    #[error("it is no address")]
    Address(#[from] ParseAddressError),
}

impl ObjectName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ObjectName {
    type Err = EndError;

    fn from_str(text: &str) -> Result<Self, EndError> {
        let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = (1..=MAX_OBJECT_NAME).contains(&text.len())
            && text.chars().all(is_legal)
            && text.starts_with(is_end)
            && text.ends_with(is_end);
        if legal { Ok(Self(text.to_owned())) } else { Err(EndError::ObjectName { text: shortened(text) }) }
    }
}

impl End {
    /// The word before its name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Resource(_) => "resource",
            Self::Host(_) => "host",
            Self::Pod { .. } => "pod",
            Self::Tag(_) => "tag",
            Self::Namespace(_) => "namespace",
            Self::Address(_) => "ip",
        }
    }

    /// Its name without its kind.
    pub fn name(&self) -> String {
        match self {
            Self::Resource(name) => name.to_string(),
            Self::Host(name) | Self::Tag(name) => name.to_string(),
            Self::Pod { namespace, name } => format!("{namespace}/{name}"),
            Self::Namespace(name) => name.to_string(),
            Self::Address(address) => address.to_string(),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}

impl FromStr for End {
    type Err = EndError;

    fn from_str(text: &str) -> Result<Self, EndError> {
        let (kind, name) = text.split_once(':').unwrap_or_default();
        Ok(match kind {
            "resource" => Self::Resource(name.parse()?),
            "host" => Self::Host(name.parse()?),
            "pod" => {
                let pod = || EndError::Pod { text: shortened(text) };
                let (namespace, name) = name.split_once('/').ok_or_else(pod)?;
                Self::Pod { namespace: namespace.parse()?, name: name.parse()? }
            }
            "tag" => Self::Tag(name.parse()?),
            "namespace" => Self::Namespace(name.parse()?),
            "ip" => Self::Address(name.parse()?),
            _ => return Err(EndError::Kind { text: shortened(text) }),
        })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// What may be opened: a protocol, and where it has them its destination ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Passage {
    pub protocol: Protocol,
    pub ports: Ports,
}

/// Why a permission makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionError {
    #[error("say what is to be allowed: --port 5432, --ping, or --proto any for everything")]
    NothingAllowed,
    #[error("{text:?} is no traffic: write a protocol, and its ports after it, as in `tcp 5432`")]
    Traffic { text: String },
    #[error(transparent)]
    Permit(#[from] PermitError),
    #[error("{protocol} has no ports; leave them out")]
    Ports { protocol: Protocol },
    #[error("{protocol} cannot be allowed: name tcp, udp, sctp, icmp or any")]
    Protocol { protocol: Protocol },
    #[error("both ends are addresses, and nothing is guarded at either; name what is at one of them")]
    OnlyAddresses,
}

impl Passage {
    /// What policies and permit lists both have a word for.
    pub fn new(protocol: Protocol, ports: Ports) -> Result<Self, PermissionError> {
        let known = [Protocol::Any, Protocol::TCP, Protocol::UDP, Protocol::SCTP, Protocol::ICMP];
        if !known.contains(&protocol) {
            return Err(PermissionError::Protocol { protocol });
        }
        if !protocol.has_ports() && ports != Ports::Any {
            return Err(PermissionError::Ports { protocol });
        }
        Ok(Self { protocol, ports })
    }
}

/// As it prints.
impl FromStr for Passage {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        let mut words = text.split_whitespace();
        let (Some(protocol), ports, None) = (words.next(), words.next(), words.next()) else {
            return Err(PermissionError::Traffic { text: shortened(text) });
        };
        let ports = ports.map_or(Ok(Ports::Any), str::parse)?;
        Self::new(protocol.parse()?, ports)
    }
}

/// As in `tcp 5432`, `icmp`, `any`.
impl fmt::Display for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ports {
            Ports::Any => self.protocol.fmt(f),
            ports => write!(f, "{} {ports}", self.protocol),
        }
    }
}

/// Whoever is at one end may open these connections to whoever is at the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    pub from: End,
    pub to: End,
    /// Never empty.
    pub passages: BTreeSet<Passage>,
}

impl Permission {
    pub fn new(from: End, to: End, passages: BTreeSet<Passage>) -> Result<Self, PermissionError> {
        if passages.is_empty() {
            return Err(PermissionError::NothingAllowed);
        }
        if matches!((&from, &to), (End::Address(_), End::Address(_))) {
            return Err(PermissionError::OnlyAddresses);
        }
        Ok(Self { from, to, passages })
    }

    /// `allow-` and 16 hexadecimal digits of SHA-256 over the content in its canonical text.
    pub fn name(&self) -> Segment {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(self.to_string().as_bytes());
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("allow-{hex}").parse().expect("letters, digits and a dash are a legal name")
    }

    /// As in `tcp 5432, icmp`.
    pub fn traffic(&self) -> String {
        self.passages.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Both ends, the one that opens connections first.
    pub fn ends(&self) -> [&End; 2] {
        [&self.from, &self.to]
    }

    /// What a command line says after its verb to mean exactly this.
    pub fn arguments(&self) -> String {
        let mut text = format!("{} {}", self.from, self.to);
        for passage in &self.passages {
            match passage {
                Passage { protocol: Protocol::ICMP, .. } => text.push_str(" --ping"),
                Passage { protocol, ports: Ports::Any } => text.push_str(&format!(" --proto {protocol}")),
                Passage { protocol: Protocol::TCP, ports } => text.push_str(&format!(" --port {ports}")),
                Passage { protocol, ports } => text.push_str(&format!(" --port {ports}/{protocol}")),
            }
        }
        text
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: {}", self.from, self.to, self.traffic())
    }
}

/// Serde as text, both ways.
macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
text_serde!(End);

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(from: &str, to: &str, ports: &[u16]) -> Permission {
        let passages = ports.iter().map(|port| Passage::new(Protocol::TCP, Ports::one(*port)).unwrap());
        Permission::new(from.parse().unwrap(), to.parse().unwrap(), passages.collect()).unwrap()
    }

    #[test]
    fn ends_read_as_they_print() {
        for text in [
            "resource:default.a.web",
            "host:h1",
            "host:h1.example.org",
            "pod:shop/web-1",
            "tag:web",
            "namespace:kube-system",
            "ip:10.0.0.0/8",
            "ip:2001:db8::1",
        ] {
            let end: End = text.parse().unwrap();
            assert_eq!(end.to_string(), text);
            let json = serde_json::to_string(&end).unwrap();
            assert_eq!(serde_json::from_str::<End>(&json).unwrap(), end);
        }
    }

    #[test]
    fn hostile_ends_are_refused_and_not_echoed_whole() {
        let long = format!("pod:{}/x", "a".repeat(100_000));
        for text in [
            "",
            ":",
            "web",
            "tag:",
            "tag:a b",
            "tag:../x",
            "pod:web-1",
            "pod:/x",
            "pod:shop/",
            "pod:shop/web/1",
            "pod:Shop/web",
            "namespace:-x",
            "namespace:x.",
            "resource:a.b",
            "ip:10.0.0.0/33",
            "ip:web",
            "ip:",
            "node:n1",
            "tag:10.0.0.1",
            "host:\u{202e}x",
            &long,
        ] {
            let error = text.parse::<End>().unwrap_err();
            assert!(error.to_string().len() < 200, "{error}");
        }
    }

    #[test]
    fn the_same_permission_has_one_name_and_another_has_another() {
        let one = permission("tag:web", "tag:db", &[80, 443]);
        assert_eq!(one.name(), permission("tag:web", "tag:db", &[443, 80]).name());
        let others = [
            permission("tag:web", "tag:db", &[80]),
            permission("tag:db", "tag:web", &[80, 443]),
            permission("namespace:web", "tag:db", &[80, 443]),
        ];
        assert!(others.iter().all(|other| other.name() != one.name()));
        let read: Permission = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert_eq!(read, one);
    }

    #[test]
    fn nothing_and_what_cannot_be_said_at_both_ends_is_no_permission() {
        let (a, b): (End, End) = ("tag:a".parse().unwrap(), "tag:b".parse().unwrap());
        assert_eq!(Permission::new(a, b, BTreeSet::new()), Err(PermissionError::NothingAllowed));
        let (a, b): (End, End) = ("ip:10.0.0.1".parse().unwrap(), "ip:10.0.0.2".parse().unwrap());
        let any = Passage::new(Protocol::Any, Ports::Any).unwrap();
        assert_eq!(Permission::new(a, b, [any].into()), Err(PermissionError::OnlyAddresses));
        assert!(Passage::new(Protocol::ICMP, Ports::one(8)).is_err());
        assert!(Passage::new(Protocol::Any, Ports::one(8)).is_err());
        assert!(Passage::new(Protocol::Number(47), Ports::Any).is_err());
    }

    #[test]
    fn traffic_reads_as_it_prints() {
        for text in ["tcp 5432", "udp 8000-8010", "icmp", "any", "sctp"] {
            assert_eq!(text.parse::<Passage>().unwrap().to_string(), text);
        }
        for bad in ["", "tcp 0-", "tcp 5432 80", "icmp 8", "any 5", "gre", "5432", "tcp 70000", "tcp 9-1"] {
            assert!(bad.parse::<Passage>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_it_prints_for_a_command_line_is_all_of_it() {
        let mut all = permission("tag:web", "pod:shop/db-0", &[5432]);
        all.passages.insert(Passage::new(Protocol::ICMP, Ports::Any).unwrap());
        all.passages.insert(Passage::new(Protocol::UDP, Ports::one(53)).unwrap());
        assert_eq!(all.arguments(), "tag:web pod:shop/db-0 --ping --port 5432 --port 53/udp");
    }
}
