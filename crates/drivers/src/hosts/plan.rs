//! What is stored of hosts, and the transactions that change it (pure).
//!
//! ```text
//!   hosts/NAME               the host, what was issued to it, how far its tags are
//!   host-keys/FINGERPRINT    whose key it is, or was until the host was removed or got another one
//!   host-identities/DIGEST   which host somebody became whose statement counts once
//! ```
//!
//! Both are written together, so that no two hosts have one name or one key, whichever controllers admit them.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use model::{Admission, Fingerprint, Host, TagName, change::Change};
use serde::{Deserialize, Serialize};
use store::{Key, Prefix, Revision, Transaction};

/// A host as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    #[serde(flatten)]
    pub host: Host,
    /// Serials of the certificates it may still use, and when each ends, in seconds since the epoch.
    #[serde(default)]
    pub certificates: BTreeMap<String, i64>,
    /// The serial of the newest; records of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// It is a member of the tags it joined with. Once it is, whether it stays one is up to users.
    #[serde(default)]
    pub tagged: bool,
    /// It is being removed: nobody any more, but its tag is still there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

impl HostRecord {
    /// Until when its newest certificate is good.
    pub fn certificate_until(&self) -> i64 {
        self.certificates.values().copied().max().unwrap_or_default()
    }

    /// Whether a certificate is the one that was made last.
    pub fn is_newest(&self, serial: &str) -> bool {
        match &self.newest {
            Some(newest) => newest == serial,
            None => self.certificates.get(serial) == Some(&self.certificate_until()),
        }
    }

    /// The same with a new certificate; those that have ended are forgotten. What is forgotten.
    pub fn with_certificate(mut self, serial: String, until: i64, now: i64) -> (Self, Vec<String>) {
        let ended =
            self.certificates.iter().filter(|(_, end)| **end <= now).map(|(serial, _)| serial.clone());
        let ended: Vec<String> = ended.collect();
        self.certificates.retain(|_, end| *end > now);
        self.newest = Some(serial.clone());
        self.certificates.insert(serial, until);
        (self, ended)
    }

    /// Leaves so many certificates, those that end last. Which went.
    pub fn drop_oldest(&mut self, most: usize) -> Vec<String> {
        let mut by_end: Vec<(i64, String)> =
            self.certificates.iter().map(|(serial, end)| (*end, serial.clone())).collect();
        by_end.sort();
        by_end.truncate(by_end.len().saturating_sub(most));
        let oldest: Vec<String> = by_end.into_iter().map(|(_, serial)| serial).collect();
        self.certificates.retain(|serial, _| !oldest.contains(serial));
        oldest
    }
}

/// Whose key something is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub host: TagName,
    /// When its host was removed, in seconds since the epoch: the key lets nobody in since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<i64>,
    /// When its host got another key: this one lets nobody in since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<i64>,
}

impl KeyRecord {
    /// The key of a host.
    pub fn of(host: &TagName) -> Self {
        Self { host: host.clone(), removed: None, replaced: None }
    }
}

pub fn hosts() -> Prefix {
    Prefix::below("hosts").expect("a fixed path is a legal prefix")
}

pub fn host_key(name: &TagName) -> Key {
    hosts().key(name.as_str()).expect("names are bounded well below the limit of a key")
}

pub fn key_key(key: &Fingerprint) -> Key {
    let keys = Prefix::below("host-keys").expect("a fixed path is a legal prefix");
    keys.key(key.as_str()).expect("hexadecimal is a legal key")
}

pub fn identity_key(by: &Admission) -> Key {
    let digest = digest::digest(&digest::SHA256, by.to_string().as_bytes());
    let identities = Prefix::below("host-identities").expect("a fixed path is a legal prefix");
    identities.key(&common::hex(digest.as_ref())).expect("hexadecimal is a legal key")
}

/// Nobody has joined by this before, and nobody else will.
pub fn once(by: &Admission, host: &TagName) -> Transaction {
    let key = identity_key(by);
    Transaction::new().expect_absent(key.clone()).put(key, json(&KeyRecord::of(host)))
}

