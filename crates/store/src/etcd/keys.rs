//! Names and rows: ours to etcd's and back.

use bytes::Bytes;

use super::pb::mvccpb::KeyValue;
use crate::api::{Entry, Key, LeaseId, Prefix, Revision};

/// What every key of this installation begins with.
#[derive(Clone, Debug)]
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn new(text: &str) -> Option<Self> {
        let name = text.strip_prefix('/')?.strip_suffix('/')?;
        (!name.is_empty()).then(|| Self(text.to_owned()))
    }

    pub(super) fn key(&self, key: &Key) -> Bytes {
        format!("{}{key}", self.0).into()
    }

    /// The half-open range of keys below a prefix.
    pub(super) fn range(&self, prefix: &Prefix) -> (Bytes, Bytes) {
        let begin = format!("{}{prefix}", self.0).into_bytes();
        let mut end = begin.clone();
        // Both parts end with '/', whose successor is '0': no carry.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (begin.into(), end.into())
    }

    /// Present while a restore runs. Beside the namespace, so that it is never listed.
    pub(super) fn restore_marker(&self) -> Bytes {
        format!("{}-restoring", self.0.trim_end_matches('/')).into()
    }

    /// Our key, or what is wrong with a key that is not ours.
    pub(super) fn parse(&self, key: &[u8]) -> Result<Key, String> {
        let text = str::from_utf8(key).map_err(|_| format!("key {key:?}"))?;
        let rest = text.strip_prefix(&self.0).ok_or_else(|| format!("key {text:?}"))?;
        Key::try_from(rest).map_err(|error| error.to_string())
    }

    pub(super) fn entry(&self, kv: KeyValue) -> Result<Entry, String> {
        Ok(Entry {
            key: self.parse(&kv.key)?,
            value: kv.value,
            created: revision(kv.create_revision),
            modified: revision(kv.mod_revision),
            lease: (kv.lease != 0).then(|| LeaseId(kv.lease.cast_unsigned())),
        })
    }
}

/// etcd's revisions are never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_covers_exactly_what_is_below() {
        let namespace = Namespace::new("/trestle/").unwrap();
        let (begin, end) = namespace.range(&"a/".parse().unwrap());
        let inside = |text: &str| {
            let key = namespace.key(&text.parse().unwrap());
            begin <= key && key < end
        };
        assert!(inside("a/b") && inside("a/\u{10ffff}"));
        assert!(!inside("a") && !inside("a0") && !inside("b/a") && !inside("a-b"));
        let (begin, end) = namespace.range(&Prefix::all());
        let marker = namespace.restore_marker();
        assert!(!(begin <= marker && marker < end));
    }

    #[test]
    fn a_namespace_is_enclosed_in_slashes() {
        for bad in ["", "/", "//", "trestle", "/trestle", "trestle/"] {
            assert!(Namespace::new(bad).is_none(), "{bad}");
        }
    }
}
