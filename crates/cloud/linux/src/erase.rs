//! Everything of some clouds away, for those who know that nothing of it is wanted any more.

use std::{fs, io, path::Path};

use cloud_api::{CloudError, Result};
use model::Segment;

use crate::{LinuxCloud, Options};

/// Takes away whatever clouds of a directory have made, however their last process ended. No process may use them.
///
/// A cloud that is opened removes what its state does not know; one without a state knows nothing.
pub async fn erase(dir: &Path, clouds: &[Segment]) -> Result {
    for cloud in clouds {
        let state = dir.join(format!("{cloud}.json"));
        match fs::remove_file(&state) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                let message = format!("cannot remove {}: {err}", state.display());
                return Err(CloudError::unavailable(message));
            }
            _ => drop(LinuxCloud::open(cloud.clone(), dir.to_owned(), Options::default()).await?),
        }
    }
    Ok(())
}
