//! A certificate authority in memory and keys in a directory, for tests and measurements.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer as Signer, KeyPair, KeyUsagePurpose, SanType,
};

use storage_provider::{ConsumerId, VolumeKeyId};

use crate::{
    identity::{IssueError, IssuedIdentity, Issuer},
    keys::{KeyStore, KeyStoreError, VolumeKey},
    tls::TlsIdentity,
};

/// Keys as they are, each in a file: they outlive a process that is killed, and are nothing to rely on.
pub struct DirectoryKeys(pub PathBuf);

impl DirectoryKeys {
    /// Where a key is.
    pub fn path(&self, consumer: ConsumerId, key: VolumeKeyId) -> PathBuf {
        self.folder(consumer).join(key.to_string())
    }

    fn folder(&self, consumer: ConsumerId) -> PathBuf {
        self.0.join(consumer.to_string())
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> KeyStoreError {
    let path = path.display().to_string();
    move |err| KeyStoreError { reason: format!("{path}: {err}") }
}

impl KeyStore for DirectoryKeys {
    fn put(&self, consumer: ConsumerId, key: &VolumeKey) -> Result<(), KeyStoreError> {
        let (folder, path) = (self.folder(consumer), self.path(consumer, key.id()));
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
        files::write(&path, key.expose()).map_err(failed(&path))
    }

    fn get(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<Option<VolumeKey>, KeyStoreError> {
        let path = self.path(consumer, key);
        match fs::read(&path) {
            Ok(bytes) => {
                let bytes =
                    bytes.try_into().map_err(|_| KeyStoreError { reason: "it is no key".to_owned() })?;
                Ok(Some(VolumeKey::new(bytes)))
            }
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
            Err(err) => Err(failed(&path)(err)),
        }
    }

    fn list(&self, consumer: ConsumerId) -> Result<BTreeSet<VolumeKeyId>, KeyStoreError> {
        let folder = self.folder(consumer);
        let entries = match fs::read_dir(&folder) {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            entries => entries.map_err(failed(&folder))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| name.parse().ok().map(VolumeKeyId)).collect())
    }

    fn remove(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<(), KeyStoreError> {
        let path = self.path(consumer, key);
        match fs::remove_file(&path) {
            Err(err) if err.kind() != ErrorKind::NotFound => Err(failed(&path)(err)),
            _ => Ok(()),
        }
    }
}

pub struct TestAuthority {
    signer: Signer<'static, KeyPair>,
    certificate: String,
}

impl TestAuthority {
    pub fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = named("Test Authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { signer: Signer::new(params, key), certificate })
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A server on the loopback address that trusts this authority's clients.
    pub fn server(&self) -> Result<TlsIdentity, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = named("localhost")?;
        params.subject_alt_names = vec![
            SanType::DnsName("localhost".try_into()?),
            SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.signer)?.pem();
        Ok(TlsIdentity {
            certificate_chain: certificate,
            key: key.serialize_pem(),
            client_authority: self.certificate.clone(),
        })
    }

    /// A client with these URI names: any number, for certificates that should be refused.
    pub fn client(&self, uris: &[&str]) -> Result<IssuedIdentity, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = named("client")?;
        params.subject_alt_names = uris
            .iter()
            .map(|uri| Ok(SanType::URI((*uri).try_into()?)))
            .collect::<Result<_, rcgen::Error>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.signer)?.pem();
        Ok(IssuedIdentity {
            certificate,
            key: key.serialize_pem(),
            authority: self.certificate.clone(),
            renew_at: SystemTime::now() + Duration::from_secs(3600),
        })
    }
}

impl Issuer for TestAuthority {
    fn issue(&self, uri: &str) -> Result<IssuedIdentity, IssueError> {
        self.client(&[uri]).map_err(|error| IssueError { reason: error.to_string() })
    }
}

fn named(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
