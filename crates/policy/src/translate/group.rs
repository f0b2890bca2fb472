//! What a Group or ClusterGroup stands for once its children and its Service are followed.
//!
//! A group may have children, and children may not: two levels. Deeper nesting, and with it every cycle, makes the
//! group unrealised; it recovers when the nesting is gone.

use std::borrow::Cow;

use model::policy::{
    LabelSelector,
    antrea::{GroupSpec, NamespacedName},
    convert,
    output::{IpBlock, MemberKind, Problem},
};

use super::World;
use crate::selection::{Scope, Selection};

/// The union of `selections` and `ip_blocks`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    pub selections: Vec<Selection<'static>>,
    pub ip_blocks: Vec<IpBlock>,
    /// Not empty: members are missing for this reason.
    pub problems: Vec<Problem>,
    /// The group cannot be realised at all; whoever relies on it must fail closed.
    pub unrealised: bool,
}

pub fn resolve(world: &impl World, name: &NamespacedName) -> Option<Resolved> {
    let spec = world.group(name)?;
    let mut resolved = Resolved::default();
    resolved.own(world, name, spec);
    for (i, child) in spec.child_groups.iter().enumerate() {
        let path = format!("spec.childGroups[{i}]");
        let child = NamespacedName { namespace: name.namespace.clone(), name: child.clone() };
        match world.group(&child) {
            None => resolved
                .problems
                .push(Problem::new(path, format!("the group `{}` does not exist", child.name))),
            Some(spec) if !spec.child_groups.is_empty() => {
                let message =
                    format!("`{}` has children itself: groups nest two levels deep at most", child.name);
                return Some(Resolved {
                    problems: vec![Problem::new(path, message)],
                    unrealised: true,
                    ..Resolved::default()
                });
            }
            Some(spec) => resolved.own(world, &child, spec),
        }
    }
    Some(resolved)
}

impl Resolved {
    fn own(&mut self, world: &impl World, name: &NamespacedName, spec: &GroupSpec) {
        for (i, block) in spec.ip_blocks.iter().enumerate() {
            match convert::ip_block(block) {
                Ok(block) if self.ip_blocks.contains(&block) => {}
                Ok(block) => self.ip_blocks.push(block),
                Err(problem) => self.fault(problem.under(&format!("spec.ipBlocks[{i}]"))),
            }
        }
        if let Some(service) = &spec.service_reference {
            match world.service_selector(service) {
                Some(selector) if !selector.is_empty() => {
                    let scope = Scope::Namespace(Cow::Owned(service.namespace.clone()));
                    let selector = LabelSelector::of_labels(selector.clone());
                    self.select(MemberKind::Pod, scope, Some(&selector), "spec.serviceReference");
                }
                Some(_) => {}
                None => {
                    let message =
                        format!("the Service {}/{} does not exist", service.namespace, service.name);
                    self.problems.push(Problem::new("spec.serviceReference", message));
                }
            }
        }
        if let Some(selector) = &spec.node_selector {
            self.select(MemberKind::Node, Scope::Everywhere, Some(selector), "spec.nodeSelector");
        }
        let scope = || match &spec.namespace_selector {
            Some(selector) => Scope::Matching(Cow::Owned(selector.clone())),
            None if name.namespace.is_empty() => Scope::Everywhere,
            None => Scope::Namespace(Cow::Owned(name.namespace.clone())),
        };
        if let Some(selector) = &spec.external_entity_selector {
            self.select(MemberKind::ExternalEntity, scope(), Some(selector), "spec.externalEntitySelector");
        } else if spec.pod_selector.is_some() || spec.namespace_selector.is_some() {
            self.select(MemberKind::Pod, scope(), spec.pod_selector.as_ref(), "spec.podSelector");
        }
    }

    fn select(
        &mut self,
        kind: MemberKind,
        scope: Scope<'static>,
        selector: Option<&LabelSelector>,
        path: &str,
    ) {
        if let Some(Err(problem)) = selector.map(convert::selector) {
            return self.fault(problem.under(path));
        }
        if let Scope::Matching(namespaces) = &scope
            && let Err(problem) = convert::selector(namespaces)
        {
            return self.fault(problem.under("spec.namespaceSelector"));
        }
        self.add(Selection { kind, scope, selector: selector.map(|s| Cow::Owned(s.clone())) });
    }

    fn add(&mut self, selection: Selection<'static>) {
        if !self.selections.contains(&selection) {
            self.selections.push(selection);
        }
    }

    fn fault(&mut self, problem: Problem) {
        self.unrealised = true;
        self.problems.push(problem);
    }
}
