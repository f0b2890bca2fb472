//! From the table as it is to the table as it should be.

use std::collections::BTreeMap;

use crate::{
    Chain, CurrentChain, CurrentSet, CurrentTable, Element, Elements, Limits, Op, Set, SetSchema, Table,
    Transaction, pack,
};

/// How a large change of elements that packets already see is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// All in one transaction with the rules, however long it takes: no packet sees a mixture.
    Atomic,
    /// Element by element if there are more than fit: additions first, then rules, then removals.
    Chunked,
}

/// The table exists and is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// Transactions in the order in which they must be committed. Empty if nothing is to be done.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub transactions: Vec<Transaction>,
}

impl Plan {
    /// O(what is in the two tables). Costs nothing but comparison where they agree.
    pub fn new(
        desired: &Table,
        current: Option<&CurrentTable>,
        live: Live,
        limits: Limits,
    ) -> Result<Self, Foreign> {
        if current.is_some_and(|table| !table.owned) {
            return Err(Foreign);
        }
        let mut draft = Draft::default();
        if current.is_none() {
            draft.prepare.push(vec![Op::AddTable]);
        }
        let no_sets = BTreeMap::new();
        let no_chains = BTreeMap::new();
        let (sets, chains) = current.map_or((&no_sets, &no_chains), |table| (&table.sets, &table.chains));
        let reshaped = draft.sets(&desired.sets, sets, limits);
        draft.chains(desired, chains, reshaped);
        draft.new_elements(&desired.sets, sets, limits);
        draft.live_elements(&desired.sets, sets, limits);
        Ok(draft.finish(live, limits))
    }

    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }
}

/// Units by the phase that they belong to.
#[derive(Default)]
struct Draft {
    prepare: Vec<Vec<Op>>,
    add: Vec<Vec<Op>>,
    switch: Vec<Op>,
    /// Elements of reshaped sets and rules, after the sets were made anew.
    switch_after: Vec<Op>,
    remove: Vec<Vec<Op>>,
    sweep: Vec<Vec<Op>>,
}

impl Draft {
    /// Returns whether a set must be made anew because its shape differs: no rule may refer to it meanwhile.
    fn sets(
        &mut self,
        desired: &BTreeMap<String, Set>,
        current: &BTreeMap<String, CurrentSet>,
        limits: Limits,
    ) -> bool {
        let mut reshaped = false;
        for (name, set) in desired {
            let add = Op::AddSet { name: name.clone(), schema: set.schema.clone() };
            match current.get(name) {
                None => self.prepare.push(vec![add]),
                Some(now) if now.schema.as_ref() == Some(&set.schema) => {}
                Some(_) => {
                    reshaped = true;
                    self.switch_after.push(Op::DeleteSet { name: name.clone() });
                    self.switch_after.push(add);
                    let elements = chunks(name, set, limits);
                    self.switch_after.extend(elements);
                }
            }
        }
        for name in current.keys().filter(|name| !desired.contains_key(*name)) {
            self.sweep.push(vec![Op::DeleteSet { name: name.clone() }]);
        }
        reshaped
    }

    fn chains(&mut self, table: &Table, current: &BTreeMap<String, CurrentChain>, rewrite_all: bool) {
        let desired = &table.chains;
        let mut base_chains = Vec::new();
        let mut rules = Vec::new();
        for (name, chain) in desired {
            let add = Op::AddChain { name: name.clone(), base: chain.base };
            let flush = Op::FlushChain { name: name.clone() };
            let now = current.get(name);
            match now {
                None if chain.base.is_none() => self.prepare.push(vec![add]),
                None => base_chains.push(add),
                Some(now) if now.base == chain.base => {}
                Some(_) => {
                    self.switch.push(flush.clone());
                    self.switch.push(Op::DeleteChain { name: name.clone() });
                    base_chains.push(add);
                }
            }
            let same = now.is_some_and(|now| now.base == chain.base && same_rules(chain, now));
            if same && !rewrite_all {
                continue;
            }
            if now.is_some_and(|now| now.base == chain.base && !now.rules.is_empty()) {
                self.switch.push(flush);
            }
            rules.extend(
                chain.rules.iter().map(|rule| Op::AddRule { chain: name.clone(), rule: rule.clone() }),
            );
        }
        let stays = |now: &CurrentChain| table.keeps_chains && now.base.is_none();
        let gone = current.iter().filter(|(name, now)| !desired.contains_key(*name) && !stays(now));
        for (name, now) in gone {
            // A chain that goes must not hold on to sets and chains that go with it.
            if !now.rules.is_empty() {
                self.switch.push(Op::FlushChain { name: name.clone() });
            }
            self.sweep.push(vec![Op::DeleteChain { name: name.clone() }]);
        }
        self.switch_after.append(&mut base_chains);
        self.switch_after.append(&mut rules);
    }

