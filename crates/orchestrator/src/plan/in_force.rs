//! What is in force, and from where: rules of resources and of tags, permissions, and what network policies permit.
//!
//! In: what is wanted, what was made, and the plan between the two. Out: each rule, with the resources that have it, those
//! that do not, and why. A rule is in force at a resource whose permit list has its entry while no step is to change that.
//! Holds: nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use model::{Address, EntryName, PermitEntry, ResourceName, Segment, TagName, Traffic};

use super::{Action, Intent, Inventory, PermitChange, Plan, lists::Resolver};

/// Which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespace(Segment),
    Resource(ResourceName),
    Tag(TagName),
}

/// Where what is in force comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Resource(ResourceName),
    Tag(TagName),
    Permission(String),
    /// A policy and its rule, in words.
    Policy(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStanding {
    pub from: Origin,
    pub name: String,
    pub traffic: Traffic,
    /// As they were written.
    pub peers: BTreeSet<String>,
    /// What they come to where the rule is in force.
    pub targets: BTreeSet<Address>,
    pub in_force: BTreeSet<ResourceName>,
    /// Those that shall have it and do not, each with why.
    pub lacking: BTreeMap<ResourceName, Lack>,
}

/// Why a resource has not all of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    #[error("it is not made yet")]
    NotMade,
    #[error("it is being changed")]
    Changing,
    #[error("network policies leave only a part of it")]
    Narrowed,
    #[error("network policies leave nothing of it")]
    Denied,
    #[error("{0}")]
    Problem(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(name) => name.fmt(f),
            Self::Tag(tag) => write!(f, "tag {tag}"),
            Self::Permission(name) => write!(f, "permission {name}"),
            Self::Policy(source) => f.write_str(source),
        }
    }
}

impl RuleStanding {
    /// `in force`, `in part`, or `not in force`.
    pub fn state(&self) -> &'static str {
        let in_part = || self.lacking.values().any(|lack| *lack == Lack::Narrowed);
        match (self.in_force.is_empty(), self.lacking.is_empty()) {
            (false, true) => "in force",
            (false, false) => "in part",
            (true, _) if in_part() => "in part",
            (true, _) => "not in force",
        }
    }

    /// Why it is not.
    pub fn message(&self) -> String {
        if self.in_force.is_empty() && self.lacking.is_empty() {
            return "nothing that is in the tag is a resource".to_owned();
        }
        match (self.lacking.len(), &self.from) {
            (1, Origin::Resource(_)) => self.lacking.values().map(ToString::to_string).collect(),
            _ => {
                self.lacking.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ")
            }
        }
    }
}

/// O(rules · resources that have them + entries of these).
pub fn rules_in_force(
    intent: &Intent,
    inventory: &Inventory,
    plan: &Plan,
    scope: &Scope,
) -> Vec<RuleStanding> {
    let view = View { inventory, changing: changing(plan), plan };
    let resolver = Resolver::new(intent, inventory);
    let mut found = Vec::new();
    let wanted = |name: &ResourceName| intent.resources.contains_key(name);
    for (resource, rules) in intent.rules.iter().filter(|(name, _)| wanted(name) && scope.has(name)) {
        for rule in rules.values() {
            let from = Origin::Resource(resource.clone());
            let peers = rule.peers.iter().map(ToString::to_string).collect();
            let mut standing = RuleStanding::new(from, rule.name.to_string(), rule.traffic, peers);
            view.judge(&mut standing, resource, &EntryName::own(&rule.name));
            found.push(standing);
        }
    }
    for (tag, rules) in &intent.tag_rules {
        let Some(members) = scope.of_tag(tag, resolver.members(tag)) else { continue };
        for rule in rules.values() {
            let peers = rule.peers.iter().map(ToString::to_string).collect();
            let from = Origin::Tag(tag.clone());
            let mut standing = RuleStanding::new(from, rule.name.to_string(), rule.traffic, peers);
            for resource in &members {
                view.judge(&mut standing, resource, &EntryName::inherited(tag, &rule.name));
            }
            found.push(standing);
        }
    }
    found.extend(view.given(scope));
    found
}

impl Scope {
    /// Whether rules are asked for that a resource has.
    fn has(&self, resource: &ResourceName) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => resource.namespace == *namespace,
            Self::Resource(name) => name == resource,
            Self::Tag(_) => false,
        }
    }

    /// The members of a tag whose rules are asked for; none if the tag's are not.
    fn of_tag<'m>(&self, tag: &TagName, members: Vec<&'m ResourceName>) -> Option<Vec<&'m ResourceName>> {
        let is_empty = members.is_empty();
        let here = || members.iter().copied().filter(|name| self.has(name)).collect::<Vec<_>>();
        match self {
            Self::Tag(name) => (name == tag).then_some(members),
            Self::All => Some(members),
            // A tag without resources is in every namespace, or in none.
            Self::Namespace(_) => Some(here()).filter(|here| is_empty || !here.is_empty()),
            Self::Resource(_) => Some(here()).filter(|here| !here.is_empty()),
        }
    }
}

