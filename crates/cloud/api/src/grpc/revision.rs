//! The revisions of Paraglider's protocol, and which of them a plugin speaks.
//!
//! ```text
//!   1  October 2023    invisinetspb  address spaces in CreateVpnConnections
//!   2  December 2023   invisinetspb  none there: what came after has moved up
//!   3  March 2024      invisinetspb  rules have names, gateways are told their BGP addresses
//!   4  today           paragliderpb  the same under another package, with static routes
//! ```
//!
//! Between them were others, and they share paths: what is sent in the wrong one arrives in other fields, a key among
//! addresses. So a plugin is asked before anything is sent that it could act on.
//! In: a connection. Out: the revision, or nothing where it cannot be told; then somebody has to say it.
//! Not here: speaking one (`original`, `later`).

use std::{fmt, str::FromStr};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Deserializer, de::Error as _};
use tonic::{
    Code, Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

/// A published revision of Paraglider's plugin protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    First,
    Second,
    Third,
    Today,
}

impl Revision {
    const ALL: [Self; 4] = [Self::First, Self::Second, Self::Third, Self::Today];

    fn number(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Second => 2,
            Self::Third => 3,
            Self::Today => 4,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no revision of Paraglider's protocol: 1, 2, 3 and 4 are")]
pub struct ParseRevisionError {
    text: String,
}

impl FromStr for Revision {
    type Err = ParseRevisionError;

    fn from_str(text: &str) -> Result<Self, ParseRevisionError> {
        let found = Self::ALL.into_iter().find(|revision| revision.to_string() == text);
        found.ok_or_else(|| ParseRevisionError { text: text.chars().take(16).collect() })
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer)?.to_string().parse().map_err(D::Error::custom)
    }
}

/// The revision a plugin speaks; none if it cannot be told for sure.
///
/// Every question is a message that ends in bytes no decoder takes, so no plugin ever acts on one. What it is refused
/// for tells two things: whether there is such a method, and, by text that is not UTF-8 in front of those bytes, whether a
/// field is text there.
pub async fn revision_of(channel: &Channel) -> Result<Option<Revision>, Status> {
    let plugin = Plugin { channel };
    if plugin.has("paragliderpb.CloudPlugin/GetPermitList").await? {
        // Revisions that had the package, but not these messages yet, were never released.
        let is_todays = plugin.has("paragliderpb.CloudPlugin/GetNetworkAddressSpaces").await?;
        return Ok(is_todays.then_some(Revision::Today));
    }
    const CONNECT: &str = "invisinetspb.CloudPlugin/CreateVpnConnections";
    // Its decoder must tell text that is text everywhere from a field that is nowhere.
    if !plugin.is_text(CONNECT, &[6]).await? || plugin.is_text(CONNECT, &[NOWHERE]).await? {
        return Ok(None);
    }
    if plugin.has("invisinetspb.CloudPlugin/CreateVpnBgpSessions").await? {
        let has_spaces = plugin.is_text(CONNECT, &[7]).await?;
        return Ok(Some(if has_spaces { Revision::First } else { Revision::Second }));
    }
    const ADD: &str = "invisinetspb.CloudPlugin/AddPermitListRules";
    // A rule with an id and a name has its tags eighth; and field 3 holds rules, not a namespace.
    let named = plugin.is_text(ADD, &[3, 8]).await? && !plugin.is_text(ADD, &[3, NOWHERE]).await?;
    // Each call asks for several deployments: the second field is no namespace any more.
    let several = !plugin.is_text("invisinetspb.CloudPlugin/GetUsedAddressSpaces", &[2]).await?;
    let told = plugin.has("invisinetspb.CloudPlugin/GetUsedBgpPeeringIpAddresses").await?;
    Ok((named && several && told).then_some(Revision::Third))
}

/// A field that no message of any revision has.
const NOWHERE: u8 = 15;
/// A key with a wire type that does not exist.
const END: u8 = 0x0f;
/// No text in UTF-8.
const BROKEN: u8 = 0xff;

struct Plugin<'c> {
    channel: &'c Channel,
}

impl Plugin<'_> {
    async fn has(&self, method: &str) -> Result<bool, Status> {
        let status = self.refusal(method, Bytes::from_static(&[END])).await?;
        match status.code() {
            Code::Unimplemented => Ok(false),
            // What decoders answer; the runtime of Go and ours say internal.
            Code::Internal | Code::InvalidArgument | Code::Unknown => Ok(true),
            _ => Err(status),
        }
    }

    /// Whether a field is text, by its number, or by those that lead to it.
    async fn is_text(&self, method: &str, field: &[u8]) -> Result<bool, Status> {
        let inner = field.iter().rev().fold(Bytes::from_static(&[BROKEN]), |inner, number| {
            let mut outer = BytesMut::new();
            outer.put_u8(number << 3 | 2);
            outer.put_u8(u8::try_from(inner.len()).expect("a question is a few bytes long"));
            outer.put(inner);
            outer.freeze()
        });
        let question = [inner, Bytes::from_static(&[END])].concat();
        let status = self.refusal(method, question.into()).await?;
        Ok(status.message().to_ascii_lowercase().contains("utf-8"))
    }

    async fn refusal(&self, method: &str, question: Bytes) -> Result<Status, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.map_err(|err| Status::from_error(err.into()))?;
        let path = PathAndQuery::try_from(format!("/{method}")).expect("methods are legal paths");
        match client.unary(Request::new(question), path, Raw).await {
            // Whoever takes such bytes does not read what he is sent.
            Ok(_) => Err(Status::failed_precondition(format!("the plugin answers a broken {method}"))),
            Err(status) => Ok(status),
        }
    }
}

/// Bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}
