//! Signatures of the clouds: tokens (RFC 7515), and messages with their content inside (CMS), written as the clouds write them.

use aws_lc_rs::{
    digest,
    rand::SystemRandom,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_RSA_SHA256, RsaKeySize,
};
use serde_json::{Value, json};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

/// Everybody who signs.
pub struct Issuers {
    pub aws: Signer,
    pub azure: Signer,
    /// Whom Azure's signer is believed by.
    pub azure_authority: String,
    tokens: RsaKeyPair,
}

/// A key with its certificate.
pub struct Signer {
    key: RsaKeyPair,
    der: Vec<u8>,
    pub pem: String,
}

/// How long things are, said before them or by a mark at their end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Length {
    Said,
    ByEnd,
}

impl Issuers {
    pub fn new() -> Self {
        let (ca_params, ca_key) = (params("Simulated authority", true), key());
        let ca = ca_params.self_signed(&ca_key).expect("the parameters are legal");
        let issuer = Issuer::new(ca_params, ca_key);
        let (aws_key, azure_key) = (key(), key());
        let aws = params("ec2.amazonaws.com", false).self_signed(&aws_key).expect("the parameters are legal");
        let azure = params("metadata.azure.com", false).signed_by(&azure_key, &issuer);
        let azure = azure.expect("the parameters are legal");
        Self {
            aws: Signer { key: rsa(&aws_key), der: aws.der().to_vec(), pem: aws.pem() },
            azure: Signer { key: rsa(&azure_key), der: azure.der().to_vec(), pem: azure.pem() },
            azure_authority: ca.pem(),
            tokens: rsa(&key()),
        }
    }

    pub fn key_set(&self) -> Value {
        let public = self.tokens.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (n, e) = (text(n.big_endian_without_leading_zero()), text(e.big_endian_without_leading_zero()));
        json!({ "keys": [{ "kty": "RSA", "alg": "RS256", "use": "sig", "kid": "simulated", "n": n, "e": e }] })
    }

    pub fn token(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!(
            "{}.{}",
            part(&json!({ "alg": "RS256", "kid": "simulated", "typ": "JWT" })),
            part(claims)
        );
        let signature = sign(&self.tokens, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn params(name: &str, is_ca: bool) -> CertificateParams {
    let names = if is_ca { Vec::new() } else { vec![name.to_owned()] };
    let mut params = CertificateParams::new(names).expect("the names are legal");
    params.distinguished_name.push(DnType::CommonName, name);
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    } else {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    }
    params
}

fn key() -> KeyPair {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("keys can be made")
}

fn rsa(key: &KeyPair) -> RsaKeyPair {
    RsaKeyPair::from_pkcs8(&key.serialize_der()).expect("the key was just made")
}

fn sign(key: &RsaKeyPair, bytes: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), bytes, &mut signature)
        .expect("the buffer has its length");
    signature
}

pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// In lines, as in PEM.
pub fn lines(bytes: &[u8]) -> String {
    let text = base64(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    lines.join("\n")
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const NULL: &[u8] = &[0x05, 0];
const INSIDE: u8 = 0xa0;
// Object identifiers, with their tags.
const SIGNED_DATA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
const DATA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
const CONTENT_TYPE: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
const SHA256: &[u8] = &[6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
const RSA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];

impl Signer {
    /// A message, with or without the certificate of whoever signed it.
    pub fn message(&self, content: &[u8], length: Length, with_certificate: bool) -> Vec<u8> {
        let outer = |tag: u8, parts: &[&[u8]]| match length {
            Length::Said => der(tag, parts),
            Length::ByEnd => [&[tag, 0x80], &parts.concat()[..], &[0, 0]].concat(),
        };
        let attribute = |kind: &[u8], value: &[u8]| der(SEQUENCE, &[kind, &der(SET, &[value])]);
        let digest = digest::digest(&digest::SHA256, content);
        let kind = attribute(CONTENT_TYPE, DATA);
        let attributes = [kind, attribute(MESSAGE_DIGEST, &der(OCTETS, &[digest.as_ref()]))];
        let attributes = [&attributes[0][..], &attributes[1]];
        let signature = sign(&self.key, &der(SET, &attributes));
        let (sha256, rsa) = (der(SEQUENCE, &[SHA256, NULL]), der(SEQUENCE, &[RSA, NULL]));
        let signer = der(
            SEQUENCE,
            &[
                &der(INTEGER, &[&[1]]),
                &self.name(),
                &sha256,
                &der(INSIDE, &attributes),
                &rsa,
                &der(OCTETS, &[&signature]),
            ],
        );
        let certificates = if with_certificate { der(INSIDE, &[&self.der]) } else { Vec::new() };
        let inside = outer(SEQUENCE, &[DATA, &outer(INSIDE, &[&der(OCTETS, &[content])])]);
        let (version, digests) = (der(INTEGER, &[&[1]]), der(SET, &[&sha256]));
        let signed = outer(SEQUENCE, &[&version, &digests, &inside, &certificates, &der(SET, &[&signer])]);
        outer(SEQUENCE, &[SIGNED_DATA, &outer(INSIDE, &[&signed])])
    }

    /// Who issued the certificate, and its number.
    fn name(&self) -> Vec<u8> {
        let (_, certificate) = X509Certificate::from_der(&self.der).expect("it was just made");
        let serial = der(INTEGER, &[certificate.raw_serial()]);
        der(SEQUENCE, &[certificate.issuer().as_raw(), &serial])
    }
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len();
    let head = match u8::try_from(length) {
        Ok(short @ 0..0x80) => vec![tag, short],
        Ok(long) => vec![tag, 0x81, long],
        Err(_) => vec![tag, 0x82, (length >> 8 & 0xff) as u8, (length & 0xff) as u8],
    };
    [head, content].concat()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// OpenSSL says so, as the clouds' own instructions have it.
    #[test]
    fn messages_are_what_the_clouds_users_verify() {
        let (dir, issuers) = (tempfile::tempdir().unwrap(), Issuers::new());
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("aws"), issuers.aws.message(b"document", Length::ByEnd, false)).unwrap();
        std::fs::write(path("aws.pem"), &issuers.aws.pem).unwrap();
        std::fs::write(path("azure"), issuers.azure.message(b"document", Length::Said, true)).unwrap();
        std::fs::write(path("azure.pem"), &issuers.azure_authority).unwrap();
        for args in [
            ["-in", "aws", "-certfile", "aws.pem", "-noverify"].as_slice(),
            &["-in", "azure", "-CAfile", "azure.pem", "-purpose", "any"],
        ] {
            let mut command = Command::new("openssl");
            let command =
                command.args(["smime", "-verify", "-inform", "DER"]).args(args).current_dir(dir.path());
            let output = command.output().expect("openssl is needed (Debian: openssl)");
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.stdout, b"document");
        }
    }
}
