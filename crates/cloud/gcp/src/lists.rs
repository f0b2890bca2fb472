//! Permit lists: read the firewalls, plan, then change only what differs, all at once.

use cloud_api::{CloudError, list_after};
use futures::future::try_join_all;
use model::PermitEntry;
use serde_json::Value;

use crate::{
    api::Place,
    attach::tag_of,
    cloud::{GcpCloud, Ground, Result},
    clusters::{self, Around},
    names::{hash, path},
    rules::{ATTACHED_PRIORITY, Change, Firewalls, Home, PRIORITY, difference, entries_of, firewalls_of},
};

/// `projects/P/zones/Z/instances/NAME`: the zone and the name.
fn parse<'u>(uri: &'u str, project: &str) -> Option<(&'u str, &'u str)> {
    match uri.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", at, "zones", zone, "instances", name] if *at == project => Some((*zone, *name)),
        _ => None,
    }
}

/// Firewalls by their names.
pub(crate) fn named(firewalls: Vec<Value>) -> Firewalls {
    let named = |firewall: Value| Some((firewall["name"].as_str()?.to_owned(), firewall));
    firewalls.into_iter().filter_map(named).collect()
}

/// A resource's list as it is, and where it belongs.
struct Found {
    home: Home,
    firewalls: Firewalls,
    /// What is around it, if it is a cluster.
    around: Option<Around>,
}

impl GcpCloud {
    /// What the names of an instance's firewalls begin with. One that was made is known by its name, which is its tag;
    /// one that is attached by its path.
    pub(crate) fn list_prefix(&self, ground: &Ground, instance: &str) -> String {
        format!("{}-fw-{}", ground.names.prefix(), hash(instance, 10))
    }

    /// Where the list of a cluster belongs: to the tag of its nodes, before what fences it.
    async fn cluster_firewalls(&self, ground: &Ground, uri: &str, tag: &str) -> Result<Found> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let (global, prefix) = (ground.global(), self.list_prefix(ground, tag));
        let listed = format!("{prefix}-");
        let firewalls = async { Ok(self.compute.list(&global, "firewalls", &listed).await?) };
        let (cluster, firewalls) = futures::try_join!(self.container.get(uri), firewalls)?;
        let cluster = cluster.filter(|cluster| ground.names.owns(cluster)).ok_or_else(missing)?;
        let around = Some(self.border(ground, &cluster).await?);
        let (owner, site, tag) = (self.owner.clone(), ground.site.to_string(), tag.to_owned());
        let home = Home { owner, site, prefix, network: ground.network(), tag, priority: ATTACHED_PRIORITY };
        Ok(Found { home, firewalls: named(firewalls), around })
    }

    async fn found(&self, ground: &Ground, uri: &str) -> Result<Found> {
        if let Some(tag) = clusters::parse(uri, &ground.project) {
            return self.cluster_firewalls(ground, uri, tag).await;
        }
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let (zone, name) = parse(uri, &ground.project).ok_or_else(missing)?;
        let is_made = name.starts_with(&ground.names.prefix());
        let prefix = self.list_prefix(ground, if is_made { name } else { uri });
        let place = Place::zone(&ground.project, zone);
        let (global, listed) = (ground.global(), format!("{prefix}-"));
        let instance = self.compute.get(&place, "instances", name);
        let firewalls = self.compute.list(&global, "firewalls", &listed);
        let (instance, firewalls) = futures::try_join!(instance, firewalls)?;
        let instance = instance.ok_or_else(missing)?;
        let (network, tag, priority) = match is_made {
            true if ground.names.owns(&instance) => (ground.network(), name.to_owned(), PRIORITY),
            true => return Err(missing()),
            false => {
                let tag = tag_of(ground, uri);
                let closer = self.compute.get(&global, "firewalls", &format!("{tag}-in")).await?;
                let closer = closer.filter(|one| ground.names.owns(one)).ok_or_else(missing)?;
                (path(&closer["network"]).to_owned(), tag, ATTACHED_PRIORITY)
            }
        };
        let (owner, site) = (self.owner.clone(), ground.site.to_string());
        let home = Home { owner, site, prefix, network, tag, priority };
        Ok(Found { home, firewalls: named(firewalls), around: None })
    }

    pub(crate) async fn read_list(&self, ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
        let Found { firewalls, around, .. } = self.found(ground, uri).await?;
        let mut entries = entries_of(firewalls.values());
        entries.extend(around.into_iter().flat_map(|around| around.told));
        Ok(entries)
    }

    pub(crate) async fn write_list(
        &self,
        ground: &Ground,
        uri: &str,
        before: &[PermitEntry],
        wanted: &[PermitEntry],
    ) -> Result {
        let _turn = self.turns.take(uri).await;
        let Found { home, firewalls: current, around } = self.found(ground, uri).await?;
        let list = list_after(entries_of(current.values()), before, wanted);
        let change = difference(&current, &firewalls_of(&home, &list)?);
        if let Some(around) = around {
            self.apply(ground, &around.gaps).await?;
        }
        self.apply(ground, &change).await
    }

    /// Changes firewalls: what opens or closes anew first, what goes last.
    pub(crate) async fn apply(&self, ground: &Ground, change: &Change) -> Result<()> {
        let (compute, global) = (&self.compute, ground.global());
        let opens = change.insert.iter().map(|firewall| compute.insert(&global, "firewalls", firewall));
        try_join_all(opens).await?;
        let updates = change.update.iter().map(|firewall| {
            compute.put(&global, "firewalls", firewall["name"].as_str().unwrap_or_default(), firewall)
        });
        try_join_all(updates).await?;
        try_join_all(change.delete.iter().map(|name| compute.delete(&global, "firewalls", name))).await?;
        Ok(())
    }
}
