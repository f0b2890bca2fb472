//! Calls about permit lists: the state first, then one transaction in the kernel.

use std::collections::BTreeSet;

use cloud_api::{At, CloudError};
use model::{EntryName, NetworkName, PermitEntry, Ports, Protocol, Traffic};
use node_nft::{Limits, Live, Op, Plan, Transaction};

use super::Inner;
use crate::{
    namespace, permit,
    state::{Resource, State},
};

impl Inner {
    /// What the kernel enforces: entries whose rules are not there are not in force.
    pub(crate) async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>, CloudError> {
        let (state, name, current) = {
            // Not while a list is being changed. To compare takes longer than to read, and needs no turn.
            let _turn = self.turn.lock().await;
            let state = self.state();
            let name = self.find(&state, at, uri)?;
            let Some(network) = state.network_of(&name) else { return Ok(Vec::new()) };
            let current = self.tables.read(&self.names.network(&network)).await?;
            (state, name, current)
        };
        let Some(current) = current else { return Ok(stranger().into_iter().collect()) };
        let compared =
            tokio::task::spawn_blocking(move || permit::enforced(&state.resources[&name], &current)).await;
        let (mut entries, strange) =
            compared.map_err(|_| CloudError::unavailable("a look at a permit list has panicked"))?;
        entries.extend(stranger().filter(|_| strange));
        Ok(entries)
    }

    pub(crate) async fn add_entries(
        &self,
        at: &At,
        uri: &str,
        entries: &[PermitEntry],
    ) -> Result<(), CloudError> {
        let add = |resource: &mut Resource| {
            resource.permit.extend(entries.iter().map(|entry| (entry.name.clone(), entry.clone())));
        };
        self.change_list(at, uri, add).await
    }

    pub(crate) async fn delete_entries(
        &self,
        at: &At,
        uri: &str,
        entries: &[PermitEntry],
    ) -> Result<(), CloudError> {
        let delete = |resource: &mut Resource| resource.permit.retain(|_, there| !entries.contains(there));
        self.change_list(at, uri, delete).await
    }

    /// One transaction on the chains of one resource. What does not fit the kernel is made to by reading it.
    async fn change_list(
        &self,
        at: &At,
        uri: &str,
        change: impl FnOnce(&mut Resource),
    ) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let before = self.state();
        let name = self.find(&before, at, uri)?;
        let mut next = State::clone(&before);
        let Some(resource) = next.resources.get_mut(&name) else { return Ok(()) };
        change(resource);
        let (old, new) = (permit::list_of(&before.resources[&name]), permit::list_of(resource));
        let is_same = next == *before;
        let state = self.keep(next)?;
        let Some(network) = state.network_of(&name) else { return Ok(()) };
        let namespace = self.names.network(&network);
        let planned = Plan::new(&new, Some(&permit::as_committed(&old)), Live::Atomic, Limits::default());
        let committed = match planned {
            Ok(plan) if !is_same => self.tables.commit(&namespace, plan).await,
            // Asked for what the state has: the kernel may have something else.
            _ => Err(CloudError::unavailable("nothing to commit")),
        };
        match committed {
            Ok(()) => Ok(()),
            Err(_) => self.tables.reconcile(&namespace, permit::table(&state, &network)).await,
        }
    }

    /// Takes the lists of a resource out of its network, and then the chains.
    pub(super) async fn unlist(
        &self,
        state: &State,
        network: &NetworkName,
        resource: &Resource,
    ) -> Result<(), CloudError> {
        let namespace = self.names.network(network);
        if !namespace::exists(&namespace) {
            return Ok(());
        }
        let mut transaction = Transaction::default();
        for (set, element) in permit::places(resource.address) {
            let (schema, elements) = (permit::schema(set), vec![element]);
            transaction.push(Op::DeleteElements { set: set.to_owned(), schema, elements });
        }
        let list = permit::list_of(resource);
        for name in list.chains.keys() {
            transaction.push(Op::FlushChain { name: name.clone() });
            transaction.push(Op::DeleteChain { name: name.clone() });
        }
        for name in list.sets.keys() {
            transaction.push(Op::DeleteSet { name: name.clone() });
        }
        match self.tables.commit_one(&namespace, transaction).await {
            Ok(()) => Ok(()),
            Err(_) => self.tables.reconcile(&namespace, permit::table(state, network)).await,
        }
    }
}

/// Stands for rules in the kernel that nobody asked for.
fn stranger() -> Option<PermitEntry> {
    let traffic = Traffic::new(model::Direction::Inbound, Protocol::Any, Ports::Any, Ports::Any).ok()?;
    let anybody = ["0.0.0.0/0".parse().ok()?].into();
    PermitEntry::new(EntryName::reported("rules-changed-by-hand"), traffic, anybody, BTreeSet::new())
}
