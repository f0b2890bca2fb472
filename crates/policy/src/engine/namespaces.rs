//! Namespaces and the selectors over them.
//!
//! A namespace row exists while anything names it; its object may come later. Until then only the empty namespace
//! selector matches it. Each row knows which interned namespace selectors match it, so that a new label set in the
//! namespace asks only the selectors that can be about it.

use std::sync::Arc;

use model::policy::{LabelSelector, Labels};

use super::{
    Engine,
    lookup::{KeyHash, Lookup},
    matching::{LabelIndex, LabelSet, TermIndex, Terms, matches, symbols_of, terms},
    symbols::Interner,
    tables::{IdSet, NamespaceId, NamespaceSelectorId, PolicyId, ProfileId, SelectorId, Slab, Symbol},
};

/// Set on every namespace by the API server; objects from elsewhere lack it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const LOGGING: &str = "networkpolicy.antrea.io/enable-logging";

#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    pub(crate) name: Arc<str>,
    /// Whether its object exists, which is also when it has labels.
    pub(crate) known: bool,
    /// Kubernetes policies of this namespace log what they decide.
    pub(crate) logging: bool,
    pub(crate) labels: LabelSet,
    pub(crate) matched_by: IdSet<NamespaceSelectorId>,
    pub(crate) profiles: LabelIndex<ProfileId>,
    /// Selectors that are about this namespace alone.
    pub(crate) selectors: TermIndex<SelectorId>,
    /// Kubernetes policies in this namespace.
    pub(crate) policies: IdSet<PolicyId>,
    references: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct NamespaceSelector {
    pub(crate) terms: Terms,
    pub(crate) namespaces: IdSet<NamespaceId>,
    /// Selectors within the namespaces this one matches.
    pub(crate) selectors: TermIndex<SelectorId>,
    references: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Namespaces {
    pub(crate) rows: Slab<NamespaceId, Namespace>,
    by_name: Lookup<NamespaceId>,
    /// Events come in runs about one namespace.
    last: Option<NamespaceId>,
    by_label: LabelIndex<NamespaceId>,
    pub(crate) selectors: Slab<NamespaceSelectorId, NamespaceSelector>,
    selectors_by_terms: Lookup<NamespaceSelectorId>,
    selector_index: TermIndex<NamespaceSelectorId>,
}

impl Namespaces {
    pub(crate) fn new() -> Self {
        Namespaces {
            rows: Slab::new(),
            by_name: Lookup::new(),
            last: None,
            by_label: LabelIndex::new(),
            selectors: Slab::new(),
            selectors_by_terms: Lookup::new(),
            selector_index: TermIndex::new(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<NamespaceId> {
        self.by_name.find(KeyHash::of(name), |id| *self.rows[id].name == *name)
    }

    /// O(1) when known; a new name is matched against the selectors without terms.
    pub(crate) fn acquire(&mut self, name: &str) -> NamespaceId {
        if let Some(id) = self.last
            && let Some(row) = self.rows.get_mut(id)
            && *row.name == *name
        {
            row.references += 1;
            return id;
        }
        if let Some(id) = self.find(name) {
            self.rows[id].references += 1;
            self.last = Some(id);
            return id;
        }
        let id = self.rows.insert(Namespace {
            name: name.into(),
            known: false,
            logging: false,
            labels: LabelSet::default(),
            matched_by: IdSet::new(),
            profiles: LabelIndex::new(),
            selectors: TermIndex::new(),
            policies: IdSet::new(),
            references: 1,
        });
        self.by_name.add(KeyHash::of(name), id);
        self.by_label.insert(id, &[]);
        let matched = self.matching(id);
        for selector in matched.iter() {
            self.selectors[*selector].namespaces.insert(id);
        }
        self.rows[id].matched_by = matched;
        id
    }

    pub(crate) fn retain(&mut self, id: NamespaceId) {
        self.rows[id].references += 1;
    }

    pub(crate) fn release(&mut self, id: NamespaceId) {
        self.rows[id].references -= 1;
        if self.rows[id].references > 0 {
            return;
        }
        let row = self.rows.remove(id);
        self.by_name.remove(KeyHash::of(&*row.name), id);
        self.by_label.remove(id, &row.labels);
        for selector in row.matched_by.iter() {
            self.selectors[*selector].namespaces.remove(id);
        }
    }

    /// The namespace selectors this namespace satisfies as it is now.
    fn matching(&self, id: NamespaceId) -> IdSet<NamespaceSelectorId> {
        let row = &self.rows[id];
        let mut matched = Vec::new();
        self.selector_index.candidates(&row.labels, |selector| {
            if self.is_match(selector, row) {
                matched.push(selector);
            }
        });
        matched.into_iter().collect()
    }

    fn is_match(&self, selector: NamespaceSelectorId, row: &Namespace) -> bool {
        let terms = &self.selectors[selector].terms;
        terms.is_empty() || (row.known && matches(terms, &row.labels))
    }

    /// New: O(namespaces with the anchoring label).
    pub(crate) fn acquire_selector(
        &mut self,
        selector: &LabelSelector,
        symbols: &mut Interner<Symbol>,
    ) -> NamespaceSelectorId {
        let terms = terms(selector, symbols);
        let hash = KeyHash::of(&terms);
        if let Some(id) = self.selectors_by_terms.find(hash, |id| self.selectors[id].terms == terms) {
            self.selectors[id].references += 1;
            return id;
        }
        symbols_of(&terms).for_each(|symbol| symbols.acquire(symbol));
        let mut namespaces = Vec::new();
        self.by_label.candidates(&terms, |id| &self.rows[id].labels, |id| namespaces.push(id));
        let id = self.selectors.insert(NamespaceSelector {
            terms,
            namespaces: IdSet::new(),
            selectors: TermIndex::new(),
            references: 1,
        });
        namespaces.retain(|namespace| self.is_match(id, &self.rows[*namespace]));
        for namespace in &namespaces {
            self.rows[*namespace].matched_by.insert(id);
        }
        self.selectors[id].namespaces = namespaces.into_iter().collect();
        self.selectors_by_terms.add(hash, id);
        let selectors = &self.selectors;
        self.selector_index.insert(id, |id| &selectors[id].terms);
        id
    }

    pub(crate) fn release_selector(&mut self, id: NamespaceSelectorId, symbols: &mut Interner<Symbol>) {
        self.selectors[id].references -= 1;
        if self.selectors[id].references > 0 {
            return;
        }
        let row = self.selectors.remove(id);
        self.selectors_by_terms.remove(KeyHash::of(&row.terms), id);
        self.selector_index.remove(id, &row.terms);
        for namespace in row.namespaces.iter() {
            self.rows[*namespace].matched_by.remove(id);
        }
        for symbol in symbols_of(&row.terms) {
            if symbols.release(symbol) {
                symbols.forget(symbol);
            }
        }
    }
}

impl Engine {
    pub(super) fn apply_namespace(&mut self, name: &str, labels: &Labels, annotations: &Labels) {
        let id = self.namespaces.acquire(name);
        if self.namespaces.rows[id].known {
            self.namespaces.release(id);
        }
        let written =
            labels.iter().filter(|(key, _)| *key != NAME_LABEL).map(|(k, v)| (k.as_str(), v.as_str()));
        let labels = self.intern_labels(written.chain([(NAME_LABEL, name)]));
        let logging = annotations.get(LOGGING).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        self.change_namespace(id, true, labels, logging);
    }

    pub(super) fn delete_namespace(&mut self, name: &str) {
        let Some(id) = self.namespaces.find(name).filter(|id| self.namespaces.rows[*id].known) else {
            return;
        };
        self.change_namespace(id, false, LabelSet::default(), false);
        self.namespaces.release(id);
    }

    /// O(profiles of the namespace × namespace selectors that start or stop to match it).
    fn change_namespace(&mut self, id: NamespaceId, known: bool, labels: LabelSet, logging: bool) {
        let row = &mut self.namespaces.rows[id];
        if row.logging != logging {
            row.logging = logging;
            self.relog(id);
        }
        let row = &mut self.namespaces.rows[id];
        if row.known == known && row.labels == labels {
            return;
        }
        labels.iter().for_each(|(k, v)| self.acquire_label(*k, *v));
        let row = &mut self.namespaces.rows[id];
        row.known = known;
        let old_labels = std::mem::replace(&mut row.labels, labels);
        self.namespaces.by_label.remove(id, &old_labels);
        self.namespaces.by_label.insert(id, &self.namespaces.rows[id].labels);
        let new = self.namespaces.matching(id);
        let old = std::mem::replace(&mut self.namespaces.rows[id].matched_by, new.clone());
        for selector in old.iter().filter(|s| !new.contains(**s)) {
            self.namespaces.selectors[*selector].namespaces.remove(id);
            self.leave_namespace(id, *selector);
        }
        for selector in new.iter().filter(|s| !old.contains(**s)) {
            self.namespaces.selectors[*selector].namespaces.insert(id);
            self.enter_namespace(id, *selector);
        }
        self.release_labels(&old_labels);
        self.namespaces_changed();
    }
}
