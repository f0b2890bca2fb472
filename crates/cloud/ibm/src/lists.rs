//! Permit lists: read the group and its note, plan, then change only what differs.

use cloud_api::{CloudError, only_inbound};
use futures::future::try_join_all;
use model::PermitEntry;
use serde_json::Value;

use crate::{
    api::{Place, RULE, text},
    cloud::{Ground, IbmCloud, Result},
    networks::Vpc,
    resources::{group_of, note_of},
    rules::{Note, Rules, entries_of, plan, rules_in},
};

/// A resource's group and its note, as read.
struct List {
    vpc: Vpc,
    groups: Vec<Value>,
    instance: String,
    group: String,
    rules: Rules,
    note: Note,
}

impl IbmCloud {
    async fn list_of(&self, ground: &Ground, uri: &str) -> Result<List> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let (region, instance) = uri.split_once('/').ok_or_else(missing)?;
        if !ground.names.is_instance(instance) && !ground.names.is_endpoint(instance) {
            return Err(missing());
        }
        let vpc = self.vpc(ground, region).await?.ok_or_else(missing)?;
        let groups = self.groups(&vpc).await?;
        let group = group_of(ground, &groups, instance).ok_or_else(missing)?;
        Ok(List {
            group: text(group, "id").to_owned(),
            rules: rules_in(group),
            note: note_of(ground, &groups, instance).unwrap_or_default(),
            instance: instance.to_owned(),
            groups,
            vpc,
        })
    }

    pub(crate) async fn read_list(&self, ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
        let list = self.list_of(ground, uri).await?;
        Ok(entries_of(&list.rules, &list.note))
    }

    pub(crate) async fn change_list(
        &self,
        ground: &Ground,
        uri: &str,
        set: &[PermitEntry],
        unset: &[PermitEntry],
    ) -> Result<()> {
        let _turn = self.turns.take(uri).await;
        let mut list = self.list_of(ground, uri).await?;
        if ground.names.is_endpoint(&list.instance) {
            only_inbound(set)?;
        }
        let change = plan(&list.rules, &list.note, set, unset)?;
        // A note that does not fit is refused before anything else is.
        for note in change.first.iter().chain(&change.last) {
            crate::notes::write(
                &format!("the permit list of {}", note.name),
                &serde_json::to_string(note).unwrap_or_default(),
            )?;
        }
        if let Some(note) = &change.first {
            self.write_note(ground, &list.vpc, &list.groups, &list.instance, note).await?;
        }
        let (place, group) = (Place::Region(&list.vpc.region), &list.group);
        let path = format!("security_groups/{group}/rules");
        // Opens before it closes: nothing that stays permitted is interrupted.
        let opened = change.open.iter().map(|rule| {
            let (path, body) = (&path, rule.write());
            async move { self.api.make(place, &RULE, path, &body).await }
        });
        try_join_all(opened).await?;
        let closed = change.close.iter().map(|id| {
            let path = format!("{path}/{id}");
            async move { self.api.remove(place, &RULE, &path).await }
        });
        try_join_all(closed).await?;
        if let Some(note) = &change.last {
            if change.first.is_some() {
                list.groups = self.groups(&list.vpc).await?;
            }
            self.write_note(ground, &list.vpc, &list.groups, &list.instance, note).await?;
        }
        Ok(())
    }
}
