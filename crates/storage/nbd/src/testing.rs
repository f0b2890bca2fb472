//! A certificate authority in memory, for tests and measurements.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer as Signer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::{
    identity::{IssueError, IssuedIdentity, Issuer},
    tls::TlsIdentity,
};

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
