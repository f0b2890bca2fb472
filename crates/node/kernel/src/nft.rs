//! nftables: commits transactions, reads tables back.
//!
//! In: [`Table`]s and [`Transaction`]s of `node-nft`. Out: [`CurrentTable`]s; which operation the kernel refused and
//! why; how long each transaction held the kernel's lock.
//! Only the table that is named is ever written, and only if it carries our mark.

pub(crate) mod decode;
mod encode;
mod expression;
mod monitor;
mod number;

use std::{collections::BTreeMap, thread, time::Duration};

use node_nft::{
    CurrentChain, CurrentSet, CurrentTable, Element, Elements, Family, Limits, Live, OWNER, Op, Plan,
    SetSchema, Table, Transaction,
};

use crate::netlink::{
    Attrs, DUMP, Executed, Header, Message, MessageWriter, NetlinkError, REQUEST, Refusal, Socket, Writer,
};
use encode::Batch;

pub use monitor::{Changes, Monitor};

const NETLINK_NETFILTER: isize = 12;
const NO_ENTRY: i32 = 2;
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_ATTEMPTS: usize = 40;
/// Family, version and resource, before the attributes of each message.
const FIXED: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableId {
    pub family: Family,
    pub name: String,
}

impl TableId {
    pub fn new(family: Family, name: impl Into<String>) -> Self {
        Self { family, name: name.into() }
    }

    pub fn of(table: &Table) -> Self {
        Self::new(table.family, table.name.clone())
    }
}

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = match self.family {
            Family::Inet => "inet",
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
        };
        write!(f, "{family} {}", self.name)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read table {table} from the kernel")]
pub struct ReadError {
    pub table: TableId,
    #[source]
    pub source: NetlinkError,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing of the transaction was done.
    #[error("the kernel refused to {operation} in table {table}: {refusal}")]
    Refused {
        table: TableId,
        operation: String,
        /** Place among the transaction's operations. */
        index: Option<usize>,
        refusal: Refusal,
    },
    /// Whether the transaction was done is unknown: read the table.
    #[error("cannot commit a transaction of table {table}")]
    Netlink {
        table: TableId,
        #[source]
        source: NetlinkError,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("table {0} exists and was not made by {OWNER}: rename or delete it (`nft delete table {0}`)")]
    Foreign(TableId),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Each commit makes a new generation.
pub(crate) fn next_generation(generation: u32) -> u32 {
    // The kernel passes over 0.
    generation.wrapping_add(1).max(1)
}

/// What a commit or a series of commits took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub transactions: usize,
    pub operations: usize,
    /// Elements added and removed; anything else counts as one.
    pub weight: usize,
    pub bytes: usize,
    /// The longest time that one transaction kept others out.
    pub longest: Duration,
    /// Time that the kernel took for all of them: what is left if everything around it cost nothing.
    pub in_kernel: Duration,
}

impl Applied {
    pub(crate) fn join(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.operations += other.operations;
        self.weight += other.weight;
        self.bytes += other.bytes;
        self.longest = self.longest.max(other.longest);
        self.in_kernel += other.in_kernel;
    }
}

pub struct Nft {
    socket: Socket,
}

