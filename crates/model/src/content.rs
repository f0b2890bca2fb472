//! The digest of what is in a volume: the same however it was cut into pieces and whichever of its blocks were stored.
//!
//! In: blocks that are not zero, in order. Out: SHA-256 over the number of each (8 bytes, most significant first) and its
//! 4096 bytes, and the volume's size (8 bytes) in the end. Not here: where the blocks come from.

use sha2::{Digest as _, Sha256};

/// Bytes in a block.
pub const CONTENT_BLOCK: usize = 4096;

/// A digest under way.
#[derive(Clone, Default)]
pub struct ContentDigest {
    sum: Sha256,
    /// One past the last block that was taken in.
    next: u64,
}

/// A piece of content does not follow the one before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("a piece at {offset} does not begin or end with a block of {CONTENT_BLOCK} bytes")]
    Torn { offset: u64 },
    #[error("a piece at {offset} comes after a later one")]
    Order { offset: u64 },
}

impl ContentDigest {
    /// Takes in a piece that begins and ends with a block. Blocks of zeroes count like holes.
    pub fn update(&mut self, offset: u64, piece: &[u8]) -> Result<(), ContentError> {
        let block = CONTENT_BLOCK as u64;
        if !offset.is_multiple_of(block) || !piece.len().is_multiple_of(CONTENT_BLOCK) {
            return Err(ContentError::Torn { offset });
        }
        let first = offset / block;
        if first < self.next {
            return Err(ContentError::Order { offset });
        }
        let mut number = first;
        for bytes in piece.chunks_exact(CONTENT_BLOCK) {
            if bytes.iter().any(|byte| *byte != 0) {
                self.sum.update(number.to_be_bytes());
                self.sum.update(bytes);
            }
            number += 1;
        }
        self.next = number;
        Ok(())
    }

    /// The digest of a volume of this size.
    pub fn finish(mut self, size: u64) -> [u8; 32] {
        self.sum.update(size.to_be_bytes());
        self.sum.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 8 * CONTENT_BLOCK as u64;

    fn digest(pieces: &[(u64, &[u8])]) -> [u8; 32] {
        let mut digest = ContentDigest::default();
        pieces.iter().for_each(|(at, piece)| digest.update(*at, piece).unwrap());
        digest.finish(SIZE)
    }

    #[test]
    fn pieces_and_stored_zeroes_make_no_difference_and_everything_else_does() {
        let mut bytes = vec![0; 4 * CONTENT_BLOCK];
        bytes[CONTENT_BLOCK] = 7;
        let (front, back) = bytes.split_at(2 * CONTENT_BLOCK);
        let whole = digest(&[(0, &bytes)]);
        assert_eq!(digest(&[(0, front), (2 * 4096, back)]), whole);
        assert_eq!(digest(&[(4096, &bytes[4096..8192])]), whole);
        assert_ne!(digest(&[(8192, &bytes[4096..8192])]), whole, "elsewhere");
        assert_ne!(digest(&[]), whole);
        assert_ne!(ContentDigest::default().finish(SIZE), ContentDigest::default().finish(2 * SIZE));
        let mut flipped = bytes.clone();
        flipped[CONTENT_BLOCK] = 6;
        assert_ne!(digest(&[(0, &flipped)]), whole);
    }

    #[test]
    fn pieces_come_in_order_and_whole() {
        let mut digest = ContentDigest::default();
        assert_eq!(digest.update(1, &[]), Err(ContentError::Torn { offset: 1 }));
        assert_eq!(digest.update(0, &[1]), Err(ContentError::Torn { offset: 0 }));
        digest.update(4096, &[1; 4096]).unwrap();
        assert_eq!(digest.update(0, &[1; 4096]), Err(ContentError::Order { offset: 0 }));
        assert_eq!(digest.update(4096, &[1; 4096]), Err(ContentError::Order { offset: 4096 }));
    }
}
