//! Tags: what a tag holds, what a member is, who subscribes.

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Address, NameError, ParseAddressError, Segment, TagName};

/// Longest URI or subscriber accepted. Cloud resource ids stay below 1 KiB.
const MAX_TEXT: usize = 2048;

/// The content of a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagValue {
    Leaf(Leaf),
    Group(BTreeSet<Member>),
}

/// What a leaf stands for: a resource, an address, or both; never neither.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Leaf {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Address>,
}

/// A member of a group: another tag, or a literal address or prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    Literal(Address),
    Tag(TagName),
}

/// Why a text is no member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error("the member is not a tag name")]
    Name(#[from] NameError),
    #[error("the member looks like a prefix but is none")]
    Address(#[from] ParseAddressError),
}

impl FromStr for Member {
    type Err = MemberError;

    fn from_str(text: &str) -> Result<Self, MemberError> {
        match text.parse::<Address>() {
            Ok(address) => Ok(Self::Literal(address)),
            // No tag name holds '/' or ':', so whoever wrote one meant an address.
            Err(err) if text.contains(['/', ':']) => Err(err.into()),
            Err(_) => Ok(Self::Tag(text.parse()?)),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(address) => address.fmt(f),
            Self::Tag(name) => name.fmt(f),
        }
    }
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A resource's full name, which is also the name of its own leaf tag: `namespace.cloud.name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    pub namespace: Segment,
    pub cloud: Segment,
    pub name: Segment,
}

/// Why a text is no resource name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceNameError {
    #[error("{text:?} is not of the form namespace.cloud.name")]
    Form { text: String },
    #[error("a part of the resource name is not legal")]
    Name(#[from] NameError),
}

impl FromStr for ResourceName {
    type Err = ResourceNameError;

    fn from_str(text: &str) -> Result<Self, ResourceNameError> {
        let mut parts = text.split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(cloud), Some(name), None) => {
                Ok(Self { namespace: namespace.parse()?, cloud: cloud.parse()?, name: name.parse()? })
            }
            _ => Err(ResourceNameError::Form { text: text.chars().take(64).collect() }),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.namespace, self.cloud, self.name)
    }
}

/// Who is told when a tag changes. Free text on the wire; resources write `namespace>cloud>uri`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Subscriber(Arc<str>);

/// Why a text is no subscriber or URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscriberError {
    #[error("it is empty")]
    Empty,
    #[error("it is {len} bytes long; at most {MAX_TEXT} are allowed")]
    TooLong { len: usize },
    #[error("it holds the control character {character:?}")]
    Control { character: char },
}

impl Subscriber {
    /// The subscriber that stands for a resource. The parts before the URI cannot hold `>`, so it splits again.
    pub fn resource(namespace: &Segment, cloud: &Segment, uri: &str) -> Result<Self, SubscriberError> {
        format!("{namespace}>{cloud}>{uri}").parse()
    }

    /// The namespace, cloud and URI of a subscriber that stands for a resource.
    pub fn as_resource(&self) -> Option<(Segment, Segment, &str)> {
        let mut parts = self.0.splitn(3, '>');
        let (namespace, cloud, uri) = (parts.next()?, parts.next()?, parts.next()?);
        Some((namespace.parse().ok()?, cloud.parse().ok()?, uri))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Subscriber {
    type Err = SubscriberError;

    fn from_str(text: &str) -> Result<Self, SubscriberError> {
        check_text(text)?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Subscriber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Leaf {
    /// Checks a URI as it comes from outside.
    pub fn check_uri(uri: &str) -> Result<(), SubscriberError> {
        check_text(uri)
    }
}

fn check_text(text: &str) -> Result<(), SubscriberError> {
    match text.len() {
        0 => return Err(SubscriberError::Empty),
        len if len > MAX_TEXT => return Err(SubscriberError::TooLong { len }),
        _ => {}
    }
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(SubscriberError::Control { character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_tags_or_literals_of_either_family() {
        assert_eq!("web".parse(), Ok(Member::Tag("web".parse().unwrap())));
        assert_eq!("2.3.4.5/20".parse::<Member>().unwrap().to_string(), "2.3.0.0/20");
        assert_eq!("2001:db8::/32".parse::<Member>().unwrap().to_string(), "2001:db8::/32");
        assert!(matches!("tag/inside".parse::<Member>(), Err(MemberError::Address(_))));
        assert!(matches!("a>b".parse::<Member>(), Err(MemberError::Name(_))));
    }

    #[test]
    fn resource_names_have_exactly_three_parts() {
        assert_eq!("ns.azure.vm".parse::<ResourceName>().unwrap().to_string(), "ns.azure.vm");
        for bad in ["ns.azure", "ns.azure.vm.x", "ns..vm", "ns.a>b.vm"] {
            assert!(bad.parse::<ResourceName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_resource_subscriber_survives_the_round_trip_even_with_arrows_in_its_uri() {
        let (namespace, cloud) = ("ns".parse().unwrap(), "gcp".parse().unwrap());
        let subscriber = Subscriber::resource(&namespace, &cloud, "projects/p>q").unwrap();
        assert_eq!(subscriber.as_resource(), Some((namespace, cloud, "projects/p>q")));
        assert_eq!("plain".parse::<Subscriber>().unwrap().as_resource(), None);
    }

    #[test]
    fn subscribers_hold_no_control_characters_and_are_bounded() {
        assert_eq!("".parse::<Subscriber>(), Err(SubscriberError::Empty));
        assert!(matches!("a\nb".parse::<Subscriber>(), Err(SubscriberError::Control { .. })));
        assert!(matches!(
            "x".repeat(MAX_TEXT + 1).parse::<Subscriber>(),
            Err(SubscriberError::TooLong { .. })
        ));
    }
}