impl Nft {
    /// Acts in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: Socket::open(NETLINK_NETFILTER, "netfilter")? })
    }

    /// Changes whenever anybody commits a transaction in this network namespace.
    pub fn generation(&mut self) -> Result<u32, NetlinkError> {
        let request = self.request(&TableId::new(Family::Inet, ""), number::GET_GENERATION, REQUEST, |_| {});
        self.socket.get(&request, |message| message.attrs(FIXED)?.get(1)?.be32())
    }

    /// The table, or `None` if there is none.
    pub fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.read_table(table, SETTLE_ATTEMPTS).map_err(|source| ReadError { table: table.clone(), source })
    }

    /// As [`Self::read`], with one dump of each set: elements may be missing while the kernel grows a hash table.
    /// Enough to find out that nothing differs.
    pub fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.read_table(table, 0).map_err(|source| ReadError { table: table.clone(), source })
    }

    /// The elements of one set, also of one that rules fill.
    pub fn read_set(
        &mut self,
        table: &TableId,
        set: &str,
        schema: &SetSchema,
    ) -> Result<Elements, ReadError> {
        self.dump_elements(table, set, schema).map_err(|source| ReadError { table: table.clone(), source })
    }

    /// The elements of one set, one after the other, as far as the kernel tells them while others change it and commit:
    /// some may be missing.
    pub fn scan_set(
        &mut self,
        table: &TableId,
        set: &str,
        mut each: impl FnMut(&[u8], &Element),
    ) -> Result<(), ReadError> {
        let request = self.request(table, number::GET_ELEMENT, REQUEST | DUMP, |out| {
            out.text(1, &table.name);
            out.text(number::element::SET, set);
        });
        let mut dumped = Vec::new();
        let scanned = self.socket.dump_once(&request, |message| {
            dumped.clear();
            decode::elements(&message.attrs(FIXED)?, &mut dumped)?;
            dumped.iter().for_each(|one: &decode::Dumped| each(&one.key, &one.element));
            Ok(())
        });
        scanned.map_err(|source| ReadError { table: table.clone(), source })
    }

    /// Commits one transaction.
    pub fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        if transaction.ops.is_empty() {
            return Ok(Applied::default());
        }
        let batch = Batch::new(table, transaction, self.socket.next_seq());
        self.socket.skip_to(batch.last_seq());
        let executed = self
            .socket
            .execute_batch(batch.as_bytes())
            .map_err(|source| CommitError::Netlink { table: table.clone(), source })?;
        let Executed { refusals, took } = executed;
        if let Some(refusal) = refusals.into_iter().next() {
            let index = batch.operation_of(refusal.seq);
            let operation = index.map_or("commit".into(), |index| transaction.ops[index].describe());
            return Err(CommitError::Refused { table: table.clone(), operation, index, refusal });
        }
        Ok(Applied {
            transactions: 1,
            operations: transaction.ops.len(),
            weight: transaction.ops.iter().map(Op::weight).sum(),
            bytes: batch.as_bytes().len(),
            longest: took,
            in_kernel: took,
        })
    }

    /// Commits one transaction after the other; the first refusal ends it.
    pub fn apply(&mut self, table: &TableId, plan: &Plan) -> Result<Applied, CommitError> {
        let mut applied = Applied::default();
        for transaction in &plan.transactions {
            applied.join(self.commit(table, transaction)?);
        }
        Ok(applied)
    }

    /// Makes the kernel's table equal to the desired one. Does nothing if it is already.
    pub fn reconcile(
        &mut self,
        desired: &Table,
        live: Live,
        limits: Limits,
    ) -> Result<Applied, ReconcileError> {
        let current = self.glance(&TableId::of(desired))?;
        self.reconcile_from(desired, current, live, limits)
    }

    /// As [`Self::reconcile`], with a table that was read a moment ago.
    pub fn reconcile_from(
        &mut self,
        desired: &Table,
        current: Option<CurrentTable>,
        live: Live,
        limits: Limits,
    ) -> Result<Applied, ReconcileError> {
        let id = TableId::of(desired);
        let plan = |current: Option<&CurrentTable>| {
            Plan::new(desired, current, live, limits).map_err(|_| ReconcileError::Foreign(id.clone()))
        };
        let mut steps = plan(current.as_ref())?;
        if current.is_some() && !steps.is_empty() {
            drop(current);
            steps = plan(self.read(&id)?.as_ref())?;
        }
        Ok(self.apply(&id, &steps)?)
    }

    /// Deletes the table if it is there and ours. Returns whether it was there.
    pub fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        match self.find_table(table).map_err(|source| ReadError { table: table.clone(), source })? {
            None => Ok(false),
            Some(false) => Err(ReconcileError::Foreign(table.clone())),
            Some(true) => {
                self.commit(table, &Transaction { ops: vec![Op::DeleteTable] })?;
                Ok(true)
            }
        }
    }

    /// Whether a table is ours; `None` if there is none.
    pub fn is_ours(&mut self, table: &TableId) -> Result<Option<bool>, ReadError> {
        self.find_table(table).map_err(|source| ReadError { table: table.clone(), source })
    }

    /// How many packets the rules of a chain have counted since they are there.
    pub fn counted(&mut self, table: &TableId, chain: &str) -> Result<u64, ReadError> {
        let mut packets = 0;
        let read = self.dump(table, number::GET_RULE, None, |attrs| {
            match attrs {
                Some(attrs) => {
                    let (of, counted) = decode::counted(&attrs)?;
                    packets += if of == chain { counted } else { 0 };
                }
                None => packets = 0,
            }
            Ok(())
        });
        read.map_err(|source| ReadError { table: table.clone(), source })?;
        Ok(packets)
    }

    fn read_table(&mut self, id: &TableId, attempts: usize) -> Result<Option<CurrentTable>, NetlinkError> {
        let Some(owned) = self.find_table(id)? else { return Ok(None) };
        let (family, name) = (id.family, id.name.clone());
        let chains = self.read_chains(id)?;
        let sets = self.read_sets(id, attempts)?;
        Ok(Some(CurrentTable { family, name, owned, chains, sets }))
    }

    /// Whether the table is ours, or `None` if there is none.
    fn find_table(&mut self, id: &TableId) -> Result<Option<bool>, NetlinkError> {
        let request =
            self.request(id, number::GET_TABLE, REQUEST, |out| out.text(number::table::NAME, &id.name));
        match self.socket.get(&request, |message| decode::owned(&message.attrs(FIXED)?)) {
            Ok(owned) => Ok(Some(owned)),
            Err(error) if error.errno() == Some(NO_ENTRY) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_chains(&mut self, id: &TableId) -> Result<BTreeMap<String, CurrentChain>, NetlinkError> {
        let mut chains = BTreeMap::new();
        self.dump(id, number::GET_CHAIN, None, |attrs| {
            match attrs {
                Some(attrs) => chains.extend([decode::chain(&attrs)?]),
                None => chains.clear(),
            }
            Ok(())
        })?;
        let mut rules = Vec::new();
        self.dump(id, number::GET_RULE, None, |attrs| {
            match attrs {
                Some(attrs) => rules.push(decode::rule(&attrs)?),
                None => rules.clear(),
            }
            Ok(())
        })?;
        for (chain, rule) in rules {
            chains.entry(chain).or_default().rules.push(rule);
        }
        Ok(chains)
    }

    fn read_sets(
        &mut self,
        id: &TableId,
        attempts: usize,
    ) -> Result<BTreeMap<String, CurrentSet>, NetlinkError> {
        let mut sets: BTreeMap<String, CurrentSet> = BTreeMap::new();
        self.dump(id, number::GET_SET, None, |attrs| {
            match attrs {
                Some(attrs) => sets.extend(decode::set(&attrs)?),
                None => sets.clear(),
            }
            Ok(())
        })?;
        for (name, set) in &mut sets {
            if let Some(schema) = set.schema.as_ref().filter(|schema| !schema.dynamic) {
                set.elements = self.read_elements(id, name, schema, attempts)?;
            }
        }
        Ok(sets)
    }

    /// A hash table that grows meanwhile is dumped with gaps, and no flag says so: it is read until two dumps in a
    /// row agree. After a burst of additions the kernel grows it in the background for a few milliseconds.
    fn read_elements(
        &mut self,
        id: &TableId,
        set: &str,
        schema: &SetSchema,
        attempts: usize,
    ) -> Result<Elements, NetlinkError> {
        let mut elements = self.dump_elements(id, set, schema)?;
        for _ in 0..attempts {
            if schema.interval || elements.is_empty() {
                break;
            }
            let again = self.dump_elements(id, set, schema)?;
            if again.len() == elements.len() {
                break;
            }
            elements = again;
            thread::sleep(SETTLE);
        }
        Ok(elements)
    }

    fn dump_elements(
        &mut self,
        id: &TableId,
        set: &str,
        schema: &SetSchema,
    ) -> Result<Elements, NetlinkError> {
        let mut dumped = Vec::new();
        self.dump(id, number::GET_ELEMENT, Some(set), |attrs| {
            match attrs {
                Some(attrs) => decode::elements(&attrs, &mut dumped)?,
                None => dumped.clear(),
            }
            Ok(())
        })?;
        Ok(decode::collect(schema, dumped))
    }

    /// All objects of a kind within the table. Every kind has the table's name as attribute 1.
    fn dump(
        &mut self,
        id: &TableId,
        kind: u16,
        set: Option<&str>,
        mut each: impl FnMut(Option<Attrs<'_>>) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        let request = self.request(id, kind, REQUEST | DUMP, |out| {
            out.text(1, &id.name);
            set.iter().for_each(|set| out.text(number::element::SET, set));
        });
        self.socket.dump(&request, |message: Option<&Message<'_>>| {
            let Some(message) = message else { return each(None) };
            let attrs = message.attrs(FIXED)?;
            // Kernels that do not know the filter dump all tables of all families.
            let same_family = message.body.first() == Some(&number::family(id.family));
            if same_family && attrs.get(1)?.text() == id.name { each(Some(attrs)) } else { Ok(()) }
        })
    }

    fn request(
        &mut self,
        id: &TableId,
        kind: u16,
        flags: u16,
        attrs: impl FnOnce(&mut Writer<'_>),
    ) -> Vec<u8> {
        let mut out = MessageWriter::new();
        let header = Header { kind: encode::message_kind(kind), flags, seq: self.socket.next_seq() };
        out.message(header, &encode::fixed(id), attrs);
        out.as_bytes().to_vec()
    }
}
