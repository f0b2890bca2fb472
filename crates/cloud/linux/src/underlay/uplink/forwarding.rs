//! IP forwarding of the namespace that the controller is in: switched on for the first way out, off again with the last,
//! and left alone where it was on before.
//!
//! That it was off is noted as an empty table of nftables. So the note lives exactly as long as the setting: it outlives a
//! controller that is killed, it is seen by every controller of the namespace, whichever of them goes last, and a reboot or
//! the namespace's end takes both.

use std::{fmt::Display, fs};

use cloud_api::{CloudError, Result};
use node_kernel::nft::{Nft, TableId};
use node_nft::{Family, Limits, Live, Table};

use super::FAR;

const SETTING: &str = "/proc/sys/net/ipv4/ip_forward";
/// The links of the thread's namespace; /sys/class/net has those of the namespace it was mounted in.
const LINKS: &str = "/proc/thread-self/net/dev";
/// The table that notes that forwarding was off.
const NOTE: &str = "trestle-forwarding-was-off";

/// Switches forwarding on. The way out that needs it is there already, so that nobody else switches it off.
pub(super) fn claim(nft: &mut Nft) -> Result {
    let _turn = turn()?;
    if fs::read_to_string(SETTING).map_err(|err| cannot(SETTING, &err))?.trim() != "0" {
        return Ok(());
    }
    let note = Table::new(Family::Ip, NOTE);
    nft.reconcile(&note, Live::Atomic, Limits::default()).map_err(|err| cannot(NOTE, &err))?;
    fs::write(SETTING, "1").map_err(|err| cannot(SETTING, &err))
}

/// Switches forwarding off if it was off before the first way out, and no way out is left.
pub(super) fn release(nft: &mut Nft) -> Result {
    let _turn = turn()?;
    let note = TableId::new(Family::Ip, NOTE);
    let was_off = nft.read(&note).map_err(|err| cannot(NOTE, &err))?.is_some();
    let links = fs::read_to_string(LINKS).map_err(|err| cannot(LINKS, &err))?;
    if !was_off || links.lines().any(|line| line.trim_start().starts_with(FAR)) {
        return Ok(());
    }
    fs::write(SETTING, "0").map_err(|err| cannot(SETTING, &err))?;
    nft.delete(&note).map(drop).map_err(|err| cannot(NOTE, &err))
}

/// Controllers of one machine look and write one after the other. A lock on a directory leaves no file.
fn turn() -> Result<fs::File> {
    let turn = fs::File::open("/run").map_err(|err| cannot("/run", &err))?;
    turn.lock().map_err(|err| cannot("/run", &err))?;
    Ok(turn)
}

fn cannot(what: &str, err: &dyn Display) -> CloudError {
    CloudError::unavailable(format!("IP forwarding of the host: {what}: {err}"))
}