    /// Elements of sets that did not exist: no rule refers to them yet.
    fn new_elements(
        &mut self,
        desired: &BTreeMap<String, Set>,
        current: &BTreeMap<String, CurrentSet>,
        limits: Limits,
    ) {
        for (name, set) in desired.iter().filter(|(name, _)| !current.contains_key(*name)) {
            self.prepare.extend(chunks(name, set, limits).into_iter().map(|op| vec![op]));
        }
    }

    fn live_elements(
        &mut self,
        desired: &BTreeMap<String, Set>,
        current: &BTreeMap<String, CurrentSet>,
        limits: Limits,
    ) {
        for (name, set) in desired {
            let (Some(elements), Some(now)) = (&set.elements, current.get(name)) else { continue };
            if now.schema.as_ref() != Some(&set.schema) {
                continue;
            }
            if now.elements.is_empty() {
                self.add.extend(chunks(name, set, limits).into_iter().map(|op| vec![op]));
            } else {
                self.compare(name, &set.schema, elements, &now.elements);
            }
        }
    }

    fn compare(&mut self, set: &str, schema: &SetSchema, desired: &Elements, current: &Elements) {
        let op = |delete: bool, elements: Vec<(Box<[u8]>, Element)>| {
            let (set, schema) = (set.to_owned(), schema.clone());
            if delete {
                Op::DeleteElements { set, schema, elements }
            } else {
                Op::AddElements { set, schema, elements }
            }
        };
        let gone = current.iter().filter(|(key, _)| !desired.contains_key(*key));
        let gone: Vec<_> = gone.map(|(key, element)| (key.clone(), element.clone())).collect();
        let mut changed = Vec::new();
        let mut added = Vec::new();
        for (key, element) in desired {
            match current.get(key) {
                Some(now) if now == element => {}
                Some(now) => changed.push(((key.clone(), now.clone()), (key.clone(), element.clone()))),
                None => added.push((key.clone(), element.clone())),
            }
        }
        if schema.interval {
            // A range that stays in the way would make the kernel refuse the one that replaces it.
            let (old, new): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
            let delete: Vec<_> = gone.into_iter().chain(old).collect();
            let add: Vec<_> = new.into_iter().chain(added).collect();
            let unit: Vec<_> = [(true, delete), (false, add)]
                .into_iter()
                .filter(|(_, elements)| !elements.is_empty())
                .map(|(delete, elements)| op(delete, elements))
                .collect();
            self.add.extend((!unit.is_empty()).then_some(unit));
            return;
        }
        self.add.extend(added.into_iter().map(|element| vec![op(false, vec![element])]));
        self.add
            .extend(changed.into_iter().map(|(old, new)| vec![op(true, vec![old]), op(false, vec![new])]));
        self.remove.extend(gone.into_iter().map(|element| vec![op(true, vec![element])]));
    }

    fn finish(self, live: Live, limits: Limits) -> Plan {
        let Self { prepare, add, switch, switch_after, remove, sweep } = self;
        let weight = |units: &[Vec<Op>]| -> usize { units.iter().flatten().map(Op::weight).sum() };
        let rules: Vec<Op> = switch.into_iter().chain(switch_after).collect();
        let together = live == Live::Atomic || weight(&add) + weight(&remove) <= limits.elements;
        let mut transactions = pack(prepare, limits);
        if together {
            let mut switch = Transaction::default();
            add.into_iter()
                .flatten()
                .chain(rules)
                .chain(remove.into_iter().flatten())
                .for_each(|op| switch.push(op));
            transactions.push(switch);
        } else {
            transactions.extend(pack(add, limits));
            transactions.extend(pack([rules], limits));
            // What is named goes after what names it.
            transactions.extend(pack(remove.into_iter().rev(), limits));
        }
        transactions.extend(pack(sweep, limits));
        transactions.retain(|transaction| !transaction.ops.is_empty());
        Plan { transactions }
    }
}

fn same_rules(chain: &Chain, now: &CurrentChain) -> bool {
    let desired = chain.rules.iter().map(|rule| Some(rule.fingerprint()));
    desired.eq(now.rules.iter().map(|rule| rule.fingerprint))
}

fn chunks(name: &str, set: &Set, limits: Limits) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut elements = set.elements.iter().flatten();
    let size = (limits.elements / set.schema.element_weight()).max(1);
    loop {
        let chunk: Vec<_> =
            elements.by_ref().take(size).map(|(key, element)| (key.clone(), element.clone())).collect();
        if chunk.is_empty() {
            return ops;
        }
        ops.push(Op::AddElements { set: name.to_owned(), schema: set.schema.clone(), elements: chunk });
    }
}

#[cfg(test)]
mod tests;
