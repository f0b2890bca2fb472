//! Consumer ids: a UUID inside, a sealed text outside.
//!
//! In: ids and seal keys. Out: the text a consumer holds and shows on every call. Only the holder of the key can make
//! one, so an id that opens was made here; a forged or foreign one does not open.
//!
//! ```text
//!   base64url( version 1 | key id 4 | AES-256-GCM-SIV(uuid 16) + tag 16 )
//!              \_______ authenticated ______/
//! ```
//! GCM-SIV with a constant nonce is deterministic: one id has one text per key, which makes repeated answers equal,
//! and reveals nothing else since no two ids are equal.

use std::{collections::BTreeMap, fmt, str::FromStr};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const HEADER: usize = 5;
const TAG: usize = 16;

/// A consumer, as records and backends call it. Not a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConsumerId(Uuid);

/// The text is no consumer id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is no consumer id; it has the form of a UUID in lower case")]
pub struct ParseConsumerIdError;

impl ConsumerId {
    pub fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    pub fn uuid(&self) -> Uuid {
        self.0
    }
}

impl fmt::Display for ConsumerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl FromStr for ConsumerId {
    type Err = ParseConsumerIdError;

    /// Takes the one form that [`fmt::Display`] prints: ids are file names and certificate names too.
    fn from_str(text: &str) -> Result<Self, ParseConsumerIdError> {
        let id = Self(text.parse().map_err(|_| ParseConsumerIdError)?);
        if id.to_string() == text { Ok(id) } else { Err(ParseConsumerIdError) }
    }
}

/// Names a seal key. Part of every sealed id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SealKeyId(pub u32);

/// A key that seals ids. 32 random bytes.
pub struct SealKey {
    pub id: SealKeyId,
    pub secret: Zeroizing<[u8; 32]>,
}

/// Seals with the newest key, opens with every key it was given.
pub struct IdSealer {
    keys: BTreeMap<SealKeyId, LessSafeKey>,
    current: SealKeyId,
}

/// Why an id cannot be sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("there is no seal key; create one before onboarding consumers")]
    NoKeys,
    #[error("the seal key {id:?} is not loaded; it sealed ids that consumers still hold, restore it")]
    UnknownKey { id: SealKeyId },
    #[error("the cipher refused the key or the text")]
    Cipher,
}

/// The text is no id made here. Says no more on purpose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the storage consumer id is not valid; contact the administrator of the provider")]
pub struct UnsealError;

impl IdSealer {
    /// The key with the largest id seals.
    pub fn new(keys: impl IntoIterator<Item = SealKey>) -> Result<Self, SealError> {
        let mut opened = BTreeMap::new();
        for key in keys {
            let cipher =
                UnboundKey::new(&AES_256_GCM_SIV, key.secret.as_ref()).map_err(|_| SealError::Cipher)?;
            opened.insert(key.id, LessSafeKey::new(cipher));
        }
        let current = *opened.last_key_value().ok_or(SealError::NoKeys)?.0;
        Ok(Self { keys: opened, current })
    }

    pub fn current(&self) -> SealKeyId {
        self.current
    }

    /// The sealed text under the key a consumer was first given, so that it never changes for that consumer.
    pub fn seal(&self, id: ConsumerId, with: SealKeyId) -> Result<String, SealError> {
        let key = self.keys.get(&with).ok_or(SealError::UnknownKey { id: with })?;
        let header = header(with);
        let mut sealed = id.0.as_bytes().to_vec();
        key.seal_in_place_append_tag(nonce(), Aad::from(header), &mut sealed)
            .map_err(|_| SealError::Cipher)?;
        Ok(URL_SAFE_NO_PAD.encode([&header[..], &sealed].concat()))
    }

    pub fn open(&self, text: &str) -> Result<ConsumerId, UnsealError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| UnsealError)?;
        if bytes.len() != HEADER + 16 + TAG || bytes[0] != VERSION {
            return Err(UnsealError);
        }
        let (head, sealed) = bytes.split_at(HEADER);
        let id = SealKeyId(u32::from_be_bytes(head[1..].try_into().map_err(|_| UnsealError)?));
        let key = self.keys.get(&id).ok_or(UnsealError)?;
        let mut sealed = sealed.to_vec();
        let plain =
            key.open_in_place(nonce(), Aad::from(header(id)), &mut sealed).map_err(|_| UnsealError)?;
        Ok(ConsumerId(Uuid::from_slice(plain).map_err(|_| UnsealError)?))
    }
}

fn header(key: SealKeyId) -> [u8; HEADER] {
    let mut header = [VERSION; HEADER];
    header[1..].copy_from_slice(&key.0.to_be_bytes());
    header
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u32, byte: u8) -> SealKey {
        SealKey { id: SealKeyId(id), secret: Zeroizing::new([byte; 32]) }
    }

    fn consumer(n: u128) -> ConsumerId {
        ConsumerId(Uuid::from_u128(n))
    }

    #[test]
    fn a_sealed_id_opens_to_itself_and_is_always_the_same_text() {
        let sealer = IdSealer::new([key(1, 7)]).unwrap();
        let text = sealer.seal(consumer(42), SealKeyId(1)).unwrap();
        assert_eq!(sealer.open(&text), Ok(consumer(42)));
        assert_eq!(sealer.seal(consumer(42), SealKeyId(1)).unwrap(), text);
        assert_ne!(sealer.seal(consumer(43), SealKeyId(1)).unwrap(), text);
        assert!(!text.contains(&consumer(42).to_string()));
    }

    #[test]
    fn forged_and_foreign_ids_do_not_open() {
        let sealer = IdSealer::new([key(1, 7)]).unwrap();
        let text = sealer.seal(consumer(42), SealKeyId(1)).unwrap();
        let foreign = IdSealer::new([key(1, 8)]).unwrap();
        assert_eq!(foreign.open(&text), Err(UnsealError));
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&URL_SAFE_NO_PAD.encode(forged)), Err(UnsealError), "bit {bit}");
        }
        let plain = consumer(42).to_string();
        for bad in [
            "",
            "x",
            "….",
            plain.as_str(),
            &text[1..],
            &format!("{text}A"),
            &format!("{text}="),
            &format!(" {text}"),
        ] {
            assert_eq!(sealer.open(bad), Err(UnsealError), "{bad:?}");
        }
    }

    #[test]
    fn after_rotation_old_ids_open_and_keep_their_text() {
        let before = IdSealer::new([key(1, 7)]).unwrap();
        let text = before.seal(consumer(42), before.current()).unwrap();
        let after = IdSealer::new([key(1, 7), key(2, 9)]).unwrap();
        assert_eq!(after.current(), SealKeyId(2));
        assert_eq!(after.open(&text), Ok(consumer(42)));
        assert_eq!(after.seal(consumer(42), SealKeyId(1)).unwrap(), text);
        let without = IdSealer::new([key(2, 9)]).unwrap();
        assert_eq!(without.open(&text), Err(UnsealError));
        assert_eq!(without.seal(consumer(42), SealKeyId(1)), Err(SealError::UnknownKey { id: SealKeyId(1) }));
        assert!(matches!(IdSealer::new([]), Err(SealError::NoKeys)));
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = consumer(0xabc);
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in [
            id.to_string().to_uppercase(),
            id.0.simple().to_string(),
            format!("{{{id}}}"),
            "../etc".to_owned(),
        ] {
            assert!(other.parse::<ConsumerId>().is_err(), "{other}");
        }
    }
}
