//! The policy plane kept equal to the kernel.
//!
//! In: [`Change`]s and [`LocalChange`]s. Out: what was committed, and the objects that are not in force.
//! Holds: the plane, and whether the kernel is known to agree with it.
//!
//! ```text
//!   apply ─► step ─► commit each transaction ──ok──► agrees
//!                        │ refused, or no answer
//!                        ▼
//!   verify ─► somebody committed? ─► read ─► difference ─► commit ──refused──► unit by unit: the rest goes on,
//!                                                                             what is refused is reported and
//!                                                                             tried again by the next verify
//! ```
//!
//! While it is not known what applies, the table stays as it is ([`hold`](PolicyExecutor::hold)).

mod cut;
mod hold;
mod names;
mod watched;

use node_nft::{CurrentTable, Limits, Live, Op, Plan, Set, Table, Transaction};
use node_policy::{
    Change, LocalChange, ObjectError, Options, Plane, layout, retreat,
    units::{self, Unit},
};

use crate::{
    conntrack::ConntrackError,
    netlink::NetlinkError,
    nft::{Applied, CommitError, Nft, ReadError, ReconcileError, TableId, next_generation},
};

pub use hold::{Standing, homes};
pub use watched::Watched;

/// A difference of up to this many times the limits is made at once, so that no packet sees a mixture.
const AT_ONCE: usize = 4;
/// Others may commit while the table is read and compared.
const ATTEMPTS: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot reach nftables")]
    Open(#[source] NetlinkError),
    #[error("cannot ask whether nftables changed")]
    Generation(#[source] NetlinkError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("table {0} exists and was not made by trestle: rename or delete it (`nft delete table {0}`)")]
    Foreign(TableId),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("policies are in force, but connections they forbid could not be cut")]
    Cut(#[source] ConntrackError),
    #[error(
        "policies are in force, but the node's addresses could not be read to cut connections they forbid"
    )]
    Addresses(#[source] NetlinkError),
}

impl From<ReconcileError> for PolicyError {
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Read(error) => Self::Read(error),
            ReconcileError::Foreign(table) => Self::Foreign(table),
            ReconcileError::Commit(error) => Self::Commit(error),
        }
    }
}

/// What the executor asks of the kernel. Tests put faults in between.
pub trait Tables {
    fn generation(&mut self) -> Result<u32, NetlinkError>;
    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError>;
    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError>;
    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError>;
    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError>;

    /// The newest generation, if nobody but the caller touched the tables since that one; `None` if somebody may have.
    fn untouched_since(&mut self, _tables: &[TableId], seen: u32) -> Result<Option<u32>, NetlinkError> {
        Ok(Some(self.generation()?).filter(|now| *now == seen))
    }

    /// How many packets the rules of a chain have counted.
    fn counted(&mut self, _table: &TableId, _chain: &str) -> Result<u64, ReadError> {
        Ok(0)
    }

    /// Whether a table is ours; `None` if there is none.
    fn is_ours(&mut self, table: &TableId) -> Result<Option<bool>, ReadError> {
        Ok(self.glance(table)?.map(|current| current.owned))
    }
}

impl Tables for Nft {
    fn generation(&mut self) -> Result<u32, NetlinkError> {
        Nft::generation(self)
    }

    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Nft::glance(self, table)
    }

    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Nft::read(self, table)
    }

    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        Nft::commit(self, table, transaction)
    }

    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        Nft::delete(self, table)
    }

    fn is_ours(&mut self, table: &TableId) -> Result<Option<bool>, ReadError> {
        Nft::is_ours(self, table)
    }

    fn counted(&mut self, table: &TableId, chain: &str) -> Result<u64, ReadError> {
        Nft::counted(self, table, chain)
    }
}

/// What a call did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub applied: Applied,
    /// Every object that is not in force as it is written: what cannot be expressed, and what the kernel refused.
    pub errors: Vec<ObjectError>,
    /// The kernel differed from what was known of it, or refused: the whole table was compared.
    pub compared: bool,
    /// Connections that were cut.
    pub cut: usize,
    /// Something that somebody must look at, although policies are in force.
    pub problem: Option<String>,
}

/// Owns table [`TABLE`](node_policy::TABLE) of the namespace it was opened in. All calls block while the kernel works.
pub struct PolicyExecutor<K = Watched> {
    kernel: K,
    id: TableId,
    plane: Plane,
    /// The generation in which the kernel was found or made equal to the plane; `None`: it may differ.
    seen: Option<u32>,
    /// The kernel is not known to hold what the plane thinks: the next call compares.
    unsure: bool,
    refused: Vec<ObjectError>,
    /// Tables that may be there and are of no use once policies are in force.
    leftovers: bool,
    held: Option<hold::Held>,
}

