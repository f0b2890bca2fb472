//! Permit lists: read the groups and the note, plan, then change only what differs.

use async_trait::async_trait;
use cloud_api::{At, CloudError, PermitLists, only_inbound};
use futures::future::try_join_all;
use model::PermitEntry;
use serde_json::{Value, json};

use crate::{
    api::{GROUP, Place, RULE, text},
    attach::targets,
    cloud::{Ground, IbmCloud, Result},
    clusters, notes,
    resources::{further_groups, group_of, note_of, notes_of},
    rules::{Change, Note, Rule, Rules, entries_of, plan, rules_in},
    spread::{Held, Room, Steps, in_force, spread},
    vpcs::Vpc,
};

/// Security groups of a VPC, the one aside that it has from the beginning.
const MOST_IN_VPC: usize = 100;

/// A resource's groups and its note, as read.
struct List {
    vpc: Vpc,
    groups: Vec<Value>,
    instance: String,
    /// The interface that the groups are on; empty if there is none yet, and of a cluster.
    interface: String,
    held: Vec<Held>,
    /// What IBM's own groups of a cluster open.
    opened: Rules,
    /// The id of the one of a cluster's load balancers; empty if there is none.
    balancers: String,
    note: Note,
}

fn held(number: usize, group: &Value, is_bound: bool) -> Held {
    Held {
        number,
        id: text(group, "id").to_owned(),
        is_bound,
        count: group["rules"].as_array().map_or(0, Vec::len),
        rules: rules_in(group),
    }
}

#[async_trait]
impl PermitLists for IbmCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        let list = self.list_of(&self.at(at), uri).await?;
        Ok(entries_of(&list.in_force(), &list.note))
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let _turn = self.turns.take(uri).await;
        let ground = &self.at(at);
        let mut list = self.list_of(ground, uri).await?;
        if ground.names.is_endpoint(&list.instance) {
            only_inbound(wanted)?;
        }
        let is_cluster = list.vpc.cluster().is_some();
        if is_cluster {
            clusters::check_targets(wanted)?;
        }
        let change = plan(&list.in_force(), &list.note, before, wanted)?;
        let steps = spread(&list.held, &change, if is_cluster { Room::Fixed } else { Room::Grows })?;
        list.check_room(ground, &change, &steps)?;
        let place = Place::Region(&list.vpc.region);
        let abandoned = steps
            .abandoned
            .iter()
            .map(|id| async move { self.api.remove(place, &GROUP, &format!("security_groups/{id}")).await });
        try_join_all(abandoned).await?;
        if let Some(note) = &change.first {
            self.write_note(ground, &list.vpc, &list.groups, &list.instance, note).await?;
        }
        self.shut_balancers(&list.vpc, &list.balancers, list.shutting(&steps.close)).await?;
        // Opens before it closes, where there is room for both: nothing that stays permitted is interrupted.
        if steps.closes_first {
            self.close_rules(place, &steps.close).await?;
        }
        self.open_rules(ground, &list, &steps).await?;
        if !steps.closes_first {
            self.close_rules(place, &steps.close).await?;
        }
        for id in &steps.empty {
            self.bind(&list.vpc, id, &list.interface, false).await?;
            self.api.remove(place, &GROUP, &format!("security_groups/{id}")).await?;
        }
        if let Some(note) = &change.last {
            if change.first.is_some() {
                list.groups = self.groups(&list.vpc).await?;
            }
            self.write_note(ground, &list.vpc, &list.groups, &list.instance, note).await?;
        }
        Ok(())
    }
}

