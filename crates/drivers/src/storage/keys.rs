//! The provider's keys on disk: what signs tickets, what verified them before, what seals consumers' ids.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use storage_backend::{Backend, Provider, Records};
use storage_provider::{
    IdSealer, KeyError, KeyId, KeyRing, SealError, SealKey, SealKeyId, SigningKey, VerifyingKey,
};
use zeroize::Zeroizing;

use crate::random;

/// Why the keys could not be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("{} does not hold keys; restore it, or no consumer can prove itself", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        err: serde_json::Error,
    },
    #[error("a ticket key is not usable")]
    Ticket(#[source] KeyError),
    #[error("a seal key is not usable")]
    Seal(#[source] SealError),
}

#[derive(Clone, Serialize, Deserialize)]
struct Keys {
    /// Seed of the Ed25519 key that signs tickets.
    signing: [u8; 32],
    verifying: Vec<VerifyingKey>,
    /// The last one seals, all open.
    sealing: Vec<(u32, [u8; 32])>,
}

/// The file `storage-keys.json`.
pub struct KeysFile {
    path: PathBuf,
    keys: Mutex<Keys>,
}

impl KeysFile {
    /// Reads the file, or makes it with new keys.
    pub fn open(path: PathBuf) -> Result<Self, KeysError> {
        let keys = match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|err| KeysError::Damaged { path: path.clone(), err })?
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let keys = Keys {
                    signing: random::bytes(),
                    verifying: Vec::new(),
                    sealing: vec![(1, random::bytes())],
                };
                write(&path, &keys)?;
                keys
            }
            Err(err) => return Err(KeysError::Read { path, err }),
        };
        Ok(Self { path, keys: Mutex::new(keys) })
    }

    pub fn load(&self) -> Result<(KeyRing, IdSealer), KeysError> {
        let keys = self.keys.lock();
        let signing = SigningKey::from_seed(&keys.signing).map_err(KeysError::Ticket)?;
        let seals = keys
            .sealing
            .iter()
            .map(|(id, secret)| SealKey { id: SealKeyId(*id), secret: Zeroizing::new(*secret) });
        let sealer = IdSealer::new(seals).map_err(KeysError::Seal)?;
        Ok((KeyRing::new(Some(signing), keys.verifying.clone()), sealer))
    }

    /// Lets a provider sign with a new key, which is on disk first.
    pub fn rotate<R: Records, B: Backend>(
        &self,
        provider: &Provider<R, B>,
        now: u64,
        overlap: u64,
    ) -> Result<KeyId, KeysError> {
        let mut keys = self.keys.lock();
        let seed = random::bytes::<32>();
        let next = SigningKey::from_seed(&seed).map_err(KeysError::Ticket)?;
        let id = next.id().clone();
        // The ring decides what still verifies; what it will be is found on a copy before anything is written.
        let old = SigningKey::from_seed(&keys.signing).map_err(KeysError::Ticket)?;
        let mut ring = KeyRing::new(Some(old), keys.verifying.clone());
        ring.rotate(next, now, overlap);
        let rotated =
            Keys { signing: seed, verifying: ring.verifying().to_vec(), sealing: keys.sealing.clone() };
        write(&self.path, &rotated)?;
        *keys = rotated;
        let next = SigningKey::from_seed(&seed).map_err(KeysError::Ticket)?;
        provider.with_keys(|ring| ring.rotate(next, now, overlap));
        Ok(id)
    }
}

fn write(path: &Path, keys: &Keys) -> Result<(), KeysError> {
    let text = Zeroizing::new(serde_json::to_vec(keys).expect("keys have no maps with odd keys"));
    files::write(path, &text).map_err(|err| KeysError::Write { path: path.to_owned(), err })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_the_same_and_a_damaged_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let id = |file: &KeysFile| file.load().unwrap().0.signing().unwrap().id().clone();
        let first = id(&KeysFile::open(path.clone()).unwrap());
        assert_eq!(id(&KeysFile::open(path.clone()).unwrap()), first);
        fs::write(&path, "{").unwrap();
        assert!(matches!(KeysFile::open(path.clone()), Err(KeysError::Damaged { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"{");
    }
}
