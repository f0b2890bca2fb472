//! A certificate authority for one test, and a member that trusts only it.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;
use testkit::etcd::Cluster;

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Certificate and key in PEM.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// One member that serves TLS and demands a certificate of this authority.
    pub(crate) fn start_member(&self) -> Cluster {
        let write = |name: &str, text: &str| {
            let path = self.dir.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (certificate, key) = self.issue("127.0.0.1");
        let (ca, certificate, key) =
            (write("ca.pem", &self.certificate()), write("cert.pem", &certificate), write("key.pem", &key));
        let argument = |name: &str, path: &String| format!("--{name}={path}");
        let etcd = [
            argument("cert-file", &certificate),
            argument("key-file", &key),
            argument("trusted-ca-file", &ca),
            "--client-cert-auth".to_owned(),
        ];
        let curl = [argument("cacert", &ca), argument("cert", &certificate), argument("key", &key)];
        // curl takes no `--name=value`.
        let curl: Vec<_> = curl.iter().flat_map(|argument| argument.split('=').map(str::to_owned)).collect();
        Cluster::start_with(1, "https", &etcd, &curl)
    }
}
