//! Selectors of members: which profiles they match, and which groups are made of them.
//!
//! Equal selectors are one row, shared by every group that uses them. Costs: a known selector is a hash lookup; a new
//! one checks the profiles that carry its anchoring label (in its namespace, or in the namespaces its namespace
//! selector matches).

use model::policy::{LabelSelector, output::MemberKind};

use super::{
    Engine,
    lookup::{KeyHash, Lookup},
    matching::{Terms, matches, symbols_of, terms},
    tables::{GroupId, IdSet, NamespaceId, NamespaceSelectorId, ProfileId, SelectorId, Slab},
};
use crate::selection::{Scope, Selection};

#[derive(Debug, Clone)]
pub(crate) struct Selector {
    pub(crate) kind: MemberKind,
    pub(crate) reach: Reach,
    pub(crate) terms: Terms,
    pub(crate) profiles: IdSet<ProfileId>,
    /// The groups made of this selector; it lives as long as there is one.
    pub(crate) groups: IdSet<GroupId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Within(NamespaceId),
    Across(NamespaceSelectorId),
}

#[derive(Debug, Clone)]
pub(crate) struct Selectors {
    pub(crate) rows: Slab<SelectorId, Selector>,
    by_content: Lookup<SelectorId>,
}

impl Selectors {
    pub(crate) fn new() -> Self {
        Selectors { rows: Slab::new(), by_content: Lookup::new() }
    }
}

impl Engine {
    /// Finds or makes the selector. A new one has no group yet: the caller attaches one or calls `drop_if_unused`.
    pub(super) fn intern_selection(&mut self, selection: &Selection<'_>) -> SelectorId {
        let reach = match &selection.scope {
            Scope::Namespace(name) => Reach::Within(self.namespaces.acquire(name)),
            Scope::Matching(over) => Reach::Across(self.namespaces.acquire_selector(over, &mut self.symbols)),
            Scope::Everywhere => {
                Reach::Across(self.namespaces.acquire_selector(&LabelSelector::default(), &mut self.symbols))
            }
        };
        let terms = selection.selector.as_ref().map(|s| terms(s, &mut self.symbols)).unwrap_or_default();
        let hash = content_hash(selection.kind, reach, &terms);
        let is = |id: SelectorId| {
            let row = &self.selectors.rows[id];
            row.kind == selection.kind && row.reach == reach && row.terms == terms
        };
        if let Some(id) = self.selectors.by_content.find(hash, is) {
            self.release_reach(reach);
            return id;
        }
        symbols_of(&terms).for_each(|symbol| self.symbols.acquire(symbol));
        let profiles = self.profiles_for(selection.kind, reach, &terms);
        let groups = IdSet::new();
        let id = self.selectors.rows.insert(Selector {
            kind: selection.kind,
            reach,
            terms,
            profiles: IdSet::new(),
            groups,
        });
        for profile in &profiles {
            self.entities.profiles[*profile].selectors.insert(id);
        }
        self.selectors.rows[id].profiles = profiles.into_iter().collect();
        self.selectors.by_content.add(hash, id);
        let rows = &self.selectors.rows;
        let index = match reach {
            Reach::Within(namespace) => &mut self.namespaces.rows[namespace].selectors,
            Reach::Across(over) => &mut self.namespaces.selectors[over].selectors,
        };
        index.insert(id, |id| &rows[id].terms);
        id
    }

    fn profiles_for(&self, kind: MemberKind, reach: Reach, terms: &Terms) -> Vec<ProfileId> {
        let mut found = Vec::new();
        let rows = &self.entities.profiles;
        let mut check = |id: ProfileId| {
            if rows[id].kind == kind && matches(terms, &rows[id].labels) {
                found.push(id);
            }
        };
        let labels_of = |id: ProfileId| &*rows[id].labels;
        match reach {
            Reach::Within(namespace) => {
                self.namespaces.rows[namespace].profiles.candidates(terms, labels_of, check);
            }
            Reach::Across(over) => {
                let namespaces = &self.namespaces.selectors[over].namespaces;
                if self.entities.profile_index.estimate(terms, labels_of) < namespaces.len() * 4 {
                    self.entities.profile_index.candidates(terms, labels_of, |id| {
                        if namespaces.contains(rows[id].namespace) {
                            check(id);
                        }
                    });
                } else {
                    for namespace in namespaces.iter() {
                        self.namespaces.rows[*namespace].profiles.candidates(terms, labels_of, &mut check);
                    }
                }
            }
        }
        found
    }

