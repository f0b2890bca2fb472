//! Whether an existing network can be adopted beside what there is.

use ipnet::Ipv4Net;
use model::{ExistingNetwork, NetworkName};

use super::{Inventory, ProblemKind, overlap};

/// Refuses a network whose addresses others use, here or among those that are about to be adopted.
pub(crate) fn adoptable(
    inventory: &Inventory,
    others: impl IntoIterator<Item = Ipv4Net>,
    network: &NetworkName,
    existing: &ExistingNetwork,
) -> Result<(), ProblemKind> {
    if let Some(record) = inventory.networks.get(network) {
        return match record.space == existing.space {
            true => Ok(()),
            false => Err(ProblemKind::OtherBlock {
                network: Box::new(network.clone()),
                block: existing.space,
                known: record.space,
            }),
        };
    }
    if let Some(record) = inventory.unreadable.hides_a_space() {
        return Err(record.into());
    }
    let used: Vec<Ipv4Net> = inventory.used_spaces().chain(others).collect();
    let pairs = existing.blocks().flat_map(|block| used.iter().map(move |other| (block, *other)));
    match pairs.into_iter().find(|(block, other)| overlap(*block, *other)) {
        Some((block, other)) => {
            Err(ProblemKind::Overlap { network: Box::new(network.clone()), block, other })
        }
        None => Ok(()),
    }
}
