//! The fewest words that select some classes and no others.
//!
//! Candidates say one label, one label with several values, two labels, all labels of a class, or these and none of those that others
//! have beside them. Up to [`FEW`] classes the
//! choice is the shortest there is of these; with more it is made step by step, each time the one that says most for its length.

use std::collections::{BTreeMap, BTreeSet};

use model::policy::{LabelSelector, Labels, Operator, Requirement};

use super::selector_length;

/// Classes for which every choice is looked at.
const FEW: usize = 12;
/// Labels of a class of which pairs are tried.
const PAIRED: usize = 8;

/// A selector, and those of the wanted that it selects.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) selector: LabelSelector,
    pub(super) classes: BTreeSet<usize>,
}

/// Selectors that select some of the wanted and nothing else of the universe, the shortest for each that they select.
pub(super) fn selectors<'l>(
    universe: &[usize],
    wanted: &BTreeSet<usize>,
    labels_of: impl Fn(usize) -> &'l Labels,
) -> Vec<Choice> {
    let mut tried: Vec<LabelSelector> = vec![LabelSelector::default()];
    let mut by_key: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for class in wanted {
        let labels = labels_of(*class);
        let pairs: Vec<(&str, &str)> =
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        for (key, value) in &pairs {
            by_key.entry(key).or_default().insert(value);
        }
        tried.extend(pairs.iter().map(|pair| LabelSelector::of_labels([*pair])));
        for (at, one) in pairs.iter().enumerate().take(PAIRED) {
            tried.extend(
                pairs[at + 1..].iter().take(PAIRED).map(|other| LabelSelector::of_labels([*one, *other])),
            );
        }
        // It, and nobody who has the same labels and more.
        let own = labels.clone();
        let more: BTreeSet<&str> = universe
            .iter()
            .map(|other| labels_of(*other))
            .filter(|other| own.iter().all(|(key, value)| other.get(key) == Some(value)))
            .flat_map(|other| other.iter().map(|(key, _)| key.as_str()))
            .filter(|key| !own.contains_key(key))
            .collect();
        let without = more.into_iter().map(|key| Requirement {
            key: key.to_owned(),
            operator: Operator::DoesNotExist,
            values: Vec::new(),
        });
        let alone = LabelSelector { match_labels: own, match_expressions: without.collect() };
        tried.push(LabelSelector::of_labels(pairs));
        tried.push(alone);
    }
    // Several values of one label: those that nobody else has.
    for (key, values) in by_key {
        let has = |class: usize, value: &str| labels_of(class).get(key).is_some_and(|is| is == value);
        let is_theirs =
            |value: &&str| universe.iter().all(|class| !has(*class, value) || wanted.contains(class));
        let values: Vec<String> = values.into_iter().filter(is_theirs).map(str::to_owned).collect();
        if values.len() > 1 {
            let requirement = Requirement { key: key.to_owned(), operator: Operator::In, values };
            tried.push(LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() });
        }
    }
    let mut best: BTreeMap<BTreeSet<usize>, LabelSelector> = BTreeMap::new();
    for selector in tried {
        let selected: BTreeSet<usize> =
            universe.iter().copied().filter(|class| selector.matches(labels_of(*class))).collect();
        if selected.is_empty() || !selected.is_subset(wanted) {
            continue;
        }
        let known = best.entry(selected).or_insert_with(|| selector.clone());
        if selector_length(&selector) < selector_length(known) {
            *known = selector;
        }
    }
    best.into_iter().map(|(classes, selector)| Choice { selector, classes }).collect()
}

/// The cheapest choices that together are all that is wanted; each costs `each` and its own length. None: they are not all of it.
pub(super) fn cover(wanted: &BTreeSet<usize>, choices: &[Choice], each: usize) -> Option<Vec<Choice>> {
    let cost = |choice: &Choice| each + selector_length(&choice.selector);
    if wanted.len() <= FEW { exact(wanted, choices, cost) } else { greedy(wanted, choices, cost) }
}

fn exact(
    wanted: &BTreeSet<usize>,
    choices: &[Choice],
    cost: impl Fn(&Choice) -> usize,
) -> Option<Vec<Choice>> {
    let place: BTreeMap<usize, usize> = wanted.iter().enumerate().map(|(at, class)| (*class, at)).collect();
    let bits = |choice: &Choice| choice.classes.iter().fold(0_usize, |bits, class| bits | 1 << place[class]);
    let choices: Vec<(usize, &Choice)> = choices.iter().map(|choice| (bits(choice), choice)).collect();
    let all = (1_usize << wanted.len()) - 1;
    // For each set of classes the cheapest way to have them, by its cost and its last choice.
    let mut ways: Vec<Option<(usize, usize, usize)>> = vec![None; all + 1];
    ways[0] = Some((0, 0, 0));
    for set in 0..all {
        let Some((so_far, ..)) = ways[set] else { continue };
        // The first that is missing must come by some choice.
        let missing = (!set).trailing_zeros();
        for (at, (bits, choice)) in
            choices.iter().enumerate().filter(|(_, (bits, _))| bits >> missing & 1 == 1)
        {
            let (next, total) = (set | bits, so_far + cost(choice));
            if ways[next].is_none_or(|(known, ..)| total < known) {
                ways[next] = Some((total, at, set));
            }
        }
    }
    let mut chosen = Vec::new();
    let mut set = all;
    while set != 0 {
        let (_, at, before) = ways[set]?;
        chosen.push(choices[at].1.clone());
        set = before;
    }
    chosen.reverse();
    Some(chosen)
}

fn greedy(
    wanted: &BTreeSet<usize>,
    choices: &[Choice],
    cost: impl Fn(&Choice) -> usize,
) -> Option<Vec<Choice>> {
    let mut missing = wanted.clone();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let new = |choice: &Choice| choice.classes.intersection(&missing).count();
        let useful = choices.iter().filter(|choice| new(choice) > 0);
        // The most for its length, compared without fractions.
        let best = useful.max_by(|a, b| (new(a) * cost(b)).cmp(&(new(b) * cost(a))));
        let best = best?;
        missing.retain(|class| !best.classes.contains(class));
        chosen.push(best.clone());
    }
    Some(chosen)
}
