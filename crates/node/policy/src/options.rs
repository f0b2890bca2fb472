//! How the plane behaves, apart from what it is told to enforce.

/// The table, in each network namespace.
pub const TABLE: &str = "trestle-policy";
/// Takes its place while somebody else has a table of that name: a packet must pass all tables, whatever they are called.
pub const SPARE_TABLE: &str = "trestle-policy-spare";

/// Policies of tiers with a priority below this one are asked before the fail-safes of a host. Nobody gets there by chance:
/// the tiers that exist without a Tier object begin at 50.
pub const LOCKDOWN_TIERS: i32 = 5;

#[derive(Clone, Debug)]
pub struct Options {
    /// This node's name: members of applied-to sets on it are enforced by their address even if they are not in the
    /// local registry. Empty: only the registry counts.
    pub node: String,
    /// The node reaches its own workloads whatever policies say: probes of a kubelet come from there.
    pub host_to_own: bool,
    /// Interfaces whose name begins so belong to workloads: one that is not in the registry gets nothing through.
    pub guarded_prefixes: Vec<String>,
    /// Links whose name begins so lead to what lives on this node and is not the node: containers, virtual machines, Pods. What
    /// comes from there is not for the node because it passes it, and what goes there by an address of its own neither.
    pub inner_prefixes: Vec<String>,
    /// Bits of the packet mark that others rely on. Those beyond are zero on the first packet of a connection of a
    /// restricted workload, because the mark holds the class of the peer while the packet is judged.
    pub kept_mark_bits: u32,
    /// Established connections that a new policy forbids are cut, instead of living on until they end.
    pub cut_established: bool,
    /// What would be refused is counted, and passes: nothing is in force.
    pub observe: bool,
    /// What is refused is told to this log group of the kernel, as [`layout::Refusal`](crate::layout::Refusal) reads it.
    pub log_refused: Option<u16>,
    /// Elements that one transaction may change; see [`node_nft::Limits`].
    pub limits: node_nft::Limits,
}

/// The mark that services use between prerouting and postrouting, and the one that Kubernetes uses to drop.
const SERVICE_BITS: u32 = 0x4000 | 0x8000;

impl Default for Options {
    fn default() -> Self {
        Self {
            node: String::new(),
            host_to_own: true,
            guarded_prefixes: Vec::new(),
            inner_prefixes: Vec::new(),
            kept_mark_bits: SERVICE_BITS,
            cut_established: false,
            observe: false,
            log_refused: None,
            limits: node_nft::Limits::default(),
        }
    }
}
