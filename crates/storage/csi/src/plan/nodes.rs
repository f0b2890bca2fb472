//! Which node is which: a node's id carries the mark of the storage that it uses, so that the controller's part of the driver knows
//! whether a node can be given a volume without being told of nodes.

use aws_lc_rs::digest::{Context, SHA256};
use common::hex;

/// The segment of topology that names the storage: nodes and volumes with the same value belong together.
pub const STORAGE: &str = "csi.trestle.dev/storage";
/// Volumes that one node may have: each takes a process of some megabytes there.
pub const MOST_ON_A_NODE: usize = 128;
/// Digits of a mark.
const DIGITS: usize = 12;

/// What stands for a consumer where its id, which is a credential, must not.
pub fn mark(consumer: &str) -> String {
    hashed("storage", consumer, "")
}

pub fn node_id(mark: &str, name: &str) -> String {
    format!("{name}.{}", hashed("node", mark, name))
}

/// Whether a node that uses this storage has this id.
pub fn issued(mark: &str, id: &str) -> bool {
    id.rsplit_once('.').is_some_and(|(name, _)| !name.is_empty() && node_id(mark, name) == id)
}

fn hashed(what: &str, one: &str, other: &str) -> String {
    let mut context = Context::new(&SHA256);
    for part in [what, one, other] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut text = hex(context.finish().as_ref());
    text.truncate(DIGITS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_nodes_of_this_storage_are_known_and_no_others() {
        let (ours, theirs) = (mark("one"), mark("two"));
        let id = node_id(&ours, "node-1.example.org");
        assert!(issued(&ours, &id) && id.starts_with("node-1.example.org."));
        assert!(!issued(&theirs, &id));
        for other in
            ["", ".", "node-1.example.org", "fake-node-id-0f3a", &format!("x{id}"), &format!("{id}0")]
        {
            assert!(!issued(&ours, other), "{other}");
        }
    }
}
