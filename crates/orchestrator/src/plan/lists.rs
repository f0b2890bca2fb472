//! Permit lists: from rules and tags to entries, and from the list that is to the list that shall be.

use std::collections::{BTreeMap, BTreeSet};

use model::{Address, EntryName, Member, PermitEntry, PermitRule, ResourceName, TagName};
use serde::Serialize;
use tags::ResolvedMember;

use super::{Draft, Intent, Inventory, Problem, ProblemKind};

/// A permit list, by name of entry.
pub type List = BTreeMap<EntryName, PermitEntry>;

/// A change of one permit list: `set` first (an entry of the same name is replaced), then `unset` (only entries
/// that are equal to the one given, so that what `set` has just replaced is safe).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PermitChange {
    pub set: Vec<PermitEntry>,
    pub unset: Vec<PermitEntry>,
}

impl PermitChange {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty()
    }

    /// The list after the change.
    pub fn apply(&self, mut list: List) -> List {
        for entry in &self.set {
            list.insert(entry.name.clone(), entry.clone());
        }
        for entry in &self.unset {
            if list.get(&entry.name) == Some(entry) {
                list.remove(&entry.name);
            }
        }
        list
    }
}

/// What takes permissions away and what gives them, so that the first never waits for the second.
///
/// Of an entry that an interrupted change has touched (`changing`), every version that may be there and shall not is
/// taken away, and the one that shall be is given again.
pub fn difference(
    list: &List,
    changing: &BTreeMap<EntryName, BTreeSet<PermitEntry>>,
    desired: &List,
) -> (PermitChange, PermitChange) {
    let (mut close, mut open) = (PermitChange::default(), PermitChange::default());
    for (name, entry) in list.iter().filter(|(name, _)| !changing.contains_key(*name)) {
        match desired.get(name) {
            Some(wanted) => replace(entry, wanted, &mut close, &mut open),
            None => close.unset.push(entry.clone()),
        }
    }
    for (name, versions) in changing {
        close.unset.extend(versions.iter().filter(|version| desired.get(name) != Some(version)).cloned());
    }
    for (name, wanted) in desired {
        let is_there = !changing.contains_key(name) && list.get(name) == Some(wanted);
        if !is_there && !close.set.contains(wanted) {
            open.set.push(wanted.clone());
        }
    }
    (close, open)
}

/// An entry gives way to another of its name: first to what both permit, then to the other.
fn replace(entry: &PermitEntry, wanted: &PermitEntry, close: &mut PermitChange, open: &mut PermitChange) {
    if entry == wanted {
        return;
    }
    let common: BTreeSet<Address> = match entry.traffic == wanted.traffic {
        true => entry.targets().intersection(wanted.targets()).copied().collect(),
        false => BTreeSet::new(),
    };
    if common == *entry.targets() {
        open.unset.push(entry.clone());
        return;
    }
    close.unset.push(entry.clone());
    let narrowed = PermitEntry::new(entry.name.clone(), entry.traffic, common, wanted.tags.clone());
    if let Some(narrowed) = narrowed {
        if narrowed != *wanted {
            open.unset.push(narrowed.clone());
        }
        close.set.push(narrowed);
    }
}

/// The rules of every wanted resource with their targets, before it is known where these are.
pub(super) struct Resolver<'i> {
    pub(super) intent: &'i Intent,
    inventory: &'i Inventory,
    /// Resources that are going away: their addresses are not permitted any more.
    leaving: BTreeSet<&'i ResourceName>,
    resolved: BTreeMap<&'i TagName, Result<BTreeSet<Address>, ProblemKind>>,
    pub problems: Vec<Problem>,
}

/// A rule in force at a resource.
pub(super) struct Effective<'i> {
    pub name: EntryName,
    pub rule: &'i PermitRule,
}

impl<'i> Resolver<'i> {
    pub(super) fn new(intent: &'i Intent, inventory: &'i Inventory) -> Self {
        let leaving =
            inventory.resources.keys().filter(|name| !intent.resources.contains_key(*name)).collect();
        Self { intent, inventory, leaving, resolved: BTreeMap::new(), problems: Vec::new() }
    }

