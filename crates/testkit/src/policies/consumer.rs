//! A consumer that starts empty and believes only what it is told. It refuses updates that do not fit.

use std::collections::BTreeMap;

use model::policy::output::{Change, GroupUpdate, PolicyUpdate, Span, Update};

use super::state::{GroupKind, GroupState, PolicyState, State, key_and_rest};

#[derive(Debug, Default)]
pub struct Consumer {
    pub state: State,
    pub updates: usize,
}

impl Consumer {
    pub fn take(&mut self, update: &Update) {
        self.updates += 1;
        match update {
            Update::AppliedToGroup(update) => {
                take_group(GroupKind::AppliedTo, &mut self.state.applied_to, update);
                self.check_span_is_members(update);
            }
            Update::AddressGroup(update) => take_group(GroupKind::Address, &mut self.state.address, update),
            Update::NetworkPolicy(update) => take_policy(&mut self.state.policies, update),
            Update::Status(update) => {
                let told = match update.problems.is_empty() {
                    true => self.state.problems.remove(&update.object),
                    false => self.state.problems.insert(update.object.clone(), update.problems.clone()),
                };
                assert_ne!(told.as_ref(), Some(&update.problems), "told twice: {update:?}");
            }
        }
        self.check_nothing_dangles();
    }

    /// On every node of a policy, every AddressGroup it names is there, and so is one of its AppliedToGroups.
    fn check_nothing_dangles(&self) {
        for policy in self.state.policies.values() {
            for name in policy.policy.rules.iter().flat_map(|rule| &rule.address_groups) {
                let group = self.state.address.get(&name.to_string());
                let group = group.unwrap_or_else(|| panic!("{name} is missing for {policy:?}"));
                assert!(
                    policy.span.is_subset(&group.span),
                    "{name} is missing on a node of {policy:?}: {group:?}"
                );
            }
            let groups = policy.policy.applied_to_groups.iter();
            let groups: Vec<_> = groups.map(|name| self.state.applied_to.get(&name.to_string())).collect();
            assert!(groups.iter().all(Option::is_some), "an applied-to group is missing for {policy:?}");
            for node in &policy.span {
                assert!(
                    groups.iter().flatten().any(|group| group.span.contains(node)),
                    "{node} has no group of {policy:?}"
                );
            }
        }
    }

    fn check_span_is_members(&self, update: &GroupUpdate) {
        let Some(group) = self.state.applied_to.get(&update.name.to_string()) else { return };
        for node in &group.span {
            let local = group.members.keys().any(|key| key.ends_with(&format!(" on {node}")));
            assert!(local, "{node} is in the span of {} without a member there", update.name);
        }
    }
}

fn take_group(kind: GroupKind, groups: &mut BTreeMap<String, GroupState>, update: &GroupUpdate) {
    let name = update.name.to_string();
    match update.change {
        Change::Added => {
            assert!(!groups.contains_key(&name), "added twice: {update:?}");
            assert!(update.removed.is_empty() && update.span_removed.is_empty());
            groups.insert(name.clone(), GroupState::default());
        }
        Change::Removed => {
            let group = groups.remove(&name).unwrap_or_else(|| panic!("never added: {update:?}"));
            assert_eq!(names(&update.span_removed), group.span.into_iter().collect::<Vec<_>>());
            return;
        }
        Change::Updated => {}
    }
    let group = groups.get_mut(&name).unwrap_or_else(|| panic!("never added: {update:?}"));
    group.uid = update.uid.to_string();
    for member in &update.removed {
        let (key, _) = key_and_rest(kind, member);
        assert!(group.members.remove(&key).is_some(), "{key} was no member: {update:?}");
    }
    let removed: Vec<String> = update.removed.iter().map(|member| key_and_rest(kind, member).0).collect();
    for member in &update.added {
        let (key, rest) = key_and_rest(kind, member);
        assert!(!removed.contains(&key), "{key} is in both lists: {update:?}");
        let before = group.members.insert(key, rest.clone());
        assert_ne!(before, Some(rest), "told twice: {update:?}");
    }
    for member in &update.readdressed {
        let (key, rest) = key_and_rest(kind, member);
        let before = group.members.insert(key.clone(), rest.clone());
        let before = before.unwrap_or_else(|| panic!("{key} was no member: {update:?}"));
        assert!(kind == GroupKind::AppliedTo && before != rest, "nothing to tell: {update:?}");
    }
    move_span(&mut group.span, &update.span_added, &update.span_removed);
}

fn take_policy(policies: &mut BTreeMap<String, PolicyState>, update: &PolicyUpdate) {
    let name = update.uid.to_string();
    assert_eq!(update.policy.uid, update.uid);
    match update.change {
        Change::Added => {
            let state = PolicyState { policy: (*update.policy).clone(), span: Default::default() };
            assert!(policies.insert(name.clone(), state).is_none(), "added twice: {update:?}");
        }
        Change::Removed => {
            let policy = policies.remove(&name).unwrap_or_else(|| panic!("never added: {update:?}"));
            assert_eq!(names(&update.span_removed), policy.span.into_iter().collect::<Vec<_>>());
            assert_eq!(policy.policy, *update.policy);
            return;
        }
        Change::Updated => {}
    }
    let policy = policies.get_mut(&name).unwrap_or_else(|| panic!("never added: {update:?}"));
    if update.change == Change::Updated {
        assert_eq!(update.content_changed, policy.policy != *update.policy, "{update:?}");
    }
    policy.policy = (*update.policy).clone();
    move_span(&mut policy.span, &update.span_added, &update.span_removed);
}

fn move_span(span: &mut std::collections::BTreeSet<String>, added: &Span, removed: &Span) {
    for node in removed.iter() {
        assert!(span.remove(&**node), "{node} was not in the span");
    }
    for node in added.iter() {
        assert!(span.insert(node.to_string()), "{node} was in the span");
    }
}

fn names(span: &Span) -> Vec<String> {
    span.iter().map(|node| node.to_string()).collect()
}
