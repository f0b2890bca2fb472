//! Which blocks of a volume hold data.
//!
//! In: claims and releases of block ranges. Out: how many blocks that changed, and runs of equal blocks.
//! Holds: one bit per block in use, in chunks that exist only where needed: an empty or a full stretch of 128 MiB
//! takes no bitmap. Pure: the file is `volume`'s.
//!
//! The map counts what a consumer stored, block by block. A file's own block count would not do: it includes the file
//! system's bookkeeping, so that a grant could not be filled to the last byte.

use std::{collections::BTreeMap, ops::Range};

#[cfg(test)]
mod tests;

/// Bytes in a block: what every common file system allocates at least, and what clients prefer.
pub(crate) const BLOCK: u64 = 4096;
/// Blocks in a chunk: 128 MiB of data, 4 KiB of bitmap.
const CHUNK: u64 = 1 << 15;
const WORDS: usize = (CHUNK / 64) as usize;

#[derive(Default)]
pub(crate) struct Allocation {
    /// No entry: nothing in that chunk is in use.
    chunks: BTreeMap<u64, Chunk>,
}

enum Chunk {
    Full,
    Some { bits: Box<[u64; WORDS]>, count: u64 },
}

/// A run of blocks alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) blocks: u64,
    pub(crate) data: bool,
}

impl Allocation {
    /// Blocks of the range that hold no data.
    pub(crate) fn holes(&self, blocks: Range<u64>) -> u64 {
        pieces(blocks)
            .map(|(index, inner)| {
                let len = inner.end - inner.start;
                match self.chunks.get(&index) {
                    None => len,
                    Some(Chunk::Full) => 0,
                    Some(Chunk::Some { bits, .. }) => len - count(bits, inner),
                }
            })
            .sum()
    }

    /// Marks the range as data; returns how many blocks were not before.
    pub(crate) fn claim(&mut self, blocks: Range<u64>) -> u64 {
        let mut claimed = 0;
        for (index, inner) in pieces(blocks) {
            let chunk = self.chunks.entry(index).or_insert_with(Chunk::empty);
            let Chunk::Some { bits, count } = chunk else { continue };
            let new = set(bits, inner);
            *count += new;
            claimed += new;
            if *count == CHUNK {
                *chunk = Chunk::Full;
            }
        }
        claimed
    }

    /// Marks the range as holding no data; returns how many blocks did before.
    pub(crate) fn release(&mut self, blocks: Range<u64>) -> u64 {
        let mut released = 0;
        for (index, inner) in pieces(blocks) {
            let Some(chunk) = self.chunks.get_mut(&index) else { continue };
            if matches!(chunk, Chunk::Full) {
                *chunk = Chunk::Some { bits: Box::new([u64::MAX; WORDS]), count: CHUNK };
            }
            let Chunk::Some { bits, count } = chunk else { continue };
            let gone = clear(bits, inner);
            *count -= gone;
            released += gone;
            if *count == 0 {
                self.chunks.remove(&index);
            }
        }
        released
    }

    /// Forgets everything; returns how many blocks held data.
    pub(crate) fn release_all(&mut self) -> u64 {
        std::mem::take(self).count()
    }

    /// How many blocks hold data.
    pub(crate) fn count(&self) -> u64 {
        let of_chunk = |chunk: &Chunk| match chunk {
            Chunk::Full => CHUNK,
            Chunk::Some { count, .. } => *count,
        };
        self.chunks.values().map(of_chunk).sum()
    }

    /// One past the last block that holds data.
    pub(crate) fn end(&self) -> u64 {
        let Some((index, chunk)) = self.chunks.last_key_value() else { return 0 };
        let last = match chunk {
            Chunk::Full => CHUNK,
            Chunk::Some { bits, .. } => {
                let word = bits.iter().rposition(|word| *word != 0).expect("an empty chunk is dropped");
                (word as u64 + 1) * 64 - u64::from(bits[word].leading_zeros())
            }
        };
        index * CHUNK + last
    }

    /// The range as runs of data and of holes, at most `most` of them.
    pub(crate) fn runs(&self, blocks: Range<u64>, most: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let Run { blocks: len, data } = self.run_at(at, blocks.end);
            let full = runs.len() == most;
            match runs.last_mut() {
                Some(last) if last.data == data => last.blocks += len,
                Some(_) | None if full => break,
                Some(_) | None => runs.push(Run { blocks: len, data }),
            }
            at += len;
        }
        runs
    }

    /// The run that starts here, within one word or one chunk.
    fn run_at(&self, at: u64, end: u64) -> Run {
        let (index, bit) = (at / CHUNK, at % CHUNK);
        let to_chunk_end = (CHUNK - bit).min(end - at);
        match self.chunks.get(&index) {
            None => Run { blocks: to_chunk_end, data: false },
            Some(Chunk::Full) => Run { blocks: to_chunk_end, data: true },
            Some(Chunk::Some { bits, .. }) => {
                let word = bits[word(bit)] >> (bit % 64);
                let data = word & 1 == 1;
                let alike = if data { word.trailing_ones() } else { word.trailing_zeros() };
                let len = u64::from(alike).min(64 - bit % 64).min(to_chunk_end);
                Run { blocks: len, data }
            }
        }
    }
}

impl Chunk {
    fn empty() -> Self {
        Self::Some { bits: Box::new([0; WORDS]), count: 0 }
    }
}

/// The range cut at chunk borders: chunk index, and the part within it.
fn pieces(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let Range { start, end } = blocks;
    let chunks = if start < end { start / CHUNK..end.div_ceil(CHUNK) } else { 0..0 };
    chunks.map(move |index| {
        let base = index * CHUNK;
        (index, start.max(base) - base..end.min(base + CHUNK) - base)
    })
}

fn word(bit: u64) -> usize {
    usize::try_from(bit / 64).expect("a chunk has 512 words")
}

/// The words a range touches, with the bits of it in each.
fn masks(range: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    (range.start / 64..range.end.div_ceil(64)).map(move |index| {
        let base = index * 64;
        let low = range.start.max(base) - base;
        let high = range.end.min(base + 64) - base;
        let mask = if high - low == 64 { u64::MAX } else { ((1 << (high - low)) - 1) << low };
        (word(base), mask)
    })
}

fn count(bits: &[u64; WORDS], range: Range<u64>) -> u64 {
    masks(range).map(|(index, mask)| u64::from((bits[index] & mask).count_ones())).sum()
}

fn set(bits: &mut [u64; WORDS], range: Range<u64>) -> u64 {
    let new = masks(range).map(|(index, mask)| {
        let new = !bits[index] & mask;
        bits[index] |= mask;
        u64::from(new.count_ones())
    });
    new.sum()
}

fn clear(bits: &mut [u64; WORDS], range: Range<u64>) -> u64 {
    let gone = masks(range).map(|(index, mask)| {
        let gone = bits[index] & mask;
        bits[index] &= !mask;
        u64::from(gone.count_ones())
    });
    gone.sum()
}
