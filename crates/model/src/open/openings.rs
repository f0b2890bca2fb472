//! What of one class of protocols is open: rectangles of majors and minors in a normal form.

use std::{collections::BTreeSet, fmt};

use super::{Ranges, Share};
use crate::ProtocolClass;

/// A range of majors and one of minors.
pub type Rectangle = ((u16, u16), (u16, u16));

/// Ports, types or numbers that are open, and for which source ports or codes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Openings {
    class: ProtocolClass,
    /// Ascending by major, apart; neighbours differ in their minors, which are never none.
    cells: Vec<((u16, u16), Ranges)>,
}

impl Openings {
    /// All there is of a class.
    pub fn every(class: ProtocolClass) -> Rectangle {
        match class {
            ProtocolClass::Tcp | ProtocolClass::Udp | ProtocolClass::Sctp => ((1, u16::MAX), (1, u16::MAX)),
            ProtocolClass::Icmp => ((0, 255), (0, 255)),
            ProtocolClass::Other => ((0, 255), (0, 1)),
        }
    }

    pub fn all(class: ProtocolClass) -> Self {
        Self::new(class, [Self::every(class)])
    }

    pub fn none(class: ProtocolClass) -> Self {
        Self { class, cells: Vec::new() }
    }

    /// Rectangles in any order, overlapping or not; what is outside of the class is left out.
    pub fn new(class: ProtocolClass, rectangles: impl IntoIterator<Item = Rectangle>) -> Self {
        let (majors, minors) = Self::every(class);
        let within = |(first, last): (u16, u16), all: (u16, u16)| (first.max(all.0), last.min(all.1));
        let (whole, narrow): (Vec<Rectangle>, Vec<Rectangle>) = rectangles
            .into_iter()
            .map(|(major, minor)| (within(major, majors), within(minor, minors)))
            .filter(|(major, minor)| major.0 <= major.1 && minor.0 <= minor.1)
            .partition(|(_, minor)| *minor == minors);
        // Nearly always nothing is said of minors, and then this is all.
        let whole = Ranges::new(whole.into_iter().map(|(major, _)| major));
        let rest = whole.outside(majors);
        let mut cuts = BTreeSet::new();
        for ((first, last), _) in &narrow {
            cuts.insert(*first);
            cuts.extend(last.checked_add(1));
        }
        let mut cells: Vec<((u16, u16), Ranges)> =
            whole.as_slice().iter().map(|range| (*range, Ranges::new([minors]))).collect();
        for (first, last) in rest.as_slice() {
            let starts: BTreeSet<u16> =
                cuts.range(*first..=*last).copied().chain(std::iter::once(*first)).collect();
            for start in &starts {
                let end = starts.range(start + 1..).next().map_or(*last, |next| next - 1);
                let here = narrow.iter().filter(|((first, last), _)| (*first..=*last).contains(start));
                cells.push(((*start, end), Ranges::new(here.map(|(_, minor)| *minor))));
            }
        }
        Self::normal(class, cells)
    }

    fn normal(class: ProtocolClass, mut cells: Vec<((u16, u16), Ranges)>) -> Self {
        cells.retain(|(_, minors)| !minors.is_empty());
        cells.sort_unstable_by_key(|(majors, _)| *majors);
        let mut merged: Vec<((u16, u16), Ranges)> = Vec::with_capacity(cells.len());
        for (majors, minors) in cells {
            match merged.last_mut() {
                Some((before, same)) if *same == minors && before.1.checked_add(1) == Some(majors.0) => {
                    before.1 = majors.1;
                }
                _ => merged.push((majors, minors)),
            }
        }
        Self { class, cells: merged }
    }

    pub fn share(&self) -> Share {
        let (majors, minors) = Self::every(self.class);
        match self.cells.as_slice() {
            [] => Share::None,
            [(all, of)] if *all == majors && of.is(minors) => Share::All,
            _ => Share::Some,
        }
    }

    /// Of one major.
    pub fn share_of(&self, major: u16) -> Share {
        match self.minors(major) {
            None => Share::None,
            Some(minors) if minors.is(Self::every(self.class).1) => Share::All,
            Some(_) => Share::Some,
        }
    }

    pub fn contains(&self, major: u16, minor: u16) -> bool {
        self.minors(major).is_some_and(|minors| minors.contains(minor))
    }

    /// What is open of a major.
    pub fn minors(&self, major: u16) -> Option<&Ranges> {
        let after = self.cells.partition_point(|((first, _), _)| *first <= major);
        let ((_, last), minors) = self.cells.get(after.checked_sub(1)?)?;
        (*last >= major).then_some(minors)
    }

