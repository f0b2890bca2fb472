//! TLS for the listeners, replaceable while connections are open.
//!
//! In: the local CA, or certificate files named in the configuration. Out: the rustls configuration that the
//! next connection uses. Holds: the current one. A client certificate is optional and, if given, must be from
//! the local CA; what it permits is decided per call in `access`.

use std::{
    fs, io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use drivers::{
    CertificateFiles,
    pki::{Pki, PkiError, fingerprint},
};
use model::{Fingerprint, Secret};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use time::OffsetDateTime;
use tracing::{error, info};

/// How often certificates are looked at. Renewal starts a month ahead, so an hour late is early.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot provide the server's certificate")]
    Pki(#[from] PkiError),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("the {what} is not usable PEM")]
    Pem {
        what: &'static str,
        #[source]
        err: rustls::pki_types::pem::Error,
    },
    #[error("the server's certificate and key do not work together")]
    Unusable(#[source] rustls::Error),
    #[error("the local CA's certificate is not usable to check clients")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// The current TLS configuration and what it is made from.
pub struct Tls {
    pki: Arc<Pki>,
    names: Vec<String>,
    files: Option<CertificateFiles>,
    current: ArcSwap<ServerConfig>,
    /// PEM of the certificate in use, to see a change.
    in_use: parking_lot::Mutex<String>,
}

impl Tls {
    pub fn new(pki: Arc<Pki>, names: Vec<String>, files: Option<CertificateFiles>) -> Result<Self, TlsError> {
        let (pem, key) = material(&pki, &names, files.as_ref())?;
        let config = server_config(&pki, &pem, &key, files.is_none())?;
        Ok(Self {
            pki,
            names,
            files,
            current: ArcSwap::from_pointee(config),
            in_use: parking_lot::Mutex::new(pem),
        })
    }

    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Takes up a renewed or replaced certificate. Open connections go on with the old one.
    pub fn refresh(&self) -> Result<(), TlsError> {
        let (pem, key) = material(&self.pki, &self.names, self.files.as_ref())?;
        let mut in_use = self.in_use.lock();
        if *in_use != pem {
            self.current.store(Arc::new(server_config(&self.pki, &pem, &key, self.files.is_none())?));
            *in_use = pem;
            info!("took up a new server certificate");
        }
        Ok(())
    }

    /// The fingerprint of the last certificate that is shown: by it machines know the controller that have nothing else of it yet. It
    /// is the local CA's, or where there are other files the last in them.
    pub fn root(&self) -> Option<Fingerprint> {
        if self.files.is_none() {
            return Some(self.pki.ca_fingerprint());
        }
        let pem = self.in_use.lock().clone();
        let last = CertificateDer::pem_slice_iter(pem.as_bytes()).last()?.ok()?;
        Some(fingerprint(&last))
    }

    /// Refreshes for ever. A failure keeps the certificate in use.
    pub async fn keep_fresh(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if let Err(err) = self.refresh() {
                error!(
                    error = common::chain(&err),
                    "cannot renew the server certificate; the old one stays in use"
                );
            }
        }
    }
}

fn material(
    pki: &Pki,
    names: &[String],
    files: Option<&CertificateFiles>,
) -> Result<(String, Secret), TlsError> {
    let Some(files) = files else {
        return Ok(pki.server_certificate(names, OffsetDateTime::from(SystemTime::now()))?);
    };
    let read =
        |path: &PathBuf| fs::read_to_string(path).map_err(|err| TlsError::Read { path: path.clone(), err });
    Ok((read(&files.certificate)?, Secret::new(read(&files.key)?)))
}

fn server_config(
    pki: &Pki,
    certificate_pem: &str,
    key_pem: &Secret,
    is_own: bool,
) -> Result<ServerConfig, TlsError> {
    let mut chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| TlsError::Pem { what: "server's certificate", err })?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.expose().as_bytes())
        .map_err(|err| TlsError::Pem { what: "server's key", err })?;
    let ca = CertificateDer::from_pem_slice(pki.ca_pem().as_bytes())
        .map_err(|err| TlsError::Pem { what: "local CA's certificate", err })?;
    if is_own {
        // For machines that join: they know the CA by its fingerprint only.
        chain.push(ca.clone());
    }
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(TlsError::Unusable)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would not show its certificate again, and so outlive it.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_taken_up_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from(SystemTime::now());
        let pki = Arc::new(Pki::open(&dir.path().join("pki"), now).unwrap());
        let names = vec!["localhost".to_owned()];
        let files = CertificateFiles { certificate: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        let place = |names: &[String]| {
            let (pem, key) = pki.server_certificate(names, now).unwrap();
            fs::write(&files.certificate, pem).unwrap();
            fs::write(&files.key, key.expose()).unwrap();
        };
        place(&names);
        let tls = Tls::new(Arc::clone(&pki), names.clone(), Some(files.clone())).unwrap();
        let first = tls.current();
        tls.refresh().unwrap();
        assert!(Arc::ptr_eq(&first, &tls.current()));

        fs::write(&files.certificate, "garbage").unwrap();
        assert!(tls.refresh().is_err());
        assert!(Arc::ptr_eq(&first, &tls.current()));

        place(&["other".to_owned()]);
        tls.refresh().unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.current()));
    }
}
