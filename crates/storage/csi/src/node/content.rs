//! What is on a device, by its first and last bytes (pure).
//!
//! Nothing is formatted unless it is empty, or was being formatted when that broke off: a mark in the last block says so, from before the
//! first byte of a new file system is written until its last is.

use crate::plan::FileSystem;

/// Bytes that are looked at, from the beginning.
pub(crate) const HEAD: usize = 1 << 20;
/// And the last of the device.
pub(crate) const TAIL: usize = 4096;
const MARK: &[u8] = b"trestle: a file system is being made here; what there is of it may go\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Empty,
    /// Making a file system broke off.
    Unfinished,
    /// With the bytes that it fills.
    Known(FileSystem, u64),
    Unknown,
}

pub(crate) fn content(head: &[u8], tail: &[u8]) -> Content {
    if tail == mark() {
        return Content::Unfinished;
    }
    if let Some(bytes) = ext4(head) {
        return Content::Known(FileSystem::Ext4, bytes);
    }
    if let Some(bytes) = xfs(head) {
        return Content::Known(FileSystem::Xfs, bytes);
    }
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if zero(head) && zero(tail) { Content::Empty } else { Content::Unknown }
}

/// The last block while a file system is made.
pub(crate) fn mark() -> Vec<u8> {
    let mut block = MARK.to_vec();
    block.resize(TAIL, 0);
    block
}

/// The superblock is at 1024: blocks (low at 4, high at 0x150 with the 64-bit feature), their size as a power of two, the magic at 0x38.
fn ext4(head: &[u8]) -> Option<u64> {
    let block = head.get(1024..2048)?;
    if block[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word =
        |at: usize| u64::from(u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]));
    let wide = word(0x60) & 0x80 != 0;
    let blocks = word(4) | if wide { word(0x150) << 32 } else { 0 };
    Some(blocks << (10 + word(0x18).min(16)))
}

fn xfs(head: &[u8]) -> Option<u64> {
    let head = head.strip_prefix(b"XFSB")?;
    let (size, rest) = head.split_first_chunk::<4>()?;
    let blocks = rest.first_chunk::<8>()?;
    u64::from(u32::from_be_bytes(*size)).checked_mul(u64::from_be_bytes(*blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_empty_is_empty() {
        let zeroes = vec![0; HEAD];
        let tail = vec![0; TAIL];
        assert_eq!(content(&zeroes, &tail), Content::Empty);
        for at in [0, 511, 4096, HEAD - 1] {
            let mut head = zeroes.clone();
            head[at] = 1;
            assert_eq!(content(&head, &tail), Content::Unknown, "{at}");
        }
        let mut used = tail;
        used[TAIL - 1] = 1;
        assert_eq!(content(&zeroes, &used), Content::Unknown);
        assert_eq!(content(&[1; 100], &mark()), Content::Unfinished);
        assert_eq!(content(&[], &[]), Content::Empty);
    }

    #[test]
    fn file_systems_say_how_much_they_fill() {
        let mut head = vec![0; 4096];
        head[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
        head[1024 + 4..][..4].copy_from_slice(&1024_u32.to_le_bytes());
        head[1024 + 0x18..][..4].copy_from_slice(&2_u32.to_le_bytes());
        assert_eq!(content(&head, &[]), Content::Known(FileSystem::Ext4, 4 << 20));
        let xfs = [&b"XFSB"[..], &4096_u32.to_be_bytes(), &256_u64.to_be_bytes()].concat();
        assert_eq!(content(&xfs, &[]), Content::Known(FileSystem::Xfs, 1 << 20));
        assert_eq!(content(b"XFSB", &[]), Content::Unknown, "cut off");
    }
}