    /// Of one major only.
    #[must_use]
    pub fn at(&self, major: u16) -> Self {
        let cells = self.minors(major).map(|minors| ((major, major), minors.clone()));
        Self { class: self.class, cells: cells.into_iter().collect() }
    }

    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b, mut both) = (0, 0, Vec::new());
        while let (Some((mine, my)), Some((theirs, their))) = (self.cells.get(a), other.cells.get(b)) {
            let (first, last) = (mine.0.max(theirs.0), mine.1.min(theirs.1));
            if first <= last {
                both.push(((first, last), my.intersect(their)));
            }
            if mine.1 < theirs.1 { a += 1 } else { b += 1 }
        }
        Self::normal(self.class, both)
    }

    /// Majors of which something is open.
    pub fn majors(&self) -> Vec<(u16, u16)> {
        self.cells.iter().map(|(majors, _)| *majors).collect()
    }

    /// The first minor of a major that is not open.
    pub fn a_closed_minor(&self, major: u16) -> Option<u16> {
        let every = Self::every(self.class).1;
        match self.minors(major) {
            None => Some(every.0),
            Some(minors) => minors.outside(every).as_slice().first().map(|(first, _)| *first),
        }
    }

    /// The first that is open: a major and a minor.
    pub fn an_open_one(&self) -> Option<(u16, u16)> {
        self.cells.first().and_then(|((first, _), minors)| Some((*first, minors.as_slice().first()?.0)))
    }

    /// The first that is not.
    pub fn a_closed_one(&self) -> Option<(u16, u16)> {
        let (majors, minors) = Self::every(self.class);
        let mut next = Some(majors.0);
        for ((first, last), of) in &self.cells {
            if next.is_some_and(|next| next < *first) {
                break;
            }
            if let Some((closed, _)) = of.outside(minors).as_slice().first() {
                return Some((*first, *closed));
            }
            next = last.checked_add(1);
        }
        next.filter(|next| *next <= majors.1).map(|next| (next, minors.0))
    }
}

/// `all`, `none`, `80, 8000-8010`, `all but 22`, `443, 80 from 40000-60000`, or for ICMP `3 code 4, 8`.
impl fmt::Display for Openings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share() {
            Share::All => return f.write_str("all"),
            Share::None => return f.write_str("none"),
            Share::Some => {}
        }
        let (majors, minors) = Self::every(self.class);
        let (whole, narrow): (Vec<_>, Vec<_>) = self.cells.iter().partition(|(_, of)| of.is(minors));
        let open = Ranges::new(whole.iter().map(|(range, _)| *range));
        let closed = Ranges::new(self.cells.iter().map(|(range, _)| *range)).outside(majors);
        let mut comma = "";
        if narrow.is_empty() && closed.as_slice().len() < open.as_slice().len() {
            f.write_str("all but ")?;
            return closed.write(f);
        }
        if !open.is_empty() {
            open.write(f)?;
            comma = ", ";
        }
        for (range, of) in narrow {
            f.write_str(comma)?;
            Ranges::new([*range]).write(f)?;
            match self.class {
                ProtocolClass::Other => f.write_str(" in part")?,
                ProtocolClass::Icmp => {
                    f.write_str(" code ")?;
                    of.write(f)?;
                }
                _ => {
                    f.write_str(" from ")?;
                    of.write(f)?;
                }
            }
            comma = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TCP: ProtocolClass = ProtocolClass::Tcp;
    const ANY: (u16, u16) = (1, u16::MAX);

    #[test]
    fn the_shorter_of_two_ways_to_say_it_is_shown() {
        let of = |rectangles: &[Rectangle]| Openings::new(TCP, rectangles.iter().copied()).to_string();
        assert_eq!(of(&[((80, 80), ANY), ((8000, 8010), ANY)]), "80, 8000-8010");
        assert_eq!(of(&[((1, 21), ANY), ((23, 65535), ANY)]), "all but 22");
        assert_eq!(of(&[((0, 65535), (0, 65535))]), "all");
        assert_eq!(of(&[((80, 80), (5, 4))]), "none");
        let icmp = Openings::new(ProtocolClass::Icmp, [((8, 8), (0, 255)), ((3, 3), (4, 4))]);
        assert_eq!(icmp.to_string(), "8, 3 code 4");
    }

    fn range() -> impl Strategy<Value = (u16, u16)> {
        prop_oneof![Just(ANY), (1..40_u16, 1..40_u16).prop_map(|(a, b)| (a.min(b), a.max(b)))]
    }

    fn rectangles() -> impl Strategy<Value = Vec<Rectangle>> {
        proptest::collection::vec((range(), range()), 0..6)
    }

    proptest! {
        #[test]
        fn openings_are_the_sum_of_their_rectangles(a in rectangles(), b in rectangles()) {
            let (left, right) = (Openings::new(TCP, a.clone()), Openings::new(TCP, b.clone()));
            let both = left.intersect(&right);
            let meant = |list: &[Rectangle], major: u16, minor: u16| list.iter().any(|(majors, minors)| {
                (majors.0..=majors.1).contains(&major) && (minors.0..=minors.1).contains(&minor)
            });
            for major in (1..42).chain([u16::MAX]) {
                for minor in (1..42).chain([u16::MAX]) {
                    prop_assert_eq!(left.contains(major, minor), meant(&a, major, minor));
                    let here_and_there = meant(&a, major, minor) && meant(&b, major, minor);
                    prop_assert_eq!(both.contains(major, minor), here_and_there);
                }
            }
            // One normal form: the other way round gives the same value.
            prop_assert_eq!(&Openings::new(TCP, a.into_iter().rev()), &left);
            prop_assert_eq!(left.an_open_one().is_none(), left.share() == Share::None);
            prop_assert_eq!(left.a_closed_one().is_none(), left.share() == Share::All);
            if let Some((major, minor)) = left.an_open_one() {
                prop_assert!(left.contains(major, minor));
            }
            if let Some((major, minor)) = left.a_closed_one() {
                prop_assert!(!left.contains(major, minor));
            }
        }
    }
}
