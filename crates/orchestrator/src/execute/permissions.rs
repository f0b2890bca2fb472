//! What users ask for: permissions. Each is one stored fact; what both ends get is worked out from it by every plan.

use std::collections::BTreeSet;

use model::{
    Address, LinkName, ResourceName, Segment, Site,
    allow::{End, Permission},
};
use store::Expected;

use super::{Elsewhere, JobOrPlan, Orchestrator, OrchestratorError, facts::Fact, requests::Asked, state};
use crate::plan::{
    Class, Half, Intent, Inventory, Places, Plan, Problem, ProblemKind, Subject, Undertaking, given, halves,
    plan, undertaking,
};

/// A permission as it shall be asked for.
#[derive(Clone, Debug)]
pub struct Asking {
    pub permission: Permission,
    /// Who is at its ends as far as these are no resources, tags or addresses.
    pub elsewhere: Elsewhere,
    /// Gateways and links may be built for it.
    pub build: bool,
}

/// A permission that is stored, and how far it is at resources.
#[derive(Clone, Debug)]
pub struct PermissionView {
    pub name: Segment,
    pub permission: Permission,
    /// The resources that it gives something to, and the names of the entries.
    pub given: Vec<(ResourceName, model::EntryName)>,
    /// Resources that are not yet as wanted.
    pub waiting: BTreeSet<ResourceName>,
    /// What is in its way.
    pub problems: Vec<String>,
}

impl Orchestrator {
    /// Tells who is at ends that the orchestrator does not know itself. The same again changes nothing.
    pub fn set_elsewhere(&self, elsewhere: Elsewhere) {
        let mut told = self.elsewhere.lock();
        if *told != elsewhere {
            *told = elsewhere;
            self.shared.wake.notify_one();
        }
    }

    /// Stores a permission; none if it is there already. All of it is wanted from then on, or nothing of it.
    pub async fn allow(&self, asking: Asking) -> Result<Option<JobOrPlan>, OrchestratorError> {
        let Asking { permission, build, .. } = &asking;
        let name = permission.name();
        if self.state.lock().intent.permissions.contains_key(&name) {
            return Ok(None);
        }
        let (intent, _, undertaken) = self.try_permission(&asking)?;
        if !build && !undertaken.is_empty() {
            return Err(OrchestratorError::WouldBuild { what: built(&undertaken) });
        }
        let given = given(&intent, permission);
        let ends = permission.ends().into_iter().filter_map(|end| match end {
            End::Resource(name) => Some((Fact::Resource(name.clone(), None).key(), Expected::Present)),
            _ => None,
        });
        let itself = (Fact::Permission(name.clone(), None).key(), Expected::Absent);
        let asked = Asked {
            judged_on: ends.chain([itself]).collect(),
            what: format!("allow {permission}"),
            resources: given.iter().map(|(resource, _)| resource.clone()).collect(),
            objects: given.iter().map(|(resource, entry)| format!("rule/{resource}/{entry}")).collect(),
            facts: vec![Fact::Permission(name.clone(), Some(permission.clone()))],
            undo: vec![Fact::Permission(name.clone(), None)],
        };
        match self.ask(asked, false).await {
            // Somebody else asked for the same at the same time.
            Err(OrchestratorError::Superseded)
                if self.state.lock().intent.permissions.contains_key(&name) =>
            {
                Ok(None)
            }
            asked => asked.map(Some),
        }
    }

    /// What storing a permission would do, and what that would build. Refuses what [`Self::allow`] refuses.
    pub fn plan_permission(&self, asking: &Asking) -> Result<(Plan, Undertaking), OrchestratorError> {
        let (_, plan, undertaken) = self.try_permission(asking)?;
        Ok((plan, undertaken))
    }

    /// Takes a permission back, with all that it gave.
    pub async fn deny(&self, name: &Segment, dry_run: bool) -> Result<JobOrPlan, OrchestratorError> {
        let (intent, permission) = {
            let state = self.state.lock();
            let found = state.intent.permissions.get(name).cloned();
            if found.is_none() && state.unreadable(Subject::Permission(name.clone())).is_none() {
                return Err(OrchestratorError::UnknownPermission { permission: name.clone() });
            }
            (std::sync::Arc::clone(&state.intent), found)
        };
        let intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
        let given = permission.as_ref().map(|permission| given(&intent, permission)).unwrap_or_default();
        let what = match permission {
            Some(permission) => format!("deny {permission}"),
            None => format!("delete permission {name}, which cannot be read"),
        };
        let asked = Asked {
            judged_on: Vec::new(),
            what,
            resources: given.into_iter().map(|(resource, _)| resource).collect(),
            objects: BTreeSet::new(),
            facts: vec![Fact::Permission(name.clone(), None)],
            undo: Vec::new(),
        };
        self.ask(asked, dry_run).await
    }

    /// What a permission gives to which resources, stored or not.
    pub fn given(&self, permission: &Permission) -> Vec<(ResourceName, model::EntryName)> {
        let intent = std::sync::Arc::clone(&self.state.lock().intent);
        self.complete(&intent).map(|intent| given(&intent, permission)).unwrap_or_default()
    }

    /// The permissions there are, by name.
    pub fn permissions(&self) -> Vec<(Segment, Permission)> {
        let intent = std::sync::Arc::clone(&self.state.lock().intent);
        intent.permissions.iter().map(|(name, permission)| (name.clone(), permission.clone())).collect()
    }

