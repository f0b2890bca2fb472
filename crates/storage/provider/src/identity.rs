//! The identity of data: which volumes were made for a consumer, where, and whether what is there now is the same.
//!
//! In: what the consumer's record says was made, what a backend finds. Out: a [`Verdict`]: make, keep, mark, or leave
//! everything alone and say why. Holds: nothing. Not here: where marks are kept (the backends), what is done (`plan`).
//!
//! ```text
//!   the record says     found                               verdict
//!   nothing was made    anything                            Fresh: make what is missing
//!   these were made     the same marks, or newer ones       Same: keep
//!   these were made     none, other, older or shorter ones  Lost: touch nothing, say why
//!   (before marks)      whole files without marks           Unmarked: mark them, once
//! ```
//! A mark is written beside the data first and in the record after, so data may be one generation ahead of its record,
//! and is behind it only when somebody brought back an older copy.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A place that holds data: a directory of volumes, or a Ceph cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VaultId(pub Uuid);

/// One volume, whatever it is called and wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeId(pub Uuid);

/// The key a volume is encrypted with. It is made of the key itself, so that another key is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeKeyId(pub Uuid);

impl fmt::Display for VaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VolumeKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is written beside a volume's data and in its consumer's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub vault: VaultId,
    pub volume: VolumeId,
    /// Grows whenever size or content are replaced as a whole.
    pub generation: u64,
    /// Bytes; a volume that holds less was cut.
    pub size: u64,
    /// What it is encrypted with; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<VolumeKeyId>,
}

impl Mark {
    /// The generation of data that is marked for the first time.
    pub const FIRST_GENERATION: u64 = 1;
}

/// What a consumer's record says was made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Written before there were marks: storage may have been made.
    #[default]
    Unmarked,
    /// None was made yet, or it was given up.
    Nothing,
    /// These volumes, by name.
    Made(BTreeMap<String, Mark>),
}

impl Data {
    /// That it is in another vault, if it is.
    pub fn elsewhere(&self, here: VaultId) -> Option<Loss> {
        let Self::Made(made) = self else { return None };
        let away = made.values().find(|mark| mark.vault != here)?;
        Some(Loss::Elsewhere { vault: away.vault, place: None })
    }
}

/// One volume as a backend finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Whole(Mark),
    /// Data without a mark.
    Unmarked {
        size: u64,
    },
    /// Named by the backend's own records, but not there.
    Missing,
    /// Smaller than its mark says.
    Short {
        mark: Mark,
        size: u64,
    },
    /// Its vault was put back as it had been before this volume was served last.
    Older,
    /// It is encrypted, and its key cannot be had.
    Locked {
        mark: Mark,
        reason: String,
    },
    /// It cannot be told what it is.
    Damaged {
        reason: String,
    },
}

/// Why data is not what was made. Data is left alone until an administrator says what is to become of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    #[error("its data is in the vault {vault}{}, and this is another: bring that one back, or let its controller lead; if it is gone for good, give its data up with `trestle volume recreate --data-is-lost`", at(place.as_deref()))]
    Elsewhere { vault: VaultId, place: Option<String> },
    #[error("what the storage keeps beside its data is unusable: {reason}; {ways}", ways = WAYS)]
    Record { reason: String },
    #[error("none of its data is there; {ways}", ways = WAYS)]
    Everything,
    #[error("its volume {volume:?} is missing; {ways}", ways = WAYS)]
    Missing { volume: String },
    #[error("its volume {volume:?} is another one than was made for it; {ways}", ways = WAYS)]
    Foreign { volume: String },
    #[error("its volume {volume:?} has no mark that says what it is; {ways}", ways = WAYS)]
    Unmarked { volume: String },
    #[error("its volume {volume:?} is an older copy than the one it used last; {ways}", ways = WAYS)]
    Older { volume: String },
    #[error("its volume {volume:?} was cut from {from} to {to} bytes; {ways}", ways = WAYS)]
    Short { volume: String, from: u64, to: u64 },
    #[error("its volume {volume:?} is damaged: {reason}; {ways}", ways = WAYS)]
    Damaged { volume: String, reason: String },
    #[error(
        "its volume {volume:?} is encrypted and cannot be opened: {reason}; bring the key back, or give the data up with `trestle volume recreate --data-is-lost`"
    )]
    Locked { volume: String, reason: String },
}

/// What an administrator can do about it.
const WAYS: &str = "put it back where it was, take what is there with `trestle volume adopt`, or \
                    give the data up with `trestle volume recreate --data-is-lost`";

