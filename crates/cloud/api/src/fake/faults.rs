//! Faults by seed: the same seed fails the same calls, as far as the calls come in the same order.

use std::time::Duration;

use crate::{CloudError, CloudErrorKind, Result};

/// What goes wrong, in parts of a thousand calls.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    /// The longest a call takes.
    pub latency: Duration,
    /// Refused for being too many.
    pub throttle: u32,
    /// Failed before anything happened.
    pub before: u32,
    /// Done, but the answer was lost.
    pub after: u32,
    /// Reads that answer with how it was before the last change.
    pub old: u32,
    /// Changes of several entries that are done by half.
    pub half: u32,
    /// Never answers.
    pub hang: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Fine,
    Throttle,
    Before,
    After,
    Old,
    Hang,
}

impl Faults {
    pub(super) fn roll(&self, dice: &mut Dice) -> (Duration, Fate) {
        let latency = self.latency.mul_f64(f64::from(dice.below(1000)) / 1000.0);
        let fates = [
            (self.throttle, Fate::Throttle),
            (self.before, Fate::Before),
            (self.after, Fate::After),
            (self.old, Fate::Old),
            (self.hang, Fate::Hang),
        ];
        let fate =
            fates.into_iter().find(|(chance, _)| dice.hits(*chance)).map_or(Fate::Fine, |(_, fate)| fate);
        (latency, fate)
    }
}

impl Fate {
    pub(super) fn before(self) -> Result {
        match self {
            Self::Throttle => Err(CloudError::new(CloudErrorKind::Throttled, "too many requests")),
            Self::Before => Err(CloudError::unavailable("the cloud does not answer")),
            Self::Fine | Self::After | Self::Old | Self::Hang => Ok(()),
        }
    }

    pub(super) fn after(self) -> Result {
        match self {
            Self::After => Err(CloudError::unavailable("the answer was lost")),
            _ => Ok(()),
        }
    }
}

/// SplitMix64: small, seeded, good enough for dice.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or_default()
    }

    /// Whether something happens that happens so many times in a thousand.
    pub fn hits(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < per_mille
    }
}