/// A host that is new by name and by key.
pub fn admit(record: &HostRecord) -> Transaction {
    let (host, key) = (host_key(&record.host.name), key_key(&record.host.fingerprint));
    Transaction::new()
        .expect_absent(host.clone())
        .expect_absent(key.clone())
        .put(host, json(record))
        .put(key, json(&KeyRecord::of(&record.host.name)))
}

/// A record in the place of the one that was read at a revision.
pub fn replace(record: &HostRecord, at: Revision) -> Transaction {
    let key = host_key(&record.host.name);
    Transaction::new().expect_modified_at(key.clone(), at).put(key, json(record))
}

/// A record whose key is another one than before, and nobody's.
pub fn change_key(record: &HostRecord, at: Revision, old: &Fingerprint, now: i64) -> Transaction {
    let key = key_key(&record.host.fingerprint);
    let of = KeyRecord::of(&record.host.name);
    let was = KeyRecord { replaced: Some(now), ..of.clone() };
    replace(record, at).expect_absent(key.clone()).put(key, json(&of)).put(key_key(old), json(&was))
}

/// The host is nobody from here on, and its key opens nothing.
pub fn leave(record: &HostRecord, at: Revision, now: i64) -> Transaction {
    let gone = HostRecord { leaving: true, certificates: BTreeMap::new(), ..record.clone() };
    let of = KeyRecord { removed: Some(now), ..KeyRecord::of(&record.host.name) };
    replace(&gone, at).put(key_key(&record.host.fingerprint), json(&of))
}

/// The last trace of a host that left, but for its key.
pub fn forget(name: &TagName, at: Revision) -> Transaction {
    let key = host_key(name);
    Transaction::new().expect_modified_at(key.clone(), at).delete(key)
}

/// Two transactions as one.
pub fn together(mut one: Transaction, other: Transaction) -> Transaction {
    one.compares.extend(other.compares);
    one.operations.extend(other.operations);
    one
}

/// For the record: what became of a host.
pub fn changed(before: Option<&HostRecord>, after: Option<&HostRecord>) -> Change {
    let name = before.or(after).map(|record| record.host.name.to_string()).unwrap_or_default();
    let shown = |record: &HostRecord| serde_json::to_value(record).unwrap_or_default();
    Change::between(format!("host {name}"), before.map(shown).as_ref(), after.map(shown).as_ref())
}

fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have no maps with odd keys")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::Joined;

    use super::*;

    fn record() -> HostRecord {
        let host = Host {
            name: "web-1.example".parse().unwrap(),
            labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
            tags: BTreeSet::from(["web".parse().unwrap()]),
            addresses: BTreeSet::from(["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]),
            fingerprint: "a".repeat(64).parse().unwrap(),
            joined: Joined { by: Admission::Token { id: "t".to_owned() }, at: 1 },
        };
        HostRecord { host, certificates: BTreeMap::new(), newest: None, tagged: false, leaving: false }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let (record, _) = record().with_certificate("01".to_owned(), 9, 1);
        assert_eq!(serde_json::from_slice::<HostRecord>(&json(&record)).unwrap(), record);
    }

    #[test]
    fn certificates_that_have_ended_are_forgotten_with_the_next() {
        let (record, ended) = record().with_certificate("01".to_owned(), 10, 1);
        assert!(ended.is_empty());
        let (record, ended) = record.with_certificate("02".to_owned(), 20, 9);
        assert!(ended.is_empty(), "the first is in use still");
        let (record, ended) = record.with_certificate("03".to_owned(), 30, 10);
        assert_eq!((ended, record.certificate_until()), (vec!["01".to_owned()], 30));
        assert_eq!(record.certificates.len(), 2);
        let mut record = record;
        assert_eq!(record.drop_oldest(1), ["02"]);
        assert!(record.drop_oldest(1).is_empty() && record.certificates.contains_key("03"));
    }

    #[test]
    fn plans_touch_no_key_twice() {
        let record = record();
        let old = "b".repeat(64).parse().unwrap();
        let changed = change_key(&record, Revision(1), &old, 2);
        for plan in
            [admit(&record), changed, leave(&record, Revision(1), 2), forget(&record.host.name, Revision(1))]
        {
            plan.check_distinct().unwrap();
        }
    }
}
