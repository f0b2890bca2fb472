//! Calls about permit lists: the state first, then one transaction in the kernel.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cloud_api::{At, CloudError, PermitLists, Result, list_after};
use model::{EntryName, NetworkName, PermitEntry, Ports, Protocol, Traffic};
use node_nft::{Limits, Live, Op, Plan, Transaction};

use super::{Inner, LinuxCloud};
use crate::{
    namespace, permit,
    state::{Resource, State},
};

#[async_trait]
impl PermitLists for LinuxCloud {
    /// What the kernel enforces: entries whose rules are not there are not in force.
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        let (state, name, current) = {
            // Not while a list is being changed. To compare takes longer than to read, and needs no turn.
            let _turn = self.inner.turn.lock().await;
            let state = self.inner.state();
            let name = self.inner.find(&state, at, uri)?;
            let Some(network) = state.network_of(&name) else { return Ok(Vec::new()) };
            let current = self.inner.tables.read(&self.inner.names.network(&network)).await?;
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

    /// One transaction on the chains of one resource. What does not fit the kernel is made to by reading it.
    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let _turn = self.inner.turn.lock().await;
        let current = self.inner.state();
        let name = self.inner.find(&current, at, uri)?;
        let mut next = State::clone(&current);
        let Some(resource) = next.resources.get_mut(&name) else { return Ok(()) };
        let list = list_after(std::mem::take(&mut resource.permit).into_values(), before, wanted);
        resource.permit = list.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        let (old, new) = (permit::list_of(&current.resources[&name]), permit::list_of(resource));
        let is_same = next == *current;
        let state = self.inner.keep(next)?;
        let Some(network) = state.network_of(&name) else { return Ok(()) };
        let namespace = self.inner.names.network(&network);
        let planned = Plan::new(&new, Some(&permit::as_committed(&old)), Live::Atomic, Limits::default());
        let committed = match planned {
            Ok(plan) if !is_same => self.inner.tables.commit(&namespace, plan).await,
            // Asked for what the state has: the kernel may have something else.
            _ => Err(CloudError::unavailable("nothing to commit")),
        };
        match committed {
            Ok(()) => Ok(()),
            Err(_) => self.inner.tables.reconcile(&namespace, permit::table(&state, &network)).await,
        }
    }
}

impl Inner {
    /// Takes the lists of a resource out of its network, and then the chains.
    pub(super) async fn unlist(&self, state: &State, network: &NetworkName, resource: &Resource) -> Result {
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
