//! Packing of units of work into transactions that the kernel finishes quickly.

use crate::{Op, Transaction};

/// How much one transaction may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements added or removed. At 1 to 3 µs each the default stays well below the 50 ms that no transaction may
    /// hold the kernel's lock, on a slow or busy host too.
    pub elements: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { elements: 8_192 }
    }
}

/// Packs units in their order. What is within one unit is never torn apart, even if it exceeds the limits: a unit
/// is what must become true at once.
pub fn pack(units: impl IntoIterator<Item = Vec<Op>>, limits: Limits) -> Vec<Transaction> {
    bundle(units, limits).into_iter().map(|bundle| bundle.transaction).collect()
}

/// As [`pack`], with what is needed to take transactions apart again.
pub fn bundle(units: impl IntoIterator<Item = Vec<Op>>, limits: Limits) -> Vec<Bundle> {
    let mut bundles = Vec::new();
    let mut open = Bundle::default();
    let mut weight = 0;
    for unit in units {
        let unit_weight: usize = unit.iter().map(Op::weight).sum();
        if weight > 0 && weight + unit_weight > limits.elements {
            bundles.push(std::mem::take(&mut open));
            weight = 0;
        }
        weight += unit_weight;
        open.push(unit);
    }
    if !open.ends.is_empty() {
        bundles.push(open);
    }
    bundles.retain(|bundle| !bundle.transaction.ops.is_empty());
    bundles
}

/// A transaction of several units, which can be halved to find those that the kernel refuses.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    pub transaction: Transaction,
    /// Where each unit ends: operations up to there, and elements of the last of them.
    ends: Vec<(usize, usize)>,
}

impl Bundle {
    pub fn units(&self) -> usize {
        self.ends.len()
    }

    fn push(&mut self, unit: Vec<Op>) {
        unit.into_iter().for_each(|op| self.transaction.push(op));
        let ops = &self.transaction.ops;
        self.ends.push((ops.len(), ops.last().map_or(0, |op| op.elements().len())));
    }

    /// Its first units and the others. A bundle of one unit cannot be halved.
    pub fn halve(mut self) -> (Self, Self) {
        let half = self.ends.len() / 2;
        let Some(&(ops, elements)) = half.checked_sub(1).and_then(|last| self.ends.get(last)) else {
            return (Self::default(), self);
        };
        let mut rest = self.transaction.ops.split_off(ops);
        let torn = self.transaction.ops.last_mut().and_then(|op| op.split_off(elements));
        let shared = usize::from(torn.is_some());
        rest.splice(0..0, torn);
        let ends = self.ends.split_off(half).into_iter().map(|(end, last)| {
            // Those that end within the operation that was torn have lost what stays in front.
            (end + shared - ops, if shared == 1 && end == ops { last - elements } else { last })
        });
        let rest = Self { ends: ends.collect(), transaction: Transaction { ops: rest } };
        (self, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Element, FieldType, Key, SetSchema};

    fn unit(set: &str, elements: u32) -> Vec<Op> {
        let elements = (0..elements).map(|n| (Key::new().mark(n).into(), Element::member())).collect();
        vec![Op::AddElements { set: set.into(), schema: SetSchema::set([FieldType::Mark]), elements }]
    }

    fn weights(transactions: &[Transaction]) -> Vec<usize> {
        transactions.iter().map(|one| one.ops.iter().map(Op::weight).sum()).collect()
    }

    #[test]
    fn units_fill_a_transaction_up_to_the_limit() {
        let packed = pack([unit("a", 2), unit("a", 2), unit("a", 3)], Limits { elements: 4 });
        assert_eq!(weights(&packed), [4, 3]);
    }

    #[test]
    fn a_unit_is_never_torn_apart() {
        let packed = pack([unit("a", 1), unit("a", 9), unit("a", 1)], Limits { elements: 4 });
        assert_eq!(weights(&packed), [1, 9, 1]);
    }

    #[test]
    fn neighbouring_elements_of_one_set_share_an_operation() {
        let packed = pack([unit("a", 1), unit("a", 1), unit("b", 1)], Limits::default());
        assert_eq!(packed.len(), 1);
        assert_eq!(packed[0].ops.len(), 2);
    }

    #[test]
    fn halves_hold_the_same_units_in_the_same_order() {
        let units = || [unit("a", 2), unit("a", 1), unit("a", 3), unit("b", 1), unit("b", 2), unit("a", 1)];
        let [bundle] = &bundle(units(), Limits::default())[..] else { panic!("they fit") };
        let mut parts = vec![bundle.clone()];
        while parts.iter().any(|part| part.units() > 1) {
            let halves = parts.into_iter().flat_map(|part| {
                if part.units() > 1 { <[Bundle; 2]>::from(part.halve()).to_vec() } else { vec![part] }
            });
            parts = halves.collect();
        }
        let parts: Vec<_> = parts.iter().map(|part| format!("{:?}", part.transaction.ops)).collect();
        let alone: Vec<_> = units().iter().map(|unit| format!("{unit:?}")).collect();
        assert_eq!(parts, alone);
    }
}
