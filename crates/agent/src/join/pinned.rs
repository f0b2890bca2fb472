//! A connection to a controller of which nothing is known but the fingerprint of its CA.
//!
//! In: a URL and a fingerprint. Out: a connection, and the CA's certificate as the controller showed it. What it shows must hold a
//! certificate with this fingerprint, and all of it must be good with that as the only root: so the first byte that is sent is for the
//! right one. Only the dates are not insisted on here: a host with a wrong clock shall be told by how much it is wrong, and nothing
//! secret is sent before that is known.

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use hyper_util::rt::TokioIo;
use model::Fingerprint;
use parking_lot::Mutex;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs::default_provider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    net::TcpStream,
    time::{Duration, timeout},
};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::JoinError;

/// Time to connect and shake hands.
const PATIENCE: Duration = Duration::from_secs(10);

/// A controller that is the right one.
pub struct Pinned {
    pub channel: Channel,
    pub ca: CertificateDer<'static>,
    /// The host's clock says that the controller's certificate is not valid now.
    pub clock_is_wrong: bool,
}

/// Connects to the controller at a URL, if its CA has this fingerprint.
pub async fn connect(server: &str, ca: &Fingerprint) -> Result<Pinned, JoinError> {
    let (host, port) = place(server)?;
    let name = ServerName::try_from(host.clone()).map_err(|_| JoinError::Url(server.to_owned()))?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let provider = Arc::new(default_provider());
    let verifier = Verifier { wanted: ca.clone(), seen: Arc::clone(&seen), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config
        .map_err(JoinError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(config));
    let connector = service_fn(move |_: Uri| {
        let (tls, name, host) = (tls.clone(), name.clone(), host.clone());
        async move {
            let tcp = TcpStream::connect((host.as_str(), port)).await?;
            tcp.set_nodelay(true)?;
            std::io::Result::Ok(TokioIo::new(tls.connect(name, tcp).await?))
        }
    });
    // The scheme says that the connection is made elsewhere: here, with TLS.
    let endpoint = Endpoint::from_shared(format!("http://{}", authority(server)));
    let endpoint = endpoint.map_err(|_| JoinError::Url(server.to_owned()))?.timeout(2 * PATIENCE);
    let connected = timeout(PATIENCE, endpoint.connect_with_connector(connector)).await;
    let seen = std::mem::take(&mut *seen.lock());
    if let Some(fault) = seen.fault {
        return Err(fault.told(server, ca));
    }
    let channel = connected
        .map_err(|_| JoinError::Mute(server.to_owned()))?
        .map_err(|err| JoinError::Connect(server.to_owned(), err))?;
    let ca = seen.root.ok_or_else(|| JoinError::Url(server.to_owned()))?;
    Ok(Pinned { channel, ca, clock_is_wrong: seen.clock_is_wrong })
}

fn authority(server: &str) -> &str {
    server.strip_prefix("https://").unwrap_or(server).trim_end_matches('/')
}

/// The host and the port of a URL.
fn place(server: &str) -> Result<(String, u16), JoinError> {
    let bad = || JoinError::Url(server.to_owned());
    if !server.starts_with("https://") {
        return Err(bad());
    }
    let uri: Uri = server.parse().map_err(|_| bad())?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((host, uri.port_u16().ok_or_else(bad)?))
}

/// What the handshake showed.
#[derive(Debug, Default)]
struct Seen {
    root: Option<CertificateDer<'static>>,
    clock_is_wrong: bool,
    fault: Option<Fault>,
}

/// Why it is not gone on with.
#[derive(Debug)]
enum Fault {
    /// No certificate of the right fingerprint; that of the last one shown.
    Other(Fingerprint),
    Name(String),
    Chain(Error),
}

impl Fault {
    fn told(self, server: &str, wanted: &Fingerprint) -> JoinError {
        let (server, wanted) = (server.to_owned(), wanted.clone());
        match self {
            Self::Other(shown) => JoinError::OtherController { server, wanted, shown },
            Self::Name(names) => JoinError::Name { server, names },
            Self::Chain(err) => JoinError::Chain { server, err },
        }
    }
}

#[derive(Debug)]
struct Verifier {
    wanted: Fingerprint,
    seen: Arc<Mutex<Seen>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn fail(&self, fault: Fault) -> Error {
        self.seen.lock().fault = Some(fault);
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut shown = intermediates.iter().rev().chain([end_entity]);
        let Some(root) = shown.find(|certificate| fingerprint(certificate) == self.wanted) else {
            let last = intermediates.last().unwrap_or(end_entity);
            return Err(self.fail(Fault::Other(fingerprint(last))));
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned()).map_err(|err| self.fail(Fault::Chain(err)))?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let verifier = verifier.build().map_err(|err| Error::General(err.to_string()))?;
        let judge = |now| verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now);
        let judged = match judge(now) {
            Err(Error::InvalidCertificate(error)) => match valid_at(&error) {
                Some(moment) => {
                    self.seen.lock().clock_is_wrong = true;
                    judge(moment)
                }
                None => Err(Error::InvalidCertificate(error)),
            },
            judged => judged,
        };
        match judged {
            Ok(verified) => {
                self.seen.lock().root = Some(root.clone().into_owned());
                Ok(verified)
            }
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented, ..
            })) => Err(self.fail(Fault::Name(presented.join(", ")))),
            Err(Error::InvalidCertificate(CertificateError::NotValidForName)) => {
                Err(self.fail(Fault::Name(String::new())))
            }
            Err(err) => Err(self.fail(Fault::Chain(err))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A moment at which a certificate would have been valid that is not because of its dates.
fn valid_at(error: &CertificateError) -> Option<UnixTime> {
    let seconds = match error {
        CertificateError::ExpiredContext { not_after, .. } => not_after.as_secs().saturating_sub(1),
        CertificateError::NotValidYetContext { not_before, .. } => not_before.as_secs() + 1,
        _ => return None,
    };
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// SHA-256 of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = digest::digest(&digest::SHA256, certificate);
    common::hex(digest.as_ref()).parse().expect("a digest in hexadecimal is a fingerprint")
}

/// A certificate as PEM.
pub fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_port() {
        assert_eq!(place("https://controller:8081").unwrap(), ("controller".to_owned(), 8081));
        assert_eq!(place("https://[::1]:1/").unwrap(), ("::1".to_owned(), 1));
        for bad in
            ["", "controller:8081", "http://controller:8081", "https://controller", "https://", "https://:1"]
        {
            assert!(matches!(place(bad), Err(JoinError::Url(_))), "{bad}");
        }
    }
}
