//! A permit list over several security groups. Pure.
//!
//! A group holds 250 rules, and an interface is in five groups at most. A rule stays in the group it is in; a new one goes
//! into the first group that has room, and into a further group when none has. A further group that has no rules left goes.
//!
//! ```text
//!   t-SITE-vm-HASH-sg      the group that the instance always has
//!   t-SITE-vm-HASH-sg-1    made with its rules in it, then put on the interface: never open by more than the list
//! ```

use std::collections::BTreeSet;

use cloud_api::CloudError;

use crate::rules::{Change, MOST, MOST_GROUPS, Rule, Rules, too_many};

/// One of a list's groups, as read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// 0 is the one that is always there.
    pub(crate) number: usize,
    pub(crate) id: String,
    /// Whether it is on the interface. Until then it applies to nothing.
    pub(crate) is_bound: bool,
    /// How many rules there are in it, those included that cannot be read.
    pub(crate) count: usize,
    pub(crate) rules: Rules,
}

/// Whether further groups may come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// As many as an interface takes.
    Grows,
    /// Those that are there, and no others: a cluster's workers keep the groups that they were made with.
    Fixed,
}

/// How a change is made, in this order, but that what is not wanted goes before what is new where there is no room for
/// both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Ids of groups that a try left behind that ended half way.
    pub(crate) abandoned: Vec<String>,
    pub(crate) closes_first: bool,
    /// Rules for groups that are there, by their ids.
    pub(crate) into: Vec<(String, Vec<Rule>)>,
    /// Rules for groups that are not, by their numbers.
    pub(crate) new: Vec<(usize, Vec<Rule>)>,
    /// Paths of rules.
    pub(crate) close: Vec<String>,
    /// Ids of groups that nothing is left in.
    pub(crate) empty: Vec<String>,
}

/// The rules that apply.
pub(crate) fn in_force(held: &[Held]) -> Rules {
    let mut all = Rules::new();
    for (rule, path) in held.iter().filter(|group| group.is_bound).flat_map(|group| &group.rules) {
        all.entry(rule.clone()).or_insert_with(|| path.clone());
    }
    all
}

