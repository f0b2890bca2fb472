//! Names of objects: slash-separated segments, so that a prefix is a whole number of segments.
//!
//! In: text from the rooms. Out: [`Key`] and [`Prefix`], valid by construction. A segment that holds free text
//! (a CIDR, a user's label) goes through [`Prefix::key`], which escapes it, and comes back through
//! [`Prefix::segment_of`].

use std::{fmt, str::FromStr, sync::Arc};

use thiserror::Error;

/// A key: 1..=8192 bytes of UTF-8, segments joined by `/`, no empty segment, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// Where a set of keys begins: empty (all keys) or segments that end with `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("a key or segment must not be empty (look at {text:?})")]
    Empty { text: String },
    #[error("key is {length} bytes long, the limit is {} (it begins with {start:?})", Key::MAX_LENGTH)]
    TooLong { length: usize, start: String },
    #[error("key {text:?} holds a control character; escape free text with Prefix::key")]
    ControlCharacter { text: String },
    #[error("prefix {text:?} must be empty or end with '/'")]
    OpenPrefix { text: String },
    #[error("segment {text:?} is not percent-escaped UTF-8")]
    Escape { text: String },
}

impl Key {
    pub const MAX_LENGTH: usize = 8192;

    /// The key of one free-text segment below a prefix; see [`Prefix::key`].
    pub fn child(prefix: &Prefix, segment: &str) -> Result<Self, KeyError> {
        prefix.key(segment)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments as written, still escaped.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The last segment, as free text.
    pub fn name(&self) -> Result<String, KeyError> {
        unescape(self.segments().next_back().unwrap_or_default())
    }
}

impl Prefix {
    /// Every key.
    pub fn all() -> Self {
        Self("".into())
    }

    /// `tags/` from `tags`, `a/b/` from `a/b`: the prefix below fixed, well-formed segments.
    pub fn below(path: &str) -> Result<Self, KeyError> {
        format!("{path}/").parse()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn contains(&self, key: &Key) -> bool {
        key.0.starts_with(&*self.0)
    }

    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.0.starts_with(&*other.0) || other.0.starts_with(&*self.0)
    }

    /// The key of one free-text segment below this prefix: `/`, `%` and control characters are escaped.
    pub fn key(&self, segment: &str) -> Result<Key, KeyError> {
        Key::try_from(format!("{}{}", self.0, escape(segment)))
    }

    /// The prefix below one free-text segment.
    pub fn child(&self, segment: &str) -> Result<Prefix, KeyError> {
        format!("{}{}/", self.0, escape(segment)).parse()
    }

    /// The reverse of [`Prefix::key`] (and, for deeper keys, of [`Prefix::child`]): the first segment below this
    /// prefix as free text. `None` if the key is not below it.
    pub fn segment_of(&self, key: &Key) -> Option<Result<String, KeyError>> {
        let rest = key.0.strip_prefix(&*self.0)?;
        Some(unescape(rest.split('/').next().unwrap_or_default()))
    }
}

fn escape(segment: &str) -> String {
    let mut escaped = String::with_capacity(segment.len());
    for character in segment.chars() {
        if character == '/' || character == '%' || character.is_control() {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn unescape(segment: &str) -> Result<String, KeyError> {
    let malformed = || KeyError::Escape { text: segment.to_owned() };
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or_else(malformed)?;
        let digits = str::from_utf8(digits).map_err(|_| malformed())?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| malformed())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

fn check(text: &str, segments: &str) -> Result<(), KeyError> {
    if text.len() > Key::MAX_LENGTH {
        return Err(KeyError::TooLong { length: text.len(), start: text.chars().take(64).collect() });
    }
    if segments.split('/').any(str::is_empty) {
        return Err(KeyError::Empty { text: text.to_owned() });
    }
    if text.chars().any(char::is_control) {
        return Err(KeyError::ControlCharacter { text: text.to_owned() });
    }
    Ok(())
}

impl TryFrom<String> for Key {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        check(&text, &text)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<&str> for Key {
    type Error = KeyError;

    fn try_from(text: &str) -> Result<Self, KeyError> {
        check(text, text)?;
        Ok(Self(text.into()))
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        text.try_into()
    }
}

impl FromStr for Prefix {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Ok(Self::all());
        }
        let Some(segments) = text.strip_suffix('/') else {
            return Err(KeyError::OpenPrefix { text: text.to_owned() });
        };
        check(text, segments)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<&str> for Prefix {
    type Error = KeyError;

    fn try_from(text: &str) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_segments_of_printable_text() {
        for good in ["a", "tags/web", "a/b/c", "ns/10.0.0.0%2F8", "größe/ключ", &"k".repeat(Key::MAX_LENGTH)]
        {
            assert_eq!(good.parse::<Key>().unwrap().as_str(), good);
        }
        for bad in ["", "/", "/a", "a/", "a//b", "a\nb", "a\u{85}b", "a\0", &"k".repeat(Key::MAX_LENGTH + 1)]
        {
            bad.parse::<Key>().unwrap_err();
        }
    }

    #[test]
    fn a_prefix_is_whole_segments() {
        let tags: Prefix = "tags/".parse().unwrap();
        assert!(tags.contains(&"tags/web".parse().unwrap()));
        assert!(!tags.contains(&"tags-old/web".parse().unwrap()));
        assert!(Prefix::all().contains(&"x".parse().unwrap()));
        "tags".parse::<Prefix>().unwrap_err();
        "/".parse::<Prefix>().unwrap_err();
        assert_eq!(Prefix::below("tags").unwrap(), tags);
    }

    #[test]
    fn free_text_is_one_segment_and_comes_back() {
        let prefix: Prefix = "members/web/".parse().unwrap();
        for text in ["10.0.0.0/8", "100%", "%2F", "a\nb\0\u{85}", "ünïcode", "..", " "] {
            let key = Key::child(&prefix, text).unwrap();
            assert_eq!(key.segments().count(), 3, "{key}");
            assert_eq!(prefix.segment_of(&key).unwrap().unwrap(), text);
            assert_eq!(key.name().unwrap(), text);
        }
        prefix.key("").unwrap_err();
        let deep = prefix.child("a/b").unwrap().key("x").unwrap();
        assert_eq!(prefix.segment_of(&deep).unwrap().unwrap(), "a/b");
        for malformed in ["m/%", "m/%2", "m/%zz", "m/%FF", "m/%+1"] {
            malformed.parse::<Key>().unwrap().name().unwrap_err();
        }
    }
}
