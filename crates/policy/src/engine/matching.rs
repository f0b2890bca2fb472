//! Label sets and selectors over symbols, and an inverted index for each side.
//!
//! [`TermIndex`] finds the selectors a label set may satisfy: each selector stands under one *anchor*, its first term
//! that asks for values, else for a key, else under "the rest". [`LabelIndex`] finds the label sets a selector may
//! match, and is made only when one asks. Both are plain lists while they are short, because a scan of a few rows costs less
//! than a hash table each; both give candidates, and the caller checks them in full. No product of values is ever built.

use std::cell::OnceCell;

use model::policy::{LabelSelector, Operator};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    symbols::Interner,
    tables::{Id, IdSet, Symbol},
};

/// Ascending by key; keys are unique.
pub(crate) type LabelSet = Box<[(Symbol, Symbol)]>;

/// Below this many rows an index is a list.
const SCAN_LIMIT: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Term {
    pub(crate) key: Symbol,
    pub(crate) test: Test,
    /// Ascending, unique.
    pub(crate) values: SmallVec<[Symbol; 2]>,
}

/// Equality from `matchLabels` and `In` with one value mean the same and are named differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Test {
    Equals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Never,
}

pub(crate) type Terms = SmallVec<[Term; 1]>;

/// The selector in a form in which equal selectors are equal values.
pub(crate) fn terms(selector: &LabelSelector, symbols: &mut Interner<Symbol>) -> Terms {
    let mut terms = Terms::new();
    for (key, value) in selector.match_labels.iter() {
        let values = SmallVec::from_elem(symbols.intern(value), 1);
        terms.push(Term { key: symbols.intern(key), test: Test::Equals, values });
    }
    for requirement in &selector.match_expressions {
        let test = match requirement.operator {
            Operator::In => Test::In,
            Operator::NotIn => Test::NotIn,
            Operator::Exists => Test::Exists,
            Operator::DoesNotExist => Test::DoesNotExist,
            Operator::Unknown(_) => Test::Never,
        };
        let mut values: SmallVec<[Symbol; 2]> =
            requirement.values.iter().map(|v| symbols.intern(v)).collect();
        values.sort_unstable();
        values.dedup();
        terms.push(Term { key: symbols.intern(&requirement.key), test, values });
    }
    if terms.len() > 1 {
        terms.sort_unstable();
    }
    terms
}

pub(crate) fn symbols_of(terms: &[Term]) -> impl Iterator<Item = Symbol> {
    terms.iter().flat_map(|term| term.values.iter().copied().chain([term.key]))
}

pub(crate) fn matches(terms: &[Term], labels: &[(Symbol, Symbol)]) -> bool {
    terms.iter().all(|term| {
        let value = value_of(labels, term.key);
        match term.test {
            Test::Equals | Test::In => value.is_some_and(|v| term.values.binary_search(&v).is_ok()),
            Test::NotIn => value.is_none_or(|v| term.values.binary_search(&v).is_err()),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Never => false,
        }
    })
}

fn value_of(labels: &[(Symbol, Symbol)], key: Symbol) -> Option<Symbol> {
    labels.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| labels[at].1)
}

enum Anchor<'a> {
    Values(Symbol, &'a [Symbol]),
    Key(Symbol),
    Rest,
}

fn anchor(terms: &[Term]) -> Anchor<'_> {
    if let Some(term) = terms.iter().find(|term| matches!(term.test, Test::Equals | Test::In)) {
        return Anchor::Values(term.key, &term.values);
    }
    match terms.iter().find(|term| term.test == Test::Exists) {
        Some(term) => Anchor::Key(term.key),
        None => Anchor::Rest,
    }
}

type ByLabel<I> = FxHashMap<(Symbol, Symbol), IdSet<I>>;

#[derive(Debug, Clone)]
pub(crate) struct TermIndex<I: Id> {
    all: IdSet<I>,
    table: Option<Box<TermTable<I>>>,
}

#[derive(Debug, Clone)]
struct TermTable<I: Id> {
    by_value: ByLabel<I>,
    by_key: FxHashMap<Symbol, IdSet<I>>,
    rest: IdSet<I>,
}

impl<I: Id> TermIndex<I> {
    pub(crate) fn new() -> Self {
        TermIndex { all: IdSet::new(), table: None }
    }

