//! The changes of elements that carry out one patch, or several that hand a frontend over to each other.

use std::collections::{HashMap, HashSet};

use node_nft::{Chain, Op};

use super::{Class, elements::Change};

#[derive(Default)]
pub struct Steps {
    /// Must exist first.
    pub classes: Vec<Class>,
    /// Chains that come with the rest, by their names.
    chains: Vec<(String, Chain)>,
    /// At once: deletions, then additions.
    delete: Vec<Change>,
    add: Vec<Change>,
    /// Later.
    sweep: Vec<Change>,
}

impl Steps {
    pub fn add(&mut self, change: Change) {
        self.add.push(change);
    }

    pub fn chain(&mut self, name: String, chain: Chain) {
        self.chains.push((name, chain));
    }

    pub fn delete(&mut self, change: Change) {
        self.delete.push(change);
    }

    pub fn sweep(&mut self, change: Change) {
        self.sweep.push(change);
    }

    pub fn replace(&mut self, old: Change, new: Change) {
        if old != new {
            self.delete.push(old);
            self.add.push(new);
        }
    }

    /// Places that only the old pool has are swept, those that both have are replaced.
    pub fn replace_places(&mut self, old: Vec<Change>, mut new: Vec<Change>) {
        if old.is_empty() {
            return self.add.append(&mut new);
        }
        let mut kept: HashMap<_, _> = old.into_iter().map(|change| (change.id(), change)).collect();
        for change in new {
            match kept.remove(&change.id()) {
                Some(old) => self.replace(old, change),
                None => self.add(change),
            }
        }
        let mut gone: Vec<_> = kept.into_values().collect();
        gone.sort_unstable_by(|a, b| (a.set, &a.key).cmp(&(b.set, &b.key)));
        self.sweep.append(&mut gone);
    }

    /// What leads to the endpoints goes with the switch, not after it.
    pub fn replace_head(&mut self, old: Vec<Change>, new: Vec<Change>) {
        self.delete.extend(old.iter().filter(|change| !new.contains(change)).cloned());
        self.add.extend(new.into_iter().filter(|change| !old.contains(change)));
    }

    /// Joins patches of which one takes a frontend that another gives up: nothing that was just added is swept.
    pub fn join(mut self, mut other: Self) -> Self {
        self.classes.append(&mut other.classes);
        self.chains.append(&mut other.chains);
        self.delete.append(&mut other.delete);
        self.add.append(&mut other.add);
        self.sweep.append(&mut other.sweep);
        let added: HashSet<_> = self.add.iter().map(Change::id).collect();
        let (now, later): (Vec<_>, Vec<_>) =
            self.sweep.into_iter().partition(|change| added.contains(&change.id()));
        self.delete.extend(now);
        Self { sweep: later, ..self }
    }

    /// Operations of the switch and of the sweep.
    pub fn into_ops(mut self) -> (Vec<Op>, Vec<Op>) {
        // Neighbours of one set share a message. Endpoints come before what leads to them only for the reader:
        // a transaction has no inside.
        for list in [&mut self.delete, &mut self.add, &mut self.sweep] {
            list.sort_by_key(|change| change.set);
        }
        // Rules lead from one chain to another, and elements to all.
        let made = self.chains.iter().map(|(name, _)| Op::AddChain { name: name.clone(), base: None });
        let mut switch: Vec<_> = made.collect();
        switch.extend(self.chains.into_iter().flat_map(|(chain, made)| {
            made.rules.into_iter().map(move |rule| Op::AddRule { chain: chain.clone(), rule })
        }));
        switch.append(&mut ops(self.delete, true));
        switch.append(&mut ops(self.add, false));
        (switch, ops(self.sweep, true))
    }
}

/// One operation for each run of changes of the same set.
fn ops(changes: Vec<Change>, delete: bool) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    let mut open: Option<&'static str> = None;
    for change in changes {
        match ops.last_mut() {
            Some(Op::AddElements { elements, .. } | Op::DeleteElements { elements, .. })
                if open == Some(change.set) =>
            {
                elements.push((change.key, change.element));
            }
            _ => {
                open = Some(change.set);
                ops.push(if delete { change.delete() } else { change.add() });
            }
        }
    }
    ops
}
