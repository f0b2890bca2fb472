//! The policy engine's objects at random, and what must come of them.
//!
//! [`random`] makes objects, [`objects`] keeps them, [`naive`] computes from scratch what a consumer should know, and
//! [`consumer`] puts together what it is told. Both yield a [`state`], which compares and prints.

pub mod consumer;
pub mod naive;
pub mod objects;
pub mod random;
pub mod state;
