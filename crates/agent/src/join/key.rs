//! The key of a host, and requests for certificates that are signed with it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use x509_parser::{certificate::X509Certificate, pem::parse_x509_pem, prelude::FromDer as _};

use super::JoinError;

/// The key in a file, which only root reads.
pub struct HostKey(KeyPair);

impl HostKey {
    /// The key that is there; none if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, JoinError> {
        match fs::read_to_string(path) {
            Ok(pem) => {
                let unusable = |err| JoinError::Key { path: path.to_owned(), err };
                Ok(Some(Self(KeyPair::from_pem(&pem).map_err(unusable)?)))
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(JoinError::File { path: path.to_owned(), err }),
        }
    }

    /// The key that is there, or a new one: kept before anybody hears of it, so that what was begun with it can be gone on with.
    pub fn keep(path: &Path) -> Result<Self, JoinError> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let key = KeyPair::generate().map_err(|err| JoinError::Key { path: path.to_owned(), err })?;
        let written = files::write(path, key.serialize_pem().as_bytes());
        written.map_err(|err| JoinError::File { path: path.to_owned(), err })?;
        Ok(Self(key))
    }

    /// Where the key is kept that is to follow the one in a file.
    pub fn next_path(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".next");
        name.into()
    }

    /// A request for a certificate, signed over what the controller gave.
    pub fn request(&self, nonce: &str) -> Result<Vec<u8>, JoinError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, nonce);
        let request = params.serialize_request(&self.0).map_err(JoinError::Request)?;
        Ok(request.der().to_vec())
    }

    /// Whether a certificate is for this key.
    pub fn fits(&self, certificate_pem: &str) -> bool {
        let Ok((_, pem)) = parse_x509_pem(certificate_pem.as_bytes()) else { return false };
        let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else { return false };
        certificate.public_key().subject_public_key.data.as_ref() == self.0.public_key_raw()
    }
}

/// From when until when a certificate is valid, in seconds since the epoch.
pub fn validity(pem: &str) -> Option<(i64, i64)> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_no_certificate_has_no_dates() {
        for bad in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(validity(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.key");
        assert!(HostKey::read(&path).unwrap().is_none());
        let first = HostKey::keep(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = HostKey::keep(&path).unwrap();
        assert_eq!(first.0.public_key_raw(), again.0.public_key_raw());
        fs::write(&path, "half a key").unwrap();
        assert!(matches!(HostKey::keep(&path), Err(JoinError::Key { .. })), "what is there is not replaced");
    }
}
