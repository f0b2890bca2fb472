//! A client that speaks the protocol by hand, well or badly.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;

pub(crate) const GO: u32 = 7;

pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Greets as a client should.
    pub(crate) fn greeted(address: SocketAddr) -> io::Result<Self> {
        let mut raw = Self::connect(address)?;
        let mut greeting = [0; 18];
        raw.0.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        raw.0.write_all(&3u32.to_be_bytes())?;
        Ok(raw)
    }

    /// Connects to an export.
    pub(crate) fn open(address: SocketAddr, export: &str) -> io::Result<Self> {
        let mut raw = Self::greeted(address)?;
        raw.option(GO, &info(export.as_bytes()))?;
        loop {
            let (kind, _) = raw.option_reply()?;
            match kind {
                1 => return Ok(raw),
                3 => {}
                kind => return Err(io::Error::other(format!("refused with {kind:#x}"))),
            }
        }
    }

    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes)
    }

    pub(crate) fn option_reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut header = [0; 20];
        self.0.read_exact(&mut header)?;
        let kind = u32::from_be_bytes(header[12..16].try_into().unwrap());
        let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
        self.0.read_exact(&mut data)?;
        Ok((kind, data))
    }

    pub(crate) fn request(
        &mut self,
        flags: u16,
        command: u16,
        cookie: u64,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<()> {
        self.0.write_all(&[&request(flags, command, cookie, offset, length)[..], data].concat())
    }

    /// A simple reply: error and cookie.
    pub(crate) fn reply(&mut self) -> io::Result<(u32, u64)> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        Ok((
            u32::from_be_bytes(reply[4..8].try_into().unwrap()),
            u64::from_be_bytes(reply[8..].try_into().unwrap()),
        ))
    }

    /// One request and its reply; the error number.
    pub(crate) fn ask(&mut self, command: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<u32> {
        self.request(0, command, 7, offset, length, data)?;
        let (error, cookie) = self.reply()?;
        assert_eq!(cookie, 7);
        Ok(error)
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        assert_eq!(self.ask(READ, offset, length, &[])?, 0);
        let mut data = vec![0; length as usize];
        self.0.read_exact(&mut data)?;
        Ok(data)
    }

    /// Whether the server has ended the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.0.read(&mut byte), Ok(0) | Err(_))
    }
}

pub(crate) fn info(name: &[u8]) -> Vec<u8> {
    [&u32::try_from(name.len()).unwrap().to_be_bytes()[..], name, &[0, 0]].concat()
}

pub(crate) fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}
