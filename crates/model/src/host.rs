//! Hosts: machines that have joined, and what admitted them.
//!
//! ```text
//!   admission (token, identity document) ─► grant: which names, tags, labels ─► host ─► its tag host.NAME = its addresses
//!                                                                                 └──► a member of the tags of the grant
//! ```
//!
//! A host's name is that of its node: the agent on it calls with a certificate of role `node` for this name. Its own tag is kept by
//! the controller, so that rules may name the host wherever its addresses go.

mod token;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

pub use token::{JoinToken, ParseJoinTokenError};

use crate::{
    NameError, TagName,
    policy::{label_key, label_value},
};

/// The first part of the name of every host's own tag.
const OWN_TAG: &str = "host";
/// Certificates start so long before they are made, so that a peer whose clock is behind accepts them.
pub const BACKDATE_SECONDS: i64 = 24 * 3600;
/// Longest name of a host: with what stands before it, its tag's name is a legal one.
const MAX_NAME: usize = 240;
/// Tags or labels of one grant.
const MAX_ITEMS: usize = 64;

/// A machine that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: TagName,
    /// By what admitted it; policies may select by them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The tags it was made a member of when it joined.
    #[serde(default)]
    pub tags: BTreeSet<TagName>,
    /// As it reported them last.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
    /// Of the key it proves itself with, which never leaves it.
    pub fingerprint: Fingerprint,
    pub joined: Joined,
}

/// How and when a host joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    pub by: Admission,
    /// Seconds since the epoch.
    pub at: i64,
}

/// What admitted a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// A join token, by its id.
    Token { id: String },
    /// What the machine already is: the configured kind of identity, and who it said the machine is.
    Identity { provider: String, subject: String },
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { id } => write!(f, "token {id}"),
            Self::Identity { provider, subject } => write!(f, "{provider} {subject}"),
        }
    }
}

impl Host {
    /// The host's own tag.
    pub fn tag(&self) -> TagName {
        Self::tag_of(&self.name)
    }

    /// The own tag of the host with a name.
    pub fn tag_of(name: &TagName) -> TagName {
        format!("{OWN_TAG}.{name}").parse().expect("names of hosts leave room for what stands before them")
    }

    /// The name of the host whose own tag this is, if it is one's.
    pub fn of_tag(tag: &TagName) -> Option<TagName> {
        tag.as_str().strip_prefix(OWN_TAG)?.strip_prefix('.')?.parse().ok()
    }

    /// Reads a host's name: a tag's, but for its length.
    pub fn parse_name(text: &str) -> Result<TagName, NameError> {
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong { len: text.len(), max: MAX_NAME });
        }
        text.parse()
    }
}

/// What a controller gave to be signed, for those who sign ten digits at most (Azure).
pub fn ten_digits(nonce: &str) -> String {
    let digest = Sha256::digest(nonce.as_bytes());
    let number = digest.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    format!("{:010}", number % 10_000_000_000)
}

/// SHA-256 of something public: a key, a certificate. Lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(String);

/// The text is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits in lower case")]
pub struct ParseFingerprintError;

