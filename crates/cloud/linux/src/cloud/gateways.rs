//! Calls about gateways and the connections between them.

use std::{collections::BTreeSet, net::Ipv4Addr};

use async_trait::async_trait;
use cloud_api::{At, CloudError, Links, Result};
use model::{ConnectionSpec, ConnectionStatus, GatewayState, Site};

use super::LinuxCloud;
use crate::{
    namespace,
    state::{Connection, State},
};

#[async_trait]
impl Links for LinuxCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        crate::vpn::charon::require_programs()?;
        let _turn = self.inner.turn.lock().await;
        let mut next = State::clone(&self.inner.state());
        let asn = *next.gateways.entry(at.site.clone()).or_insert(asn);
        let state = self.inner.keep(next)?;
        let block = self.inner.make_edge(&state, &at.site).await?;
        Ok(GatewayState { asn, addresses: block.tunnels() })
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        let _turn = self.inner.turn.lock().await;
        let mut next = State::clone(&self.inner.state());
        if next.connections.contains_key(&at.site) {
            return Err(CloudError::conflict(format!("the gateway of {} has connections", at.site)));
        }
        if next.gateways.remove(&at.site).is_none() {
            return Ok(());
        }
        let state = self.inner.keep(next)?;
        self.inner.settle_edge(&state, &at.site).await
    }

    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        let state = self.inner.state();
        if !state.gateways.contains_key(&at.site) {
            return Err(CloudError::conflict(format!("site {} has no gateway", at.site)));
        }
        let others =
            state.connections.get(&at.site).into_iter().flatten().filter(|(peer, _)| **peer != spec.peer);
        let used: BTreeSet<_> = others.flat_map(|(_, connection)| &connection.local_bgp).collect();
        match spec.local_bgp.iter().find(|bgp| used.contains(bgp)) {
            Some(bgp) => Err(CloudError::conflict(format!("{bgp} is in use at {}", at.site))),
            None => Ok(Vec::new()),
        }
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        self.create_bgp_sessions(at, spec).await?;
        let (state, tunnels, is_rotation) = {
            let _turn = self.inner.turn.lock().await;
            let before = self.inner.state();
            let old = self.inner.tunnels_of(&before, &at.site, Some(&spec.peer))?;
            let mut next = State::clone(&before);
            let connection = Connection::from(spec);
            let there = next.connections.entry(at.site.clone()).or_default();
            let replaced = there.insert(spec.peer.clone(), connection.clone());
            let is_rotation = replaced.is_some_and(|old| old.shared_key != connection.shared_key);
            let state = self.inner.keep(next)?;
            let new = self.inner.tunnels_of(&state, &at.site, Some(&spec.peer))?;
            // Those that lead elsewhere now are made anew.
            let moved = |tunnel: &crate::vpn::tunnel::Tunnel| {
                !new.iter().any(|new| {
                    (new.local_bgp, new.local, new.remote) == (tunnel.local_bgp, tunnel.local, tunnel.remote)
                })
            };
            let gone: Vec<_> = old.into_iter().filter(moved).collect();
            self.inner.remove_tunnels(&at.site, &gone).await?;
            if !namespace::exists(&self.inner.names.edge(&at.site)) {
                self.inner.make_edge(&state, &at.site).await?;
            }
            (state, new, is_rotation)
        };
        // Others need not wait while daemons start.
        self.inner.make_connection(&state, &at.site, &spec.peer).await?;
        if is_rotation {
            self.inner.until_rotated(&tunnels).await;
        }
        Ok(())
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        let _turn = self.inner.turn.lock().await;
        let mut next = State::clone(&self.inner.state());
        let tunnels = self.inner.tunnels_of(&next, &at.site, Some(peer))?;
        let Some(peers) = next.connections.get_mut(&at.site) else { return Ok(()) };
        if peers.remove(peer).is_none() {
            return Ok(());
        }
        if peers.is_empty() {
            next.connections.remove(&at.site);
        }
        // The supervisor looks at the state: it must not bring back what is being removed. What a crash leaves in
        // between is unknown to the state, and removed when the cloud is opened.
        let state = self.inner.keep(next)?;
        self.inner.settle_bird(&state, &at.site).await?;
        self.inner.remove_tunnels(&at.site, &tunnels).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.inner.status(&at.site, peer).await
    }
}
