//! Facts as keys and values of the store.
//!
//! ```text
//!   tags/tag/NAME                      {"leaf":{"uri":…,"ip":…}} or {"group":{}}
//!   tags/member/PARENT/MEMBER          empty
//!   tags/subscription/TAG/SUBSCRIBER   empty
//!   tags/guard                         empty; replaced by every transaction
//! ```

use std::collections::BTreeSet;

use model::{Leaf, Member, Subscriber, TagName};
use serde::{Deserialize, Serialize};
use store::{Entry, Expected, Key, Prefix, Revision, Transaction};
use tags::{Fact, Plan, Write};

/// What `tags/tag/NAME` holds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    Leaf(Leaf),
    Group {},
}

/// A change below `tags/`, as the watch tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Write(Write),
    /// The end of a transaction.
    Guard,
    /// Somebody deleted the guard; the next writer makes it anew.
    GuardGone,
}

/// Why a key or value below `tags/` makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{key} is not something this version writes below tags/")]
pub(super) struct Strange {
    key: String,
    #[source]
    source: Option<serde_json::Error>,
}

pub(super) fn prefix() -> Prefix {
    Prefix::below("tags").expect("a fixed path is a legal prefix")
}

pub(super) fn guard() -> Key {
    prefix().key("guard").expect("a fixed path is a legal key")
}

/// The transaction for a plan, which goes through only if no other writer came in between.
pub(super) fn transaction(plan: Plan, guard_at: Revision) -> Transaction {
    let expected = match guard_at {
        Revision(0) => Expected::Absent,
        revision => Expected::ModifiedAt(revision),
    };
    let gone: BTreeSet<TagName> = plan.writes.iter().filter_map(deleted_tag).collect();
    let mut transaction = Transaction::new().expect(guard(), expected);
    for write in plan.writes {
        transaction = match write {
            Write::Put(fact) => transaction.put(key(&fact.key()), value(&fact)),
            // Covered by the prefixes below: one operation however many members the tag had.
            Write::Delete(tags::Key::Membership(tag, _) | tags::Key::Subscription(tag, _))
                if gone.contains(&tag) =>
            {
                transaction
            }
            Write::Delete(of) => transaction.delete(key(&of)),
        };
    }
    for tag in gone {
        transaction =
            transaction.delete_prefix(below("member", &tag)).delete_prefix(below("subscription", &tag));
    }
    transaction.put(guard(), Vec::new())
}

fn deleted_tag(write: &Write) -> Option<TagName> {
    match write {
        Write::Delete(tags::Key::Tag(tag)) => Some(tag.clone()),
        _ => None,
    }
}

fn below(kind: &str, tag: &TagName) -> Prefix {
    let prefix = prefix().child(kind).and_then(|prefix| prefix.child(tag.as_str()));
    prefix.expect("names are bounded well below the limit of a key")
}

fn key(of: &tags::Key) -> Key {
    match of {
        tags::Key::Tag(name) => prefix().child("tag").and_then(|prefix| prefix.key(name.as_str())),
        tags::Key::Membership(parent, member) => below("member", parent).key(&member.to_string()),
        tags::Key::Subscription(tag, subscriber) => below("subscription", tag).key(subscriber.as_str()),
    }
    .expect("names, members and subscribers are bounded well below the limit of a key")
}

fn value(fact: &Fact) -> Vec<u8> {
    let stored = match fact {
        Fact::Leaf(_, leaf) => Stored::Leaf(leaf.clone()),
        Fact::Group(_) => Stored::Group {},
        Fact::Membership(..) | Fact::Subscription(..) => return Vec::new(),
    };
    serde_json::to_vec(&stored).expect("a tag has no maps with odd keys")
}

/// Reads an entry of the watch.
pub(super) fn put(entry: &Entry) -> Result<Told, Strange> {
    let fact = match read_key(&entry.key)? {
        None => return Ok(Told::Guard),
        Some(tags::Key::Membership(parent, member)) => Fact::Membership(parent, member),
        Some(tags::Key::Subscription(tag, subscriber)) => Fact::Subscription(tag, subscriber),
        Some(tags::Key::Tag(name)) => match serde_json::from_slice(&entry.value) {
            Ok(Stored::Leaf(leaf)) => Fact::Leaf(name, leaf),
            Ok(Stored::Group {}) => Fact::Group(name),
            Err(source) => return Err(Strange { key: entry.key.as_str().to_owned(), source: Some(source) }),
        },
    };
    Ok(Told::Write(Write::Put(fact)))
}

/// Reads a deletion of the watch.
pub(super) fn deleted(key: &Key) -> Result<Told, Strange> {
    Ok(read_key(key)?.map_or(Told::GuardGone, |of| Told::Write(Write::Delete(of))))
}

/// What a key stands for; none for the guard.
fn read_key(key: &Key) -> Result<Option<tags::Key>, Strange> {
    let strange = || Strange { key: key.as_str().to_owned(), source: None };
    let last = key.name().map_err(|_| strange())?;
    let segments: Vec<&str> = key.segments().collect();
    let read = match segments.as_slice() {
        ["tags", "guard"] => return Ok(None),
        ["tags", "tag", _] => last.parse().ok().map(tags::Key::Tag),
        ["tags", "member", parent, _] => membership(parent, &last),
        ["tags", "subscription", tag, _] => subscription(tag, &last),
        _ => None,
    };
    read.map(Some).ok_or_else(strange)
}

fn membership(parent: &str, member: &str) -> Option<tags::Key> {
    Some(tags::Key::Membership(parent.parse::<TagName>().ok()?, member.parse::<Member>().ok()?))
}

fn subscription(tag: &str, subscriber: &str) -> Option<tags::Key> {
    Some(tags::Key::Subscription(tag.parse::<TagName>().ok()?, subscriber.parse::<Subscriber>().ok()?))
}

#[cfg(test)]
mod tests {
    use store::Operation;

    use super::*;

    fn name(text: &str) -> TagName {
        text.parse().unwrap()
    }

    #[test]
    fn every_fact_is_read_back_as_it_was_written_whatever_its_text() {
        let facts = [
            Fact::Group(name("g")),
            Fact::Leaf(
                name("a.b.c"),
                Leaf { uri: Some("/subscriptions/x>y%2F".into()), ip: Some("::1".parse().unwrap()) },
            ),
            Fact::Membership(name("g"), "10.0.0.0/8".parse().unwrap()),
            Fact::Membership(name("g"), "2001:db8::/32".parse().unwrap()),
            Fact::Subscription(name("g"), "ns>cloud>/a/b//%25 ü".parse().unwrap()),
            Fact::Subscription(name(&"g".repeat(253)), "/".repeat(2048).parse().unwrap()),
        ];
        let plan = Plan { writes: facts.iter().cloned().map(Write::Put).collect() };
        let transaction = transaction(plan, Revision(0));
        let read = transaction.operations.into_iter().map(|operation| match operation {
            Operation::Put { key, value, .. } => {
                let revision = Revision(1);
                put(&Entry { key, value, created: revision, modified: revision, lease: None }).unwrap()
            }
            other => panic!("{other:?}"),
        });
        let written = facts.iter().cloned().map(|fact| Told::Write(Write::Put(fact))).chain([Told::Guard]);
        assert!(read.eq(written));
    }

    #[test]
    fn strange_keys_are_reported() {
        for bad in ["tags/x", "tags/tag/1.2.3.4", "tags/member/g", "tags/member/g/a%3Eb", "tags/tag/a/b"] {
            assert!(deleted(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
