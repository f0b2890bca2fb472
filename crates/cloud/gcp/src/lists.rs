//! Permit lists: read the firewalls, plan, then change only what differs, all at once.

use cloud_api::{CloudError, list_after};
use futures::future::try_join_all;
use model::PermitEntry;

use crate::{
    clusters::{self, Around},
    ground::{Ground, Result},
    link::Link,
    rules::{ATTACHED_PRIORITY, Change, Firewalls, Home, PRIORITY, difference, entries_of, firewalls_of},
    shapes::{Cluster, Firewall, Instance},
};

/// `projects/P/zones/Z/instances/NAME`, of the site's project.
fn parse(uri: &str, project: &str) -> Option<Link<Instance>> {
    match uri.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", at, "zones", _, "instances", _] if *at == project => Some(uri.into()),
        _ => None,
    }
}

/// Firewalls by their names.
pub(crate) fn named(firewalls: Vec<Firewall>) -> Firewalls {
    firewalls.into_iter().map(|firewall| (firewall.name.clone(), firewall)).collect()
}

/// A resource's list as it is, and where it belongs.
struct Found {
    home: Home,
    firewalls: Firewalls,
    /// What is around it, if it is a cluster.
    around: Option<Around>,
}

fn missing(ground: &Ground, uri: &str) -> CloudError {
    CloudError::not_found(format!("there is no resource {uri} in {}", ground.site))
}

/// The list of a cluster belongs to the tag of its nodes, before what fences it.
async fn of_cluster(ground: &Ground, link: &Link<Cluster>) -> Result<Found> {
    let prefix = ground.names.list(link.name());
    let listed = format!("{prefix}-");
    let cluster = async { Ok(ground.apis.container.get(link).await?) };
    let (cluster, firewalls) = futures::try_join!(cluster, ground.firewalls(&listed))?;
    let cluster = cluster.filter(|cluster| ground.owns(&cluster.description));
    let cluster = cluster.ok_or_else(|| missing(ground, link.path()))?;
    let around = Some(clusters::border(ground, &cluster).await?);
    let home = ground.home(prefix, ground.network(), link.name(), ATTACHED_PRIORITY);
    Ok(Found { home, firewalls: named(firewalls), around })
}

/// The list of an instance. One that was made is known by its name, which is its tag; one that is attached by its path.
async fn of_instance(ground: &Ground, link: &Link<Instance>) -> Result<Found> {
    let missing = || missing(ground, link.path());
    let is_made = link.name().starts_with(&ground.names.prefix());
    let prefix = ground.names.list(if is_made { link.name() } else { link.path() });
    let listed = format!("{prefix}-");
    let (instance, firewalls) = futures::try_join!(ground.get(link), ground.firewalls(&listed))?;
    let instance = instance.ok_or_else(missing)?;
    let home = match is_made {
        true if ground.owns(&instance.description) => {
            ground.home(prefix, ground.network(), link.name(), PRIORITY)
        }
        true => return Err(missing()),
        false => {
            let tag = ground.names.attached(link.path());
            let closer = ground.get(&ground.firewall(&format!("{tag}-in"))).await?;
            let closer = closer.filter(|one| ground.owns(&one.description)).ok_or_else(missing)?;
            ground.home(prefix, closer.network, &tag, ATTACHED_PRIORITY)
        }
    };
    Ok(Found { home, firewalls: named(firewalls), around: None })
}

async fn find(ground: &Ground, uri: &str) -> Result<Found> {
    match clusters::parse(uri, &ground.project) {
        Some(cluster) => of_cluster(ground, &cluster).await,
        None => of_instance(ground, &parse(uri, &ground.project).ok_or_else(|| missing(ground, uri))?).await,
    }
}

pub(crate) async fn read(ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
    let Found { firewalls, around, .. } = find(ground, uri).await?;
    let mut entries = entries_of(firewalls.values());
    entries.extend(around.into_iter().flat_map(|around| around.told));
    Ok(entries)
}

pub(crate) async fn put(
    ground: &Ground,
    uri: &str,
    before: &[PermitEntry],
    wanted: &[PermitEntry],
) -> Result {
    let _turn = ground.turn(uri).await;
    let Found { home, firewalls: current, around } = find(ground, uri).await?;
    let list = list_after(entries_of(current.values()), before, wanted);
    let change = difference(&current, &firewalls_of(&home, &list)?);
    if let Some(around) = around {
        apply(ground, &around.gaps).await?;
    }
    apply(ground, &change).await
}

/// Changes firewalls: what opens or closes anew first, what goes last.
pub(crate) async fn apply(ground: &Ground, change: &Change) -> Result {
    let (compute, global) = (ground.compute(), ground.global());
    try_join_all(change.insert.iter().map(|firewall| compute.insert(&global, firewall))).await?;
    let update = |firewall: &Firewall| {
        let (link, firewall) = (ground.firewall(&firewall.name), firewall.clone());
        async move { compute.put(&link, &firewall).await }
    };
    try_join_all(change.update.iter().map(update)).await?;
    ground.delete_firewalls(change.delete.iter().map(String::as_str)).await
}
