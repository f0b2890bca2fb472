//! A program that becomes another one, at the cost of what differs.
//!
//! Of a class that none of the rules is about which came or went, the other rules say what they said before: its function stays. Only
//! where a rule that is about everybody came or went, or rules changed their order, is everything worked out anew.

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::FxHashSet;

use super::{Made, ProgramId, Programs, pair, unlink, value};
use crate::{
    mirror::Mirror,
    peers::{ClassId, Peers},
    program::{Concern, Program, ProgramRule},
};

impl Programs {
    /// Makes this program of another one that only the caller uses, wherever that is in force. False: they have too little in common,
    /// and nothing was done. O(rules of both) + O(classes that rules are about which came or went).
    pub(super) fn change(
        &mut self,
        id: ProgramId,
        program: &Arc<Program>,
        peers: &Peers,
        mirror: &mut Mirror,
    ) -> bool {
        let record = self.records.get_mut(&id).expect("programs in use are known");
        let Some(features) = concerned(&record.program, program) else { return false };
        let before: FxHashSet<u32> = record.program.features().collect();
        let after: FxHashSet<u32> = program.features().collect();
        before.difference(&after).for_each(|feature| unlink(&mut self.by_feature, *feature, id));
        for feature in after.difference(&before) {
            self.by_feature.entry(*feature).or_default().insert(id);
        }
        self.ids.remove(&record.program);
        self.ids.insert(Arc::clone(program), id);
        record.program = Arc::clone(program);
        record.concern = Concern::new(program);

        let is_ours = |class: &ClassId| peers.signature(*class).is_some_and(|of| of.ipv6 == program.ipv6);
        let with = features.into_iter().flat_map(|feature| peers.classes_with(feature));
        let classes: BTreeSet<ClassId> = with.filter(is_ours).collect();
        let mut made = Made::default();
        for class in classes {
            let new = record.treated(class, peers, &mut made, &mut self.functions, mirror);
            let old = match new {
                Some(function) => record.functions.insert(class, function),
                None => record.functions.remove(&class),
            };
            old.into_iter().for_each(|old| self.functions.release(old));
            if old == new {
                continue;
            }
            match (old, new) {
                (None, _) => drop(self.by_class.entry(class).or_default().insert(id)),
                (_, None) => unlink(&mut self.by_class, class, id),
                _ => {}
            }
            for address in &record.addresses {
                match new {
                    Some(function) => mirror.put(record.place(), pair(*address, class), value(function)),
                    None => mirror.remove(record.place(), pair(*address, class)),
                }
            }
        }
        true
    }
}

/// Features of which the two programs may say different things; none if of everybody.
fn concerned(old: &Program, new: &Program) -> Option<BTreeSet<u32>> {
    let is_like = (old.direction, old.ipv6, old.isolated) == (new.direction, new.ipv6, new.isolated);
    let (of_old, of_new): (FxHashSet<&ProgramRule>, FxHashSet<&ProgramRule>) =
        (old.rules.iter().collect(), new.rules.iter().collect());
    let stays = old.rules.iter().filter(|rule| of_new.contains(rule));
    if !is_like || !stays.eq(new.rules.iter().filter(|rule| of_old.contains(rule))) {
        return None;
    }
    let parts = || of_old.symmetric_difference(&of_new).flat_map(|rule| &rule.parts);
    (!parts().any(|part| part.anyone))
        .then(|| parts().flat_map(|part| part.features.iter().copied()).collect())
}
