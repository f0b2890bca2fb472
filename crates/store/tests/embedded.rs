//! The embedded backend keeps the store's contract.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod conformance;

use store::{Store, embedded};
use tempfile::TempDir;

conformance_suite!(fresh);

async fn fresh() -> (Store, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (embedded::open(dir.path()).unwrap(), dir)
}
