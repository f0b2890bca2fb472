//! Keys that sign and verify tickets, and how one follows another.
//!
//! ```text
//!   rotate:   signing A            ─►  signing B, verifying A until its last ticket has expired
//!   withdraw: signing A            ─►  A is gone at once, and every unused ticket it signed with it
//! ```

use aws_lc_rs::{
    digest,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Names a key: the start of its public key's hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyId(String);

impl KeyId {
    fn of(public: &[u8]) -> Self {
        Self(common::hex(&digest::digest(&digest::SHA256, public).as_ref()[..8]))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("there is no key to sign tickets with; create one first")]
    NoSigningKey,
    #[error("the seed of an Ed25519 key has 32 bytes")]
    Seed,
    #[error("the public key is not PEM; it starts with a line -----BEGIN PUBLIC KEY-----")]
    NotPem,
    #[error("the PEM holds no RSA public key of 2048 to 8192 bits")]
    NotRsa,
    #[error("there is no key {id}", id = id.as_str())]
    Unknown { id: KeyId },
}

/// Signs tickets. Ed25519; made from 32 random bytes.
pub struct SigningKey {
    id: KeyId,
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Algorithm {
    Ed25519,
    Rsa,
}

/// Verifies tickets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyingKey {
    pub id: KeyId,
    pub(super) algorithm: Algorithm,
    pub(super) public: Vec<u8>,
    /// Not used after this second; `None` for ever.
    pub not_after: Option<u64>,
}

/// All keys of one provider.
#[derive(Default)]
pub struct KeyRing {
    signing: Option<SigningKey>,
    verifying: Vec<VerifyingKey>,
}

impl SigningKey {
    pub fn from_seed(seed: &[u8]) -> Result<Self, KeyError> {
        let seed: [u8; 32] = seed.try_into().map_err(|_| KeyError::Seed)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Seed)?;
        Ok(Self { id: KeyId::of(pair.public_key().as_ref()), seed: Zeroizing::new(seed), pair })
    }

    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// The secret, for keeping it where secrets are kept.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    pub(super) fn sign(&self, payload: &[u8]) -> Vec<u8> {
        self.pair.sign(payload).as_ref().to_vec()
    }

    fn verifying(&self, not_after: Option<u64>) -> VerifyingKey {
        let public = self.pair.public_key().as_ref().to_vec();
        VerifyingKey { id: self.id.clone(), algorithm: Algorithm::Ed25519, public, not_after }
    }
}

impl VerifyingKey {
    /// An RSA key as the original keeps it: SPKI or PKCS#1 under any PEM label.
    pub fn rsa_from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = first_pem_block(pem).ok_or(KeyError::NotPem)?;
        let public = rsa_public_key(&der).ok_or(KeyError::NotRsa)?;
        Ok(Self { id: KeyId::of(&public), algorithm: Algorithm::Rsa, public, not_after: None })
    }
}

impl KeyRing {
    pub fn new(signing: Option<SigningKey>, verifying: Vec<VerifyingKey>) -> Self {
        Self { signing, verifying }
    }

    pub fn signing(&self) -> Option<&SigningKey> {
        self.signing.as_ref()
    }

    /// The keys that verify only, in the order they came.
    pub fn verifying(&self) -> &[VerifyingKey] {
        &self.verifying
    }

    pub fn trust(&mut self, key: VerifyingKey) {
        self.verifying.retain(|known| known.id != key.id);
        self.verifying.push(key);
    }

    /// Signs with a new key from now on. The old one verifies until `overlap` seconds from now, which should be the
    /// longest lifetime of a ticket; keys whose time is over go.
    pub fn rotate(&mut self, next: SigningKey, now: u64, overlap: u64) {
        if let Some(old) = self.signing.replace(next) {
            self.trust(old.verifying(Some(now.saturating_add(overlap))));
        }
        self.verifying.retain(|key| key.is_good_at(now));
    }

    /// Forgets a key at once: every unused ticket it signed is worthless.
    pub fn withdraw(&mut self, id: &KeyId) -> Result<(), KeyError> {
        let before = self.verifying.len();
        self.verifying.retain(|key| key.id != *id);
        let signing = self.signing.take_if(|key| key.id == *id);
        if signing.is_none() && before == self.verifying.len() {
            return Err(KeyError::Unknown { id: id.clone() });
        }
        Ok(())
    }

    /// The keys that may have signed a ticket: the one it names, or every RSA key if it names none.
    pub(super) fn candidates(&self, claimed: Option<&str>, now: u64) -> impl Iterator<Item = VerifyingKey> {
        let own = self.signing.as_ref().map(|key| key.verifying(None));
        let fits = |key: &VerifyingKey| match claimed {
            Some(id) => key.id.0 == id,
            None => key.algorithm == Algorithm::Rsa,
        };
        let all = own.into_iter().chain(self.verifying.iter().cloned());
        all.filter(|key| fits(key) && key.is_good_at(now)).collect::<Vec<_>>().into_iter()
    }
}

impl VerifyingKey {
    fn is_good_at(&self, now: u64) -> bool {
        self.not_after.is_none_or(|last| now <= last)
    }
}

/// The bytes of the first PEM block, whatever its label says.
fn first_pem_block(pem: &str) -> Option<Vec<u8>> {
    let mut lines = pem.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN "));
    lines.next()?;
    let body: String = lines.by_ref().take_while(|line| !line.starts_with("-----END ")).collect();
    STANDARD.decode(body).ok().filter(|der| !der.is_empty())
}

/// Tells an RSA public key, in either encoding, from anything else.
fn rsa_public_key(der: &[u8]) -> Option<Vec<u8>> {
    use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
    ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der).ok()?;
    Some(der.to_vec())
}
