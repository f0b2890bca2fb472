//! What a machine asks for a certificate with: its public key, and the proof that it has the private one.
//!
//! In: a certificate signing request (PKCS #10) as a stranger sent it. Out: a [`KeyRequest`]. Of what the request asks for nothing but
//! the key is taken: name, role and dates are the controller's to decide. Its common name is what the controller gave to be signed.

use aws_lc_rs::digest;
use model::Fingerprint;
use rcgen::{
    CertificateSigningRequestParams, DnType, DnValue, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, PublicKey, PublicKeyData,
};

/// Longest request that is read. One for a key of ours has 300 bytes.
const MAX_REQUEST: usize = 4 << 10;

/// Why a request is not acceptable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRequestError {
    #[error("the certificate request is {len} bytes long; at most {MAX_REQUEST} are allowed")]
    TooLong { len: usize },
    #[error(
        "the certificate request is not PKCS #10 in DER, asks for what nobody gets, or is not signed with its own key"
    )]
    Unreadable,
    #[error(
        "the key of the certificate request is of a kind that is not taken; make one for ECDSA with P-256 or P-384, or Ed25519"
    )]
    Kind,
    #[error(
        "the certificate request carries no common name: it must be what the controller gave to be signed"
    )]
    NoName,
}

/// A key that whoever sent it has proven to have.
#[derive(Debug)]
pub struct KeyRequest {
    pub(super) key: PublicKey,
    pub fingerprint: Fingerprint,
    /// What was signed with the key, beside it.
    pub signed: String,
}

impl KeyRequest {
    /// Reads a request and checks its signature.
    pub fn read(der: &[u8]) -> Result<Self, KeyRequestError> {
        if der.len() > MAX_REQUEST {
            return Err(KeyRequestError::TooLong { len: der.len() });
        }
        let read = CertificateSigningRequestParams::from_der(&der.into());
        let CertificateSigningRequestParams { params, public_key } =
            read.map_err(|_| KeyRequestError::Unreadable)?;
        let taken = [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];
        if !taken.contains(&public_key.algorithm()) {
            return Err(KeyRequestError::Kind);
        }
        let signed = match params.distinguished_name.get(&DnType::CommonName) {
            Some(DnValue::Utf8String(text)) => text.clone(),
            Some(DnValue::PrintableString(text)) => text.as_str().to_owned(),
            _ => return Err(KeyRequestError::NoName),
        };
        Ok(Self { fingerprint: fingerprint(&public_key.subject_public_key_info()), key: public_key, signed })
    }
}

/// SHA-256 of something public.
pub fn fingerprint(bytes: &[u8]) -> Fingerprint {
    let text = common::hex(digest::digest(&digest::SHA256, bytes).as_ref());
    text.parse().expect("a digest in hexadecimal is a fingerprint")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_RSA_SHA256, RsaKeySize};

    use super::*;

    fn request(key: &KeyPair, name: Option<&str>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.serialize_request(key).unwrap().der().to_vec()
    }

    #[test]
    fn the_key_and_what_it_signed_are_read_and_nothing_else_is_believed() {
        for kind in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let key = KeyPair::generate_for(kind).unwrap();
            let read = KeyRequest::read(&request(&key, Some("nonce"))).unwrap();
            assert_eq!(read.signed, "nonce");
            assert_eq!(read.fingerprint, fingerprint(&key.subject_public_key_info()));
        }
        let key = KeyPair::generate().unwrap();
        assert_eq!(KeyRequest::read(&request(&key, None)).unwrap_err(), KeyRequestError::NoName);
        let weak = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        assert_eq!(KeyRequest::read(&request(&weak, Some("x"))).unwrap_err(), KeyRequestError::Kind);
    }

    #[test]
    fn nobody_makes_another_request_of_one_and_garbage_is_refused() {
        let key = KeyPair::generate().unwrap();
        let good = request(&key, Some("nonce"));
        let fingerprint = KeyRequest::read(&good).unwrap().fingerprint;
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            // What stands around the signed part may be spelt otherwise; what is read of it is the same.
            if let Ok(read) = KeyRequest::read(&bad) {
                assert_eq!((read.signed.as_str(), &read.fingerprint), ("nonce", &fingerprint), "byte {at}");
            }
        }
        for len in 0..good.len() {
            assert!(KeyRequest::read(&good[..len]).is_err(), "{len} bytes");
        }
        let huge = vec![0x30; MAX_REQUEST + 1];
        assert_eq!(KeyRequest::read(&huge).unwrap_err(), KeyRequestError::TooLong { len: huge.len() });
    }
}