/// Removes every table of ours, whoever of us made it, in the network namespace of the calling thread; how many that were. Tables of
/// others stay, also of our names.
pub fn take_out() -> Result<usize, PolicyError> {
    let mut kernel = Nft::open().map_err(PolicyError::Open)?;
    let mut gone = 0;
    for table in names::all() {
        match kernel.delete(&table) {
            Ok(was_there) => gone += usize::from(was_there),
            Err(ReconcileError::Foreign(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(gone)
}

impl PolicyExecutor<Watched> {
    /// Acts in the network namespace of the calling thread. Writes nothing yet: what an earlier run left stays in force
    /// until the first `apply`.
    pub fn open(options: Options) -> Result<Self, PolicyError> {
        Ok(Self::with_kernel(Watched::open().map_err(PolicyError::Open)?, options))
    }
}

impl<K: Tables> PolicyExecutor<K> {
    pub fn with_kernel(kernel: K, options: Options) -> Self {
        Self {
            kernel,
            id: names::usual(),
            plane: Plane::new(options),
            seen: None,
            unsure: true,
            refused: Vec::new(),
            leftovers: true,
            held: None,
        }
    }

    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Takes changes in and carries them out. The first call compares with what is in the kernel, so it should be told
    /// everything there is. An error means that the kernel may not have it all; the next call tries again.
    pub fn apply(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        local: impl IntoIterator<Item = LocalChange>,
    ) -> Result<Outcome, PolicyError> {
        let mut outcome = if self.unsure {
            self.plane.load(changes, local);
            self.compare()?
        } else {
            self.listen()?;
            let step = self.plane.step(changes, local);
            match self.commit_all(&step.transactions) {
                Ok(applied) => Outcome { applied, ..Outcome::default() },
                Err(_) => self.compare()?,
            }
        };
        outcome.errors = self.errors();
        self.in_force(&mut outcome)?;
        if outcome.applied.transactions > 0 && self.plane.options().cut_established {
            outcome.cut = cut::forbidden(&self.plane)?;
        }
        Ok(outcome)
    }

    /// Repairs what others did to the table, and tries again what was refused. Costs a few questions if nobody touched
    /// the table since, else a read of it.
    pub fn verify(&mut self) -> Result<Outcome, PolicyError> {
        self.listen()?;
        let mut outcome =
            if self.unsure || self.seen.is_none() { self.compare()? } else { Outcome::default() };
        outcome.errors = self.errors();
        self.in_force(&mut outcome)?;
        Ok(outcome)
    }

    /// First packets of connections, and others that would have been refused since the table is there; none where what is
    /// refused is refused.
    pub fn observed(&mut self) -> Result<Option<u64>, PolicyError> {
        if !self.plane.options().observe || self.unsure {
            return Ok(None);
        }
        Ok(Some(self.kernel.counted(&self.id, layout::OBSERVED)?))
    }

    /// Removes the table: nothing is enforced any more.
    pub fn stop(mut self) -> Result<(), PolicyError> {
        for table in [names::shutter(), self.id.clone()] {
            self.kernel.delete(&table)?;
        }
        Ok(())
    }

    fn errors(&self) -> Vec<ObjectError> {
        let mut errors = self.plane.errors();
        errors.extend(self.refused.iter().cloned());
        errors
    }

    /// Takes note of what others committed. If it may have been to the table, the next `verify` compares.
    fn listen(&mut self) -> Result<(), PolicyError> {
        if let Some(seen) = self.seen {
            self.seen = self.kernel.untouched_since(&names::all(), seen).map_err(PolicyError::Generation)?;
        }
        Ok(())
    }

    /// Commits in order. Whoever else commits meanwhile makes the generation another one than expected.
    fn commit_all(&mut self, transactions: &[Transaction]) -> Result<Applied, CommitError> {
        let mut applied = Applied::default();
        self.unsure = true;
        for transaction in transactions {
            applied.join(self.kernel.commit(&self.id, transaction)?);
            self.seen = self.seen.map(next_generation);
        }
        self.unsure = false;
        Ok(applied)
    }

    /// Makes the kernel's table equal to the plane's, as far as the kernel lets it.
    fn compare(&mut self) -> Result<Outcome, PolicyError> {
        self.unsure = true;
        self.refused.clear();
        self.choose_name()?;
        let desired = Table { name: self.id.name.clone(), ..self.plane.table() };
        let mut outcome = Outcome { compared: true, ..Outcome::default() };
        for attempt in 1..=ATTEMPTS {
            let (error, plan) = match self.make_equal(&desired) {
                Ok(applied) => {
                    outcome.applied.join(applied);
                    return Ok(outcome);
                }
                Err(Unequal::Other(error)) => return Err(error),
                Err(Unequal::Commit(error, plan)) => (*error, plan),
            };
            match error {
                // Whether it was done is unknown: look again.
                CommitError::Netlink { .. } if attempt < ATTEMPTS => {}
                CommitError::Netlink { .. } => return Err(error.into()),
                CommitError::Refused { .. } if attempt < ATTEMPTS => {}
                CommitError::Refused { .. } => outcome.applied.join(self.around(&plan, error)?),
            }
        }
        Ok(outcome)
    }

    /// Reads, and commits what differs. A large change that was cut short is led back first; where there is no table, the
    /// rules come before what they look into.
    fn make_equal(&mut self, desired: &Table) -> Result<Applied, Unequal> {
        let mut applied = Applied::default();
        let (mut generation, mut current) = self.look()?;
        let first = match &current {
            Some(current) => retreat(desired, current),
            None => vec![skeleton(desired)],
        };
        for (index, table) in first.iter().chain([desired]).enumerate() {
            if index > 0 {
                (generation, current) = self.look()?;
            }
            let plan = self.difference(table, current.take())?;
            match self.commit_all(&plan.transactions) {
                Ok(done) => {
                    self.seen =
                        Some((0..done.transactions).fold(generation, |seen, _| next_generation(seen)));
                    applied.join(done);
                }
                Err(error) => return Err(Unequal::Commit(Box::new(error), plan)),
            }
        }
        Ok(applied)
    }

    fn look(&mut self) -> Result<(u32, Option<CurrentTable>), PolicyError> {
        let generation = self.kernel.generation().map_err(PolicyError::Generation)?;
        // What was told before is in what is read now.
        self.kernel.untouched_since(&names::all(), generation).map_err(PolicyError::Generation)?;
        Ok((generation, self.kernel.glance(&self.id)?))
    }

    fn difference(&mut self, desired: &Table, current: Option<CurrentTable>) -> Result<Plan, PolicyError> {
        let limits = self.plane.options().limits;
        let plan = plan(desired, current.as_ref(), limits, &self.id)?;
        if plan.is_empty() || current.is_none() {
            return Ok(plan);
        }
        drop(current);
        // A glance may miss elements while the kernel grows a table.
        let current = self.kernel.read(&self.id)?;
        self::plan(desired, current.as_ref(), limits, &self.id)
    }

    /// Carries out as much of the plan as the kernel takes. Remains unsure, so that the next call tries the rest.
    fn around(&mut self, plan: &Plan, error: CommitError) -> Result<Applied, PolicyError> {
        let mut applied = Applied::default();
        let mut error = Some(error);
        for transaction in &plan.transactions {
            match self.kernel.commit(&self.id, transaction) {
                Ok(done) => applied.join(done),
                Err(refused) => {
                    let Some(units) = units::units(transaction) else {
                        return Err(error.take().unwrap_or(refused).into());
                    };
                    self.each(&units, refused, &mut applied)?;
                }
            }
        }
        Ok(applied)
    }

    /// Halves what is refused until what the kernel does not take stands alone: O(refused × log of all) commits.
    fn each(&mut self, units: &[Unit], why: CommitError, applied: &mut Applied) -> Result<(), PolicyError> {
        if let CommitError::Netlink { .. } = why {
            return Err(why.into());
        }
        if let [unit] = units {
            let closed =
                self.plane.closing(&unit.subject).map(|close| self.kernel.commit(&self.id, &close).is_ok());
            let effect = match closed {
                Some(true) => "the workload is closed meanwhile",
                Some(false) => "the workload could not be closed either",
                None => "the rest is in force",
            };
            let objects = self.plane.objects_of(&unit.subject);
            let message = format!("{why}; {effect}, and this is tried again");
            let error = |object| ObjectError { object, message: message.clone() };
            self.refused.extend(objects.into_iter().map(error));
            return Ok(());
        }
        let (left, right) = units.split_at(units.len() / 2);
        for half in [left, right] {
            match self.kernel.commit(&self.id, &units::join(half)) {
                Ok(done) => applied.join(done),
                Err(why) => self.each(half, why, applied)?,
            }
        }
        Ok(())
    }
}

/// Why the kernel's table is not equal.
enum Unequal {
    /// What was to be done.
    Commit(Box<CommitError>, Plan),
    Other(PolicyError),
}

impl From<PolicyError> for Unequal {
    fn from(error: PolicyError) -> Self {
        Self::Other(error)
    }
}

/// The table without elements and without the chains by which packets come to it: the kernel goes through all elements
/// of a map when a rule comes to use it, so rules come first.
fn skeleton(desired: &Table) -> Table {
    let chains = desired.chains.iter().filter(|(_, chain)| chain.base.is_none());
    let sets = desired.sets.iter().map(|(name, set)| (name.clone(), Set::new(set.schema.clone())));
    Table {
        family: desired.family,
        name: desired.name.clone(),
        chains: chains.map(|(name, chain)| (name.clone(), chain.clone())).collect(),
        sets: sets.collect(),
        keeps_chains: desired.keeps_chains,
    }
}

/// At once if that does not hold the kernel up for long.
fn plan(
    desired: &Table,
    current: Option<&CurrentTable>,
    limits: Limits,
    id: &TableId,
) -> Result<Plan, PolicyError> {
    let plan = |live| Plan::new(desired, current, live, limits).map_err(|_| PolicyError::Foreign(id.clone()));
    let at_once = plan(Live::Atomic)?;
    let weight = |transaction: &Transaction| transaction.ops.iter().map(Op::weight).sum::<usize>();
    if at_once.transactions.iter().any(|one| weight(one) > limits.elements * AT_ONCE) {
        return plan(Live::Chunked);
    }
    Ok(at_once)
}