    /// The rules in force, by resource: its own, and those of the tags it is in.
    pub(super) fn effective(&self) -> BTreeMap<&'i ResourceName, Vec<Effective<'i>>> {
        let mut effective: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (resource, rules) in &self.intent.rules {
            if self.intent.resources.contains_key(resource) {
                let own = rules.values().map(|rule| Effective { name: EntryName::own(&rule.name), rule });
                effective.entry(resource).or_default().extend(own);
            }
        }
        for (tag, rules) in &self.intent.tag_rules {
            for resource in self.members(tag) {
                let inherited = rules
                    .values()
                    .map(|rule| Effective { name: EntryName::inherited(tag, &rule.name), rule });
                effective.entry(resource).or_default().extend(inherited);
            }
        }
        effective
    }

    /// The wanted resources a tag resolves to.
    pub(super) fn members(&self, tag: &TagName) -> Vec<&'i ResourceName> {
        let Ok(resolved) = self.intent.graph.resolve(tag) else { return Vec::new() };
        let wanted = |member: &ResolvedMember| match member {
            ResolvedMember::Leaf { name, .. } => {
                let name: ResourceName = name.as_str().parse().ok()?;
                self.intent.resources.get_key_value(&name).map(|(name, _)| name)
            }
            ResolvedMember::Literal(_) => None,
        };
        resolved.iter().filter_map(wanted).collect()
    }

    /// A rule with its tags resolved. A tag that gives no address is a problem, and gives none.
    pub(super) fn draft(&mut self, resource: &ResourceName, effective: Effective<'i>) -> Draft {
        let mut targets = BTreeSet::new();
        for peer in &effective.rule.peers {
            match peer {
                Member::Literal(address) => {
                    targets.insert(*address);
                }
                Member::Tag(tag) => match self.resolve(tag) {
                    Ok(addresses) => targets.extend(addresses),
                    Err(kind) => {
                        let kind = kind.clone();
                        self.problem(resource, &effective.name, kind);
                    }
                },
            }
        }
        let tags = effective.rule.peers.iter().map(ToString::to_string).collect();
        let Effective { name, rule } = effective;
        Draft { name, traffic: rule.traffic, targets, tags, build: rule.build }
    }

    pub(super) fn problem(&mut self, resource: &ResourceName, rule: &EntryName, kind: ProblemKind) {
        self.problems.push(Problem { resource: resource.clone(), rule: Some(rule.to_string()), kind });
    }

    /// Each tag is resolved once per plan.
    pub(super) fn resolve(&mut self, tag: &'i TagName) -> Result<&BTreeSet<Address>, &ProblemKind> {
        let (intent, leaving) = (self.intent, &self.leaving);
        self.resolved.entry(tag).or_insert_with(|| addresses(intent, leaving, tag)).as_ref()
    }

    /// Where resources are that stay.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&'i ResourceName, Address)> {
        let stays = |(name, _): &(&'i ResourceName, _)| !self.leaving.contains(*name);
        let placed = self.inventory.resources.iter().filter(stays);
        placed.filter_map(|(name, record)| Some((name, record.state.as_ref()?.address)))
    }
}

fn addresses(
    intent: &Intent,
    leaving: &BTreeSet<&ResourceName>,
    tag: &TagName,
) -> Result<BTreeSet<Address>, ProblemKind> {
    let Ok(resolved) = intent.graph.resolve(tag) else {
        return Err(ProblemKind::UnknownTag { tag: tag.clone() });
    };
    let leaves = |name: &TagName| {
        !leaving.is_empty() && name.as_str().parse().is_ok_and(|name: ResourceName| leaving.contains(&name))
    };
    let address = |member: &ResolvedMember| match member {
        ResolvedMember::Literal(address) => Some(*address),
        ResolvedMember::Leaf { name, leaf } => leaf.ip.filter(|_| !leaves(name)),
    };
    let addresses: BTreeSet<Address> = resolved.iter().filter_map(address).collect();
    if addresses.is_empty() { Err(ProblemKind::EmptyTag { tag: tag.clone() }) } else { Ok(addresses) }
}
