//! What is done while it is not known what applies to workloads: the table that an earlier run left stays as it is, and
//! what it does not know is closed by a small table beside it ([`Shutter`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use node_nft::{CurrentTable, Live, Plan};
use node_policy::{ClosedHost, Shutter, Workload, layout::Place};

use super::{PolicyError, PolicyExecutor, Tables, names};
use crate::nft::{Applied, TableId, next_generation};

/// Bytes of an interface's name in keys.
const NAME: usize = 16;

/// What the kernel holds while nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub applied: Applied,
    /// Workloads that the table of an earlier run knows, by interface, with their addresses; `None`: there is no such
    /// table.
    pub homes: Option<BTreeMap<String, BTreeSet<IpAddr>>>,
    /// Number of workloads that are closed.
    pub closed: usize,
}

/// What was asked for last, and what came of it.
pub(super) struct Held {
    workloads: Vec<Workload>,
    host: Option<ClosedHost>,
    standing: Standing,
}

impl<K: Tables> PolicyExecutor<K> {
    /// Nothing is known of what applies: the table stays as it is, if there is one. Of these workloads those are closed
    /// that are pending, and those that the table does not know; so are guarded interfaces that it does not know, and the
    /// node itself as far as it is said to have been guarded, if there is no table. Where nothing is in force but only
    /// observed, nothing is closed either.
    pub fn hold(
        &mut self,
        workloads: &[Workload],
        host: Option<&ClosedHost>,
    ) -> Result<Standing, PolicyError> {
        self.listen()?;
        if self.seen.is_some()
            && let Some(held) = self.held.as_ref()
            && held.workloads == workloads
            && held.host.as_ref() == host
        {
            return Ok(Standing { applied: Applied::default(), ..held.standing.clone() });
        }
        (self.unsure, self.leftovers) = (true, true);
        self.choose_name()?;
        let (generation, current) = self.look()?;
        let homes = current.as_ref().map(homes);
        let mut shutter = self.shutter(workloads, homes.as_ref());
        shutter.host = host.filter(|_| homes.is_none()).cloned();
        if self.plane.options().observe {
            shutter = Shutter::default();
        }
        let applied = self.shut(&shutter)?;
        self.seen = Some((0..applied.transactions).fold(generation, |seen, _| next_generation(seen)));
        let standing = Standing { applied, homes, closed: shutter.interfaces.len() };
        self.held =
            Some(Held { workloads: workloads.to_vec(), host: host.cloned(), standing: standing.clone() });
        Ok(standing)
    }

    fn shutter(&self, workloads: &[Workload], homes: Option<&BTreeMap<String, BTreeSet<IpAddr>>>) -> Shutter {
        let is_known = |interface: &str| homes.is_some_and(|homes| homes.contains_key(interface));
        let mut shutter =
            Shutter { prefixes: self.plane.options().guarded_prefixes.clone(), ..Shutter::default() };
        for workload in workloads {
            let known = workload.interface.as_deref().is_some_and(is_known);
            if workload.pending || !known {
                shutter.interfaces.extend(workload.interface.clone());
                shutter.addresses.extend(&workload.addresses);
            }
        }
        let known = homes.into_iter().flat_map(BTreeMap::keys);
        shutter.known = known.filter(|name| !shutter.interfaces.contains(*name)).cloned().collect();
        shutter
    }

    fn shut(&mut self, shutter: &Shutter) -> Result<Applied, PolicyError> {
        let id = names::shutter();
        if shutter.is_empty() {
            let transactions = usize::from(self.kernel.delete(&id)?);
            return Ok(Applied { transactions, ..Applied::default() });
        }
        let desired = shutter.table(&id.name);
        let current = self.kernel.read(&id)?;
        let plan = Plan::new(&desired, current.as_ref(), Live::Atomic, self.plane.options().limits)
            .map_err(|_| PolicyError::Foreign(id.clone()))?;
        self.commit_to(&id, &plan)
    }

    fn commit_to(&mut self, id: &TableId, plan: &Plan) -> Result<Applied, PolicyError> {
        let mut applied = Applied::default();
        for transaction in &plan.transactions {
            applied.join(self.kernel.commit(id, transaction)?);
        }
        Ok(applied)
    }
}

/// The workloads that a table knows, by interface, with their addresses.
pub fn homes(table: &CurrentTable) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let keys = |place: Place| {
        let set = table.sets.get(&place.name());
        set.into_iter().flat_map(|set| set.elements.keys())
    };
    let mut homes = BTreeMap::new();
    for (name, _) in keys(Place::Interfaces).filter_map(|key| split(key)) {
        homes.insert(name, BTreeSet::new());
    }
    for ipv6 in [false, true] {
        for (name, address) in keys(Place::Homes(ipv6)).filter_map(|key| split(key)) {
            let address = match ipv6 {
                true => address.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
                false => address.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
            };
            homes.entry(name).or_default().extend(address);
        }
    }
    homes
}

/// An interface's name and what follows it in a key.
fn split(key: &[u8]) -> Option<(String, &[u8])> {
    let (name, rest) = key.split_at_checked(NAME)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    Some((String::from_utf8_lossy(&name[..end]).into_owned(), rest))
}