fn at(place: Option<&str>) -> String {
    place.map(|place| format!(" ({place})")).unwrap_or_default()
}

/// What is to be done with a consumer's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make what is missing.
    Fresh,
    /// Keep it.
    Same,
    /// Made before there were marks, and whole: mark it.
    Unmarked,
    /// Leave it alone.
    Lost(Loss),
}

/// Judges what was found of a consumer that is to stay. One that was never Ready was given no data; what is `gone` was
/// deleted on purpose, and the record has not heard of it yet.
pub fn judge(
    data: &Data,
    never_ready: bool,
    vault: VaultId,
    found: &BTreeMap<String, Found>,
    gone: &BTreeSet<VolumeId>,
    trouble: Option<&str>,
) -> Verdict {
    match data {
        Data::Nothing => Verdict::Fresh,
        Data::Unmarked if never_ready => Verdict::Fresh,
        Data::Unmarked => before_marks(found, trouble),
        Data::Made(made) => match data.elsewhere(vault) {
            Some(loss) => Verdict::Lost(loss),
            None => compare(made, found, gone, trouble),
        },
    }
}

fn before_marks(found: &BTreeMap<String, Found>, trouble: Option<&str>) -> Verdict {
    if let Some(reason) = trouble {
        return Verdict::Lost(Loss::Record { reason: reason.to_owned() });
    }
    if found.is_empty() {
        return Verdict::Lost(Loss::Everything);
    }
    let lost = found.iter().find_map(|(name, found)| match found {
        Found::Whole(_) | Found::Unmarked { .. } => None,
        other => unlike(name, other),
    });
    lost.map_or(Verdict::Unmarked, Verdict::Lost)
}

fn compare(
    made: &BTreeMap<String, Mark>,
    found: &BTreeMap<String, Found>,
    gone: &BTreeSet<VolumeId>,
    trouble: Option<&str>,
) -> Verdict {
    if found.is_empty() && trouble.is_none() && !made.is_empty() {
        return Verdict::Lost(Loss::Everything);
    }
    if let Some(reason) = trouble {
        return Verdict::Lost(Loss::Record { reason: reason.to_owned() });
    }
    let expected = made.iter().filter(|(_, made)| !gone.contains(&made.volume));
    let lost = expected.into_iter().find_map(|(name, made)| match found.get(name) {
        Some(Found::Whole(mark))
            if (mark.vault, mark.volume, mark.key) != (made.vault, made.volume, made.key) =>
        {
            Some(Loss::Foreign { volume: name.clone() })
        }
        Some(Found::Whole(mark)) if mark.generation < made.generation => {
            Some(Loss::Older { volume: name.clone() })
        }
        Some(other) => unlike(name, other),
        None => Some(Loss::Missing { volume: name.clone() }),
    });
    lost.map_or(Verdict::Same, Verdict::Lost)
}

