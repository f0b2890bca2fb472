//! One copy of values that many hold.

use std::{borrow::Borrow, collections::HashSet, hash::Hash, sync::Arc};

/// Values that nobody holds any more are dropped from time to time: it never has more than twice as many as are held,
/// and a few.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    known: HashSet<Arc<T>>,
    sweep_at: usize,
}

const FEW: usize = 64;

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), sweep_at: self.sweep_at }
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep_at: FEW }
    }
}

impl<T: Hash + Eq + ?Sized> Interner<T> {
    pub fn share<Q>(&mut self, value: Q) -> Arc<T>
    where
        Q: Borrow<T> + Into<Arc<T>>,
    {
        if let Some(known) = self.known.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_at = FEW.max(2 * self.known.len());
        }
        let new = value.into();
        self.known.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_those_that_nobody_holds_go() {
        let mut interner: Interner<str> = Interner::default();
        let held = interner.share("held".to_owned());
        assert!(Arc::ptr_eq(&held, &interner.share("held".to_owned())));
        (0..10 * FEW).for_each(|number| drop(interner.share(number.to_string())));
        assert!(interner.known.len() <= FEW);
        assert!(Arc::ptr_eq(&held, &interner.share("held".to_owned())));
    }
}
