//! A transaction: conditions and changes over many keys, applied whole or not at all.
//!
//! Rules, the same for each backend:
//! - All compares are judged before any operation. The first that fails, in the order given, is the conflict.
//! - Two operations must not touch the same key (a `DeletePrefix` touches every key it covers).
//! - A `Put` is always a change, also with an equal value. A transaction that changes nothing (no operations, or
//!   only deletes of what is not there) commits without a new revision and yields the current one.

use bytes::Bytes;

use super::{Key, LeaseId, Prefix, Revision, TransactError};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub key: Key,
    pub expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    Present,
    ModifiedAt(Revision),
}

impl Expected {
    /// Whether the key's current `modified` revision (or absence) is what was expected.
    pub fn accepts(self, found: Option<Revision>) -> bool {
        match self {
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::ModifiedAt(revision) => found == Some(revision),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Put { key: Key, value: Bytes, lease: Option<LeaseId> },
    Delete { key: Key },
    DeletePrefix { prefix: Prefix },
}

/// The transaction is durable. `revision` is its own, or the current one if it changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub revision: Revision,
}

impl Transaction {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn expect(mut self, key: Key, expected: Expected) -> Self {
        self.compares.push(Compare { key, expected });
        self
    }

    #[must_use]
    pub fn expect_absent(self, key: Key) -> Self {
        self.expect(key, Expected::Absent)
    }

    #[must_use]
    pub fn expect_present(self, key: Key) -> Self {
        self.expect(key, Expected::Present)
    }

    #[must_use]
    pub fn expect_modified_at(self, key: Key, revision: Revision) -> Self {
        self.expect(key, Expected::ModifiedAt(revision))
    }

    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Bytes>) -> Self {
        self.operations.push(Operation::Put { key, value: value.into(), lease: None });
        self
    }

    #[must_use]
    pub fn put_with_lease(mut self, key: Key, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        self.operations.push(Operation::Put { key, value: value.into(), lease: Some(lease) });
        self
    }

    #[must_use]
    pub fn delete(mut self, key: Key) -> Self {
        self.operations.push(Operation::Delete { key });
        self
    }

    #[must_use]
    pub fn delete_prefix(mut self, prefix: Prefix) -> Self {
        self.operations.push(Operation::DeletePrefix { prefix });
        self
    }

    /// Keys and values together: what the size limits are measured against.
    pub fn size(&self) -> usize {
        let compares: usize = self.compares.iter().map(|compare| compare.key.as_str().len()).sum();
        let operations: usize = self.operations.iter().map(Operation::size).sum();
        compares + operations
    }

    /// Refuses two operations that touch the same key. O(n log n).
    pub fn check_distinct(&self) -> Result<(), TransactError> {
        let mut touched: Vec<(&str, bool)> = self.operations.iter().map(Operation::touched).collect();
        // Sorted, whatever a prefix covers follows it directly, so each item need only face the last prefix.
        touched.sort_unstable();
        let mut last: Option<(&str, bool)> = None;
        for (text, is_prefix) in touched {
            if let Some((before, before_is_prefix)) = last {
                let overlap = text == before || (before_is_prefix && text.starts_with(before));
                if overlap {
                    return Err(TransactError::DuplicateKey { key: text.to_owned() });
                }
            }
            last = Some((text, is_prefix));
        }
        Ok(())
    }
}

impl Operation {
    fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.as_str().len() + value.len(),
            Self::Delete { key } => key.as_str().len(),
            Self::DeletePrefix { prefix } => prefix.as_str().len(),
        }
    }

    fn touched(&self) -> (&str, bool) {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => (key.as_str(), false),
            Self::DeletePrefix { prefix } => (prefix.as_str(), true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn operations_must_not_touch_the_same_key() {
        let distinct = Transaction::new()
            .put(key("a/b"), "1")
            .delete(key("a"))
            .delete(key("a-b"))
            .delete_prefix("b/".parse().unwrap())
            .put(key("b"), "2")
            .put(key("b-c"), "3");
        assert_eq!(distinct.check_distinct(), Ok(()));
        let twice = Transaction::new().put(key("a"), "1").put(key("c"), "1").delete(key("a"));
        assert!(matches!(twice.check_distinct(), Err(TransactError::DuplicateKey { key }) if key == "a"));
        for below in ["b/x", "b/x/y"] {
            let covered = Transaction::new().put(key(below), "1").delete_prefix("b/".parse().unwrap());
            covered.check_distinct().unwrap_err();
        }
        let nested =
            Transaction::new().delete_prefix("b/".parse().unwrap()).delete_prefix("b/c/".parse().unwrap());
        nested.check_distinct().unwrap_err();
        Transaction::new().delete_prefix(Prefix::all()).put(key("x"), "").check_distinct().unwrap_err();
    }
}
