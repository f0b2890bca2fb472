//! Named cases: the worked examples of Antrea's design, the semantics of selectors, membership, translation and spans, bugs of
//! earlier implementations, and what happens to input that makes no sense.

mod antrea;
mod bad_input;
mod bugs;
mod cluster_policies;
mod design;
mod groups;
mod harness;
mod membership;
mod translation;
mod truth_tables;
mod verdicts;
