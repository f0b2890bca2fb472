//! One agent: TLS with a client certificate, and the least HTTP/2 that the node protocol needs.

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, BytesMut};
use prost::Message as _;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Mutex, Semaphore},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use transport::{Deframer, Digest};
use wire::trestle::v1::{FromNode, NodeHello, ToNode, from_node, node_apply, to_node};

use crate::{Outcome, agents::Seen, agents::tell, certificates::Identity, nanoseconds};

/// Longest message the deframer takes.
const MAX: usize = 4 << 20;

/// What an agent remembers between streams: where it stands, and sums of hashes instead of objects.
#[derive(Default)]
pub struct Memory {
    digest: Digest,
    token: Option<(u64, u64)>,
    /// The hash of the one object that changes.
    tick: Option<u64>,
}

pub struct Agent {
    pub identity: Identity,
    pub ca: CertificateDer<'static>,
    pub addr: String,
    pub seen: Arc<Seen>,
    pub memory: Arc<Mutex<Memory>>,
}

impl Agent {
    pub async fn run(self, handshakes: Arc<Semaphore>) {
        let name = self.identity.name.clone();
        if let Err(err) = self.stream(handshakes).await {
            tell(&format!("agent {name}: {err}"));
        }
    }

    async fn stream(self, handshakes: Arc<Semaphore>) -> Outcome<()> {
        let permit = handshakes.acquire_owned().await?;
        let mut stream = self.connect().await?;
        let hello = self.hello().await;
        stream.write_all(&hello).await?;
        let mut sync = Some((permit, hello.len() as u64));
        let (mut input, mut deframer) = (BytesMut::new(), Deframer::new(MAX));
        let mut epoch = 0;
        loop {
            input.reserve(4 << 10);
            let read = stream.read_buf(&mut input).await?;
            if read == 0 {
                return Ok(());
            }
            if let Some((_, bytes)) = &mut sync {
                *bytes += read as u64;
            }
            let reply = take_frames(&mut input, &mut deframer);
            if !reply.is_empty() {
                stream.write_all(&reply).await?;
            }
            while let Some(message) = deframer.next_message()? {
                let message = ToNode::decode(message)?.message;
                if self.hear(message, &mut epoch).await
                    && let Some((permit, bytes)) = sync.take()
                {
                    drop(permit);
                    self.seen.synced(bytes);
                }
            }
            if input.is_empty() {
                input = BytesMut::new();
            }
        }
    }

    async fn connect(&self) -> Outcome<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone())?;
        let chain = vec![CertificateDer::from_pem_slice(self.identity.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(self.identity.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        let stream = TcpStream::connect(&self.addr).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    /// Everything an agent says: preface, settings with windows that never close, the call, and its hello.
    async fn hello(&self) -> Vec<u8> {
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        put_frame(&mut out, 4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        put_frame(&mut out, 8, 0, 0, &[0x7f, 0xfe, 0, 0]);
        let mut headers = vec![0x83, 0x87];
        for (name, value) in [
            (":path", "/trestle.v1.NodeFeed/Connect"),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            headers.push(0);
            for text in [name, value] {
                headers.push(text.len() as u8);
                headers.extend_from_slice(text.as_bytes());
            }
        }
        put_frame(&mut out, 1, 4, 1, &headers);
        let memory = self.memory.lock().await;
        let (epoch, revision) = memory.token.unzip();
        let digest = if epoch.is_some() { memory.digest.as_slice().to_vec() } else { Vec::new() };
        let hello =
            NodeHello { node: self.identity.name.clone(), epoch, revision, digest, version: "bench".into() };
        let hello = FromNode { message: Some(from_node::Message::Hello(hello)) };
        put_frame(&mut out, 0, 0, 1, &transport::frame(&hello.encode_to_vec()));
        out
    }

    /// Takes one message; says whether it ends a step.
    async fn hear(&self, message: Option<to_node::Message>, epoch: &mut u64) -> bool {
        let mut memory = self.memory.lock().await;
        match message {
            Some(to_node::Message::Start(start)) => *epoch = start.epoch,
            Some(to_node::Message::Apply(apply)) => {
                memory.digest.add(apply.hash);
                self.seen.applied();
                if let (Some(node_apply::Body::Policy(policy)), "tick") = (apply.body, apply.name.as_str()) {
                    if let Some(before) = memory.tick.replace(apply.hash) {
                        memory.digest.subtract(before);
                    }
                    self.seen.tick(policy.generation, nanoseconds() - policy.generation);
                }
            }
            Some(to_node::Message::Flush(flush)) => {
                memory.token = Some((*epoch, flush.revision));
                return true;
            }
            Some(to_node::Message::Wait(_) | to_node::Message::Remove(_)) | None => {}
        }
        false
    }
}

fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.put_uint(payload.len() as u64, 3);
    out.put_slice(&[kind, flags]);
    out.put_u32(stream);
    out.put_slice(payload);
}

/// Takes whole HTTP/2 frames; gives back what has to be answered.
fn take_frames(input: &mut BytesMut, deframer: &mut Deframer) -> Vec<u8> {
    let mut reply = Vec::new();
    while let Some((head, _)) = input.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        if input.len() < 9 + length {
            break;
        }
        input.advance(9);
        let payload = input.split_to(length).freeze();
        match (kind, flags & 1) {
            (0, _) => deframer.push(&payload),
            (4, 0) => put_frame(&mut reply, 4, 1, 0, &[]),
            (6, 0) => put_frame(&mut reply, 6, 1, 0, &payload),
            _ => {}
        }
    }
    reply
}
