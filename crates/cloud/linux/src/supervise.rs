//! Looks after the daemons: one that has died is started again, a tunnel that is down is brought up.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tracing::warn;

use crate::cloud::Inner;

/// How often daemons are looked at: when all is well, and while a tunnel is coming up.
const EVERY: Duration = Duration::from_millis(500);
const CLOSELY: Duration = Duration::from_millis(25);
/// How long a tunnel that is not up counts as coming up.
const YOUNG: Duration = Duration::from_secs(10);

/// What was seen at a look at everything.
#[derive(Default)]
struct Seen {
    troubles: BTreeSet<String>,
    /// A tunnel is not up.
    is_incomplete: bool,
}

/// Runs as long as the cloud is open.
pub(crate) async fn run(cloud: Weak<Inner>, news: Arc<Notify>) {
    let mut told = BTreeSet::new();
    let (mut closely_until, mut pause, mut was_whole) = (Instant::now(), EVERY, true);
    loop {
        if timeout(pause, news.notified()).await.is_ok() {
            closely_until = Instant::now() + YOUNG;
        }
        let Some(cloud) = cloud.upgrade() else { return };
        let seen = cloud.tend().await;
        if seen.is_incomplete && was_whole {
            closely_until = Instant::now() + YOUNG;
        }
        was_whole = !seen.is_incomplete;
        pause = if seen.is_incomplete && Instant::now() < closely_until { CLOSELY } else { EVERY };
        for trouble in seen.troubles.difference(&told) {
            warn!(cloud = %cloud.names.cloud(), trouble, "a daemon is in trouble; it is tried again");
        }
        told = seen.troubles;
    }
}

impl Inner {
    /// Looks at everything once.
    async fn tend(&self) -> Seen {
        let state = self.state();
        let mut seen =
            Seen { troubles: self.tend_commands(&state).into_iter().collect(), is_incomplete: false };
        for site in state.connections.keys() {
            let tunnels = match self.tunnels_of(&state, site, None) {
                Ok(tunnels) => tunnels,
                Err(err) => {
                    seen.troubles.insert(err.message);
                    continue;
                }
            };
            let tended = join_all(tunnels.iter().map(|tunnel| async {
                // It may have gone since the state was read.
                match self.has_tunnel(tunnel) {
                    true => self.tend_tunnel(tunnel).await,
                    false => Ok(true),
                }
            }))
            .await;
            for tended in tended {
                match tended {
                    Ok(is_up) => seen.is_incomplete |= !is_up,
                    Err(err) => drop(seen.troubles.insert(err.message)),
                }
            }
            if !self.has_bird(site)
                && !tunnels.is_empty()
                && let Err(err) = self.settle_bird(&self.state(), site).await
            {
                seen.troubles.insert(err.message);
            }
        }
        seen
    }

    fn has_tunnel(&self, tunnel: &crate::vpn::tunnel::Tunnel) -> bool {
        let state = self.state();
        let connection = state.connections.get(&tunnel.site).and_then(|peers| peers.get(&tunnel.peer));
        connection.is_some_and(|connection| connection.local_bgp.contains(&tunnel.local_bgp))
    }
}