    pub(crate) fn insert<'a>(&mut self, id: I, terms_of: impl Fn(I) -> &'a [Term]) {
        self.all.insert(id);
        if let Some(table) = &mut self.table {
            table.insert(id, terms_of(id));
        } else if self.all.len() > SCAN_LIMIT {
            let mut table = TermTable {
                by_value: FxHashMap::default(),
                by_key: FxHashMap::default(),
                rest: IdSet::new(),
            };
            for id in self.all.iter() {
                table.insert(*id, terms_of(*id));
            }
            self.table = Some(Box::new(table));
        }
    }

    pub(crate) fn remove(&mut self, id: I, terms: &[Term]) {
        self.all.remove(id);
        let Some(table) = &mut self.table else { return };
        match anchor(terms) {
            Anchor::Values(key, values) => {
                values.iter().for_each(|value| take(&mut table.by_value, (key, *value), id));
            }
            Anchor::Key(key) => take(&mut table.by_key, key, id),
            Anchor::Rest => drop(table.rest.remove(id)),
        }
    }

    pub(crate) fn candidates(&self, labels: &[(Symbol, Symbol)], mut found: impl FnMut(I)) {
        let Some(table) = &self.table else { return self.all.iter().copied().for_each(found) };
        table.rest.iter().copied().for_each(&mut found);
        for (key, value) in labels {
            let by_value = table.by_value.get(&(*key, *value));
            let by_key = table.by_key.get(key);
            by_value.into_iter().chain(by_key).flat_map(|ids| ids.iter().copied()).for_each(&mut found);
        }
    }
}

impl<I: Id> TermTable<I> {
    fn insert(&mut self, id: I, terms: &[Term]) {
        match anchor(terms) {
            Anchor::Values(key, values) => {
                for value in values {
                    self.by_value.entry((key, *value)).or_insert_with(IdSet::new).insert(id);
                }
            }
            Anchor::Key(key) => drop(self.by_key.entry(key).or_insert_with(IdSet::new).insert(id)),
            Anchor::Rest => drop(self.rest.insert(id)),
        }
    }
}

fn take<K: std::hash::Hash + Eq, I: Id>(map: &mut FxHashMap<K, IdSet<I>>, key: K, id: I) {
    if let Some(ids) = map.get_mut(&key) {
        ids.remove(id);
        if ids.is_empty() {
            map.remove(&key);
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LabelIndex<I: Id> {
    all: IdSet<I>,
    /// Made when it is first asked for.
    by_label: OnceCell<Box<ByLabel<I>>>,
}

impl<I: Id> LabelIndex<I> {
    pub(crate) fn new() -> Self {
        LabelIndex { all: IdSet::new(), by_label: OnceCell::new() }
    }

    pub(crate) fn all(&self) -> &IdSet<I> {
        &self.all
    }

    pub(crate) fn insert(&mut self, id: I, labels: &[(Symbol, Symbol)]) {
        self.all.insert(id);
        if let Some(map) = self.by_label.get_mut() {
            put(map, id, labels);
        }
    }

    pub(crate) fn remove(&mut self, id: I, labels: &[(Symbol, Symbol)]) {
        self.all.remove(id);
        if let Some(map) = self.by_label.get_mut() {
            labels.iter().for_each(|label| take(map, *label, id));
        }
    }

    pub(crate) fn candidates<'a>(
        &self,
        terms: &[Term],
        labels_of: impl Fn(I) -> &'a [(Symbol, Symbol)],
        mut found: impl FnMut(I),
    ) {
        match self.lists(terms, labels_of) {
            Some(lists) => lists.flat_map(|ids| ids.iter().copied()).for_each(&mut found),
            None => self.all.iter().copied().for_each(found),
        }
    }

    /// How many [`Self::candidates`] would give.
    pub(crate) fn estimate<'a>(
        &self,
        terms: &[Term],
        labels_of: impl Fn(I) -> &'a [(Symbol, Symbol)],
    ) -> usize {
        self.lists(terms, labels_of).map_or(self.all.len(), |lists| lists.map(|ids| ids.len()).sum())
    }

    /// None when all must be looked at.
    fn lists<'a>(
        &self,
        terms: &[Term],
        labels_of: impl Fn(I) -> &'a [(Symbol, Symbol)],
    ) -> Option<impl Iterator<Item = &IdSet<I>>> {
        let Anchor::Values(key, values) = anchor(terms) else { return None };
        if self.all.len() <= SCAN_LIMIT {
            return None;
        }
        let map = self.by_label.get_or_init(|| {
            let mut map = Box::default();
            self.all.iter().for_each(|id| put(&mut map, *id, labels_of(*id)));
            map
        });
        Some(values.iter().filter_map(move |value| map.get(&(key, *value))))
    }
}

fn put<I: Id>(map: &mut ByLabel<I>, id: I, labels: &[(Symbol, Symbol)]) {
    for label in labels {
        map.entry(*label).or_insert_with(IdSet::new).insert(id);
    }
}
