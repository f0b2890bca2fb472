//! Interned text: label keys and values, span keys. Counted, so that churn of generated labels leaves nothing behind.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::tables::{Id, Slab};

#[derive(Debug)]
pub(crate) struct Interner<I> {
    rows: Slab<I, Row>,
    by_text: HashTable<I>,
}

#[derive(Debug)]
struct Row {
    text: Arc<str>,
    references: u32,
}

impl<I: Id> Interner<I> {
    pub(crate) fn new() -> Self {
        Interner { rows: Slab::new(), by_text: HashTable::new() }
    }

    pub(crate) fn find(&self, text: &str) -> Option<I> {
        self.by_text.find(hash(text), |id| *self.rows[*id].text == *text).copied()
    }

    /// Finds or adds, with no reference taken: whoever keeps the id calls [`Self::acquire`].
    pub(crate) fn intern(&mut self, text: &str) -> I {
        if let Some(id) = self.find(text) {
            return id;
        }
        let id = self.rows.insert(Row { text: text.into(), references: 0 });
        let rows = &self.rows;
        self.by_text.insert_unique(hash(text), id, |id| hash(&rows[*id].text));
        id
    }

    pub(crate) fn text(&self, id: I) -> &Arc<str> {
        &self.rows[id].text
    }

    pub(crate) fn acquire(&mut self, id: I) {
        self.rows[id].references += 1;
    }

    /// True when this was the last reference; the caller then calls [`Self::forget`] as soon as nothing needs the text.
    pub(crate) fn release(&mut self, id: I) -> bool {
        self.rows[id].references -= 1;
        self.rows[id].references == 0
    }

    /// Does nothing when the id was taken up again, or is gone already.
    pub(crate) fn forget(&mut self, id: I) {
        if self.rows.get(id).is_none_or(|row| row.references > 0) {
            return;
        }
        let row = self.rows.remove(id);
        if let Ok(entry) = self.by_text.find_entry(hash(&row.text), |other| *other == id) {
            entry.remove();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}

fn hash(text: &str) -> u64 {
    FxBuildHasher.hash_one(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tables::Symbol;

    #[test]
    fn a_text_is_kept_as_long_as_someone_holds_it() {
        let mut interner = Interner::<Symbol>::new();
        let a = interner.intern("a");
        interner.acquire(a);
        assert_eq!(interner.intern("a"), a);
        assert!(interner.release(a));
        interner.acquire(a);
        interner.forget(a);
        assert_eq!(interner.find("a"), Some(a));
        assert!(interner.release(a));
        interner.forget(a);
        interner.forget(a);
        assert_eq!((interner.find("a"), interner.len()), (None, 0));
    }
}
