//! What users ask for: rules on resources and on tags.

use std::collections::BTreeSet;

use model::{Address, EntryName, Member, PermitRule, ResourceName, Segment, TagName};
use store::Expected;
use tags::ResolvedMember;

use super::{JobOrPlan, Orchestrator, OrchestratorError, facts::Fact, requests::Asked};
use crate::plan::{Class, Places, Problem, ProblemKind, Subject};

impl Orchestrator {
    /// Adds rules to a resource; one of the same name is replaced.
    pub async fn put_rules(
        &self,
        resource: ResourceName,
        rules: Vec<PermitRule>,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        if !self.state.lock().wants(&resource) {
            return Err(OrchestratorError::UnknownResource { resource });
        }
        for rule in &rules {
            self.check_rule(&resource, rule)?;
        }
        let rules = last_of_each(rules);
        let undo = {
            let state = self.state.lock();
            let old = state.intent.rules.get(&resource);
            let before = |rule: &PermitRule| {
                let old = old.and_then(|old| old.get(&rule.name)).cloned();
                state.before(Fact::Rule(resource.clone(), rule.name.clone(), old))
            };
            rules.iter().map(before).collect()
        };
        let entry = |rule: &PermitRule| format!("rule/{resource}/{}", EntryName::own(&rule.name));
        let asked = Asked {
            judged_on: vec![(Fact::Resource(resource.clone(), None).key(), Expected::Present)],
            what: format!("add {} to {resource}", counted(rules.len())),
            resources: [resource.clone()].into(),
            objects: rules.iter().map(entry).collect(),
            undo,
            facts: rules
                .into_iter()
                .map(|rule| Fact::Rule(resource.clone(), rule.name.clone(), Some(rule)))
                .collect(),
        };
        self.ask(asked, dry_run).await
    }

    pub async fn delete_rules(
        &self,
        resource: ResourceName,
        names: Vec<Segment>,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        let names: BTreeSet<Segment> = names.into_iter().collect();
        {
            let state = self.state.lock();
            if !state.wants(&resource) {
                return Err(OrchestratorError::UnknownResource { resource });
            }
            let known = state.intent.rules.get(&resource);
            let is_there = |name: &Segment| {
                known.is_some_and(|rules| rules.contains_key(name))
                    || state.unreadable(Subject::Rule(resource.clone(), name.clone())).is_some()
            };
            if let Some(missing) = names.iter().find(|name| !is_there(name)) {
                return Err(OrchestratorError::UnknownRule {
                    on: resource.to_string(),
                    rule: missing.clone(),
                });
            }
        }
        let asked = Asked {
            judged_on: Vec::new(),
            what: format!("delete {} of {resource}", counted(names.len())),
            resources: [resource.clone()].into(),
            objects: BTreeSet::new(),
            facts: names.into_iter().map(|name| Fact::Rule(resource.clone(), name, None)).collect(),
            undo: Vec::new(),
        };
        self.ask(asked, dry_run).await
    }

    pub fn rules(&self, resource: &ResourceName) -> Result<Vec<PermitRule>, OrchestratorError> {
        let state = self.state.lock();
        if !state.wants(resource) {
            return Err(OrchestratorError::UnknownResource { resource: resource.clone() });
        }
        Ok(state.intent.rules.get(resource).into_iter().flat_map(|rules| rules.values().cloned()).collect())
    }

    /// Puts rules on a tag: every resource in it has them, now and later.
    pub async fn put_tag_rules(
        &self,
        tag: TagName,
        rules: Vec<PermitRule>,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        let graph = self.tags.graph().ok_or(OrchestratorError::NotLoaded)?;
        let resolved = graph.resolve(&tag).map_err(|_| OrchestratorError::UnknownTag { tag: tag.clone() })?;
        let as_resource = |member: &ResolvedMember| match member {
            ResolvedMember::Leaf { name, .. } => name.as_str().parse::<ResourceName>().ok(),
            ResolvedMember::Literal(_) => None,
        };
        let members: BTreeSet<ResourceName> = resolved.iter().filter_map(as_resource).collect();
        // Errors name the first member; for a tag without resources any name does.
        let example =
            members.first().cloned().unwrap_or_else(|| "tag.without.resources".parse().expect("it is legal"));
        for rule in &rules {
            self.check_rule(&example, rule)?;
        }
        let rules = last_of_each(rules);
        let undo = {
            let state = self.state.lock();
            let old = state.intent.tag_rules.get(&tag);
            let before = |rule: &PermitRule| {
                let old = old.and_then(|old| old.get(&rule.name)).cloned();
                state.before(Fact::TagRule(tag.clone(), rule.name.clone(), old))
            };
            rules.iter().map(before).collect()
        };
        let asked = Asked {
            judged_on: Vec::new(),
            what: format!("add {} to tag {tag}", counted(rules.len())),
            resources: members,
            objects: BTreeSet::new(),
            undo,
            facts: rules
                .into_iter()
                .map(|rule| Fact::TagRule(tag.clone(), rule.name.clone(), Some(rule)))
                .collect(),
        };
        self.ask(asked, dry_run).await
    }

