//! Calls about networks, and what joins them inside a site.

use cloud_api::{At, CloudError, CloudErrorKind, PeeringSpec};
use ipnet::Ipv4Net;
use model::Segment;

use super::{Inner, network};
use crate::{names, namespace, network::peering_interface, shell::delete_link, state::State};

impl Inner {
    pub(crate) async fn ensure_network(
        &self,
        at: &At,
        region: &Segment,
        space: Ipv4Net,
    ) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let name = network(at, region);
        if !names::fits(&self.names.network(&name)) {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let mut next = State::clone(&self.state());
        if let Some(there) = next.networks.insert(name.clone(), space).filter(|there| *there != space) {
            return Err(CloudError::conflict(format!("network {name} is there with {there}")));
        }
        let state = self.keep(next)?;
        self.make_network(&state, &name, space).await?;
        // Peers are told of it.
        if state.connections.contains_key(&at.site) {
            self.settle_bird(&state, &at.site).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete_network(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let name = network(at, region);
        let mut next = State::clone(&self.state());
        if next.residents(&name).next().is_some()
            || next.nats.contains(&name)
            || next.peerings.keys().any(|peering| peering.ends().contains(&&name))
        {
            return Err(CloudError::conflict(format!("network {name} is in use")));
        }
        let namespace = self.names.network(&name);
        self.tables.forget(&namespace);
        namespace::delete(&namespace).await?;
        next.networks.remove(&name);
        let state = self.keep(next)?;
        if state.connections.contains_key(&at.site) {
            self.settle_bird(&state, &at.site).await?;
        }
        Ok(())
    }

    pub(crate) async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let mut next = State::clone(&self.state());
        let free = next.free_peering();
        let number = *next.peerings.entry(spec.name.clone()).or_insert(free);
        let state = self.keep(next)?;
        self.make_peering(&state, &spec.name, number).await
    }

    pub(crate) async fn delete_peering(&self, spec: &PeeringSpec) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let mut next = State::clone(&self.state());
        let Some(number) = next.peerings.remove(&spec.name) else { return Ok(()) };
        let (end, port) = (self.names.network(spec.name.ends()[0]), peering_interface(number));
        delete_link(&end, &port).await?;
        self.keep(next).map(drop)
    }

    pub(crate) async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let name = network(at, region);
        if !self.underlay.has_uplink() {
            let message = format!("{at} has no way to public addresses: its uplink is `none`", at = at.site);
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        let mut next = State::clone(&self.state());
        if !next.networks.contains_key(&name) {
            return Err(CloudError::conflict(format!("there is no network {name}")));
        }
        next.nats.insert(name);
        let state = self.keep(next)?;
        self.make_edge(&state, &at.site).await.map(drop)
    }

    pub(crate) async fn delete_nat(&self, at: &At, region: &Segment) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let mut next = State::clone(&self.state());
        if !next.nats.remove(&network(at, region)) {
            return Ok(());
        }
        let state = self.keep(next)?;
        self.settle_edge(&state, &at.site).await
    }
}
