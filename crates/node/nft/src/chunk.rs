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
    let mut transactions = Vec::new();
    let mut open = Transaction::default();
    let mut weight = 0;
    for unit in units {
        let unit_weight: usize = unit.iter().map(Op::weight).sum();
        if weight > 0 && weight + unit_weight > limits.elements {
            transactions.push(std::mem::take(&mut open));
            weight = 0;
        }
        weight += unit_weight;
        for op in unit {
            open.push(op);
        }
    }
    if !open.ops.is_empty() {
        transactions.push(open);
    }
    transactions
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
}
