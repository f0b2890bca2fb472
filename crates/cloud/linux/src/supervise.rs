//! Looks after the daemons: one that has died is started again, a tunnel that is down is brought up.

use std::{collections::BTreeSet, sync::Weak, time::Duration};

use futures::future::join_all;
use tokio::time::sleep;
use tracing::warn;

use crate::cloud::Inner;

/// How often daemons are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Runs as long as the cloud is open.
pub(crate) async fn run(cloud: Weak<Inner>) {
    let mut told = BTreeSet::new();
    loop {
        sleep(EVERY).await;
        let Some(cloud) = cloud.upgrade() else { return };
        let troubles = cloud.tend().await;
        for trouble in troubles.difference(&told) {
            warn!(cloud = %cloud.names.cloud(), trouble, "a daemon is in trouble; it is tried again");
        }
        told = troubles;
    }
}

impl Inner {
    /// Looks at everything once. Answers what is wrong.
    async fn tend(&self) -> BTreeSet<String> {
        let state = self.state();
        let mut troubles: BTreeSet<String> = self.tend_commands(&state).into_iter().collect();
        for site in state.connections.keys() {
            let tunnels = match self.tunnels_of(&state, site, None) {
                Ok(tunnels) => tunnels,
                Err(err) => {
                    troubles.insert(err.message);
                    continue;
                }
            };
            let tended = join_all(tunnels.iter().map(|tunnel| async {
                // It may have gone since the state was read.
                match self.has_tunnel(tunnel) {
                    true => self.tend_tunnel(tunnel).await,
                    false => Ok(()),
                }
            }))
            .await;
            troubles.extend(tended.into_iter().filter_map(|done| done.err()).map(|err| err.message));
            if !self.has_bird(site)
                && !tunnels.is_empty()
                && let Err(err) = self.settle_bird(&self.state(), site).await
            {
                troubles.insert(err.message);
            }
        }
        troubles
    }

    fn has_tunnel(&self, tunnel: &crate::vpn::tunnel::Tunnel) -> bool {
        let state = self.state();
        let connection = state.connections.get(&tunnel.site).and_then(|peers| peers.get(&tunnel.peer));
        connection.is_some_and(|connection| connection.local_bgp.contains(&tunnel.local_bgp))
    }
}
