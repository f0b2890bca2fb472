//! nftables as values: tables, chains, rules, sets and maps, and the transactions that lead from one state to another.
//!
//! In: a [`Table`] as it should be, and a [`CurrentTable`] as the kernel has it. Out: a [`Plan`] of
//! [`Transaction`]s, each atomic in the kernel and small enough not to hold its lock for long.
//! Holds: nothing.
//! Not here: netlink and its bytes (`node-kernel`); what a service or a policy wants in the kernel (`node-services`
//! and the policy plane).
//!
//! ```text
//!   Table (desired) ──┐
//!                     ├─► Plan::new ──► prepare: table, sets, new elements     many transactions, nothing sees them
//!   CurrentTable ─────┘                 switch:  chains, rules, live elements  one transaction, or chunks by element
//!                                       sweep:   what is no longer named       after the switch
//! ```
//!
//! A rule is recognised after a restart by a fingerprint of its expressions, kept in its comment: rules are never
//! parsed back. Sets, elements and chains are compared by value.

mod chunk;
mod current;
mod expr;
pub mod fake;
mod key;
mod plan;
mod ranges;
mod rule;
mod set;
mod table;
mod transaction;
pub mod walk;

pub use chunk::{Bundle, Limits, bundle, pack};
pub use current::{CurrentChain, CurrentRule, CurrentSet, CurrentTable};
pub use expr::{
    Cmp, CtKey, Direction, DynSetOp, Expr, FibResult, LimitUnit, MetaKey, NatKind, NumgenMode, PayloadBase,
    Reg, Reject, Verdict,
};
pub use key::Key;
pub use plan::{Foreign, Live, Plan};
pub use ranges::Ranges;
pub use rule::Rule;
pub use set::{Data, DataType, Element, Elements, FieldType, Set, SetSchema};
pub use table::{BaseChain, Chain, ChainKind, Family, Hook, OWNER, Policy, Table};
pub use transaction::{Op, Transaction};
