//! What goes wrong: by chance from a seed, or by script.

use crate::rest::{Refusal, refuse};

/// In parts of a thousand requests.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    /// Refused for being too many.
    pub throttle: u32,
    /// An error of the cloud, before anything happened.
    pub before: u32,
    /// Done, and then the connection is cut.
    pub lost: u32,
    /// Reads that answer with how it was before the last change.
    pub stale: u32,
    /// A page of HTML from something in between.
    pub html: u32,
    /// Operations that end badly. Where a cloud has operations.
    pub failed: u32,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Throttle,
    Before,
    Lost,
    Stale,
    Html,
    Failed,
    /// The caller lacks the permission.
    Denied,
    /// Credentials have ended.
    Expired,
    /// A quota is used up.
    Quota,
}

/// Status, word and text of a refusal.
type Said = (u16, &'static str, &'static str);

/// How a cloud says what goes wrong before it looks at a request.
pub(crate) struct Words {
    pub(crate) throttle: Said,
    pub(crate) before: Said,
    pub(crate) denied: Said,
    pub(crate) expired: Said,
    pub(crate) quota: Said,
}

impl Words {
    pub(crate) fn refuse(&self, fault: Option<Fault>) -> Result<(), Refusal> {
        let (status, code, message) = match fault {
            Some(Fault::Throttle) => self.throttle,
            Some(Fault::Before) => self.before,
            Some(Fault::Denied) => self.denied,
            Some(Fault::Expired) => self.expired,
            Some(Fault::Quota) => self.quota,
            _ => return Ok(()),
        };
        Err(refuse(status, code, message))
    }
}

/// Dice and script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) faults: Faults,
    /// What the operation's name contains, the fault, and how many times.
    pub(crate) script: Vec<(String, Fault, u32)>,
    /// The request that never gets an answer: how many come before it, and whether it is carried out.
    pub(crate) silence: Option<(usize, bool)>,
    rolled: u64,
}

impl Trouble {
    pub(crate) fn set(&mut self, faults: Faults) {
        self.rolled = faults.seed;
        self.faults = faults;
    }

    /// Whether the request that now begins is the one without an answer; and if so, whether it is carried out.
    pub(crate) fn is_silent(&mut self) -> Option<bool> {
        match self.silence.as_mut()? {
            (0, carried_out) => {
                let carried_out = *carried_out;
                self.silence = None;
                Some(carried_out)
            }
            (before, _) => {
                *before -= 1;
                None
            }
        }
    }

    pub(crate) fn roll(&mut self, operation: &str) -> Option<Fault> {
        let scripted =
            self.script.iter_mut().find(|(part, _, times)| *times > 0 && operation.contains(part.as_str()));
        if let Some((_, fault, times)) = scripted {
            *times -= 1;
            return Some(*fault);
        }
        let faults = self.faults.clone();
        let chances = [
            (faults.throttle, Fault::Throttle),
            (faults.before, Fault::Before),
            (faults.lost, Fault::Lost),
            (faults.stale, Fault::Stale),
            (faults.html, Fault::Html),
            (faults.failed, Fault::Failed),
        ];
        chances
            .into_iter()
            .find(|(chance, _)| *chance > 0 && self.dice() % 1000 < u64::from(*chance))
            .map(|(_, f)| f)
    }

    /// SplitMix64.
    fn dice(&mut self) -> u64 {
        self.rolled = self.rolled.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.rolled;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
