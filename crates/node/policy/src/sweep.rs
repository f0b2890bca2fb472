//! Ranges of addresses that change their class, a stretch of the address space at a time.
//!
//! Ranges depend on each other: a large one may be cut into thousands, or thousands become one. So a border moves through
//! the address space; below it the new ranges hold, above it the old ones, and one that lies across it is cut there.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use node_nft::{Data, Element, Key, Limits, Transaction};

use crate::{
    layout::Place,
    mirror::{Delta, at_once},
};

#[derive(Clone, PartialEq, Eq)]
struct Range {
    first: u128,
    last: u128,
    data: Data,
}

/// The changes of `Blocks`, in order.
pub fn sweep(deltas: &[Delta], limits: Limits) -> Vec<Transaction> {
    deltas.chunk_by(|a, b| a.place == b.place).flat_map(|family| sweep_family(family, limits)).collect()
}

fn sweep_family(deltas: &[Delta], limits: Limits) -> Vec<Transaction> {
    let Some(Delta { place, .. }) = deltas.first() else { return Vec::new() };
    let ranges = |which: fn(&Delta) -> &Option<Element>| -> Vec<Range> {
        deltas.iter().filter_map(|delta| range(&delta.key, which(delta).as_ref()?)).collect()
    };
    let (old, new) = (ranges(|delta| &delta.before), ranges(|delta| &delta.after));
    // Each range is two elements, and may be both taken away and put.
    let size = (limits.elements / 4).max(1);
    let mut borders: Vec<u128> = old.iter().chain(&new).map(|range| range.first).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut borders: Vec<Option<u128>> = borders.into_iter().step_by(size).skip(1).map(Some).collect();
    borders.push(None);
    let mut transactions = Vec::with_capacity(borders.len());
    let mut from = 0;
    for to in borders {
        transactions.push(at_once(&window(*place, &old, &new, from, to)));
        from = to.unwrap_or_default();
    }
    transactions
}

/// What changes when the border moves.
fn window(place: Place, old: &[Range], new: &[Range], from: u128, to: Option<u128>) -> Vec<Delta> {
    let begins_before = |range: &Range| to.is_none_or(|to| range.first < to);
    let concerned = |ranges: &[Range]| -> Vec<Range> {
        let start = ranges.partition_point(|range| range.last < from);
        // One that ended right at the border may go on behind it.
        ranges[start..].iter().take_while(|range| begins_before(range)).cloned().collect()
    };
    let (old, new) = (concerned(old), concerned(new));
    let cut = |range: &Range| (range.first < from).then(|| Range { last: from - 1, ..range.clone() });
    let rest = |range: &Range| Range { first: range.first.max(from), ..range.clone() };
    let before = by_first(new.iter().filter_map(cut).chain(old.iter().map(rest)));

    let so_far =
        |range: &Range| Range { last: to.map_or(range.last, |to| range.last.min(to - 1)), ..range.clone() };
    let left = |range: &Range| {
        let to = to.filter(|to| *to <= range.last)?;
        Some(Range { first: to, ..range.clone() })
    };
    let after = by_first(new.iter().map(so_far).chain(old.iter().filter_map(left)));

    let mut deltas: Vec<Delta> = Vec::with_capacity(before.len() + after.len());
    deltas.extend(differing(&before, &after).map(|range| delta(place, range, false)));
    deltas.extend(differing(&after, &before).map(|range| delta(place, range, true)));
    deltas
}

/// None overlaps another.
fn by_first(ranges: impl Iterator<Item = Range>) -> BTreeMap<u128, Range> {
    ranges.map(|range| (range.first, range)).collect()
}

fn differing<'a>(
    these: &'a BTreeMap<u128, Range>,
    those: &'a BTreeMap<u128, Range>,
) -> impl Iterator<Item = &'a Range> {
    these.iter().filter(|(first, range)| those.get(first) != Some(range)).map(|(_, range)| range)
}

fn range(key: &[u8], element: &Element) -> Option<Range> {
    let last = element.end.as_deref().unwrap_or(key);
    Some(Range { first: number(key)?, last: number(last)?, data: element.data.clone() })
}

fn delta(place: Place, range: &Range, is_new: bool) -> Delta {
    let Range { first, last, data } = range;
    let element = Element { end: Some(key(place, *last)), data: data.clone() };
    let (before, after) = if is_new { (None, Some(element)) } else { (Some(element), None) };
    Delta { place, key: key(place, *first), before, after }
}

/// An address as a number; those of a family are in its order.
fn number(key: &[u8]) -> Option<u128> {
    match <[u8; 16]>::try_from(key) {
        Ok(bytes) => Some(u128::from_be_bytes(bytes)),
        Err(_) => key.try_into().ok().map(|bytes| u128::from(u32::from_be_bytes(bytes))),
    }
}

fn key(place: Place, number: u128) -> Box<[u8]> {
    let address = match u32::try_from(number) {
        Ok(number) if place == Place::Blocks(false) => IpAddr::V4(number.into()),
        _ => IpAddr::V6(Ipv6Addr::from(number)),
    };
    Key::new().address(address).into_boxed()
}
