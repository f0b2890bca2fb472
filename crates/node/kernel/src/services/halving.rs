//! Commits of many things at once, of which the kernel may refuse some: what is refused is found by halving.

use node_nft::{Limits, Op, bundle};

use super::Tables;
use crate::nft::{Applied, CommitError, TableId};

/// Commits lists of operations, each of which becomes true at once or, by its place and with the reason, is refused.
/// O(refused × log of all) commits more than if nothing is.
pub fn commit(
    nft: &mut impl Tables,
    table: &TableId,
    lists: Vec<Vec<Op>>,
    limits: Limits,
) -> Result<(Applied, Vec<(usize, String)>), CommitError> {
    let (mut applied, mut refused) = (Applied::default(), Vec::new());
    let mut first = 0;
    for whole in bundle(lists, limits) {
        let mut open = vec![(whole, first)];
        first += open[0].0.units();
        while let Some((part, at)) = open.pop() {
            match nft.commit(table, &part.transaction) {
                Ok(done) => applied.join(done),
                Err(error @ CommitError::Refused { .. }) if part.units() == 1 => {
                    refused.push((at, error.to_string()));
                }
                Err(CommitError::Refused { .. }) => {
                    let (front, back) = part.halve();
                    let middle = at + front.units();
                    open.push((back, middle));
                    open.push((front, at));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok((applied, refused))
}
