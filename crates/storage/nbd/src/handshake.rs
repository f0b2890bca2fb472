//! The handshake: greeting, options, until a client has an export or is gone.
//!
//! In: a fresh connection. Out: the volume the client chose and how it wants to talk. Reads exactly what belongs to
//! the handshake and not a byte more: what a stranger sends ahead of TLS must never count as sent within it.
//!
//! ```text
//!   greeting ─► [anything but STARTTLS: "TLS required"] ─► STARTTLS ─► TLS ─► options ─► GO ─► session
//! ```

use std::{io, sync::Arc};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{
    allocation::BLOCK,
    protocol::{
        DONT_FRAGMENT, GREETING, MAX_PAYLOAD, OPTION_MAGIC, READ_ONLY, TRANSMISSION_FLAGS, be16, be32, be64,
        client_flag, info, option, option_reply, reply,
    },
    vault::{Share, Tenant},
    volume::{User, Volume},
};

/// Options one client may send: a client that looks at every volume needs three for each.
const MAX_OPTIONS: usize = 2048;
/// Longest option that is read; longer ones end the connection. A name has 4096 bytes at most.
const MAX_OPTION: u32 = 64 << 10;
const MAX_NAME: usize = 4096;
const CONTEXT: &str = "base:allocation";
/// The number under which the client sees the one context there is.
pub(crate) const CONTEXT_ID: u32 = 1;

/// Why a client was sent away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the client does not speak the fixed newstyle handshake")]
    Flags,
    #[error("the client broke the protocol")]
    Protocol,
    #[error("the client sent too many options")]
    Flood,
}

/// What was agreed.
pub(crate) struct Export {
    pub(crate) volume: Arc<Volume>,
    pub(crate) share: Share,
    /// The size the client was told; it asks for nothing beyond.
    pub(crate) size: u64,
    pub(crate) structured: bool,
    pub(crate) block_status: bool,
    /// Counts the session among those of the volume.
    pub(crate) _user: User,
}

struct Sent {
    option: u32,
    data: Vec<u8>,
}

/// Greets and returns whether the client wants the 124 zero bytes left out.
pub(crate) async fn greet<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<bool, HandshakeError> {
    stream.write_all(&GREETING).await?;
    let flags = stream.read_u32().await?;
    if flags & client_flag::FIXED_NEWSTYLE == 0
        || flags & !(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES) != 0
    {
        return Err(HandshakeError::Flags);
    }
    Ok(flags & client_flag::NO_ZEROES != 0)
}

/// Waits for STARTTLS and answers it. `false` when the client left instead.
pub(crate) async fn until_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
) -> Result<bool, HandshakeError> {
    for _ in 0..MAX_OPTIONS {
        let Sent { option, data } = read_option(stream).await?;
        let answer = match option {
            option::STARTTLS if data.is_empty() => reply::ACK,
            option::STARTTLS => reply::ERR_INVALID,
            option::ABORT => reply::ACK,
            // This option has no error reply.
            option::EXPORT_NAME => return Ok(false),
            _ => reply::ERR_TLS_REQD,
        };
        stream.write_all(&option_reply(option, answer, b"")).await?;
        match option {
            option::STARTTLS if answer == reply::ACK => return Ok(true),
            option::ABORT => return Ok(false),
            _ => {}
        }
    }
    Err(HandshakeError::Flood)
}

/// Answers options until one of them opens an export. `None` when the client left instead.
pub(crate) async fn negotiate<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    tenant: &Tenant,
    no_zeroes: bool,
) -> Result<Option<Export>, HandshakeError> {
    let mut agreed = Agreed { tenant, structured: false, context_of: None };
    for _ in 0..MAX_OPTIONS {
        let sent = read_option(stream).await?;
        match sent.option {
            option::EXPORT_NAME => {
                let Some(export) = agreed.export(&sent.data) else { return Ok(None) };
                let mut answer = export.size.to_be_bytes().to_vec();
                answer.extend(agreed.flags(&export).to_be_bytes());
                answer.extend([0; 124].iter().filter(|_| !no_zeroes));
                stream.write_all(&answer).await?;
                stream.flush().await?;
                return Ok(Some(export));
            }
            option::ABORT => {
                // The client may be gone before it hears us.
                let _ = stream.write_all(&option_reply(option::ABORT, reply::ACK, b"")).await;
                let _ = stream.flush().await;
                return Ok(None);
            }
            _ => {
                let (answer, export) = agreed.answer(&sent);
                stream.write_all(&answer).await?;
                stream.flush().await?;
                if export.is_some() {
                    return Ok(export);
                }
            }
        }
    }
    Err(HandshakeError::Flood)
}

async fn read_option<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Sent, HandshakeError> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).await?;
    let (option, length) = (be32(&header, 8), be32(&header, 12));
    if be64(&header, 0) != OPTION_MAGIC || length > MAX_OPTION {
        return Err(HandshakeError::Protocol);
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data).await?;
    Ok(Sent { option, data })
}

/// What client and server have agreed on so far.
struct Agreed<'a> {
    tenant: &'a Tenant,
    structured: bool,
    /// The volume whose block status was asked for; it counts only if that one is opened.
    context_of: Option<String>,
}

