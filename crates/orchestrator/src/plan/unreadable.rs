//! Records that are stored and cannot be read.
//!
//! A record of another version, or a damaged one, is not "nothing". What it is about is there and stays there: its key
//! still names it, so it is neither made nor removed; where only its value tells what was chosen for it (a space, an
//! AS number, BGP addresses), nothing of the kind is chosen for anything else. A rule that cannot be read permits
//! nothing. All of it ends when the record is replaced or deleted.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use model::{LinkName, NetworkName, PeeringName, ResourceName, Segment, Site, TagName};
use serde::Serialize;

use super::{Intent, Inventory, ProblemKind, ResourceIntent};

/// What a record is about, as its key says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// That a resource is wanted.
    Wanted(ResourceName),
    Rule(ResourceName, Segment),
    TagRule(TagName, Segment),
    Permission(Segment),
    Link(LinkName),
    Network(NetworkName),
    Resource(ResourceName),
    Peering(PeeringName),
    Nat(NetworkName),
    Gateway(Site),
    MadeLink(LinkName),
    Job(String),
    /// The key itself says nothing to this version.
    Strange(String),
}

/// One record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Its key in the store.
    pub record: String,
    pub reason: String,
}

impl From<&Record> for ProblemKind {
    fn from(Record { record, reason }: &Record) -> Self {
        Self::Unreadable { record: record.clone(), reason: reason.clone() }
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable(BTreeMap<Subject, Record>);

impl Unreadable {
    pub fn put(&mut self, subject: Subject, record: Record) {
        self.0.insert(subject, record);
    }

    pub fn remove(&mut self, subject: &Subject) {
        self.0.remove(subject);
    }

    pub fn get(&self, subject: &Subject) -> Option<&Record> {
        self.0.get(subject)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &Record)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rules of a resource.
    pub fn rules_of<'u>(&'u self, resource: &'u ResourceName) -> impl Iterator<Item = &'u Segment> {
        self.0.keys().filter_map(move |subject| match subject {
            Subject::Rule(on, rule) if on == resource => Some(rule),
            _ => None,
        })
    }

    /// A record that may hold any address space.
    pub fn hides_a_space(&self) -> Option<&Record> {
        self.first(|subject| matches!(subject, Subject::Network(_)))
    }

    /// A record that may hold any AS number.
    pub fn hides_an_asn(&self) -> Option<&Record> {
        self.first(|subject| matches!(subject, Subject::Gateway(_)))
    }

    /// A record that may hold any pair of BGP addresses.
    pub fn hides_bgp(&self) -> Option<&Record> {
        self.first(|subject| matches!(subject, Subject::MadeLink(_)))
    }

    /// The first of the kind; one whose key says nothing may be of any kind of things made.
    fn first(&self, is_kind: impl Fn(&Subject) -> bool) -> Option<&Record> {
        let may_be = |subject: &Subject| match subject {
            Subject::Strange(key) => !key.starts_with("orchestrator/want/"),
            subject => is_kind(subject),
        };
        self.0.iter().find(|(subject, _)| may_be(subject)).map(|(_, record)| record)
    }

    /// Sites where something was made that nobody can say more of. What it may need there is not taken away.
    pub fn sites(&self) -> BTreeSet<Site> {
        let mut sites = BTreeSet::new();
        for subject in self.0.keys() {
            match subject {
                Subject::Network(network) | Subject::Nat(network) => sites.extend([network.site.clone()]),
                Subject::Resource(name) => sites.extend([Site::of(name)]),
                Subject::Peering(peering) => sites.extend(peering.ends().map(|end| end.site.clone())),
                Subject::Gateway(site) => sites.extend([site.clone()]),
                Subject::MadeLink(link) => sites.extend(link.ends().into_iter().cloned()),
                Subject::Wanted(_)
                | Subject::Rule(..)
                | Subject::TagRule(..)
                | Subject::Permission(_)
                | Subject::Link(_)
                | Subject::Job(_)
                | Subject::Strange(_) => {}
            }
        }
        sites
    }
}

/// The intent, with those resources whose wish cannot be read and that were made: they stay as they were made, and their
/// lists follow their rules.
pub(super) fn with_what_is_made<'i>(intent: &'i Intent, inventory: &Inventory) -> Cow<'i, Intent> {
    let mut intent = Cow::Borrowed(intent);
    for (subject, _) in inventory.unreadable.iter() {
        let Subject::Wanted(name) = subject else { continue };
        let Some(record) = inventory.resources.get(name) else { continue };
        let stands_in = ResourceIntent {
            region: record.network.region.clone(),
            description: String::new(),
            attach: record.attached,
            adopts: None,
        };
        intent.to_mut().resources.insert(name.clone(), stands_in);
    }
    intent
}
