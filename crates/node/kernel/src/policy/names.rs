//! Which table is ours. Others may have one of our name; it is theirs, and policies are in force in another one.

use node_nft::Family;
use node_policy::{SHUTTER, SPARE_TABLE, TABLE};

use super::{Outcome, PolicyError, PolicyExecutor, Tables};
use crate::nft::{ReconcileError, TableId};

pub fn usual() -> TableId {
    TableId::new(Family::Inet, TABLE)
}

fn spare() -> TableId {
    TableId::new(Family::Inet, SPARE_TABLE)
}

pub fn shutter() -> TableId {
    TableId::new(Family::Inet, SHUTTER)
}

/// All that are listened for.
pub fn all() -> [TableId; 3] {
    [usual(), spare(), shutter()]
}

impl<K: Tables> PolicyExecutor<K> {
    /// The usual table, unless that is somebody else's.
    pub(super) fn choose_name(&mut self) -> Result<(), PolicyError> {
        let is_foreign = self.kernel.is_ours(&usual())? == Some(false);
        let id = if is_foreign { spare() } else { usual() };
        if id != self.id {
            (self.id, self.leftovers) = (id, true);
        }
        Ok(())
    }

    /// What is left to do when policies are in force: the tables that stood in for them go.
    pub(super) fn in_force(&mut self, outcome: &mut Outcome) -> Result<(), PolicyError> {
        self.held = None;
        if self.id != usual() {
            outcome.problem = Some(format!(
                "table {} was not made by trestle; policies are in force in {} instead: rename or delete the other \
                 (`nft delete table {0}`)",
                usual(),
                self.id
            ));
        }
        if self.leftovers {
            let unused = if self.id == usual() { spare() } else { usual() };
            for table in [shutter(), unused] {
                match self.kernel.delete(&table) {
                    Ok(true) => self.seen = None,
                    // Somebody else's stays.
                    Ok(false) | Err(ReconcileError::Foreign(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.leftovers = false;
        }
        Ok(())
    }
}