    /// The same, with how far each is at resources. One plan is made for all of them.
    pub fn permission_views(&self) -> Result<Vec<PermissionView>, OrchestratorError> {
        let (intent, inventory) = {
            let mut state = self.state.lock();
            (std::sync::Arc::clone(&state.intent), state.ahead())
        };
        let intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
        let plan = plan(&intent, &inventory);
        let view = |(name, permission): (&Segment, &Permission)| {
            let given = given(&intent, permission);
            let waiting = given.iter().map(|(resource, _)| resource);
            let waiting = waiting.filter(|resource| plan.waiting.contains_key(*resource)).cloned().collect();
            let about = |problem: &&Problem| {
                let of_it = |(resource, entry): &(ResourceName, model::EntryName)| {
                    *resource == problem.resource
                        && problem.rule.as_ref().is_none_or(|rule| rule == entry.as_str())
                };
                given.iter().any(of_it)
            };
            let problems = plan.problems.iter().filter(about).map(ToString::to_string).collect();
            PermissionView { name: name.clone(), permission: permission.clone(), given, waiting, problems }
        };
        Ok(intent.permissions.iter().map(view).collect())
    }

    /// What resources permit with others that do not permit it: of one, or of all, and not more than so many.
    pub fn halves(&self, of: Option<&ResourceName>, most: usize) -> Vec<Half> {
        let inventory = std::sync::Arc::clone(&self.state.lock().inventory);
        halves(&inventory, of, most)
    }

    /// The intent with the permission, its plan, and what that builds which is not built anyway.
    fn try_permission(&self, asking: &Asking) -> Result<(Intent, Plan, Undertaking), OrchestratorError> {
        let (intent, inventory) = {
            let mut state = self.state.lock();
            (std::sync::Arc::clone(&state.intent), state.ahead())
        };
        let mut intent = self.complete(&intent).ok_or(OrchestratorError::NotLoaded)?;
        let mut elsewhere = intent.elsewhere.as_ref().clone();
        elsewhere.extend(asking.elsewhere.iter().map(|(end, addresses)| (end.clone(), addresses.clone())));
        intent.elsewhere = elsewhere.into();
        let anyway = undertaking(&plan(&intent, &inventory), &intent.clouds);
        check(&intent, &inventory, &asking.permission)?;
        let mut inventory = Inventory::clone(&inventory);
        let permission = asking.permission.clone();
        state::try_out(&mut intent, &mut inventory, Fact::Permission(permission.name(), Some(permission)));
        let plan = plan(&intent, &inventory);
        let undertaken = undertaking(&plan, &intent.clouds).beyond(&anyway);
        Ok((intent, plan, undertaken))
    }
}

/// Refuses a permission that could not do what it says.
fn check(intent: &Intent, inventory: &Inventory, permission: &Permission) -> Result<(), OrchestratorError> {
    for end in permission.ends() {
        match end {
            End::Resource(resource) if !intent.resources.contains_key(resource) => {
                return Err(OrchestratorError::UnknownResource { resource: resource.clone() });
            }
            End::Tag(tag) if intent.graph.get(tag).is_err() => {
                return Err(OrchestratorError::UnknownTag { tag: tag.clone() });
            }
            _ => {}
        }
    }
    // What is private and nobody's cannot be permitted at a resource.
    let places = Places::new(inventory.networks.iter().map(|(name, record)| (name, record.space)));
    let given = given(intent, permission);
    for (at, with) in [(&permission.from, &permission.to), (&permission.to, &permission.from)] {
        let Some((resource, entry)) = given.iter().find(|(resource, _)| holds(intent, at, resource)) else {
            continue;
        };
        let refuse = |kind| {
            let rule = Some(entry.to_string());
            Err(OrchestratorError::Problem(Problem { resource: resource.clone(), rule, kind }))
        };
        let addresses: Vec<Address> = match with {
            End::Address(address) => vec![*address],
            End::Tag(tag) => {
                let resolved = intent.graph.resolve(tag).map(|resolved| resolved.iter().collect::<Vec<_>>());
                let resolved = resolved.unwrap_or_default();
                let addresses: Vec<_> = resolved
                    .into_iter()
                    .filter_map(|member| match member {
                        tags::ResolvedMember::Literal(address) => Some(*address),
                        tags::ResolvedMember::Leaf { leaf, .. } => leaf.ip,
                    })
                    .collect();
                if addresses.is_empty() {
                    return refuse(ProblemKind::EmptyTag { tag: tag.clone() });
                }
                addresses
            }
            with => intent.elsewhere.get(with).into_iter().flatten().copied().collect(),
        };
        if let Some(target) = addresses.into_iter().find(|target| places.classify(*target) == Class::Unplaced)
        {
            let hidden = inventory.unreadable.hides_a_space().map(ProblemKind::from);
            return refuse(hidden.unwrap_or(ProblemKind::Unplaced { target }));
        }
    }
    Ok(())
}

/// Whether a resource is at an end.
fn holds(intent: &Intent, end: &End, resource: &ResourceName) -> bool {
    match end {
        End::Resource(name) => name == resource,
        End::Namespace(namespace) => resource.namespace.as_str() == namespace.as_str(),
        End::Tag(tag) => {
            let leaf = resource.to_string().parse().ok();
            leaf.is_some_and(|leaf| {
                leaf == *tag || intent.graph.ancestors(&leaf).is_ok_and(|above| above.contains(&tag))
            })
        }
        End::Host(_) | End::Pod { .. } | End::Address(_) => false,
    }
}

fn built(undertaken: &Undertaking) -> String {
    let of = |what: &str, names: Vec<String>| match names.len() {
        0 => None,
        1 => Some(format!("the {what} {}", names[0])),
        _ => Some(format!("the {what}s {}", names.join(", "))),
    };
    let gateways = of("gateway", undertaken.gateways.iter().map(Site::to_string).collect());
    let links = of("link", undertaken.links.iter().map(LinkName::to_string).collect());
    gateways.into_iter().chain(links).collect::<Vec<_>>().join(" and ")
}
