//! What the proxy of services needs of nftables: the seam at which tests put faults.

use node_nft::{CurrentTable, Elements, SetSchema, Transaction};

use crate::nft::{Applied, CommitError, Nft, ReadError, ReconcileError, TableId};

/// What the proxy needs of nftables.
pub trait Tables {
    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError>;
    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError>;
    fn read_set(&mut self, table: &TableId, set: &str, schema: &SetSchema) -> Result<Elements, ReadError>;
    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError>;
    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError>;

    /// A connection of its own to the same tables, for work that takes long.
    fn aside(&self) -> Option<Nft> {
        None
    }
}

impl Tables for Nft {
    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Self::glance(self, table)
    }

    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Self::read(self, table)
    }

    fn read_set(&mut self, table: &TableId, set: &str, schema: &SetSchema) -> Result<Elements, ReadError> {
        Self::read_set(self, table, set, schema)
    }

    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        Self::commit(self, table, transaction)
    }

    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        Self::delete(self, table)
    }

    fn aside(&self) -> Option<Nft> {
        Nft::open().ok()
    }
}