impl Agreed<'_> {
    fn flags(&self, export: &Export) -> u16 {
        TRANSMISSION_FLAGS
            | if self.structured { DONT_FRAGMENT } else { 0 }
            | if export.share == Share::Read { READ_ONLY } else { 0 }
    }

    fn export(&self, name: &[u8]) -> Option<Export> {
        let (volume, share) = self.volume(name)?;
        let block_status = self.context_of.as_deref() == Some(volume.name.as_str());
        let _user = volume.user();
        Some(Export { share, size: volume.size(), structured: self.structured, block_status, volume, _user })
    }

    fn volume(&self, name: &[u8]) -> Option<(Arc<Volume>, Share)> {
        self.tenant.export(std::str::from_utf8(name).ok().filter(|name| name.len() <= MAX_NAME)?)
    }

    /// The replies to one option, and the export if it opened one.
    fn answer(&mut self, sent: &Sent) -> (Vec<u8>, Option<Export>) {
        let Sent { option, data } = sent;
        let refuse = |kind, why: &str| (option_reply(*option, kind, why.as_bytes()), None);
        match *option {
            option::LIST if data.is_empty() => (self.list(), None),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                refuse(reply::ACK, "")
            }
            option::LIST | option::STRUCTURED_REPLY => {
                refuse(reply::ERR_INVALID, "this option takes no data")
            }
            option::STARTTLS => refuse(reply::ERR_INVALID, "the connection is encrypted or never will be"),
            option::INFO | option::GO => self.info(*option, data).unwrap_or_else(|refusal| (refusal, None)),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                (self.contexts(*option, data).unwrap_or_else(|refusal| refusal), None)
            }
            _ => refuse(reply::ERR_UNSUP, ""),
        }
    }

    fn list(&self) -> Vec<u8> {
        let mut answer = Vec::new();
        for volume in self.tenant.exports() {
            answer.extend(option_reply(option::LIST, reply::SERVER, &sized(volume.as_bytes())));
        }
        answer.extend(option_reply(option::LIST, reply::ACK, b""));
        answer
    }

    /// INFO and GO: name, then the numbers of what the client wants to know.
    fn info(&self, option: u32, data: &[u8]) -> Result<(Vec<u8>, Option<Export>), Vec<u8>> {
        let invalid = || option_reply(option, reply::ERR_INVALID, b"the request has the wrong length");
        let (name, rest) = split_sized(data).ok_or_else(invalid)?;
        if rest.len() < 2 || rest.len() != 2 + usize::from(be16(rest, 0)) * 2 {
            return Err(invalid());
        }
        if name.len() > MAX_NAME {
            return Err(option_reply(option, reply::ERR_TOO_BIG, b"the name is too long"));
        }
        let unknown = || option_reply(option, reply::ERR_UNKNOWN, b"there is no such volume");
        let export = self.export(name).ok_or_else(unknown)?;
        let mut about = info::EXPORT.to_be_bytes().to_vec();
        about.extend(export.size.to_be_bytes());
        about.extend(self.flags(&export).to_be_bytes());
        let mut answer = option_reply(option, reply::INFO, &about);
        for wanted in rest[2..].chunks_exact(2).map(|pair| be16(pair, 0)) {
            let mut about = wanted.to_be_bytes().to_vec();
            match wanted {
                info::NAME => about.extend(export.volume.name.as_bytes()),
                info::BLOCK_SIZE => {
                    let preferred = u32::try_from(BLOCK).expect("a block is small");
                    [1, preferred, MAX_PAYLOAD].iter().for_each(|size| about.extend(size.to_be_bytes()));
                }
                _ => continue,
            }
            answer.extend(option_reply(option, reply::INFO, &about));
        }
        answer.extend(option_reply(option, reply::ACK, b""));
        Ok((answer, (option == option::GO).then_some(export)))
    }

    /// LIST_META_CONTEXT and SET_META_CONTEXT: name, then queries. We have one context.
    fn contexts(&mut self, option: u32, data: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        let set = option == option::SET_META_CONTEXT;
        let invalid =
            || option_reply(option, reply::ERR_INVALID, b"the request is malformed or comes too early");
        let (name, rest) = split_sized(data).filter(|_| self.structured).ok_or_else(invalid)?;
        let queries = queries(rest).ok_or_else(invalid)?;
        if set {
            self.context_of = None;
        }
        let unknown = || option_reply(option, reply::ERR_UNKNOWN, b"there is no such volume");
        let (volume, _) = self.volume(name).ok_or_else(unknown)?;
        let matched =
            queries.iter().any(|query| *query == CONTEXT.as_bytes() || (!set && *query == b"base:"));
        let mut answer = Vec::new();
        if matched || (!set && queries.is_empty()) {
            let id = if set { CONTEXT_ID } else { 0 };
            let about = [&id.to_be_bytes(), CONTEXT.as_bytes()].concat();
            answer.extend(option_reply(option, reply::META_CONTEXT, &about));
            if set {
                self.context_of = Some(volume.name.clone());
            }
        }
        answer.extend(option_reply(option, reply::ACK, b""));
        Ok(answer)
    }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("names are short");
    [&length.to_be_bytes(), bytes].concat()
}

/// A length of 32 bits, that many bytes, and the rest.
fn split_sized(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_at_checked(4)?;
    rest.split_at_checked(be32(length, 0) as usize)
}

fn queries(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = data.split_at_checked(4)?;
    let mut queries = Vec::new();
    for _ in 0..be32(count, 0) {
        let query;
        (query, rest) = split_sized(rest)?;
        queries.push(query);
    }
    rest.is_empty().then_some(queries)
}
