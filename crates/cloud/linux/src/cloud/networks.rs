//! Calls about networks, and what joins them inside a site.

use async_trait::async_trait;
use cloud_api::{At, CloudError, CloudErrorKind, Networks, PeeringSpec, Result};
use ipnet::Ipv4Net;
use model::Segment;

use super::{LinuxCloud, network};
use crate::{names, namespace, network::peering_interface, shell::delete_link, state::State};

#[async_trait]
impl Networks for LinuxCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        let _turn = self.inner.turn.lock().await;
        let name = network(at, region);
        if !names::fits(&self.inner.names.network(&name)) {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let mut next = State::clone(&self.inner.state());
        if let Some(there) = next.networks.insert(name.clone(), space).filter(|there| *there != space) {
            return Err(CloudError::conflict(format!("network {name} is there with {there}")));
        }
        let state = self.inner.keep(next)?;
        self.inner.make_network(&state, &name, space).await?;
        // Peers are told of it.
        if state.connections.contains_key(&at.site) {
            self.inner.settle_bird(&state, &at.site).await?;
        }
        Ok(())
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        let _turn = self.inner.turn.lock().await;
        let name = network(at, region);
        let mut next = State::clone(&self.inner.state());
        if next.residents(&name).next().is_some()
            || next.nats.contains(&name)
            || next.peerings.keys().any(|peering| peering.ends().contains(&&name))
        {
            return Err(CloudError::conflict(format!("network {name} is in use")));
        }
        let namespace = self.inner.names.network(&name);
        self.inner.tables.forget(&namespace);
        namespace::delete(&namespace).await?;
        next.networks.remove(&name);
        let state = self.inner.keep(next)?;
        if state.connections.contains_key(&at.site) {
            self.inner.settle_bird(&state, &at.site).await?;
        }
        Ok(())
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        let _turn = self.inner.turn.lock().await;
        let mut next = State::clone(&self.inner.state());
        let free = next.free_peering();
        let number = *next.peerings.entry(spec.name.clone()).or_insert(free);
        let state = self.inner.keep(next)?;
        self.inner.make_peering(&state, &spec.name, number).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        let _turn = self.inner.turn.lock().await;
        let mut next = State::clone(&self.inner.state());
        let Some(number) = next.peerings.remove(&spec.name) else { return Ok(()) };
        let (end, port) = (self.inner.names.network(spec.name.ends()[0]), peering_interface(number));
        delete_link(&end, &port).await?;
        self.inner.keep(next).map(drop)
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        let _turn = self.inner.turn.lock().await;
        let name = network(at, region);
        if !self.inner.underlay.has_uplink() {
            let message = format!("{at} has no way to public addresses: its uplink is `none`", at = at.site);
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        let mut next = State::clone(&self.inner.state());
        if !next.networks.contains_key(&name) {
            return Err(CloudError::conflict(format!("there is no network {name}")));
        }
        next.nats.insert(name);
        let state = self.inner.keep(next)?;
        self.inner.make_edge(&state, &at.site).await.map(drop)
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        let _turn = self.inner.turn.lock().await;
        let mut next = State::clone(&self.inner.state());
        if !next.nats.remove(&network(at, region)) {
            return Ok(());
        }
        let state = self.inner.keep(next)?;
        self.inner.settle_edge(&state, &at.site).await
    }
}
