//! Documents about instances that clouds sign (pure): AWS's instance identity document, and Azure's attested data.
//!
//! In: a document as a stranger sent it, the certificates that are believed. Out: what it says, as claims. AWS signs with the key of a
//! certificate that it publishes for each region, and says neither when nor for whom: whoever has such a document can show it for ever.
//! Azure signs for six hours what the controller gave to be signed, with a certificate that changes and chains to a public root.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde_json::{Map, Value};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::{claim, pkcs7::Message};

/// Longest document that is read.
const MAX_DOCUMENT: usize = 24 << 10;
/// Whom Azure's certificates are for.
const AZURE: &str = "metadata.azure.com";

/// Why a document proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("it is no signed document of at most {MAX_DOCUMENT} bytes in base64")]
    Form,
    #[error("the file of certificates holds none that can be used")]
    Certificates,
    #[error("it is not signed with the key of a certificate that is believed")]
    Signature,
    #[error("it was not made for this join: it does not hold what the controller gave to be signed")]
    Nonce,
    #[error("it has expired, or says not when it does")]
    Expired,
}

/// `latest/dynamic/instance-identity/rsa2048`, against the certificates of the regions that are believed.
pub fn aws(text: &str, believed: &[u8]) -> Result<Map<String, Value>, DocumentError> {
    let message = read(text)?;
    let certificates = certificates(believed)?;
    // Pinned, so their dates say nothing.
    match certificates.iter().any(|certificate| is_signed_by(&message, certificate)) {
        true => claims(&message),
        false => Err(DocumentError::Signature),
    }
}

/// The `signature` of `metadata/attested/document`, against authorities that are believed.
pub fn azure(
    text: &str,
    believed: &[u8],
    nonce: &str,
    now: i64,
) -> Result<Map<String, Value>, DocumentError> {
    let message = read(text)?;
    let sent: Vec<CertificateDer<'_>> =
        message.certificates.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let signer = sent.iter().find(|certificate| is_signed_by(&message, certificate));
    let signer = signer.ok_or(DocumentError::Signature)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(believed)? {
        roots.add(certificate).map_err(|_| DocumentError::Certificates)?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
    let verifier = verifier.build().map_err(|_| DocumentError::Certificates)?;
    let name = ServerName::try_from(AZURE).expect("a fixed name");
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or_default()));
    verifier.verify_server_cert(signer, &sent, &name, &[], at).map_err(|_| DocumentError::Signature)?;
    let claims = claims(&message)?;
    if claim(&claims, "nonce").as_deref() != Some(model::host::ten_digits(nonce).as_str()) {
        return Err(DocumentError::Nonce);
    }
    let ends = claim(&claims, "timeStamp.expiresOn").and_then(|text| moment(&text));
    match ends.is_some_and(|ends| now < ends) {
        true => Ok(claims),
        false => Err(DocumentError::Expired),
    }
}

/// As Azure writes it: `11/28/26 06:16:17 -0000`.
fn moment(text: &str) -> Option<i64> {
    let read = jiff::fmt::strtime::parse("%m/%d/%y %H:%M:%S %z", text).ok()?;
    Some(read.to_timestamp().ok()?.as_second())
}

fn read(text: &str) -> Result<Message, DocumentError> {
    if text.len() > MAX_DOCUMENT {
        return Err(DocumentError::Form);
    }
    // Lines as they come from the metadata service, with or without what PEM puts around them.
    let lines = text.lines().filter(|line| !line.starts_with("-----"));
    let packed: String = lines.flat_map(str::chars).filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| DocumentError::Form)?;
    Message::read(&bytes).ok_or(DocumentError::Form)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, DocumentError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.ok().filter(|all| !all.is_empty()).ok_or(DocumentError::Certificates)
}

fn is_signed_by(message: &Message, certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    message.is_signed_by(&certificate.public_key().subject_public_key.data)
}

fn claims(message: &Message) -> Result<Map<String, Value>, DocumentError> {
    serde_json::from_slice(&message.content).map_err(|_| DocumentError::Form)
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde_json::json;

    use super::{super::pkcs7::tests::Signer, *};

    const DOCUMENT: &str = r#"{"accountId": "123456789012", "instanceId": "i-1", "region": "eu-central-1"}"#;

    #[test]
    fn an_instance_of_aws_is_what_its_document_says() {
        let (region, other) = (Signer::new("ec2.amazonaws.com"), Signer::new("ec2.amazonaws.com"));
        for flags in [&["-nocerts"][..], &["-nocerts", "-noattr"], &["-nocerts", "-stream", "-indef"], &[]] {
            let text = STANDARD.encode(region.sign(DOCUMENT, flags));
            let believed = [other.pem(), region.pem()].concat();
            let claims = aws(&format!("{text}\n"), &believed).unwrap();
            assert_eq!(claim(&claims, "instanceId").as_deref(), Some("i-1"), "{flags:?}");
            // Who sends a certificate along is believed no more for that.
            assert_eq!(aws(&text, &other.pem()), Err(DocumentError::Signature), "{flags:?}");
        }
        let pem = format!(
            "-----BEGIN PKCS7-----\n{}\n-----END PKCS7-----\n",
            STANDARD.encode(region.sign(DOCUMENT, &[]))
        );
        assert!(aws(&pem, &region.pem()).is_ok());
        for bad in ["", "AAAA", "%", &"A".repeat(MAX_DOCUMENT + 4)] {
            assert_eq!(aws(bad, &region.pem()), Err(DocumentError::Form));
        }
        assert_eq!(aws(&pem, b"no certificates"), Err(DocumentError::Certificates));
    }

    #[test]
    fn an_instance_of_azure_is_believed_for_this_join_alone() {
        // Made first: a certificate of the next second is not good yet.
        let (real, foreign) = (Signer::new(AZURE), Signer::new("metadata.example.org"));
        let now = jiff::Timestamp::now().as_second();
        let at = |seconds: i64| {
            jiff::Timestamp::from_second(seconds).unwrap().strftime("%m/%d/%y %H:%M:%S -0000").to_string()
        };
        let nonce = "what the controller gave";
        let document = |nonce: &str, ends: i64| {
            let nonce = model::host::ten_digits(nonce);
            json!({ "vmId": "v-1", "nonce": nonce, "timeStamp": { "createdOn": at(now), "expiresOn": at(ends) } }).to_string()
        };
        let ask = |signer: &Signer, document: &str, believed: &[u8]| {
            azure(&STANDARD.encode(signer.sign(document, &[])), believed, nonce, now)
        };
        let good = document(nonce, now + 600);
        assert_eq!(claim(&ask(&real, &good, &real.pem()).unwrap(), "vmId").as_deref(), Some("v-1"));
        assert_eq!(ask(&real, &good, &foreign.pem()), Err(DocumentError::Signature), "another authority");
        assert_eq!(ask(&foreign, &good, &foreign.pem()), Err(DocumentError::Signature), "for another name");
        assert_eq!(ask(&real, &document("another", now + 600), &real.pem()), Err(DocumentError::Nonce));
        assert_eq!(ask(&real, &document(nonce, now), &real.pem()), Err(DocumentError::Expired));
        assert_eq!(ask(&real, r#"{"vmId": "v-1"}"#, &real.pem()), Err(DocumentError::Nonce));
    }
}
