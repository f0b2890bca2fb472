//! Faults between the code and nftables.

use std::sync::{Arc, Mutex};

use node_kernel::{
    netlink::Refusal,
    nft::{Applied, CommitError, Nft, ReadError, ReconcileError, TableId},
    services::Tables,
};
use node_nft::{CurrentTable, Elements, SetSchema, Transaction};

/// nftables, which refuses transactions with certain bytes in the key of an element.
#[derive(Clone)]
pub struct Refusing {
    nft: Arc<Mutex<Nft>>,
    hated: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Refusing {
    pub fn new(hated: Option<Vec<u8>>) -> Self {
        let nft = Nft::open().expect("there is nftables");
        Self { nft: Arc::new(Mutex::new(nft)), hated: Arc::new(Mutex::new(hated)) }
    }

    /// From now on everything is taken.
    pub fn relent(&self) {
        *self.hated.lock().expect("nobody fell") = None;
    }

    fn nft<T>(&self, act: impl FnOnce(&mut Nft) -> T) -> T {
        act(&mut self.nft.lock().expect("nobody fell"))
    }
}

impl Tables for Refusing {
    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft(|nft| nft.glance(table))
    }

    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft(|nft| nft.read(table))
    }

    fn read_set(&mut self, table: &TableId, set: &str, schema: &SetSchema) -> Result<Elements, ReadError> {
        self.nft(|nft| nft.read_set(table, set, schema))
    }

    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        let hated = self.hated.lock().expect("nobody fell").clone();
        let mut keys = transaction.ops.iter().flat_map(|op| op.elements()).map(|(key, _)| key);
        if let Some(hated) = hated
            && keys.any(|key| key.windows(hated.len()).any(|bytes| bytes == hated))
        {
            return Err(CommitError::Refused {
                table: table.clone(),
                operation: "add an element".into(),
                index: None,
                refusal: Refusal { errno: 22, seq: 0, text: None },
            });
        }
        self.nft(|nft| nft.commit(table, transaction))
    }

    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        self.nft(|nft| nft.delete(table))
    }
}