    pub(super) fn drop_if_unused(&mut self, id: SelectorId) {
        if !self.selectors.rows[id].groups.is_empty() {
            return;
        }
        let row = self.selectors.rows.remove(id);
        let hash = content_hash(row.kind, row.reach, &row.terms);
        self.selectors.by_content.remove(hash, id);
        for profile in row.profiles.iter() {
            self.entities.profiles[*profile].selectors.remove(id);
        }
        match row.reach {
            Reach::Within(namespace) => self.namespaces.rows[namespace].selectors.remove(id, &row.terms),
            Reach::Across(over) => self.namespaces.selectors[over].selectors.remove(id, &row.terms),
        }
        for symbol in symbols_of(&row.terms) {
            self.release_symbol(symbol);
        }
        self.release_reach(row.reach);
    }

    fn release_reach(&mut self, reach: Reach) {
        match reach {
            Reach::Within(namespace) => self.namespaces.release(namespace),
            Reach::Across(over) => self.namespaces.release_selector(over, &mut self.symbols),
        }
    }

    /// The namespace began to match: profiles in it may now match selectors over it.
    pub(super) fn enter_namespace(&mut self, namespace: NamespaceId, over: NamespaceSelectorId) {
        let profiles = self.namespaces.rows[namespace].profiles.all().clone();
        for profile in profiles.iter().copied() {
            let row = &self.entities.profiles[profile];
            let mut selectors = Vec::new();
            self.namespaces.selectors[over].selectors.candidates(&row.labels, |id| {
                let selector = &self.selectors.rows[id];
                if selector.kind == row.kind && matches(&selector.terms, &row.labels) {
                    selectors.push(id);
                }
            });
            for selector in selectors {
                self.link(selector, profile);
            }
        }
    }

    pub(super) fn leave_namespace(&mut self, namespace: NamespaceId, over: NamespaceSelectorId) {
        let profiles = self.namespaces.rows[namespace].profiles.all().clone();
        for profile in profiles.iter().copied() {
            let selectors = self.entities.profiles[profile].selectors.clone();
            for selector in selectors.iter() {
                if self.selectors.rows[*selector].reach == Reach::Across(over) {
                    self.unlink(*selector, profile);
                }
            }
        }
    }

    fn link(&mut self, selector: SelectorId, profile: ProfileId) {
        let groups = self.selectors.rows[selector].groups.clone();
        // A group that has the profile through another selector already does not notice.
        let newly: Vec<GroupId> = groups.iter().copied().filter(|g| !self.has_profile(*g, profile)).collect();
        self.entities.profiles[profile].selectors.insert(selector);
        self.selectors.rows[selector].profiles.insert(profile);
        let entities = self.entities.profiles[profile].entities.clone();
        for group in newly {
            entities.iter().for_each(|entity| self.enter(group, *entity));
        }
    }

    fn unlink(&mut self, selector: SelectorId, profile: ProfileId) {
        self.entities.profiles[profile].selectors.remove(selector);
        self.selectors.rows[selector].profiles.remove(profile);
        let groups = self.selectors.rows[selector].groups.clone();
        let entities = self.entities.profiles[profile].entities.clone();
        for group in groups.iter().copied().filter(|g| !self.has_profile(*g, profile)).collect::<Vec<_>>() {
            for entity in &entities {
                let row = &self.entities.rows[*entity];
                let (member, node) = (row.member.clone(), row.node);
                self.leave(group, *entity, &member, node);
            }
        }
    }

    pub(super) fn has_profile(&self, group: GroupId, profile: ProfileId) -> bool {
        self.groups.rows[group].selectors.intersects(&self.entities.profiles[profile].selectors)
    }
}

fn content_hash(kind: MemberKind, reach: Reach, terms: &Terms) -> KeyHash {
    KeyHash::of(&(kind as u8, reach, terms))
}
