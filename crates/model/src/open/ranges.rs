//! Sets of small numbers as ranges.

/// Ascending ranges, both ends in them, that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u16, u16)>);

impl Ranges {
    /// In any order, overlapping or not.
    pub fn new(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut ranges: Vec<(u16, u16)> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is(&self, whole: (u16, u16)) -> bool {
        self.0 == [whole]
    }

    pub fn contains(&self, number: u16) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= number);
        after > 0 && self.0[after - 1].1 >= number
    }

    pub fn as_slice(&self) -> &[(u16, u16)] {
        &self.0
    }

    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b, mut both) = (0, 0, Vec::new());
        while let (Some(mine), Some(theirs)) = (self.0.get(a), other.0.get(b)) {
            let (first, last) = (mine.0.max(theirs.0), mine.1.min(theirs.1));
            if first <= last {
                both.push((first, last));
            }
            if mine.1 < theirs.1 { a += 1 } else { b += 1 }
        }
        Self(both)
    }

    /// What of the whole is not in it.
    #[must_use]
    pub fn outside(&self, (low, high): (u16, u16)) -> Self {
        let (mut ranges, mut next) = (Vec::new(), Some(low));
        for (first, last) in &self.0 {
            if let Some(from) = next.filter(|from| from < first) {
                ranges.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        ranges.extend(next.filter(|from| *from <= high).map(|from| (from, high)));
        Self(ranges)
    }

    /// As in `80, 8000-8010`.
    pub(super) fn write(&self, f: &mut impl std::fmt::Write) -> std::fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        assert!(Ranges::new([(80, 80), (81, 90), (1, 65535)]).is((1, 65535)));
        assert_eq!(Ranges::new([(8, 9), (80, 81), (79, 79)]).as_slice(), [(8, 9), (79, 81)]);
        assert!(Ranges::new([]).is_empty() && Ranges::new([(5, 4)]).is_empty());
    }

    #[test]
    fn sets_are_what_their_numbers_say() {
        let (a, b) =
            (Ranges::new([(1, 10), (20, 30), (65535, 65535)]), Ranges::new([(5, 25), (60000, 65535)]));
        let (both, rest) = (a.intersect(&b), a.outside((1, 65535)));
        for number in 1..=u16::MAX {
            assert_eq!(both.contains(number), a.contains(number) && b.contains(number), "{number}");
            assert_eq!(rest.contains(number), !a.contains(number), "{number}");
        }
        assert_eq!(Ranges::default().outside((0, 255)).as_slice(), [(0, 255)]);
    }
}
