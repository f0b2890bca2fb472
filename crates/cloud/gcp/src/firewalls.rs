//! Sets of firewalls of the site: read, and changed by what differs.

use futures::future::try_join_all;

use crate::{
    ground::{Ground, Result},
    rules::{Change, Firewalls},
    shapes::Firewall,
};

/// Firewalls by their names.
pub(crate) fn named(firewalls: Vec<Firewall>) -> Firewalls {
    firewalls.into_iter().map(|firewall| (firewall.name.clone(), firewall)).collect()
}

/// Firewalls of ours that are no entries of a list, by what their names begin with.
pub(crate) async fn closers(ground: &Ground, what: &str) -> Result<Firewalls> {
    Ok(named(ground.owned_firewalls(what).await?))
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
