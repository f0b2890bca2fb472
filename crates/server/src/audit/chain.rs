//! The chain of the log (pure): each line carries its number and the hash of the line before.
//!
//! ```text
//!   {"n":1,"prev":"000…0","id":…}       hash of this line ─┐
//!   {"n":2,"prev":"8f1…c","id":…}  ◄────────────────────────┘     the newest hash is the head, kept in a file beside
//! ```

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

/// What the first line carries.
pub const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a chain: how many lines it has had, and the hash of the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub count: u64,
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { count: 0, hash: START.to_owned() }
    }
}

/// The part of a line that makes it a link.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Link {
    pub n: u64,
    pub prev: String,
    #[serde(default)]
    pub id: String,
}

impl Link {
    /// None if the line is no link of a chain.
    pub fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The chain's end if this is its newest line.
    pub fn head(&self, line: &[u8]) -> Head {
        Head { count: self.n, hash: sha256(line) }
    }
}

/// SHA-256 in hexadecimal.
fn sha256(line: &[u8]) -> String {
    common::hex(digest::digest(&digest::SHA256, line).as_ref())
}

/// Where a chain goes on: from its last line, and the head that was kept beside it. If the two do not agree, it goes on
/// from the head, so that the break stays to be seen; the text says what is wrong.
pub fn resume(log: Option<Head>, kept: Option<Head>) -> (Head, Option<String>) {
    let (last, kept) = match (log, kept) {
        (None, None) => return (Head::default(), None),
        (Some(last), None) => {
            return (last, Some("the head that is kept beside the log was gone".to_owned()));
        }
        (None, Some(kept)) => (Head::default(), kept),
        (Some(last), Some(kept)) => (last, kept),
    };
    if kept.count > last.count {
        let text = format!("the log ended with record {} instead of {}", last.count, kept.count);
        return (kept, Some(text));
    }
    if kept.count == last.count && kept.hash != last.hash {
        let text = format!("record {}, the newest, was not the one that was written", last.count);
        return (kept, Some(text));
    }
    (last, None)
}

/// The line for a record (a JSON object), and the chain's end with it. The line has no newline.
pub fn link(head: &Head, record: &str) -> (String, Head) {
    let (n, prev) = (head.count + 1, &head.hash);
    let rest = record.strip_prefix('{').unwrap_or(record);
    let line = format!("{{\"n\":{n},\"prev\":\"{prev}\",{rest}");
    let head = Head { count: n, hash: sha256(line.as_bytes()) };
    (line, head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(count: u64, hash: &str) -> Head {
        Head { count, hash: hash.to_owned() }
    }

    #[test]
    fn a_chain_goes_on_from_its_last_line_unless_the_head_contradicts() {
        let goes_on = |log, kept, from: Head, told: bool| {
            let (head, text) = resume(log, kept);
            assert_eq!((head, text.is_some()), (from, told));
        };
        goes_on(None, None, Head::default(), false);
        goes_on(Some(head(7, "a")), Some(head(7, "a")), head(7, "a"), false);
        // Lines after the last head that was kept, as a crash leaves them.
        goes_on(Some(head(9, "b")), Some(head(7, "a")), head(9, "b"), false);
        goes_on(Some(head(7, "a")), None, head(7, "a"), true);
        goes_on(Some(head(5, "x")), Some(head(7, "a")), head(7, "a"), true);
        goes_on(Some(head(7, "x")), Some(head(7, "a")), head(7, "a"), true);
        goes_on(None, Some(head(7, "a")), head(7, "a"), true);
        goes_on(None, Some(Head::default()), Head::default(), false);
    }

    #[test]
    fn a_line_is_its_record_with_a_link_to_the_line_before() {
        let (first, head) = link(&Head::default(), r#"{"id":"a"}"#);
        assert_eq!(first, format!(r#"{{"n":1,"prev":"{START}","id":"a"}}"#));
        let (second, _) = link(&head, r#"{"id":"b"}"#);
        let read = Link::read(second.as_bytes()).unwrap();
        assert_eq!(read, Link { n: 2, prev: sha256(first.as_bytes()), id: "b".into() });
    }
}
