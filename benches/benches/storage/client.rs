//! A load generator that speaks NBD: one thread, many requests in flight, the same for every server.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// No run takes longer. One peer answers small reads over TLS 25 times a second, waiting for delayed acknowledgements.
const LONGEST: Duration = Duration::from_secs(4);
/// A server that says nothing for this long has stopped.
const SILENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Read = 0,
    Write = 1,
    Flush = 3,
    /// A write that is on disk when it is answered.
    SyncedWrite = 0x1_0001,
}

impl Kind {
    fn carries_data(self) -> bool {
        matches!(self, Self::Write | Self::SyncedWrite)
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

pub(crate) struct Client {
    stream: BufReader<Box<dyn Stream>>,
}

impl Client {
    /// Opens the volume of the server called `name`; with TLS if there are certificates.
    pub(crate) fn connect(name: &str, address: SocketAddr, certificates: Option<&Path>) -> Result<Self> {
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(SILENCE))?;
        let mut greeting = [0; 18];
        tcp.read_exact(&mut greeting)?;
        tcp.write_all(&3u32.to_be_bytes())?;
        let mut stream: Box<dyn Stream> = Box::new(tcp.try_clone()?);
        if let Some(certificates) = certificates {
            option(&mut stream, 5, b"")?;
            ensure!(option_reply(&mut stream)? == 1, "{name} refused TLS");
            stream = Box::new(StreamOwned::new(connection(certificates)?, tcp));
        }
        option(&mut stream, 7, &[&4u32.to_be_bytes()[..], b"data", &[0, 0]].concat())?;
        loop {
            match option_reply(&mut stream)? {
                1 => break,
                3 => {}
                other => bail!("{name} refused the export with {other:#x}"),
            }
        }
        Ok(Self { stream: BufReader::with_capacity(256 << 10, stream) })
    }

    /// Keeps `depth` requests in flight until `count` are answered, or as many as are in [`LONGEST`]; returns how many.
    /// Offsets are random with a seed, in order without.
    pub(crate) fn run(
        &mut self,
        kind: Kind,
        size: u32,
        depth: usize,
        count: u64,
        span: u64,
        seed: Option<u64>,
    ) -> Result<u64> {
        let mut offsets = Offsets {
            state: seed.map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            next: 0,
            size: size.into(),
            span,
        };
        let payload = vec![0x5a; if kind.carries_data() { size as usize } else { 0 }];
        let mut found = vec![0; size as usize];
        let mut out = Vec::new();
        let (mut count, mut sent, mut answered) = (count, 0, 0);
        let began = Instant::now();
        while answered < count {
            if began.elapsed() > LONGEST {
                count = sent;
            }
            while sent < count && sent - answered < depth as u64 {
                push(&mut out, kind, sent, offsets.next(), size, &payload);
                sent += 1;
                if out.len() > 1 << 20 {
                    self.stream.get_mut().write_all(&out)?;
                    out.clear();
                }
            }
            self.stream.get_mut().write_all(&out)?;
            self.stream.get_mut().flush()?;
            out.clear();
            // At least one answer, and all that are here already.
            loop {
                self.answer(kind, &mut found)?;
                answered += 1;
                if self.stream.buffer().len() < 16 || answered == sent {
                    break;
                }
            }
        }
        Ok(answered)
    }

    /// How long each of `count` requests took, one after the other.
    pub(crate) fn times(&mut self, kind: Kind, size: u32, count: u64, span: u64) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for n in 0..count {
            let began = Instant::now();
            self.run(kind, size, 1, 1, span, Some(n + 1))?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(times)
    }

    /// Has everything written so far synced to disk.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let mut out = Vec::new();
        push(&mut out, Kind::Flush, 0, 0, 0, &[]);
        self.stream.get_mut().write_all(&out)?;
        self.stream.get_mut().flush()?;
        self.answer(Kind::Flush, &mut [])
    }

    fn answer(&mut self, kind: Kind, found: &mut [u8]) -> Result<()> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        ensure!(reply[..8] == [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "a request failed: {reply:?}");
        if matches!(kind, Kind::Read) {
            self.stream.read_exact(found)?;
        }
        Ok(())
    }
}

struct Offsets {
    state: Option<u64>,
    next: u64,
    size: u64,
    span: u64,
}

impl Offsets {
    fn next(&mut self) -> u64 {
        let slots = self.span / self.size;
        let slot = match &mut self.state {
            Some(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                *state % slots
            }
            None => {
                self.next += 1;
                (self.next - 1) % slots
            }
        };
        slot * self.size
    }
}

fn push(out: &mut Vec<u8>, kind: Kind, cookie: u64, offset: u64, length: u32, payload: &[u8]) {
    out.extend(0x2560_9513u32.to_be_bytes());
    // Flags and command: FUA is the first flag.
    out.extend((kind as u32).to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(payload);
}

fn option(stream: &mut impl Write, option: u32, data: &[u8]) -> Result<()> {
    let length = u32::try_from(data.len())?;
    stream.write_all(&[b"IHAVEOPT", &option.to_be_bytes()[..], &length.to_be_bytes(), data].concat())?;
    Ok(stream.flush()?)
}

fn option_reply(stream: &mut impl Read) -> Result<u32> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let mut data = vec![0; number(16) as usize];
    stream.read_exact(&mut data)?;
    Ok(number(12))
}

fn connection(dir: &Path) -> Result<ClientConnection> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca-cert.pem"))?)?;
    let chain = vec![CertificateDer::from_pem_file(dir.join("client-cert.pem"))?];
    let key = PrivateKeyDer::from_pem_file(dir.join("client-key.pem"))?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    Ok(ClientConnection::new(Arc::new(config), "localhost".try_into()?)?)
}
