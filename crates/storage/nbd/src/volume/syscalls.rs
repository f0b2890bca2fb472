//! System calls on a volume's file.

use std::{
    fs::File,
    io::{IoSlice, IoSliceMut},
    net::TcpStream,
    ops::Range,
    os::unix::fs::FileExt as _,
};

use rustix::{
    fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek, sendfile},
    io::{Errno as Os, ReadWriteFlags, preadv2, pwritev2},
};

use crate::protocol::Errno;

static ZEROES: [u8; 256 << 10] = [0; 256 << 10];

pub(super) fn errno(os: Os) -> Errno {
    match os {
        Os::NOSPC | Os::DQUOT | Os::FBIG => Errno::NoSpace,
        Os::INVAL => Errno::Invalid,
        _ => Errno::Io,
    }
}

pub(super) fn write_all(file: &File, mut offset: u64, mut data: &[u8], durable: bool) -> Result<(), Errno> {
    // With DSYNC the kernel syncs this range alone, which is what FUA asks for.
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    while !data.is_empty() {
        match pwritev2(file, &[IoSlice::new(data)], offset, flags) {
            Ok(0) => return Err(Errno::Io),
            Ok(written) => {
                data = &data[written..];
                offset += written as u64;
            }
            Err(Os::INTR) => {}
            Err(os) => return Err(errno(os)),
        }
    }
    Ok(())
}

/// Reads what the page cache holds. `false` when it does not hold all of it.
pub(super) fn read_cached(file: &File, offset: u64, into: &mut [u8]) -> bool {
    let length = into.len();
    preadv2(file, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) == Ok(length)
}

pub(super) fn read_exact(file: &File, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
    file.read_exact_at(into, offset).map_err(|_| Errno::Io)
}

/// Sends a range of the file. A failure leaves the socket with a part of it.
pub(super) fn send_all(file: &File, mut offset: u64, length: u64, socket: &TcpStream) -> Result<(), Errno> {
    let end = offset + length;
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        match sendfile(socket, file, Some(&mut offset), left) {
            Ok(0) => return Err(Errno::Io),
            Ok(_) | Err(Os::INTR) => {}
            Err(os) => return Err(errno(os)),
        }
    }
    Ok(())
}

pub(super) fn prefetch(file: &File, offset: u64, length: u64) {
    // Advice: a file system that does not take it loses nothing but time.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(length), Advice::WillNeed);
}

/// Gives blocks back. `Ok(false)` when the file system cannot.
pub(super) fn punch(file: &File, offset: u64, length: u64) -> Result<bool, Errno> {
    match fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
        Ok(()) => Ok(true),
        Err(Os::OPNOTSUPP | Os::NOSYS) => Ok(false),
        Err(os) => Err(errno(os)),
    }
}

/// Zeroes to write over a range, piece by piece.
pub(super) fn zero_pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, &'static [u8])> {
    let piece = ZEROES.len() as u64;
    (0..length.div_ceil(piece)).map(move |index| {
        let at = index * piece;
        let len = usize::try_from(piece.min(length - at)).expect("a piece fits in memory");
        (offset + at, &ZEROES[..len])
    })
}

/// The parts of a byte range that hold data, as the file system sees it.
pub(super) fn data_ranges(file: &File, start: u64, end: u64) -> Result<Vec<Range<u64>>, Os> {
    let mut ranges = Vec::new();
    let mut at = start;
    while at < end {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole up to the end.
            Err(Os::NXIO) => break,
            Err(os) => return Err(os),
        };
        if data >= end {
            break;
        }
        let hole = seek(file, SeekFrom::Hole(data))?.min(end);
        ranges.push(data..hole);
        at = hole;
    }
    Ok(ranges)
}
