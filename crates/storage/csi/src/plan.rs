//! What a call of CSI comes to, in the words of volumes (pure).
//!
//! In: what an orchestrator says. Out: names, sizes and ways to use a volume, or why they cannot be had.

mod access;
mod names;
mod nodes;
mod size;

pub use access::{Access, AccessRefusal, FileSystem, Form, Share, access, check_parameters, encrypted};
pub use names::{Token, page, snapshot_name, volume_name};
pub use nodes::{MOST_ON_A_NODE, STORAGE, issued, mark, node_id};
pub use size::{Range, SizeRefusal};
