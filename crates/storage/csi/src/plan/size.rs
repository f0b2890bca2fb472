//! How large a volume is to be.

use crate::proto::CapacityRange;

/// What a volume gets if nobody says.
const USUAL: u64 = 1 << 30;
/// Sizes are multiples of this.
const BLOCK: u64 = 4096;

/// At least, and at most if that was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    least: u64,
    most: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeRefusal {
    #[error("a capacity range of {required} to {limit} bytes holds no size")]
    Invalid { required: i64, limit: i64 },
    #[error(
        "there is no size of at least {least} and at most {most} bytes: sizes are multiples of {BLOCK}, and a copy is as large as its source"
    )]
    Nothing { least: u64, most: u64 },
}

impl Range {
    pub fn of(range: Option<&CapacityRange>) -> Result<Self, SizeRefusal> {
        let Some(&CapacityRange { required_bytes: required, limit_bytes: limit }) = range else {
            return Ok(Self::default());
        };
        let invalid = SizeRefusal::Invalid { required, limit };
        let (Ok(least), Ok(most)) = (u64::try_from(required), u64::try_from(limit)) else {
            return Err(invalid);
        };
        let most = Some(most).filter(|most| *most > 0);
        if most.is_some_and(|most| most < least) {
            return Err(invalid);
        }
        Ok(Self { least, most })
    }

    pub fn holds(&self, size: u64) -> bool {
        size >= self.least && self.most.is_none_or(|most| size <= most)
    }

    /// The smallest size in it that is at least as large as what the volume is a copy of, or as what it is now.
    pub fn size(&self, floor: Option<u64>) -> Result<u64, SizeRefusal> {
        let asked = match (self.least, floor) {
            (0, None) => self.most.map_or(USUAL, |most| most.min(USUAL) / BLOCK * BLOCK).max(1),
            (least, floor) => least.max(floor.unwrap_or_default()),
        };
        let most = self.most.unwrap_or(u64::MAX);
        let nothing = SizeRefusal::Nothing { least: asked, most };
        asked.checked_next_multiple_of(BLOCK).filter(|size| *size <= most).ok_or(nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<Range, SizeRefusal> {
        Range::of(Some(&CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn sizes_are_in_whole_blocks_and_never_above_the_limit() {
        let sizes = [
            (0, 0, None, Some(1 << 30)),
            (1, 0, None, Some(4096)),
            (4097, 0, None, Some(8192)),
            (4097, 8191, None, None),
            (4097, 8192, None, Some(8192)),
            (0, 10_000, None, Some(8192)),
            (0, 100, None, None),
            (4096, 0, Some(16384), Some(16384)),
            (4096, 8192, Some(16384), None),
            (0, 0, Some(16384), Some(16384)),
            (i64::MAX, 0, None, Some(1 << 63)),
        ];
        for (required, limit, floor, size) in sizes {
            assert_eq!(
                range(required, limit).unwrap().size(floor).ok(),
                size,
                "{required} {limit} {floor:?}"
            );
        }
        for (required, limit) in [(-1, 0), (0, -1), (2, 1), (i64::MIN, i64::MAX)] {
            assert!(range(required, limit).is_err(), "{required} {limit}");
        }
    }

    #[test]
    fn what_is_there_fits_or_does_not() {
        assert!(Range::default().holds(0));
        let range = range(10, 20).unwrap();
        assert_eq!([9, 10, 20, 21].map(|size| range.holds(size)), [false, true, true, false]);
    }
}