    pub async fn delete_tag_rules(
        &self,
        tag: TagName,
        names: Vec<Segment>,
        dry_run: bool,
    ) -> Result<JobOrPlan, OrchestratorError> {
        let names: BTreeSet<Segment> = names.into_iter().collect();
        {
            let state = self.state.lock();
            let known = state.intent.tag_rules.get(&tag);
            let is_there = |name: &Segment| {
                known.is_some_and(|rules| rules.contains_key(name))
                    || state.unreadable(Subject::TagRule(tag.clone(), name.clone())).is_some()
            };
            if let Some(missing) = names.iter().find(|name| !is_there(name)) {
                return Err(OrchestratorError::UnknownRule {
                    on: format!("tag {tag}"),
                    rule: missing.clone(),
                });
            }
        }
        let members = self.state.lock().intent.resources.keys().cloned().collect();
        let asked = Asked {
            judged_on: Vec::new(),
            what: format!("delete {} of tag {tag}", counted(names.len())),
            resources: members,
            objects: BTreeSet::new(),
            facts: names.into_iter().map(|name| Fact::TagRule(tag.clone(), name, None)).collect(),
            undo: Vec::new(),
        };
        self.ask(asked, dry_run).await
    }

    pub fn tag_rules(&self, tag: &TagName) -> Vec<PermitRule> {
        let state = self.state.lock();
        state.intent.tag_rules.get(tag).into_iter().flat_map(|rules| rules.values().cloned()).collect()
    }

    /// Refuses a rule that could not do what it says: a tag that is unknown or resolves to nothing, an
    /// address that is private and nobody's.
    fn check_rule(&self, resource: &ResourceName, rule: &PermitRule) -> Result<(), OrchestratorError> {
        let graph = self.tags.graph().ok_or(OrchestratorError::NotLoaded)?;
        let inventory = std::sync::Arc::clone(&self.state.lock().inventory);
        let places = Places::new(inventory.networks.iter().map(|(name, record)| (name, record.space)));
        let refuse = |kind| {
            let rule = Some(rule.name.to_string());
            Err(OrchestratorError::Problem(Problem { resource: resource.clone(), rule, kind }))
        };
        for peer in &rule.peers {
            let targets: Vec<Address> = match peer {
                Member::Literal(address) => vec![*address],
                Member::Tag(tag) => match graph.resolve(tag) {
                    Err(_) => return refuse(ProblemKind::UnknownTag { tag: tag.clone() }),
                    Ok(resolved) => {
                        let targets: Vec<_> = resolved.iter().filter_map(address_of).collect();
                        if targets.is_empty() {
                            return refuse(ProblemKind::EmptyTag { tag: tag.clone() });
                        }
                        targets
                    }
                },
            };
            if let Some(target) =
                targets.into_iter().find(|target| places.classify(*target) == Class::Unplaced)
            {
                let hidden = inventory.unreadable.hides_a_space().map(ProblemKind::from);
                return refuse(hidden.unwrap_or(ProblemKind::Unplaced { target }));
            }
        }
        Ok(())
    }
}

pub(super) fn address_of(member: &ResolvedMember) -> Option<Address> {
    match member {
        ResolvedMember::Literal(address) => Some(*address),
        ResolvedMember::Leaf { leaf, .. } => leaf.ip,
    }
}

fn counted(rules: usize) -> String {
    if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") }
}

/// Of rules with the same name, the last one counts.
fn last_of_each(rules: Vec<PermitRule>) -> Vec<PermitRule> {
    let by_name: std::collections::BTreeMap<Segment, PermitRule> =
        rules.into_iter().map(|rule| (rule.name.clone(), rule)).collect();
    by_name.into_values().collect()
}
