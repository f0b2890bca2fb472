//! TLS: required, and the client must show the certificate its consumer was given.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::{
        NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::{
    identity::{Fingerprint, consumer_of},
    vault::Vault,
};

/// What the server shows, and whom it trusts to name consumers. PEM texts.
pub struct TlsIdentity {
    pub certificate_chain: String,
    pub key: String,
    pub client_authority: String,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the {what} is not PEM as it should be")]
    Pem {
        what: &'static str,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("the clients' authority cannot be trusted")]
    Authority(#[source] rustls::Error),
    #[error("the verifier of client certificates cannot be made")]
    Verifier(#[from] VerifierBuilderError),
    #[error("the server's certificate and key do not make a TLS server")]
    Server(#[source] rustls::Error),
}

impl TlsIdentity {
    pub(crate) fn server_config(&self, vault: &Arc<Vault>) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        for authority in certificates("clients' authority", &self.client_authority)? {
            roots.add(authority).map_err(TlsError::Authority)?;
        }
        let inner =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
        let verifier = ConsumerVerifier { inner, vault: Arc::clone(vault) };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|source| TlsError::Pem { what: "server's key", source })?;
        let chain = certificates("server's certificate", &self.certificate_chain)?;
        let mut config =
            with_client_verifier(provider, Arc::new(verifier), chain, key).map_err(TlsError::Server)?;
        // A resumed session would not show its certificate again, and so outlive its revocation.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn with_client_verifier(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match all {
        Ok(all) if all.is_empty() => {
            Err(TlsError::Pem { what, source: rustls::pki_types::pem::Error::NoItemsFound })
        }
        Ok(all) => Ok(all),
        Err(source) => Err(TlsError::Pem { what, source }),
    }
}

/// First the chain, as always; then whether the consumer it names is welcome with exactly this certificate.
#[derive(Debug)]
struct ConsumerVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    vault: Arc<Vault>,
}

impl ClientCertVerifier for ConsumerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(certificate, intermediates, now)?;
        let refused = |error: CertificateError| Err(rustls::Error::InvalidCertificate(error));
        match consumer_of(certificate) {
            None => refused(CertificateError::ApplicationVerificationFailure),
            Some(consumer) if !self.vault.admits(consumer, Fingerprint::of(certificate)) => {
                refused(CertificateError::Revoked)
            }
            Some(_) => Ok(verified),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