impl Fingerprint {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, ParseFingerprintError> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.len() == 64 && text.bytes().all(is_hex) {
            true => Ok(Self(text.to_owned())),
            false => Err(ParseFingerprintError),
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a machine that is admitted may be called, and what it becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    #[serde(default)]
    pub names: NamePattern,
    #[serde(default)]
    pub tags: BTreeSet<TagName>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Why a grant is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("the pattern for names is not legal")]
    Pattern(#[from] PatternError),
    #[error("a tag's name is not legal")]
    Tag(#[source] NameError),
    #[error("{tag} is kept by the controller for a host or a resource of its own; hosts join other tags")]
    OwnTag { tag: TagName },
    #[error("the label {key}={value} is not legal: {why}")]
    Label { key: String, value: String, why: String },
    #[error("there are {count} tags and labels; at most {MAX_ITEMS} are allowed")]
    TooMany { count: usize },
}

impl Grant {
    pub fn new(
        names: &str,
        tags: impl IntoIterator<Item = String>,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, GrantError> {
        let names = if names.is_empty() { NamePattern::default() } else { names.parse()? };
        let tags: BTreeSet<TagName> = tags
            .into_iter()
            .map(|tag| tag.parse().map_err(GrantError::Tag))
            .collect::<Result<_, GrantError>>()?;
        if let Some(tag) = tags.iter().find(|tag| Host::of_tag(tag).is_some()) {
            return Err(GrantError::OwnTag { tag: tag.clone() });
        }
        let labels: BTreeMap<String, String> = labels.into_iter().collect();
        for (key, value) in &labels {
            if let Err(why) = label_key(key).and_then(|()| label_value(value)) {
                return Err(GrantError::Label { key: key.clone(), value: value.clone(), why });
            }
        }
        match tags.len() + labels.len() {
            count if count > MAX_ITEMS => Err(GrantError::TooMany { count }),
            _ => Ok(Self { names, tags, labels }),
        }
    }
}

/// Which names are allowed: a text in which `*` stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern is {len} bytes long; at most {MAX_NAME} are allowed")]
    TooLong { len: usize },
    #[error("the pattern holds {character:?}; letters, digits, '-', '_', '.' and '*' are allowed")]
    Character { character: char },
}

impl Default for NamePattern {
    fn default() -> Self {
        Self("*".to_owned())
    }
}

impl NamePattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a text is what the pattern says. O(length of both).
    pub fn matches(&self, text: &str) -> bool {
        matches(&self.0, text)
    }
}

/// Whether `*` of a pattern can stand for something so that the pattern is the text. Each part between stars is looked for once, from
/// left to right, so there is nothing to go back to.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        match text.len() {
            0 => return Err(PatternError::Empty),
            len if len > MAX_NAME => return Err(PatternError::TooLong { len }),
            _ => {}
        }
        let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
        match text.chars().find(|c| !is_legal(*c)) {
            Some(character) => Err(PatternError::Character { character }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for NamePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NamePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_tag_is_found_by_its_name_and_the_name_by_the_tag() {
        for name in ["web-1", "web-1.example.org"] {
            let name = Host::parse_name(name).unwrap();
            assert_eq!(Host::of_tag(&Host::tag_of(&name)), Some(name));
        }
        for other in ["host", "hosts.web-1", "default.linux.web-1", "hosta.b"] {
            assert_eq!(Host::of_tag(&other.parse().unwrap()), None, "{other}");
        }
        let longest = Host::parse_name(&"a".repeat(MAX_NAME)).unwrap();
        assert_eq!(Host::tag_of(&longest).as_str().len(), MAX_NAME + 5);
        for bad in ["", "10.0.0.1", "a b", "../x", "a/b", &"a".repeat(MAX_NAME + 1)] {
            assert!(Host::parse_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_star_stands_for_anything_and_the_rest_for_itself() {
        for (pattern, text, is) in [
            ("*", "", true),
            ("*", "web-1", true),
            ("web-*", "web-1", true),
            ("web-*", "web-", true),
            ("web-*", "db-1", false),
            ("web-1", "web-1", true),
            ("web-1", "web-11", false),
            ("*.eu", "a.eu", true),
            ("*.eu", "a.us", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
        for bad in ["", "a b", "a?", "ä*", &"*".repeat(MAX_NAME + 1)] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_grant_holds_legal_tags_and_labels_and_no_hosts_own_tag() {
        let label = |key: &str, value: &str| [(key.to_owned(), value.to_owned())];
        let tags = |tag: &str| [tag.to_owned()];
        assert!(Grant::new("", tags("web"), label("tier", "front")).is_ok());
        assert!(matches!(Grant::new("", tags("host.db"), []), Err(GrantError::OwnTag { .. })));
        assert!(matches!(Grant::new("", tags("a b"), []), Err(GrantError::Tag(_))));
        assert!(matches!(Grant::new("a b", [], []), Err(GrantError::Pattern(_))));
        assert!(matches!(Grant::new("", [], label("a b", "c")), Err(GrantError::Label { .. })));
        assert!(matches!(Grant::new("", [], label("a", "b c")), Err(GrantError::Label { .. })));
        let many = (0..=MAX_ITEMS).map(|n| format!("t{n}"));
        assert!(matches!(Grant::new("", many, []), Err(GrantError::TooMany { .. })));
    }

    #[test]
    fn fingerprints_are_hexadecimal_and_whole() {
        assert!("0".repeat(64).parse::<Fingerprint>().is_ok());
        for bad in ["", "0", &"0".repeat(63), &"G".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
