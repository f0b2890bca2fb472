//! Names: one segment, and tag names made of segments.
//!
//! ```text
//!   default . linux . web-1      a resource's own tag: namespace . cloud . name
//!   \_____/   \___/   \___/
//!   segment  segment segment     a segment holds neither '.' nor '>' nor '/', so composites never break
//! ```

use std::{borrow::Borrow, fmt, net::IpAddr, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest segment: room for the longest resource name of any cloud (AWS `Name` tags hold 256, all others less than 100).
const MAX_SEGMENT: usize = 128;
/// Longest tag name, that of a DNS name.
const MAX_TAG_NAME: usize = 253;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name is empty")]
    Empty,
    #[error("the name is {len} bytes long; at most {max} are allowed")]
    TooLong { len: usize, max: usize },
    #[error(
        "the name {name:?} has an empty part: a name neither starts nor ends with '.', nor has two in a row"
    )]
    EmptySegment { name: String },
    #[error("the name {name:?} holds {character:?}; letters, digits, '-' and '_' are allowed")]
    Character { name: String, character: char },
    #[error("the name {name:?} starts with {character:?}; it must start with a letter or a digit")]
    Start { name: String, character: char },
    #[error("{name:?} is an address, which cannot be a name; list it as a member instead")]
    IsAddress { name: String },
}

/// One part of a name: a namespace, a cloud, a resource. ASCII letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(Arc<str>);

impl Segment {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Segment {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length(text, MAX_SEGMENT)?;
        check_segment(text, text)?;
        Ok(Self(text.into()))
    }
}

/// The name of a tag: one or more segments joined by dots, and not an IP address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagName(Arc<str>);

impl TagName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl FromStr for TagName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length(text, MAX_TAG_NAME)?;
        for segment in text.split('.') {
            check_segment(text, segment)?;
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(NameError::IsAddress { name: text.to_owned() });
        }
        Ok(Self(text.into()))
    }
}

fn check_length(text: &str, max: usize) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameError::Empty),
        len if len > max => Err(NameError::TooLong { len, max }),
        _ => Ok(()),
    }
}

fn check_segment(name: &str, segment: &str) -> Result<(), NameError> {
    let Some(first) = segment.chars().next() else {
        return Err(NameError::EmptySegment { name: name.to_owned() });
    };
    if let Some(character) = segment.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')) {
        return Err(NameError::Character { name: name.to_owned(), character });
    }
    if !first.is_ascii_alphanumeric() {
        return Err(NameError::Start { name: name.to_owned(), character: first });
    }
    Ok(())
}

/// What both kinds of name share: text out, text in, order by text.
macro_rules! name_traits {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name_traits!(Segment);
name_traits!(TagName);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_segment_cannot_break_a_composite_name() {
        for bad in ["a.b", "a>b", "a/b", "a b", "a\nb", "a\0", "é", ".", ">", "-a", "_a"] {
            assert!(bad.parse::<Segment>().is_err(), "{bad:?}");
        }
        for good in ["a", "A-1", "web_1", "0"] {
            assert_eq!(good.parse::<Segment>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn tag_names_are_dotted_segments_but_not_addresses() {
        for good in ["a", "default.linux.web-1", "a.b", "1.2.3", "10.0.0.0.0"] {
            assert_eq!(good.parse::<TagName>().unwrap().as_str(), good);
        }
        assert!(matches!("1.2.3.4".parse::<TagName>(), Err(NameError::IsAddress { .. })));
        for bad in [".a", "a.", "a..b", "a/b", "::1", "a\u{7f}"] {
            assert!(bad.parse::<TagName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn length_is_bounded_on_both_sides() {
        assert_eq!("".parse::<TagName>(), Err(NameError::Empty));
        assert!("a".repeat(MAX_TAG_NAME).parse::<TagName>().is_ok());
        assert!(matches!("a".repeat(10 << 10).parse::<TagName>(), Err(NameError::TooLong { .. })));
        assert!("a".repeat(MAX_SEGMENT).parse::<Segment>().is_ok());
        assert!("a".repeat(MAX_SEGMENT + 1).parse::<Segment>().is_err());
    }

    proptest! {
        #[test]
        fn whatever_parses_prints_as_it_was(text in ".{0,40}") {
            if let Ok(name) = text.parse::<TagName>() {
                prop_assert_eq!(name.as_str(), text.as_str());
                prop_assert!(name.segments().all(|s| s.parse::<Segment>().is_ok()));
            }
        }
    }
}
