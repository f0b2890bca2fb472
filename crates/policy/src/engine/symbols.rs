//! Interned text: label keys and values, span keys. Counted, so that churn of generated labels leaves nothing behind.

use std::sync::Arc;

use super::{
    lookup::{KeyHash, Lookup},
    tables::{Id, Slab},
};

#[derive(Debug, Clone)]
pub(crate) struct Interner<I> {
    rows: Slab<I, Row>,
    by_text: Lookup<I>,
}

#[derive(Debug, Clone)]
struct Row {
    text: Arc<str>,
    references: u32,
}

impl<I: Id> Interner<I> {
    pub(crate) fn new() -> Self {
        Interner { rows: Slab::new(), by_text: Lookup::new() }
    }

    pub(crate) fn find(&self, text: &str) -> Option<I> {
        self.by_text.find(KeyHash::of(text), |id| *self.rows[id].text == *text)
    }

    /// Finds or adds, with no reference taken: whoever keeps the id calls [`Self::acquire`].
    pub(crate) fn intern(&mut self, text: &str) -> I {
        let Interner { rows, by_text } = self;
        by_text.find_or_vacancy(KeyHash::of(text), |id| *rows[id].text == *text).unwrap_or_else(|vacancy| {
            let id = rows.insert(Row { text: text.into(), references: 0 });
            vacancy.fill(id);
            id
        })
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
        self.by_text.remove(KeyHash::of(&*row.text), id);
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
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