impl IbmCloud {
    async fn list_of(&self, ground: &Ground, uri: &str) -> Result<List> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let (region, instance) = uri.split_once('/').ok_or_else(missing)?;
        let names = &ground.names;
        if ![names.is_instance(instance), names.is_endpoint(instance), names.is_cluster(instance)]
            .contains(&true)
        {
            return Err(missing());
        }
        let vpc = self.vpc(ground, region).await?.ok_or_else(missing)?;
        let groups = self.groups(&vpc).await?;
        let first = group_of(ground, &groups, instance).ok_or_else(missing)?;
        let interface = text(&first["targets"][0], "id").to_owned();
        let further = further_groups(ground, &groups, instance);
        let all = std::iter::once((0, first)).chain(further);
        // A cluster's workers are in all of them from the beginning, and are no targets that a group would name.
        let is_bound = |number: usize, group: &Value| {
            number == 0 || vpc.cluster().is_some() || targets(group, &interface)
        };
        let provided = [clusters::workers_group(&groups, &vpc), clusters::balancers_group(&groups)];
        let provided = provided.map(|group| group.filter(|_| vpc.cluster().is_some()));
        Ok(List {
            held: all.map(|(number, group)| held(number, group, is_bound(number, group))).collect(),
            opened: provided.iter().flatten().flat_map(|group| clusters::opened(group)).collect(),
            balancers: provided[1].map(|group| text(group, "id").to_owned()).unwrap_or_default(),
            note: note_of(ground, &groups, instance).unwrap_or_default(),
            instance: instance.to_owned(),
            interface,
            groups,
            vpc,
        })
    }

    async fn close_rules(&self, place: Place<'_>, paths: &[String]) -> Result<()> {
        let closed = paths.iter().map(|path| {
            let path = format!("security_groups/{path}");
            async move { self.api.remove(place, &RULE, &path).await }
        });
        try_join_all(closed).await.map(drop)
    }

    /// Rules into the groups that are there, and further groups with theirs.
    async fn open_rules(&self, ground: &Ground, list: &List, steps: &Steps) -> Result<()> {
        let place = Place::Region(&list.vpc.region);
        let pairs = steps.into.iter().flat_map(|(id, rules)| rules.iter().map(move |rule| (id, rule)));
        let opened = pairs.map(|(id, rule)| {
            let (path, body) = (format!("security_groups/{id}/rules"), rule.write());
            async move { self.api.make(place, &RULE, &path, &body).await }
        });
        try_join_all(opened).await?;
        let path = format!("security_groups?vpc.id={}", list.vpc.id);
        for (number, rules) in &steps.new {
            let rules: Vec<Value> = rules.iter().map(Rule::write).collect();
            let name = ground.names.further_group(&list.instance, *number);
            let body = ground.place(json!({"name": name, "vpc": {"id": list.vpc.id}, "rules": rules}));
            let made = self.api.make(place, &GROUP, &path, &body).await?;
            self.bind(&list.vpc, text(&made, "id"), &list.interface, true).await?;
        }
        Ok(())
    }
}

impl List {
    /// The rules that apply.
    fn in_force(&self) -> Rules {
        let mut all = self.opened.clone();
        all.extend(in_force(&self.held));
        all
    }

    /// The rules of a cluster's load balancers that are to go.
    fn shutting<'l>(&'l self, close: &'l [String]) -> impl Iterator<Item = &'l Rule> {
        let own = format!("{}/", self.balancers);
        let going =
            self.opened.iter().filter(move |(_, path)| path.starts_with(&own) && close.contains(path));
        going.map(|(rule, _)| rule)
    }

    /// Refuses, before anything is changed, what IBM would refuse half way.
    fn check_room(&self, ground: &Ground, change: &Change, steps: &Steps) -> Result<()> {
        if !steps.new.is_empty() && self.interface.is_empty() {
            return Err(CloudError::unavailable(format!("{} has no interface yet", self.instance)));
        }
        let parts = |note: &Option<Note>| match note {
            Some(note) => {
                let (what, text) = note.write();
                notes::parts(&what, &text).map(|parts| parts.len())
            }
            None => Ok(0),
        };
        let (first, last) = (parts(&change.first)?, parts(&change.last)?);
        let old = notes_of(ground, &self.groups, &self.instance).len();
        let there = self.groups.len() - steps.abandoned.len();
        let settled = if first > 0 { there - old + first } else { there };
        let most = (there + first).max(settled + steps.new.len() + last);
        match most > MOST_IN_VPC + 1 && most > there {
            true => Err(CloudError::conflict(format!(
                "the list of {} would take {} more security groups in {}, which has {there}; IBM Cloud gives a VPC {MOST_IN_VPC}",
                self.note.name,
                most - there,
                self.vpc.id
            ))),
            false => Ok(()),
        }
    }
}
