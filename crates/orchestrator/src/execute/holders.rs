//! Rules wherever they are: on a resource or on a tag, for parts of the controller that keep rules of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use model::{Address, EntryName, Host, Member, PermitRule, ResourceName, Segment, TagName, TagValue};
use tags::{Graph, ResolvedMember};

use super::{JobOrPlan, Orchestrator, OrchestratorError, rules::address_of};
use crate::plan::{ProblemKind, ResourceRecord, RuleStanding, Scope, plan, rules_in_force};

/// What has rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleHolder {
    Resource(ResourceName),
    /// Every resource in it, now and later.
    Tag(TagName),
}

/// A tag, and what rules make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagView {
    pub name: TagName,
    /// None: rules name it, and it is not there.
    pub value: Option<TagValue>,
    /// `resource` or `host`; empty for a tag that somebody set.
    pub owner: &'static str,
    /// Rules on it.
    pub rules: usize,
    /// Rules that name it as a peer.
    pub named_by: usize,
    /// Why rules that name it permit nothing by it.
    pub trouble: Option<ProblemKind>,
}

impl fmt::Display for RuleHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(name) => name.fmt(f),
            Self::Tag(tag) => write!(f, "tag {tag}"),
        }
    }
}

impl RuleHolder {
    fn entry(&self, rule: &Segment) -> EntryName {
        match self {
            Self::Resource(_) => EntryName::own(rule),
            Self::Tag(tag) => EntryName::inherited(tag, rule),
        }
    }
}

impl Orchestrator {
    pub async fn put_rules_on(
        &self,
        holder: &RuleHolder,
        rules: Vec<PermitRule>,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        match holder {
            RuleHolder::Resource(name) => self.put_rules(name.clone(), rules, dry_run).await,
            RuleHolder::Tag(tag) => self.put_tag_rules(tag.clone(), rules, dry_run).await,
        }
    }

    pub async fn delete_rules_on(
        &self,
        holder: &RuleHolder,
        names: Vec<Segment>,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        match holder {
            RuleHolder::Resource(name) => self.delete_rules(name.clone(), names, dry_run).await,
            RuleHolder::Tag(tag) => self.delete_tag_rules(tag.clone(), names, dry_run).await,
        }
    }

    /// One rule as it is wanted.
    pub fn rule_on(&self, holder: &RuleHolder, rule: &Segment) -> Option<PermitRule> {
        let state = self.state.lock();
        let rules = match holder {
            RuleHolder::Resource(name) => state.intent.rules.get(name),
            RuleHolder::Tag(tag) => state.intent.tag_rules.get(tag),
        };
        rules?.get(rule).cloned()
    }

    /// All rules whose name begins so, with their holders.
    pub fn rules_beginning(&self, prefix: &str) -> Vec<(RuleHolder, Segment)> {
        let state = self.state.lock();
        let named = |rule: &&Segment| rule.as_str().starts_with(prefix);
        let own = state.intent.rules.iter().flat_map(|(resource, rules)| {
            rules.keys().filter(named).map(|rule| (RuleHolder::Resource(resource.clone()), rule.clone()))
        });
        let inherited = state.intent.tag_rules.iter().flat_map(|(tag, rules)| {
            rules.keys().filter(named).map(|rule| (RuleHolder::Tag(tag.clone()), rule.clone()))
        });
        own.chain(inherited).collect()
    }

    /// What is in force, and from where.
    pub fn rules_in_force(&self, scope: &Scope) -> Result<Vec<RuleStanding>, OrchestratorError> {
        let (intent, inventory, ahead) = {
            let mut state = self.state.lock();
            (Arc::clone(&state.intent), Arc::clone(&state.inventory), state.ahead())
        };
        match scope {
            Scope::Resource(name)
                if !inventory.resources.contains_key(name) && !intent.resources.contains_key(name) =>
            {
                return Err(OrchestratorError::UnknownResource { resource: name.clone() });
            }
            _ => {}
        }
        let intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
        if let Scope::Tag(tag) = scope
            && !intent.tag_rules.contains_key(tag)
            && intent.graph.get(tag).is_err()
        {
            return Err(OrchestratorError::UnknownTag { tag: tag.clone() });
        }
        Ok(rules_in_force(&intent, &inventory, &plan(&intent, &ahead), scope))
    }

