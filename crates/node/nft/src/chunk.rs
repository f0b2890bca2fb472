//! Packing of units of work into transactions that the kernel finishes quickly.

use crate::{Op, Transaction};

/// How much one transaction may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements added or removed. At 1 to 3 µs each the default stays well below the 10 ms that no transaction may
    /// hold the kernel's lock, on a slow or busy host too; what a transaction costs beside its elements is a few of them.
    pub elements: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { elements: 2_048 }
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
    if open.units > 0 {
        bundles.push(open);
    }
    bundles.retain(|bundle| !bundle.transaction.ops.is_empty());
    bundles
}

/// A transaction of several units, which can be halved to find those that the kernel refuses.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    pub transaction: Transaction,
    /// For each operation the unit of each of its elements; for one without elements, its unit.
    units_of: Vec<Vec<u32>>,
    units: u32,
}

impl Bundle {
    pub fn units(&self) -> usize {
        self.units as usize
    }

    fn push(&mut self, unit: Vec<Op>) {
        for op in unit.into_iter().filter(|op| op.weight() > 0) {
            let count = op.elements().len().max(1);
            let place = self.place(op);
            self.units_of[place].extend(std::iter::repeat_n(self.units, count));
        }
        self.units += 1;
    }

    /// Elements join those of the same set, if nothing but elements of the same kind of operation came in between: a
    /// transaction has no inside, but what is removed must be so before it is added again, and a chain must be made
    /// before an element leads to it. Returns where the operation is now.
    fn place(&mut self, op: Op) -> usize {
        let ops = &mut self.transaction.ops;
        let run = ops.iter_mut().enumerate().rev().take_while(|(_, known)| known.is_like(&op));
        for (index, known) in run {
            if known.is_of_same_set(&op) {
                known.join(op);
                return index;
            }
        }
        ops.push(op);
        self.units_of.push(Vec::new());
        ops.len() - 1
    }

    /// Its first units and the others. A bundle of one unit cannot be halved.
    pub fn halve(self) -> (Self, Self) {
        let half = self.units / 2;
        let (mut front, mut back) = (Self { units: half, ..Self::default() }, Self::default());
        back.units = self.units - half;
        for (op, units) in self.transaction.ops.into_iter().zip(self.units_of) {
            let (first, second): (Vec<_>, Vec<_>) = units.iter().partition(|unit| **unit < half);
            // Units come one after the other, in every operation too.
            let (left, right) = op.split_at(first.len());
            front.extend(left, first);
            back.extend(right, second.into_iter().map(|unit| unit - half).collect());
        }
        (front, back)
    }

    fn extend(&mut self, op: Option<Op>, units: Vec<u32>) {
        if let Some(op) = op {
            self.transaction.ops.push(op);
            self.units_of.push(units);
        }
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
    fn elements_of_one_set_share_an_operation_across_units_but_not_across_deletions_and_chains() {
        let delete = |set: &str| {
            let [Op::AddElements { set, schema, elements }] = &unit(set, 1)[..] else { unreachable!() };
            Op::DeleteElements { set: set.clone(), schema: schema.clone(), elements: elements.clone() }
        };
        let both = || [unit("a", 1), unit("b", 1)].concat();
        let chain = vec![Op::AddChain { name: "c".into(), base: None }];
        let replaced = [vec![delete("a")], unit("a", 1)].concat();
        let packed = pack([both(), both(), chain, both(), replaced], Limits::default());
        let told: Vec<_> = packed[0].ops.iter().map(Op::describe).collect();
        let add = |count: u32, set: &str| format!("add {count} elements to set {set}");
        let deleted = "delete 1 elements of set a".to_owned();
        let chain = "add chain c".to_owned();
        assert_eq!(told, [add(2, "a"), add(2, "b"), chain, add(1, "a"), add(1, "b"), deleted, add(1, "a")]);
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
