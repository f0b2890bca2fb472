//! Carries plans out.
//!
//! There is no separate journal: every record of the inventory says in which phase its object is, and is written
//! before and after each call to a cloud. After a crash the next plan starts from the records, so to resume is to
//! plan. A plan is made anew whenever something has changed, and every step that waits for nothing is started, if
//! its object is not busy. So steps run in parallel where they can, one object sees one step at a time, and nothing
//! waits for a slow gateway elsewhere.
//!
//! Memory is what the store's watch has told, in every rank, and one task keeps it ([`keeper`]). The same task carries
//! every transaction to the store, so that no caller owns one: whoever goes away only stops waiting.
//!
//! Every write to the store expects the revision that memory knows, so a step of an old plan, or of another
//! controller, cannot overwrite newer state: it fails, and the next plan decides again.

mod clouds;
mod drift;
mod driver;
mod error;
mod facts;
mod holders;
mod jobs;
mod keeper;
mod lead;
mod links;
mod orchestrator;
mod perform;
mod permissions;
mod requests;
mod rules;
mod spaces;
mod standing;
mod state;
mod tag_book;
#[cfg(test)]
mod tests;

pub use clouds::{CloudState, CloudView};
pub use drift::Drift;
pub use error::OrchestratorError;
pub(crate) use facts::links_made;
pub use holders::{RuleHolder, TagView};
pub use jobs::{Job, JobState};
pub use lead::{Fence, Term};
pub use links::LinkView;
pub use orchestrator::{Elsewhere, Options, Orchestrator};
pub use permissions::{Asking, PermissionView};
pub use requests::{JobOrPlan, ResourceView};
pub use standing::Standing;
pub use tag_book::{Deployments, DeploymentsError, TagBook, TagBookError};
