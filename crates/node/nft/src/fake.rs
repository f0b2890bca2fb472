//! A kernel in memory that holds one table and refuses what a real one would. For tests.

use std::ops::Bound;

use crate::{
    CurrentChain, CurrentRule, CurrentSet, CurrentTable, Data, Element, Elements, Op, Rule, Table,
    Transaction,
};

#[derive(Clone, Debug, Default)]
pub struct FakeKernel {
    pub table: Option<CurrentTable>,
    /// Operations carried out so far.
    pub writes: usize,
    id: Option<(crate::Family, String)>,
}

impl FakeKernel {
    /// Empty, for the table of this family and name.
    pub fn new(table: &Table) -> Self {
        Self { table: None, writes: 0, id: Some((table.family, table.name.clone())) }
    }

    /// Does all of it or, with the reason, nothing.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), String> {
        let before = self.table.clone();
        for op in &transaction.ops {
            if let Err(reason) = self.operation(op) {
                self.table = before;
                return Err(format!("{}: {reason}", op.describe()));
            }
        }
        self.writes += transaction.ops.len();
        Ok(())
    }

    fn operation(&mut self, op: &Op) -> Result<(), String> {
        if let Op::AddTable = op {
            let (family, name) = self.id.clone().ok_or("which table?")?;
            let table = CurrentTable {
                family,
                name,
                owned: true,
                chains: Default::default(),
                sets: Default::default(),
            };
            return if self.table.replace(table).is_none() { Ok(()) } else { Err("exists".into()) };
        }
        let table = self.table.as_mut().ok_or("no table")?;
        match op {
            Op::AddTable => {}
            Op::DeleteTable => self.table = None,
            Op::AddChain { name, base } => {
                let chain = CurrentChain { base: *base, rules: Vec::new() };
                absent(table.chains.insert(name.clone(), chain))?;
            }
            Op::DeleteChain { name } => {
                if table.sets.values().any(|set| leads_to(set, name)) {
                    return Err("elements lead to it".into());
                }
                present(table.chains.remove(name))?;
            }
            Op::FlushChain { name } => table.chains.get_mut(name).ok_or("no chain")?.rules.clear(),
            Op::AddRule { chain, rule } => add_rule(table, chain, rule)?,
            Op::AddSet { name, schema } => {
                let set = CurrentSet { schema: Some(schema.clone()), elements: Elements::new() };
                absent(table.sets.insert(name.clone(), set))?;
            }
            Op::DeleteSet { name } => present(table.sets.remove(name))?,
            Op::AddElements { set, elements, .. } => {
                elements.iter().try_for_each(|(key, element)| add_element(table, set, key, element))?;
            }
            Op::DeleteElements { set, elements, .. } => {
                let known = &mut table.sets.get_mut(set).ok_or("no set")?.elements;
                elements.iter().try_for_each(|(key, _)| present(known.remove(key)))?;
            }
        }
        Ok(())
    }
}

fn leads_to(set: &CurrentSet, chain: &str) -> bool {
    set.elements.values().any(|element| match &element.data {
        Data::Verdict(verdict) => verdict.chain_name() == Some(chain),
        Data::None | Data::Value(_) => false,
    })
}

fn absent<T>(before: Option<T>) -> Result<(), String> {
    before.map_or(Ok(()), |_| Err("exists".into()))
}

fn present<T>(before: Option<T>) -> Result<(), String> {
    before.map_or(Err("is not there".into()), |_| Ok(()))
}

fn add_rule(table: &mut CurrentTable, chain: &str, rule: &Rule) -> Result<(), String> {
    for expr in &rule.exprs {
        if let Some(set) = expr.set_name().filter(|set| !table.sets.contains_key(*set)) {
            return Err(format!("no set {set}"));
        }
        if let Some(target) = expr.chain_name().filter(|chain| !table.chains.contains_key(*chain)) {
            return Err(format!("no chain {target}"));
        }
    }
    let rules = &mut table.chains.get_mut(chain).ok_or("no chain")?.rules;
    rules.push(CurrentRule { fingerprint: Some(rule.fingerprint()) });
    Ok(())
}

fn add_element(table: &mut CurrentTable, set: &str, key: &[u8], element: &Element) -> Result<(), String> {
    if let Data::Verdict(verdict) = &element.data
        && let Some(chain) = verdict.chain_name()
        && !table.chains.contains_key(chain)
    {
        return Err(format!("no chain {chain}"));
    }
    let set = table.sets.get_mut(set).ok_or("no set")?;
    let is_tree = set.schema.as_ref().is_some_and(|schema| schema.interval && schema.key.len() == 1);
    if is_tree && overlaps(&set.elements, key, element) {
        return Err("overlaps".into());
    }
    let before = set.elements.insert(key.into(), element.clone());
    if before.is_none_or(|before| before == *element) { Ok(()) } else { Err("has another value".into()) }
}

/// Of sets of one field; those of several are not looked at.
fn overlaps(elements: &Elements, key: &[u8], element: &Element) -> bool {
    let end = element.end.as_deref().unwrap_or(key);
    let same = elements.get(key) == Some(element);
    // Those that are there do not overlap each other: the last that begins before the end reaches furthest.
    let mut before = elements.range::<[u8], _>((Bound::Unbounded, Bound::Included(end)));
    !same && before.next_back().is_some_and(|(first, known)| known.end.as_deref().unwrap_or(first) >= key)
}