    /// Tags whose name starts so, and those that rules name although they are not there.
    pub fn tags_in_use(&self, prefix: &str) -> Result<Vec<TagView>, OrchestratorError> {
        let graph = self.tags.graph().ok_or(OrchestratorError::NotLoaded)?;
        let intent = Arc::clone(&self.state.lock().intent);
        let mut named_by: BTreeMap<&TagName, usize> = BTreeMap::new();
        let own = intent.rules.iter().filter(|(name, _)| intent.resources.contains_key(*name));
        let rules = own.map(|(_, rules)| rules).chain(intent.tag_rules.values()).flat_map(BTreeMap::values);
        for peer in rules.flat_map(|rule| &rule.peers) {
            if let Member::Tag(tag) = peer {
                *named_by.entry(tag).or_default() += 1;
            }
        }
        let rules = |tag: &TagName| intent.tag_rules.get(tag).map_or(0, BTreeMap::len);
        let view = |tag: &TagName, value: Option<TagValue>| {
            let named_by = named_by.get(tag).copied().unwrap_or_default();
            let is_empty =
                || graph.resolve(tag).is_ok_and(|all| all.iter().all(|one| address_of(one).is_none()));
            let trouble = match (&value, named_by) {
                (None, _) => Some(ProblemKind::UnknownTag { tag: tag.clone() }),
                (Some(_), 1..) if is_empty() => Some(ProblemKind::EmptyTag { tag: tag.clone() }),
                _ => None,
            };
            let resource = tag.as_str().parse::<ResourceName>();
            let owner = match resource.is_ok_and(|name| intent.resources.contains_key(&name)) {
                true => "resource",
                false if Host::of_tag(tag).is_some() => "host",
                false => "",
            };
            TagView { name: tag.clone(), value, owner, rules: rules(tag), named_by, trouble }
        };
        let there = graph.list(prefix).map(|(name, found)| view(name, Some(found.to_value())));
        let is_gone = |tag: &&TagName| tag.as_str().starts_with(prefix) && graph.get(tag).is_err();
        let named: BTreeSet<&TagName> = named_by.keys().copied().chain(intent.tag_rules.keys()).collect();
        let gone = named.into_iter().filter(is_gone).map(|tag| view(tag, None));
        let mut all: Vec<TagView> = there.chain(gone).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Whether a rule without tags is in force as it stands, at everything that has it. A holder without any resource
    /// has nothing in force.
    pub fn is_in_force(&self, holder: &RuleHolder, rule: &PermitRule) -> Result<bool, OrchestratorError> {
        let literal = |peer: &Member| match peer {
            Member::Literal(address) => Some(*address),
            Member::Tag(_) => None,
        };
        let targets: BTreeSet<Address> = rule.peers.iter().filter_map(literal).collect();
        let members = self.members_of(holder)?;
        let entry = holder.entry(&rule.name);
        let state = self.state.lock();
        let in_force = |record: &ResourceRecord| {
            !record.changing.contains_key(&entry)
                && record
                    .permit
                    .get(&entry)
                    .is_some_and(|permit| permit.traffic == rule.traffic && *permit.targets() == targets)
        };
        let held = |member| state.inventory.resources.get(member).is_some_and(in_force);
        Ok(!members.is_empty() && members.iter().all(held))
    }

    /// Whether nothing of a rule that is not wanted any more is left anywhere.
    pub fn is_withdrawn(&self, holder: &RuleHolder, rule: &Segment) -> bool {
        let entry = holder.entry(rule);
        let gone = |record: &ResourceRecord| {
            !record.permit.contains_key(&entry) && !record.changing.contains_key(&entry)
        };
        let state = self.state.lock();
        match holder {
            RuleHolder::Resource(name) => state.inventory.resources.get(name).is_none_or(gone),
            // It may have left the tag meanwhile.
            RuleHolder::Tag(_) => state.inventory.resources.values().all(gone),
        }
    }

    fn members_of(&self, holder: &RuleHolder) -> Result<Vec<ResourceName>, OrchestratorError> {
        match holder {
            RuleHolder::Resource(name) => Ok(vec![name.clone()]),
            RuleHolder::Tag(tag) => {
                let graph = self.tags.graph().ok_or(OrchestratorError::NotLoaded)?;
                let names = resources_in(&graph, tag);
                let names = names.ok_or_else(|| OrchestratorError::UnknownTag { tag: tag.clone() })?;
                let state = self.state.lock();
                Ok(names.into_iter().filter(|name| state.intent.resources.contains_key(name)).collect())
            }
        }
    }
}

/// The names of resources a tag resolves to; none if there is no such tag.
pub(super) fn resources_in(graph: &Graph, tag: &TagName) -> Option<Vec<ResourceName>> {
    let resolved = graph.resolve(tag).ok()?;
    let name = |member: &ResolvedMember| match member {
        ResolvedMember::Leaf { name, .. } => name.as_str().parse().ok(),
        ResolvedMember::Literal(_) => None,
    };
    Some(resolved.iter().filter_map(name).collect())
}