/// Where the rules of a change come and go.
pub(crate) fn spread(held: &[Held], change: &Change, room: Room) -> Result<Steps, CloudError> {
    let (bound, abandoned): (Vec<&Held>, Vec<&Held>) = held.iter().partition(|group| group.is_bound);
    // A rule that is in two groups is not needed in the second.
    let once = in_force(held);
    let paths = bound.iter().flat_map(|group| &group.rules);
    let twice = paths.filter(|(rule, path)| once.get(*rule) != Some(*path)).map(|(_, path)| path.clone());
    let close: BTreeSet<String> = change.close.iter().cloned().chain(twice).collect();
    let closed_in = |group: &Held| group.rules.values().filter(|path| close.contains(*path)).count();
    let free_in = |group: &Held, closes_first: bool| {
        MOST.saturating_sub(group.count) + if closes_first { closed_in(group) } else { 0 }
    };
    let free: usize = bound.iter().map(|group| free_in(group, false)).sum();
    let closes_first = change.open.len() > free;

    let mut open = change.open.iter().cloned();
    let mut steps = Steps {
        abandoned: abandoned.iter().map(|group| group.id.clone()).collect(),
        closes_first,
        ..Steps::default()
    };
    for group in &bound {
        let rules: Vec<Rule> = open.by_ref().take(free_in(group, closes_first)).collect();
        let may_go = room == Room::Grows && group.number > 0;
        if rules.is_empty() && may_go && group.count == closed_in(group) {
            steps.empty.push(group.id.clone());
        }
        if !rules.is_empty() {
            steps.into.push((group.id.clone(), rules));
        }
    }
    let taken: BTreeSet<usize> = bound.iter().map(|group| group.number).collect();
    let most = if room == Room::Grows { MOST_GROUPS } else { bound.len() };
    let mut numbers = (1..MOST_GROUPS).filter(|number| room == Room::Grows && !taken.contains(number));
    let mut rest: Vec<Rule> = open.collect();
    while !rest.is_empty() {
        let later = rest.split_off(MOST.min(rest.len()));
        let number = numbers.next().ok_or_else(|| {
            let there: usize = bound.iter().map(|group| group.count - closed_in(group)).sum();
            too_many(there + change.open.len(), most)
        })?;
        steps.new.push((number, std::mem::replace(&mut rest, later)));
    }
    steps.close = close.into_iter().collect();
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Direction, Ports, Protocol};
    use proptest::prelude::*;

    use super::*;

    fn rule(number: u16) -> Rule {
        let prefix = format!("10.0.{}.{}", number / 256, number % 256).parse().unwrap();
        Rule { direction: Direction::Inbound, protocol: Protocol::TCP, ports: Ports::one(80), prefix }
    }

    /// Groups as they are after some steps, and what was in force meanwhile.
    #[derive(Clone, Default)]
    struct Groups(Vec<Held>);

    impl Groups {
        fn new() -> Self {
            Self(vec![Held { id: "g0".into(), is_bound: true, ..Held::default() }])
        }

        fn put(&mut self, id: &str, rules: &[Rule]) {
            let group = self.0.iter_mut().find(|group| group.id == id).unwrap();
            let path = |rule: &Rule| (rule.clone(), format!("{id}/rules/{rule:?}"));
            group.rules.extend(rules.iter().map(path));
            group.count += rules.len();
            assert!(group.count <= MOST && group.count == group.rules.len());
        }

        fn close(&mut self, paths: &[String]) {
            let paths: BTreeSet<&String> = paths.iter().collect();
            for group in &mut self.0 {
                group.rules.retain(|_, path| !paths.contains(path));
                group.count = group.rules.len();
            }
        }

        /// Brings the list to the wanted rules; says how many requests that would be.
        fn bring(&mut self, wanted: &BTreeSet<Rule>) -> Result<usize, CloudError> {
            let now = in_force(&self.0);
            let open = wanted.iter().filter(|rule| !now.contains_key(*rule)).cloned().collect();
            let gone = now.iter().filter(|(rule, _)| !wanted.contains(*rule));
            let close = gone.map(|(_, path)| path.clone()).collect();
            let steps = spread(&self.0, &Change { open, close, ..Change::default() }, Room::Grows)?;
            self.0.retain(|group| !steps.abandoned.contains(&group.id));
            if steps.closes_first {
                self.close(&steps.close);
            }
            for (id, rules) in &steps.into {
                self.put(id, rules);
            }
            for (number, rules) in &steps.new {
                let id = format!("g{number}");
                self.0.push(Held { number: *number, id: id.clone(), is_bound: true, ..Held::default() });
                self.put(&id, rules);
            }
            assert!(self.0.len() <= MOST_GROUPS);
            let meanwhile = in_force(&self.0);
            assert!(meanwhile.keys().all(|rule| now.contains_key(rule) || wanted.contains(rule)));
            self.close(&steps.close);
            for id in &steps.empty {
                assert!(self.0.iter().any(|group| group.id == *id && group.count == 0));
            }
            self.0.retain(|group| !steps.empty.contains(&group.id));
            self.0.sort_by_key(|group| group.number);
            let into: usize = steps.into.iter().map(|(_, rules)| rules.len()).sum();
            Ok(into + steps.new.len() + steps.close.len() + steps.empty.len())
        }

        fn places(&self) -> BTreeMap<Rule, usize> {
            let all =
                self.0.iter().flat_map(|group| group.rules.keys().map(|rule| (rule.clone(), group.number)));
            all.collect()
        }
    }

    fn rules(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<Rule> {
        numbers.into_iter().map(rule).collect()
    }

    #[test]
    fn one_rule_more_or_less_is_one_change() {
        let mut groups = Groups::new();
        groups.bring(&rules(0..700)).unwrap();
        assert_eq!(groups.0.iter().map(|group| group.count).collect::<Vec<_>>(), [250, 250, 200]);
        assert_eq!(groups.bring(&rules((0..700).filter(|number| *number != 3))).unwrap(), 1);
        // The room that is free now is used; nothing else moves.
        assert_eq!(groups.bring(&rules((0..=700).filter(|number| *number != 3))).unwrap(), 1);
        assert_eq!(groups.places()[&rule(700)], 0);
        assert_eq!(groups.bring(&rules((0..=700).filter(|number| *number != 3))).unwrap(), 0);
    }

    #[test]
    fn a_full_list_is_replaced_and_one_that_is_too_long_is_refused() {
        let mut groups = Groups::new();
        groups.bring(&rules(0..1250)).unwrap();
        groups.bring(&rules(1250..2500)).unwrap();
        assert_eq!(in_force(&groups.0).len(), 1250);
        let refused = groups.bring(&rules(0..1251)).unwrap_err();
        assert!(refused.message.contains("1251 rules"), "{refused}");
        groups.bring(&rules(0..1)).unwrap();
        assert_eq!(groups.0.len(), 1, "groups that are empty go");
    }

    #[test]
    fn what_is_left_half_done_applies_to_nothing_and_goes_and_what_is_there_twice_is_there_once() {
        let mut groups = Groups::new();
        groups.put("g0", &[rule(1)]);
        groups.0.push(Held { number: 1, id: "g1".into(), ..Held::default() });
        groups.put("g1", &[rule(2)]);
        assert_eq!(in_force(&groups.0).len(), 1);
        groups.0.push(Held { number: 2, id: "g2".into(), is_bound: true, ..Held::default() });
        groups.put("g2", &[rule(1)]);
        groups.bring(&rules([1])).unwrap();
        assert_eq!(groups.places(), [(rule(1), 0)].into());
    }

    #[test]
    fn where_groups_stay_none_comes_and_none_goes() {
        let bound =
            |number: usize| Held { number, id: format!("g{number}"), is_bound: true, ..Held::default() };
        let mut groups = Groups((0..4).map(bound).collect());
        let opens = |rules: BTreeSet<Rule>| Change { open: rules.into_iter().collect(), ..Change::default() };
        let steps = spread(&groups.0, &opens(rules(0..1000)), Room::Fixed).unwrap();
        assert_eq!((steps.into.len(), steps.new.len()), (4, 0));
        for (id, rules) in &steps.into {
            groups.put(id, rules);
        }
        let refused = spread(&groups.0, &opens(rules(1000..1001)), Room::Fixed).unwrap_err();
        assert!(refused.message.contains("1001 rules; the 4"), "{refused}");
        let close = in_force(&groups.0).into_values().collect();
        let steps = spread(&groups.0, &Change { close, ..Change::default() }, Room::Fixed).unwrap();
        assert!(steps.empty.is_empty() && steps.close.len() == 1000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever the lists: what is wanted is in force, once, and what stays does not move.
        #[test]
        fn rules_stay_where_they_are(lists in proptest::collection::vec(proptest::collection::btree_set(0u16..1300, 0..900), 1..5)) {
            let mut groups = Groups::new();
            for list in lists {
                let wanted = rules(list);
                let before = groups.places();
                groups.bring(&wanted).unwrap();
                let after = groups.places();
                prop_assert_eq!(after.keys().cloned().collect::<BTreeSet<_>>(), wanted.clone());
                prop_assert_eq!(groups.0.iter().map(|group| group.count).sum::<usize>(), wanted.len());
                let moved = before.iter().filter(|(rule, _)| wanted.contains(*rule)).filter(|(rule, place)| after[*rule] != **place);
                prop_assert_eq!(moved.count(), 0);
                prop_assert!(groups.0.iter().all(|group| group.number == 0 || group.count > 0));
                prop_assert_eq!(groups.bring(&wanted).unwrap(), 0);
            }
        }
    }
}
