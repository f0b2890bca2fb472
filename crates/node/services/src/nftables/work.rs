//! What to do in the kernel, in units that the kernel takes or refuses each for itself.

use node_nft::{Limits, Op, Transaction, pack};

use super::{Class, Port, elements::Shared, layout::Bond};
use crate::PortId;

/// What to do, in this order: `units`, `sweeps` of those that were not refused, what nobody shares any more, `forget`.
#[derive(Clone, Debug, Default)]
pub struct Work {
    pub units: Vec<Unit>,
    pub sweeps: Vec<Sweep>,
    /// Elements and chains that had no user left when this was worked out.
    pub(super) gone: Vec<Shared>,
    /// Clients that must forget their endpoint once the rest is done.
    pub forget: Vec<Forget>,
}

/// Becomes true at once, or not at all.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    pub ops: Vec<Op>,
    /// Ports as they were before.
    pub(super) ports: Vec<(PortId, Option<Port>)>,
    /// Shared elements and chains of which this is the first user.
    pub(super) acquired: Vec<Shared>,
    /// The chain it makes, which stays.
    pub(super) class: Option<Class>,
}

impl Unit {
    /// Whose change it is; nobody's if several may come to need it.
    pub fn ports(&self) -> impl Iterator<Item = &PortId> {
        self.ports.iter().map(|(id, _)| id)
    }
}

/// What nothing leads to any more once the unit of these ports is done.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    pub ops: Vec<Op>,
    pub ports: Vec<PortId>,
}

/// Entries of the map of a bond that lead nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forget {
    pub bond: Bond,
    /// Address, protocol and port as they stand in the map's keys, after the client.
    pub anchor: Box<[u8]>,
    /// The endpoint's address and port as they stand in the map's values; `None`: whatever endpoint.
    pub endpoint: Option<Box<[u8]>>,
}

impl Work {
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.sweeps.is_empty() && self.gone.is_empty() && self.forget.is_empty()
    }

    /// All of it as transactions, for a kernel that refuses nothing.
    pub fn transactions(self, limits: Limits) -> Vec<Transaction> {
        let gone = self.gone.into_iter().map(|shared| vec![shared.delete()]);
        let later = self.sweeps.into_iter().map(|sweep| sweep.ops).chain(gone);
        let mut transactions = pack(self.units.into_iter().map(|unit| unit.ops), limits);
        transactions.extend(pack(later, limits));
        transactions
    }
}
