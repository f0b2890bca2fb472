//! The security groups of a VPC: those of permit lists, and notes ([`crate::notes`]), each recognised by its name.

use std::collections::BTreeMap;

use futures::{future::try_join_all, try_join};
use http::Method;
use model::{PeeringName, Site};

use crate::rules::{MOST_GROUPS, Note};
use crate::shapes::{GroupRequest, GroupRule, Reference, RuleRequest, SecurityGroup};
use crate::{Call, Collection, Ground, Listed, Place, Result, Vpc, notes};

/// Deletes what there is of a resource, by the names of its objects, then its list: another of its name is then closed.
pub(crate) async fn remove_with_list<K: Listed>(
    ground: &Ground,
    vpc: &Vpc,
    objects: &Collection<'_, K>,
    is_its: impl Fn(&str) -> bool + Send + Sync,
    resource: &str,
) -> Result {
    let (there, groups) = try_join!(objects.list(), Groups::read(ground, vpc))?;
    objects.remove_all(there.iter().filter(|one| is_its(one.name())).map(K::id)).await?;
    groups.forget_list(resource).await
}

/// The groups of a VPC, as read. Resources are named here as IBM knows them: `t-SITE-vm-HASH`.
pub(crate) struct Groups<'g> {
    pub(crate) ground: &'g Ground,
    pub(crate) vpc: Vpc,
    pub(crate) all: Vec<SecurityGroup>,
}

impl<'g> Groups<'g> {
    pub(crate) async fn read(ground: &'g Ground, vpc: &Vpc) -> Result<Self> {
        let all = vpc.all(&ground.api).list().await?;
        Ok(Self { ground, vpc: vpc.clone(), all })
    }

    pub(crate) fn named(&self, name: &str) -> Option<&SecurityGroup> {
        self.all.iter().find(|group| group.name == name)
    }

    /// The group that a resource always has.
    pub(crate) fn first(&self, resource: &str) -> Option<&SecurityGroup> {
        self.named(&self.ground.names.group(resource))
    }

    /// The further groups of a resource's list, with their numbers.
    pub(crate) fn further(&self, resource: &str) -> Vec<(usize, &SecurityGroup)> {
        let find = |number| Some((number, self.named(&self.ground.names.further_group(resource, number))?));
        (1..MOST_GROUPS).filter_map(find).collect()
    }

    /// The notes of a resource, all their parts, the newest first, with their numbers.
    pub(crate) fn notes(&self, resource: &str) -> Vec<(u64, &SecurityGroup)> {
        let number = |group: &SecurityGroup| Some(self.ground.names.read_note(resource, &group.name)?.0);
        let mut found: Vec<_> = self.all.iter().filter_map(|group| Some((number(group)?, group))).collect();
        found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        found
    }

    /// What is noted of a resource: the newest note that is whole.
    pub(crate) fn note(&self, resource: &str) -> Option<Note> {
        let mut found: BTreeMap<(u64, usize), BTreeMap<usize, String>> = BTreeMap::new();
        for group in &self.all {
            if let Some((number, part, count)) = self.ground.names.read_note(resource, &group.name)
                && let Some(text) = notes::read(group)
            {
                found.entry((number, count)).or_default().insert(part, text);
            }
        }
        let whole = found.into_iter().rev().filter(|((_, count), parts)| parts.keys().copied().eq(0..*count));
        let texts = whole.map(|(_, parts)| parts.into_values().collect::<Vec<_>>().concat());
        texts.into_iter().find_map(|text| serde_json::from_str(&text).ok())
    }

    /// The peerings that are noted here.
    pub(crate) fn peerings(&self) -> Vec<PeeringName> {
        let notes = self.all.iter().filter(|group| self.ground.names.is_peering_note(&group.name));
        notes.filter_map(|group| notes::read(group)?.parse().ok()).collect()
    }

    /// The peers of the site's links, which are noted in its gateway's VPC.
    pub(crate) fn links(&self) -> Vec<Site> {
        let notes = self.all.iter().filter(|group| self.ground.names.is_link_note(&group.name));
        let mut peers: Vec<Site> = notes.filter_map(|group| notes::read(group)?.parse().ok()).collect();
        peers.sort();
        peers
    }

