//! Clients that must forget their endpoint, found beside all other work.
//!
//! The kernel cannot be asked who is bound to an endpoint: all clients have to be gone through, and for a large map it
//! takes seconds to tell them. So a thread with a connection of its own does that, while services go on to be changed. A
//! client it has not come to yet reaches nobody with the first packet of its next connection, is unbound by the rules, and
//! balanced anew: this here only spares it that.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use node_nft::{Data, Element, Op, SetSchema, Transaction};
use node_services::nftables::{Bond, Forget};

use crate::nft::{CommitError, Nft, ReadError, TableId};

/// How often the clients are gone through: some may be missed while the kernel grows the map, or expire meanwhile.
const ROUNDS: usize = 4;
const NO_ENTRY: i32 = 2;
const NICE: i32 = 10;
/// Clients that are unbound by one transaction.
const CHUNK: usize = 2_048;

/// The maps of one family.
#[derive(Clone)]
pub struct Sweeper {
    table: TableId,
    maps: [(Bond, SetSchema); 2],
    due: Arc<Mutex<Due>>,
}

#[derive(Default)]
struct Due {
    forget: Vec<Forget>,
    /// A thread is at it, and looks here again before it ends.
    running: bool,
}

impl Sweeper {
    pub fn new(table: TableId, maps: [(Bond, SetSchema); 2]) -> Self {
        Self { table, maps, due: Arc::default() }
    }

    /// Returns at once.
    pub fn sweep(&self, nft: Nft, forget: &[Forget]) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.forget.extend_from_slice(forget);
        if !due.running {
            let sweeper = self.clone();
            // If there can be no thread, it is tried again with the next that must be forgotten.
            due.running = thread::Builder::new().name("affinity".into()).spawn(|| sweeper.run(nft)).is_ok();
        }
    }

    /// What is left to do; none if that is all.
    fn take(&self) -> Option<Vec<Forget>> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.running = !due.forget.is_empty();
        due.running.then(|| mem::take(&mut due.forget))
    }

    fn run(self, mut nft: Nft) {
        // A thread has the priority of the one that made it, which nobody should have to wait for; for this one all can.
        let _ = rustix::process::setpriority_process(None, NICE);
        while let Some(forget) = self.take() {
            for (bond, schema) in &self.maps {
                self.sweep_map(&mut nft, *bond, schema, &forget);
            }
        }
    }

    fn sweep_map(&self, nft: &mut Nft, bond: Bond, schema: &SetSchema, forget: &[Forget]) {
        if !forget.iter().any(|one| one.bond == bond) {
            return;
        }
        for _ in 0..ROUNDS {
            // Who could not be unbound expires with the time of the service.
            if let Ok(0) = self.round(nft, bond, schema, forget) {
                break;
            }
        }
    }

    /// How many were found.
    fn round(
        &self,
        nft: &mut Nft,
        bond: Bond,
        schema: &SetSchema,
        forget: &[Forget],
    ) -> Result<usize, ReadError> {
        // While the kernel grows or shrinks the map it tells some twice. To ask for the same one to go twice in a transaction
        // would have the kernel refuse it, thousands of times.
        let mut found = BTreeMap::new();
        nft.scan_set(&self.table, bond.map(), |key, element| {
            if is_meant(forget, bond, key, &element.data) {
                found.insert(key.into(), element.clone());
            }
        })?;
        let clients: Vec<(Box<[u8]>, Element)> = found.into_iter().collect();
        clients.chunks(CHUNK).for_each(|chunk| self.unbind(nft, bond.map(), schema, chunk));
        Ok(clients.len())
    }

    /// Those that have expired meanwhile make the kernel refuse the others: halved, until they stand alone.
    fn unbind(&self, nft: &mut Nft, set: &str, schema: &SetSchema, clients: &[(Box<[u8]>, Element)]) {
        let elements = clients.to_vec();
        let ops = vec![Op::DeleteElements { set: set.to_owned(), schema: schema.clone(), elements }];
        if let Err(CommitError::Refused { refusal, .. }) = nft.commit(&self.table, &Transaction { ops })
            && refusal.errno == NO_ENTRY
            && clients.len() > 1
        {
            let (left, right) = clients.split_at(clients.len() / 2);
            self.unbind(nft, set, schema, left);
            self.unbind(nft, set, schema, right);
        }
    }
}

/// Whether a client of a bond, by its key and endpoint, is one that must forget it.
pub fn is_meant(forget: &[Forget], bond: Bond, key: &[u8], data: &Data) -> bool {
    forget.iter().any(|one| {
        let endpoint = one.endpoint.as_deref();
        one.bond == bond
            && key.ends_with(&one.anchor)
            && endpoint.is_none_or(|gone| matches!(data, Data::Value(value) if **value == *gone))
    })
}