fn unlike(name: &str, found: &Found) -> Option<Loss> {
    let volume = name.to_owned();
    Some(match found {
        Found::Whole(_) => return None,
        Found::Unmarked { .. } => Loss::Unmarked { volume },
        Found::Missing => Loss::Missing { volume },
        Found::Short { mark, size } => Loss::Short { volume, from: mark.size, to: *size },
        Found::Older => Loss::Older { volume },
        Found::Locked { reason, .. } => Loss::Locked { volume, reason: reason.clone() },
        Found::Damaged { reason } => Loss::Damaged { volume, reason: reason.clone() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: VaultId = VaultId(Uuid::from_u128(1));

    fn mark(volume: u128, generation: u64) -> Mark {
        Mark { vault: HERE, volume: VolumeId(Uuid::from_u128(volume)), generation, size: 10, key: None }
    }

    fn made(mark: Mark) -> Data {
        Data::Made([("data".to_owned(), mark)].into())
    }

    fn found(found: Found) -> BTreeMap<String, Found> {
        [("data".to_owned(), found)].into()
    }

    fn verdict(data: &Data, seen: &BTreeMap<String, Found>) -> Verdict {
        judge(data, false, HERE, seen, &BTreeSet::new(), None)
    }

    #[test]
    fn only_what_was_made_or_is_newer_is_kept() {
        let data = made(mark(1, 5));
        for generation in [5, 6] {
            assert_eq!(verdict(&data, &found(Found::Whole(mark(1, generation)))), Verdict::Same);
        }
        let lost = |seen: Found| match verdict(&data, &found(seen)) {
            Verdict::Lost(loss) => loss,
            other => panic!("{other:?}"),
        };
        assert!(matches!(lost(Found::Whole(mark(1, 4))), Loss::Older { .. }));
        assert!(matches!(lost(Found::Whole(mark(2, 9))), Loss::Foreign { .. }));
        assert!(matches!(lost(Found::Missing), Loss::Missing { .. }));
        assert!(matches!(lost(Found::Unmarked { size: 10 }), Loss::Unmarked { .. }));
        assert!(matches!(
            lost(Found::Short { mark: mark(1, 5), size: 3 }),
            Loss::Short { from: 10, to: 3, .. }
        ));
        assert!(matches!(lost(Found::Damaged { reason: String::new() }), Loss::Damaged { .. }));
        assert!(matches!(lost(Found::Older), Loss::Older { .. }));
        assert!(matches!(
            lost(Found::Locked { mark: mark(1, 5), reason: String::new() }),
            Loss::Locked { .. }
        ));
        // Neither is what was encrypted served as it is, nor what was not decrypted.
        let key = Some(VolumeKeyId(Uuid::from_u128(7)));
        assert!(matches!(lost(Found::Whole(Mark { key, ..mark(1, 5) })), Loss::Foreign { .. }));
        assert_eq!(verdict(&data, &BTreeMap::new()), Verdict::Lost(Loss::Everything));
        // A second volume that the record has not heard of yet is no loss.
        let mut both = found(Found::Whole(mark(1, 5)));
        both.insert("logs".to_owned(), Found::Whole(mark(3, 1)));
        assert_eq!(verdict(&data, &both), Verdict::Same);
    }

    #[test]
    fn what_was_deleted_on_purpose_is_not_missed() {
        let data = Data::Made([("data".to_owned(), mark(1, 5)), ("logs".to_owned(), mark(2, 1))].into());
        let mut seen = found(Found::Whole(mark(1, 5)));
        let gone = BTreeSet::from([mark(2, 1).volume]);
        assert!(matches!(verdict(&data, &seen), Verdict::Lost(Loss::Missing { .. })));
        assert_eq!(judge(&data, false, HERE, &seen, &gone, None), Verdict::Same);
        // Another one has its name by now.
        seen.insert("logs".to_owned(), Found::Whole(mark(3, 1)));
        assert!(matches!(verdict(&data, &seen), Verdict::Lost(Loss::Foreign { .. })));
        assert_eq!(judge(&data, false, HERE, &seen, &gone, None), Verdict::Same);
    }

    #[test]
    fn data_of_another_vault_is_elsewhere_whatever_lies_here() {
        let data = made(mark(1, 5));
        let other = VaultId(Uuid::from_u128(9));
        for seen in [BTreeMap::new(), found(Found::Whole(mark(1, 5)))] {
            let verdict = judge(&data, false, other, &seen, &BTreeSet::new(), None);
            assert!(matches!(verdict, Verdict::Lost(Loss::Elsewhere { vault, .. }) if vault == HERE));
        }
    }

    #[test]
    fn what_was_made_before_there_were_marks_is_marked_if_it_is_whole() {
        let seen = found(Found::Unmarked { size: 10 });
        assert_eq!(verdict(&Data::Unmarked, &seen), Verdict::Unmarked);
        // Killed while it was marked.
        assert_eq!(verdict(&Data::Unmarked, &found(Found::Whole(mark(1, 1)))), Verdict::Unmarked);
        assert_eq!(verdict(&Data::Unmarked, &BTreeMap::new()), Verdict::Lost(Loss::Everything));
        assert!(matches!(verdict(&Data::Unmarked, &found(Found::Missing)), Verdict::Lost(_)));
        // It was never Ready, so nothing of it can be lost.
        let fresh = judge(&Data::Unmarked, true, HERE, &BTreeMap::new(), &BTreeSet::new(), None);
        assert_eq!(fresh, Verdict::Fresh);
        assert_eq!(verdict(&Data::Nothing, &BTreeMap::new()), Verdict::Fresh);
    }

    #[test]
    fn records_from_before_marks_are_read() {
        #[derive(Deserialize)]
        struct Old {
            #[serde(default)]
            data: Data,
        }
        assert_eq!(serde_json::from_str::<Old>("{}").unwrap().data, Data::Unmarked);
        for data in [Data::Nothing, Data::Unmarked, made(mark(1, 2))] {
            let text = serde_json::to_string(&data).unwrap();
            assert_eq!(serde_json::from_str::<Data>(&text).unwrap(), data);
        }
    }
}