impl RuleStanding {
    fn new(from: Origin, name: String, traffic: Traffic, peers: BTreeSet<String>) -> Self {
        Self {
            from,
            name,
            traffic,
            peers,
            targets: BTreeSet::new(),
            in_force: BTreeSet::new(),
            lacking: BTreeMap::new(),
        }
    }

    fn has(&mut self, resource: &ResourceName, entry: &PermitEntry) {
        self.in_force.insert(resource.clone());
        self.targets.extend(entry.targets());
    }
}

/// Entries that steps are to set or to take away.
fn changing(plan: &Plan) -> BTreeSet<(&ResourceName, &EntryName)> {
    let mut changing = BTreeSet::new();
    for step in &plan.steps {
        if let Action::Close { resource, change } | Action::Open { resource, change } = &step.action {
            let PermitChange { set, unset } = change;
            changing.extend(set.iter().chain(unset).map(|entry| (resource, &entry.name)));
        }
    }
    changing
}

struct View<'v> {
    inventory: &'v Inventory,
    changing: BTreeSet<(&'v ResourceName, &'v EntryName)>,
    plan: &'v Plan,
}

impl View<'_> {
    /// What becomes of a rule at a resource that shall have it.
    fn judge(&self, standing: &mut RuleStanding, resource: &ResourceName, name: &EntryName) {
        let record = self.inventory.resources.get(resource).filter(|record| record.state.is_some());
        let lack = match record {
            None => Lack::NotMade,
            Some(record) => {
                let mut parts = record.permit.values().filter(|entry| entry.name.is_part_of(name));
                let narrowed = parts.next();
                let is_changing = |name: &EntryName| {
                    self.changing.contains(&(resource, name)) || record.changing.contains_key(name)
                };
                match (record.permit.get(name), narrowed) {
                    _ if is_changing(name) => Lack::Changing,
                    (Some(entry), _) => return standing.has(resource, entry),
                    (None, Some(entry)) => {
                        standing.targets.extend(parts.chain([entry]).flat_map(|entry| entry.targets()));
                        Lack::Narrowed
                    }
                    (None, None) => self.problem(resource, name).map_or(Lack::Denied, Lack::Problem),
                }
            }
        };
        let lack = match lack {
            // What the plan could not do says more than that it is not done.
            Lack::NotMade | Lack::Changing => self.problem(resource, name).map_or(lack, Lack::Problem),
            lack => lack,
        };
        standing.lacking.insert(resource.clone(), lack);
    }

    fn problem(&self, resource: &ResourceName, name: &EntryName) -> Option<String> {
        let of_rule = |rule: &Option<String>| rule.as_deref().is_none_or(|rule| rule == name.as_str());
        let mut told = self.plan.problems.iter();
        let problem = told.find(|problem| problem.resource == *resource && of_rule(&problem.rule))?;
        Some(problem.kind.to_string())
    }

    /// What nobody wrote on the resource or a tag of it: entries of permissions and of policies, by origin and name.
    fn given(&self, scope: &Scope) -> Vec<RuleStanding> {
        let mut given: BTreeMap<(Origin, String), RuleStanding> = BTreeMap::new();
        for (resource, record) in self.inventory.resources.iter().filter(|(name, _)| scope.has(name)) {
            for entry in record.permit.values() {
                let from = match entry.name.permission() {
                    Some(permission) => Origin::Permission(permission.to_owned()),
                    None if entry.name.is_of_policy() => {
                        Origin::Policy(entry.tags.iter().cloned().collect::<Vec<_>>().join(" "))
                    }
                    None => continue,
                };
                let name = entry.name.to_string();
                let standing = given.entry((from.clone(), name.clone())).or_insert_with(|| {
                    // What policies permit is told by their addresses: they have no tags.
                    let peers = if entry.name.is_of_policy() { BTreeSet::new() } else { entry.tags.clone() };
                    RuleStanding::new(from, name, entry.traffic, peers)
                });
                if self.changing.contains(&(resource, &entry.name)) {
                    standing.lacking.insert(resource.clone(), Lack::Changing);
                } else {
                    standing.has(resource, entry);
                }
            }
        }
        given.into_values().collect()
    }
}
