//! Reads gRPC messages out of the chunks of a body, holding no more than one unfinished message.

use bytes::{Buf as _, Bytes, BytesMut};

/// Why a body is not a series of gRPC messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a message has {length} bytes; at most {max} are accepted here")]
    TooLarge { length: usize, max: usize },
    #[error("a message is compressed, which was not agreed on")]
    Compressed,
    #[error("the body ended inside a message")]
    Cut,
}

/// The messages of one body.
#[derive(Debug)]
pub struct Deframer {
    max: usize,
    /// Bytes of a message whose end is not here yet, with its prefix.
    rest: BytesMut,
}

impl Deframer {
    /// Refuses messages longer than `max`.
    pub fn new(max: usize) -> Self {
        Self { max, rest: BytesMut::new() }
    }

    pub fn push(&mut self, chunk: &Bytes) {
        self.rest.extend_from_slice(chunk);
    }

    /// The next whole message; none until more bytes come.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some((prefix, _)) = self.rest.split_first_chunk::<5>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(FrameError::Compressed);
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.max {
            return Err(FrameError::TooLarge { length, max: self.max });
        }
        if self.rest.len() < 5 + length {
            return Ok(None);
        }
        self.rest.advance(5);
        let message = self.rest.split_to(length).freeze();
        if self.rest.is_empty() {
            // An idle stream keeps no buffer.
            self.rest = BytesMut::new();
        }
        Ok(Some(message))
    }

    /// Says whether the body may end here.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FrameError::Cut) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[test]
    fn messages_come_out_whole_however_the_bytes_are_cut() {
        let body = [frame(b"hello"), frame(b""), frame(&[7; 300])].concat();
        for step in 1..body.len() {
            let mut deframer = Deframer::new(1000);
            let mut seen = Vec::new();
            for chunk in body.chunks(step) {
                deframer.push(&Bytes::copy_from_slice(chunk));
                while let Some(message) = deframer.next_message().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, [&b"hello"[..], b"", &[7; 300]]);
            assert_eq!(deframer.finish(), Ok(()));
        }
    }

    #[test]
    fn what_is_too_large_compressed_or_cut_is_refused() {
        let next = |bytes: &'static [u8]| {
            let mut deframer = Deframer::new(10);
            deframer.push(&Bytes::from_static(bytes));
            (deframer.next_message(), deframer.finish())
        };
        assert_eq!(next(&[0, 0, 0, 0, 11]).0, Err(FrameError::TooLarge { length: 11, max: 10 }));
        assert_eq!(
            next(&[0, 255, 255, 255, 255, 0]).0,
            Err(FrameError::TooLarge { length: 0xffff_ffff, max: 10 })
        );
        assert_eq!(next(&[1, 0, 0, 0, 0]).0, Err(FrameError::Compressed));
        assert_eq!(next(&[0, 0, 0]), (Ok(None), Err(FrameError::Cut)));
    }
}
