//! The kernel as the state says, after a crash or a reboot.

use std::collections::BTreeSet;

use cloud_api::Result;
use tracing::warn;

use super::Inner;
use crate::{names, namespace, state::State};

impl Inner {
    /// Makes the kernel as the state says: removes what the state does not know, makes what is missing.
    pub(super) async fn repair(&self) -> Result {
        let _turn = self.turn.lock().await;
        let state = self.state();
        self.remove_strange_daemons(&state).await?;
        self.remove_strangers(&state).await?;
        for (name, space) in &state.networks {
            self.make_network(&state, name, *space).await?;
        }
        for (peering, number) in &state.peerings {
            self.make_peering(&state, peering, *number).await?;
        }
        for site in state.edges() {
            self.make_edge(&state, site).await?;
        }
        self.underlay.sweep(&self.tables, &state.edges()).await?;
        for (site, peers) in &state.connections {
            for peer in peers.keys() {
                // Without its programs a tunnel is down, and everything else works.
                if let Err(err) = self.make_connection(&state, site, peer).await {
                    warn!(%site, %peer, error = %err, "a connection could not be repaired; it is tried again");
                }
            }
        }
        Ok(())
    }

    /// Removes namespaces of this cloud that the state does not know, with the daemons in them.
    async fn remove_strangers(&self, state: &State) -> Result {
        let mut known: BTreeSet<String> =
            state.networks.keys().map(|name| self.names.network(name)).collect();
        let made = state.resources.iter().filter(|(_, resource)| resource.attached.is_none());
        known.extend(made.map(|(name, _)| self.names.resource(name)));
        known.extend(state.edges().into_iter().map(|site| self.names.edge(site)));
        for (site, peers) in &state.connections {
            let interfaces = peers.values().flat_map(|peer| &peer.local_bgp).map(|bgp| names::inside(*bgp));
            known.extend(interfaces.map(|interface| self.names.tunnel(site, &interface)));
        }
        for there in namespace::all() {
            if self.names.is_ours(&there) && !known.contains(&there) {
                warn!(namespace = there, "a namespace that nobody knows is removed");
                namespace::delete(&there).await?;
            }
        }
        Ok(())
    }
}
