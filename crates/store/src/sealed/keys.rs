//! The keys that seal and open.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    rand,
};
use bytes::Bytes;

use super::{ID, MAGIC, parts};
use crate::api::Key;

/// The first seals, all open.
pub struct Keys(Vec<One>);

struct One {
    /// The first letters of the key's SHA-256: says which it is, and nothing about it.
    id: String,
    cipher: LessSafeKey,
}

/// Why a text holds no keys. It never says what the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("it holds no key; write one with `openssl rand -hex 32`")]
    None,
    #[error("its line {0} is not a key of 64 hexadecimal digits")]
    Line(usize),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl Keys {
    /// One key of 64 hexadecimal digits per line; empty lines, and what follows `#`, are left out.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
        let keys = lines
            .map(|(number, line)| One::new(line).ok_or(KeysError::Line(number + 1)))
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(KeysError::None) } else { Ok(Self(keys)) }
    }

    pub(super) fn is_newest(&self, value: &Bytes) -> bool {
        parts(value).is_some_and(|(id, _)| self.0.first().is_some_and(|key| key.id == id))
    }

    pub(super) fn seal(&self, key: &Key, value: &[u8]) -> Bytes {
        let One { id, cipher } = self.0.first().expect("there is at least one key");
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).expect("the system has randomness");
        let mut text = value.to_vec();
        let aad = Aad::from(key.as_str().as_bytes());
        cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text)
            .expect("values are far shorter than what the cipher takes");
        [MAGIC, id.as_bytes(), b":", &nonce, &text].concat().into()
    }

    /// The value itself, if it is not sealed or was sealed with one of the keys; else the id of the key.
    pub(super) fn open(&self, key: &Key, value: &Bytes) -> Result<Bytes, String> {
        let Some((id, sealed)) = parts(value) else { return Ok(value.clone()) };
        let open = || {
            let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
            let One { cipher, .. } = self.0.iter().find(|key| key.id == id)?;
            let mut text = text.to_vec();
            let aad = Aad::from(key.as_str().as_bytes());
            let clear = cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut text).ok()?;
            Some(Bytes::copy_from_slice(clear))
        };
        open().ok_or_else(|| id.to_owned())
    }
}

impl One {
    fn new(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let secret: Vec<u8> = (0..32)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16))
            .collect::<Result<_, _>>()
            .ok()?;
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, &secret).ok()?);
        let id = common::hex(digest(&SHA256, &secret).as_ref());
        Some(Self { id: id[..ID].to_owned(), cipher })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Keys {
        Keys::parse(text).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_in_its_place_and_nowhere_else() {
        let (one, two) = ("11".repeat(32), "22".repeat(32));
        let (here, there): (Key, Key) = ("a/b".parse().unwrap(), "a/c".parse().unwrap());
        let sealed = keys(&one).seal(&here, b"hunter2");
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(keys(&one).open(&here, &sealed).unwrap(), "hunter2");
        assert!(keys(&one).open(&there, &sealed).is_err());
        assert!(keys(&two).open(&here, &sealed).is_err());
        let both = keys(&format!("# new\n{two}\n\n{one} # old\n"));
        assert_eq!(both.open(&here, &sealed).unwrap(), "hunter2");
        assert!(!both.is_newest(&sealed) && both.is_newest(&both.seal(&here, b"")));
        for cut in 0..sealed.len() {
            assert_ne!(keys(&one).open(&here, &sealed.slice(..cut)).ok().as_deref(), Some(&b"hunter2"[..]));
        }
    }

    #[test]
    fn a_file_without_keys_is_refused_and_no_key_is_printed() {
        assert_eq!(Keys::parse("# none\n").unwrap_err(), KeysError::None);
        assert_eq!(Keys::parse(&format!("\n{}x", "1".repeat(63))).unwrap_err(), KeysError::Line(2));
        let secret = "ab".repeat(32);
        assert!(!format!("{:?}", keys(&secret)).contains("abab"));
    }
}
