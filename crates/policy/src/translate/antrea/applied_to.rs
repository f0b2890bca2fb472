//! Where a rule or a policy applies, as a whole or cut by namespace.

use std::borrow::Cow;

use model::policy::{
    antrea::AppliedTo,
    convert,
    output::{MemberKind, Problem},
};

use super::{RuleContext, Translator, peer::service_account};
use crate::{
    selection::{GroupRef, Scope, Selection},
    translate::{GroupRefs, World, name_in, resolve},
};

const WHOLE_NAMESPACES: &str = "peers with `namespaces` need namespaces here: rules with such peers are applied to all Pods of those that it reaches";

fn names_no_namespace(entry: &AppliedTo) -> bool {
    entry.group.is_some() || entry.service.is_some() || entry.node_selector.is_some()
}

impl<'a, W: World> Translator<'a, '_, W> {
    pub(super) fn applied_to(&mut self, path: &str, written: &'a [AppliedTo]) -> GroupRefs<'a> {
        let mut groups = GroupRefs::new();
        for (i, entry) in written.iter().enumerate() {
            match self.entry(entry) {
                Ok(group) => groups.push(group),
                Err(problem) => self.problems.push(problem.under(&format!("{path}[{i}]"))),
            }
            self.check_group(&format!("{path}[{i}].group"), entry);
        }
        groups
    }

    fn entry(&self, entry: &'a AppliedTo) -> Result<GroupRef<'a>, Problem> {
        if let Some(group) = &entry.group {
            return Ok(GroupRef::Named(name_in(self.namespace, group)));
        }
        if let Some(service) = &entry.service {
            return Ok(GroupRef::Service(Cow::Borrowed(service)));
        }
        if let Some(account) = &entry.service_account {
            if !self.namespace.is_empty() && account.namespace != self.namespace {
                return Err(Problem::new(
                    ".serviceAccount.namespace",
                    "must be the policy's own; it applies to nothing",
                ));
            }
            return Ok(GroupRef::Selection(service_account(account)));
        }
        if let Some(selector) = &entry.node_selector {
            convert::selector(selector).map_err(|p| p.under(".nodeSelector"))?;
            let selector = Some(Cow::Borrowed(selector));
            return Ok(GroupRef::Selection(Selection {
                kind: MemberKind::Node,
                scope: Scope::Everywhere,
                selector,
            }));
        }
        // A namespaced policy never reaches beyond its namespace, whatever it says.
        let namespaces = entry.namespace_selector.as_ref().filter(|_| self.namespace.is_empty());
        let scope = self.scope(namespaces)?;
        self.members(entry, scope)
    }

    fn members(&self, entry: &'a AppliedTo, scope: Scope<'a>) -> Result<GroupRef<'a>, Problem> {
        if entry.pod_selector.is_none()
            && entry.external_entity_selector.is_none()
            && entry.namespace_selector.is_none()
        {
            return Err(Problem::new("", "names nothing to apply the policy to"));
        }
        self.members_of(entry, scope)
    }

    /// Without a selector all Pods of the scope.
    fn members_of(&self, entry: &'a AppliedTo, scope: Scope<'a>) -> Result<GroupRef<'a>, Problem> {
        let (kind, selector, field) = match &entry.external_entity_selector {
            Some(selector) => (MemberKind::ExternalEntity, Some(selector), ".externalEntitySelector"),
            None => (MemberKind::Pod, entry.pod_selector.as_ref(), ".podSelector"),
        };
        if let Some(selector) = selector {
            convert::selector(selector).map_err(|p| p.under(field))?;
        }
        Ok(GroupRef::Selection(Selection { kind, scope, selector: selector.map(Cow::Borrowed) }))
    }

    /// Says why a group given as appliedTo may enforce less than its author expects.
    fn check_group(&mut self, path: &str, entry: &AppliedTo) {
        let Some(group) = &entry.group else { return };
        let Some(resolved) = resolve(self.world, &name_in(self.namespace, group)) else {
            self.remarks.push(Problem::new(path, format!("the group `{group}` does not exist; it is empty")));
            return;
        };
        if resolved.unrealised {
            self.say(path, format!("the group `{group}` cannot be realised; look at its status"));
        }
        if resolved.selections.is_empty() && !resolved.ip_blocks.is_empty() {
            self.say(
                path,
                format!("the group `{group}` has addresses only; a policy is applied to workloads"),
            );
        }
        let own = |s: &Selection<'_>| matches!(&s.scope, Scope::Namespace(name) if *name == self.namespace);
        if !self.namespace.is_empty() && !resolved.selections.iter().all(own) {
            let message =
                format!("the group `{group}` reaches into other namespaces; there the policy is not applied");
            self.say(path, message);
        }
    }

    /// For each known namespace (by its index) the groups of the rule's appliedTo cut to that namespace. Every entry
    /// counts: a namespace matched by two of them has two groups.
    ///
    /// A group, a Service or a selector of nodes names no part of a namespace. Antrea's controller then applies the rule
    /// to all Pods: of the namespaces that the group's `namespaceSelector` matches, or of all. Whoever moves here has
    /// policies that work so; the status says it.
    pub(super) fn parts(&mut self, context: &RuleContext<'a>) -> Vec<(usize, GroupRefs<'a>)> {
        let mut parts: Vec<GroupRefs<'a>> = vec![GroupRefs::new(); self.namespaces.len()];
        for (i, entry) in context.applied_to.iter().enumerate() {
            let path = format!("{}[{i}]", context.applied_to_path);
            if let Err(problem) = self.cut(entry, &mut parts) {
                self.problems.push(problem.under(&path));
            } else if names_no_namespace(entry) {
                self.remarks.push(Problem::new(path, WHOLE_NAMESPACES));
            }
        }
        parts.into_iter().enumerate().filter(|(_, groups)| !groups.is_empty()).collect()
    }

    fn cut(&self, entry: &'a AppliedTo, parts: &mut [GroupRefs<'a>]) -> Result<(), Problem> {
        let over = match &entry.group {
            Some(group) => match self.world.group(&name_in(self.namespace, group)) {
                Some(spec) => spec.namespace_selector.clone(),
                None => return Ok(()),
            },
            None => entry.namespace_selector.clone(),
        };
        if let Some(selector) = &over {
            convert::selector(selector).map_err(|p| p.under(".namespaceSelector"))?;
        }
        for (part, (name, labels)) in parts.iter_mut().zip(&self.namespaces) {
            let affected = match (&entry.service_account, &over) {
                (Some(account), _) => *account.namespace == **name,
                (None, Some(over)) => over.matches(labels),
                (None, None) => true,
            };
            if affected {
                part.push(match &entry.service_account {
                    Some(account) => GroupRef::Selection(service_account(account)),
                    None => self.members_of(entry, Scope::Namespace(Cow::Owned(name.to_string())))?,
                });
            }
        }
        Ok(())
    }
}