    pub(crate) fn collection(&self) -> Collection<'_, SecurityGroup> {
        self.vpc.all(&self.ground.api)
    }

    pub(crate) fn rules_of<'r>(&'r self, group: &str) -> Collection<'r, GroupRule> {
        self.ground.api.in_region(&self.vpc.region).of::<SecurityGroup>(group)
    }

    pub(crate) async fn open_rules(&self, group: &str, rules: impl Iterator<Item = RuleRequest>) -> Result {
        let (group, rules) = (&self.rules_of(group), rules.collect::<Vec<_>>());
        try_join_all(rules.iter().map(|rule| group.ensure(None, rule))).await.map(drop)
    }

    /// Takes out rules of any groups: `GROUP/rules/RULE`.
    pub(crate) async fn close_rules(&self, paths: &[String]) -> Result {
        let split = paths.iter().filter_map(|path| path.split_once("/rules/"));
        let closed = split.map(|(group, rule)| async move { self.rules_of(group).remove(rule).await });
        try_join_all(closed).await.map(drop)
    }

    /// Makes a group with its rules in it.
    pub(crate) async fn make(&self, name: String, rules: Vec<RuleRequest>) -> Result<SecurityGroup> {
        let (vpc, resource_group) = (Reference::to(&self.vpc.id), self.ground.group());
        self.collection().ensure(None, &GroupRequest { name, vpc, rules, resource_group }).await
    }

    pub(crate) async fn forget<'f>(&self, groups: impl IntoIterator<Item = &'f SecurityGroup>) -> Result {
        let ids: Vec<&str> = groups.into_iter().map(|group| group.id.as_str()).collect();
        self.collection().remove_all(ids).await
    }

    /// The group of a resource that is still to be made. Rules that an earlier one left are taken out.
    pub(crate) async fn closed(&self, resource: &str) -> Result<String> {
        let further = self.further(resource).into_iter().map(|(_, group)| group);
        self.forget(further.filter(|group| group.targets.is_empty())).await?;
        self.empty(&self.ground.names.group(resource)).await
    }

    /// The group of a name, without rules: those of one that is there and on nothing are taken out.
    pub(crate) async fn empty(&self, name: &str) -> Result<String> {
        let Some(group) = self.named(name) else {
            return Ok(self.make(name.to_owned(), Vec::new()).await?.id);
        };
        if group.targets.is_empty() {
            self.rules_of(&group.id).remove_all(group.rules.iter().map(|rule| rule.id.as_str())).await?;
        }
        Ok(group.id.clone())
    }

    /// Makes a note. One of the same name says the same.
    pub(crate) async fn note_down(&self, name: String, what: &str, text: &str) -> Result {
        self.make(name, notes::write(what, text)?).await.map(drop)
    }

    /// Notes that there is a resource, if that is not noted yet. It has no list.
    pub(crate) async fn note_new(&self, resource: &str, name: &model::Segment) -> Result {
        match self.note(resource) {
            Some(_) => Ok(()),
            None => self.write_note(resource, &Note { name: name.to_string(), list: Vec::new() }).await,
        }
    }

    /// Writes a resource's note anew, then forgets the older ones.
    pub(crate) async fn write_note(&self, resource: &str, note: &Note) -> Result {
        let old = self.notes(resource);
        let number = old.first().map_or(0, |(number, _)| number + 1);
        let (what, whole) = note.write();
        let parts = notes::parts(&what, &whole)?;
        try_join_all(parts.iter().enumerate().map(|(part, text)| {
            let name = self.ground.names.note(resource, number, part, parts.len());
            self.note_down(name, &what, text)
        }))
        .await?;
        self.forget(old.into_iter().map(|(_, group)| group)).await
    }

    /// Deletes all groups of a resource's list, and its notes.
    async fn forget_list(&self, resource: &str) -> Result {
        let further = self.further(resource).into_iter().map(|(_, group)| group);
        let notes = self.notes(resource).into_iter().map(|(_, group)| group);
        self.forget(self.first(resource).into_iter().chain(further).chain(notes)).await
    }

    /// Puts an interface into a group.
    pub(crate) async fn bind(&self, group: &str, interface: &str) -> Result {
        Ok(self.ground.api.send(self.binding("create", Method::PUT, group, interface)).await.map(drop)?)
    }

    /// Takes an interface out of a group.
    pub(crate) async fn unbind(&self, group: &str, interface: &str) -> Result {
        Ok(self.ground.api.take_away(self.binding("delete", Method::DELETE, group, interface)).await?)
    }

    fn binding(&self, verb: &str, method: Method, group: &str, interface: &str) -> Call<'_> {
        let path = format!("security_groups/{group}/targets/{interface}");
        let operation = format!("{verb}_security_group_target_binding");
        Call::new(Place::Region(&self.vpc.region), &operation, method, path)
    }
}
