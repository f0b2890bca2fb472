//! Permit lists: read the groups and the note, plan, then change only what differs.

use cloud_api::{CloudError, only_inbound};
use futures::future::try_join_all;
use model::PermitEntry;

use crate::rules::{Change, Note, Rule, Rules, entries_of, plan, request_of, rules_in};
use crate::shapes::SecurityGroup;
use crate::spread::{Held, Room, Steps, in_force, spread};
use crate::{Ground, Groups, Result, Vpc, clusters, notes};

/// Security groups of a VPC, the one aside that it has from the beginning.
const MOST_IN_VPC: usize = 100;

/// A resource's groups and its note, as read.
struct List<'l> {
    groups: Groups<'l>,
    /// The resource, as IBM knows it.
    resource: String,
    /// The interface that the groups are on; none if there is none yet, and of a cluster.
    interface: Option<String>,
    held: Vec<Held>,
    /// What IBM's own groups of a cluster open.
    opened: Rules,
    /// The id of the one of a cluster's load balancers.
    balancers: Option<String>,
    note: Note,
}

fn held(number: usize, group: &SecurityGroup, is_bound: bool) -> Held {
    Held { number, id: group.id.clone(), is_bound, count: group.rules.len(), rules: rules_in(group) }
}

pub(crate) async fn read(ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
    let list = List::read(ground, uri).await?;
    Ok(entries_of(&list.in_force(), &list.note))
}

/// Puts a list in the place of the one before.
pub(crate) async fn put(
    ground: &Ground,
    uri: &str,
    before: &[PermitEntry],
    wanted: &[PermitEntry],
) -> Result {
    let _turn = ground.turns.take(uri).await;
    let mut list = List::read(ground, uri).await?;
    if ground.names.is_endpoint(&list.resource) {
        only_inbound(wanted)?;
    }
    let is_cluster = list.groups.vpc.cluster().is_some();
    if is_cluster {
        clusters::check_targets(wanted)?;
    }
    let change = plan(&list.in_force(), &list.note, before, wanted)?;
    let steps = spread(&list.held, &change, if is_cluster { Room::Fixed } else { Room::Grows })?;
    list.check_room(&change, &steps)?;
    list.groups.collection().remove_all(steps.abandoned.iter().map(String::as_str)).await?;
    if let Some(note) = &change.first {
        list.groups.write_note(&list.resource, note).await?;
    }
    if let Some(balancers) = &list.balancers {
        clusters::shut_balancers(&list.groups, balancers, list.shutting(balancers, &steps.close)).await?;
    }
    // Opens before it closes, where there is room for both: nothing that stays permitted is interrupted.
    if steps.closes_first {
        list.groups.close_rules(&steps.close).await?;
    }
    list.open(&steps).await?;
    if !steps.closes_first {
        list.groups.close_rules(&steps.close).await?;
    }
    for id in &steps.empty {
        list.groups.unbind(id, list.interface()?).await?;
        list.groups.collection().remove(id).await?;
    }
    if let Some(note) = &change.last {
        if change.first.is_some() {
            list.groups = Groups::read(ground, &list.groups.vpc).await?;
        }
        list.groups.write_note(&list.resource, note).await?;
    }
    Ok(())
}

impl<'l> List<'l> {
    async fn read(ground: &'l Ground, uri: &str) -> Result<Self> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let (network, resource) = uri.split_once('/').ok_or_else(missing)?;
        let names = &ground.names;
        if !(names.is_instance(resource) || names.is_endpoint(resource) || names.is_cluster(resource)) {
            return Err(missing());
        }
        let vpc = Vpc::find(ground, network).await?.ok_or_else(missing)?;
        let groups = Groups::read(ground, &vpc).await?;
        let first = groups.first(resource).ok_or_else(missing)?;
        let interface = first.targets.first().map(|target| target.id.clone());
        // A cluster's workers are in all of them from the beginning, and are no targets that a group would name.
        let is_bound = |group: &SecurityGroup| {
            vpc.cluster().is_some() || interface.as_ref().is_some_and(|interface| group.targets(interface))
        };
        let further = groups.further(resource).into_iter();
        let further = further.map(|(number, group)| held(number, group, is_bound(group)));
        let provided = [clusters::workers_group(&groups.all, &vpc), clusters::balancers_group(&groups.all)];
        let provided = provided.map(|group| group.filter(|_| vpc.cluster().is_some()));
        Ok(List {
            held: std::iter::once(held(0, first, true)).chain(further).collect(),
            opened: provided.iter().flatten().flat_map(|group| clusters::opened(group)).collect(),
            balancers: provided[1].map(|group| group.id.clone()),
            note: groups.note(resource).unwrap_or_default(),
            resource: resource.to_owned(),
            interface,
            groups,
        })
    }

    /// The rules that apply.
    fn in_force(&self) -> Rules {
        let mut all = self.opened.clone();
        all.extend(in_force(&self.held));
        all
    }

    fn interface(&self) -> Result<&str> {
        let none = || CloudError::unavailable(format!("{} has no interface yet", self.resource));
        self.interface.as_deref().ok_or_else(none)
    }

    /// The rules of a cluster's load balancers that are to go.
    fn shutting<'s>(&'s self, balancers: &str, close: &'s [String]) -> impl Iterator<Item = &'s Rule> {
        let own = format!("{balancers}/");
        let going =
            self.opened.iter().filter(move |(_, path)| path.starts_with(&own) && close.contains(path));
        going.map(|(rule, _)| rule)
    }

    /// Rules into the groups that are there, and further groups with theirs.
    async fn open(&self, steps: &Steps) -> Result {
        let into =
            steps.into.iter().map(|(id, rules)| self.groups.open_rules(id, rules.iter().map(request_of)));
        try_join_all(into).await?;
        for (number, rules) in &steps.new {
            let name = self.groups.ground.names.further_group(&self.resource, *number);
            let made = self.groups.make(name, rules.iter().map(request_of).collect()).await?;
            self.groups.bind(&made.id, self.interface()?).await?;
        }
        Ok(())
    }

    /// Refuses, before anything is changed, what IBM would refuse half way.
    fn check_room(&self, change: &Change, steps: &Steps) -> Result {
        if !steps.new.is_empty() {
            self.interface()?;
        }
        let parts = |note: &Option<Note>| match note {
            Some(note) => {
                let (what, text) = note.write();
                notes::parts(&what, &text).map(|parts| parts.len())
            }
            None => Ok(0),
        };
        let (first, last) = (parts(&change.first)?, parts(&change.last)?);
        let old = self.groups.notes(&self.resource).len();
        let there = self.groups.all.len() - steps.abandoned.len();
        let settled = if first > 0 { there - old + first } else { there };
        let most = (there + first).max(settled + steps.new.len() + last);
        match most > MOST_IN_VPC + 1 && most > there {
            true => Err(CloudError::conflict(format!(
                "the list of {} would take {} more security groups in {}, which has {there}; IBM Cloud gives a VPC {MOST_IN_VPC}",
                self.note.name,
                most - there,
                self.groups.vpc.id
            ))),
            false => Ok(()),
        }
    }
}
