//! The local certificate authority: made on first start, used for the server and for machines that call it.
//!
//! In: a directory, names and subjects, and the time. Out: certificates and keys in PEM. Holds: the CA's key.
//! Not here: which certificates are revoked (`access`), how connections use them (`tls`).
//!
//! ```text
//!   DIR/ca.pem ca.key          made once, ten years
//!   DIR/server.pem server.key  ninety days, made again when a third is left or the names change
//! ```

mod request;

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use model::{BACKDATE_SECONDS, Fingerprint, Secret, Subject};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

pub use self::request::{KeyRequest, KeyRequestError, fingerprint};
use crate::random;

const CA_YEARS: i64 = 10;
const SERVER_DAYS: i64 = 90;
/// Certificates start a day early, so that a peer whose clock is behind accepts them.
const BACKDATE: Duration = Duration::seconds(BACKDATE_SECONDS);

/// What names a controller in the certificate that it shows to plugins. No certificate that is issued on request has it.
pub const CONTROLLER: &str = "spiffe://trestle/controller";

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("{} exists without {}; restore the missing file, or move both away to start with a new CA", present.display(), missing.display())]
    HalfCa { present: PathBuf, missing: PathBuf },
    #[error("{} does not hold a usable CA certificate and key", path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        err: rcgen::Error,
    },
    #[error("cannot make a certificate for {name}")]
    Make {
        name: String,
        #[source]
        err: rcgen::Error,
    },
    #[error("cannot make a certificate for {name:?}: it is neither a host name nor an address")]
    Name { name: String },
}

/// A certificate with its key, both in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate_pem: String,
    pub key_pem: Secret,
    /// Lower-case hexadecimal.
    pub serial: String,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

/// A certificate for a key that somebody else has, in PEM.
#[derive(Clone, Debug)]
pub struct Signed {
    pub certificate_pem: String,
    /// Lower-case hexadecimal.
    pub serial: String,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

/// The CA of one data directory.
pub struct Pki {
    dir: PathBuf,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Opens the CA in `dir`, or makes one if there is none.
    pub fn open(dir: &Path, now: OffsetDateTime) -> Result<Self, PkiError> {
        files::create_dir(dir).map_err(|err| PkiError::Write { path: dir.to_owned(), err })?;
        let (pem_path, key_path) = (dir.join("ca.pem"), dir.join("ca.key"));
        match (read_if_present(&pem_path)?, read_if_present(&key_path)?) {
            (Some(pem), Some(key)) => Self::load(dir, pem, &key),
            (None, None) => {
                let (pem, key) = make_ca(now)?;
                // The key first: a crash between the two leaves a half CA that is reported, never a lost key.
                write(&key_path, key.expose())?;
                write(&pem_path, &pem)?;
                Self::load(dir, pem, key.expose())
            }
            (Some(_), None) => Err(PkiError::HalfCa { present: pem_path, missing: key_path }),
            (None, Some(_)) => Err(PkiError::HalfCa { present: key_path, missing: pem_path }),
        }
    }

    fn load(dir: &Path, ca_pem: String, key_pem: &str) -> Result<Self, PkiError> {
        let unusable = |err| PkiError::Unusable { path: dir.to_owned(), err };
        let key = KeyPair::from_pem(key_pem).map_err(unusable)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key).map_err(unusable)?;
        Ok(Self { dir: dir.to_owned(), ca_pem, issuer })
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The fingerprint of the CA's certificate, by which those know it who have nothing else of it yet.
    pub fn ca_fingerprint(&self) -> Fingerprint {
        let parsed = x509_parser::pem::parse_x509_pem(self.ca_pem.as_bytes());
        fingerprint(&parsed.expect("it was parsed when it was opened").1.contents)
    }

    pub fn ca_path(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// The server's certificate for `names`: the one on disk while it serves, else a new one.
    pub fn server_certificate(
        &self,
        names: &[String],
        now: OffsetDateTime,
    ) -> Result<(String, Secret), PkiError> {
        let (pem_path, key_path) = (self.dir.join("server.pem"), self.dir.join("server.key"));
        if let (Some(pem), Some(key)) = (read_if_present(&pem_path)?, read_if_present(&key_path)?)
            && serves(&pem, names, now)
        {
            return Ok((pem, Secret::new(key)));
        }
        let issued = self.issue_server(names, now)?;
        write(&key_path, issued.key_pem.expose())?;
        write(&pem_path, &issued.certificate_pem)?;
        Ok((issued.certificate_pem, issued.key_pem))
    }

    fn issue_server(&self, names: &[String], now: OffsetDateTime) -> Result<Issued, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("trestle server");
        params.subject_alt_names = names.iter().map(|name| san(name)).collect::<Result<_, _>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue("the server", params, now, Duration::days(SERVER_DAYS))
    }

    /// A client certificate that proves to be `subject` for `ttl`.
    pub fn issue_client(
        &self,
        subject: &Subject,
        now: OffsetDateTime,
        ttl: Duration,
    ) -> Result<Issued, PkiError> {
        let (name, params) = (subject.to_string(), client(subject)?);
        self.issue(&name, params, now, ttl)
    }

    /// The same for a key that never was here.
    pub fn sign_client(
        &self,
        subject: &Subject,
        request: &KeyRequest,
        now: OffsetDateTime,
        ttl: Duration,
    ) -> Result<Signed, PkiError> {
        let (name, params) = (subject.to_string(), client(subject)?);
        self.sign(&name, params, &request.key, now, ttl)
    }

    /// What the controller itself shows to plugins: for as long as the CA lasts, and never written anywhere. Whoever could
    /// take it from this process could take the CA's key too.
    pub fn issue_controller(&self, now: OffsetDateTime) -> Result<Issued, PkiError> {
        let name = "the controller";
        let make = |err| PkiError::Make { name: name.to_owned(), err };
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("trestle controller");
        params.subject_alt_names = vec![SanType::URI(CONTROLLER.try_into().map_err(make)?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params, now, Duration::days(365 * CA_YEARS))
    }

    fn issue(
        &self,
        name: &str,
        params: CertificateParams,
        now: OffsetDateTime,
        ttl: Duration,
    ) -> Result<Issued, PkiError> {
        let key = KeyPair::generate().map_err(|err| PkiError::Make { name: name.to_owned(), err })?;
        let Signed { certificate_pem, serial, not_before, not_after } =
            self.sign(name, params, &key, now, ttl)?;
        Ok(Issued {
            certificate_pem,
            key_pem: Secret::new(key.serialize_pem()),
            serial,
            not_before,
            not_after,
        })
    }

    fn sign(
        &self,
        name: &str,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
        now: OffsetDateTime,
        ttl: Duration,
    ) -> Result<Signed, PkiError> {
        let serial = random_serial();
        params.not_before = now - BACKDATE;
        params.not_after = now + ttl;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer);
        let certificate = certificate.map_err(|err| PkiError::Make { name: name.to_owned(), err })?;
        Ok(Signed {
            certificate_pem: certificate.pem(),
            serial: common::hex(&serial),
            not_before: params.not_before,
            not_after: params.not_after,
        })
    }
}

/// What a certificate of a caller says.
fn client(subject: &Subject) -> Result<CertificateParams, PkiError> {
    let make = |err| PkiError::Make { name: subject.to_string(), err };
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(subject.name.as_str());
    params.subject_alt_names = vec![SanType::URI(subject.uri().try_into().map_err(make)?)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn make_ca(now: OffsetDateTime) -> Result<(String, Secret), PkiError> {
    let make = |err| PkiError::Make { name: "the local CA".to_owned(), err };
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("trestle local CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Long past: a clock that was ahead on first start and is set back must not put the CA out of use.
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = now + Duration::days(365 * CA_YEARS);
    let key = KeyPair::generate().map_err(make)?;
    let certificate = params.self_signed(&key).map_err(make)?;
    Ok((certificate.pem(), Secret::new(key.serialize_pem())))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn san(name: &str) -> Result<SanType, PkiError> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let dns = name.to_owned().try_into().map_err(|_| PkiError::Name { name: name.to_owned() })?;
    Ok(SanType::DnsName(dns))
}

/// Whether a stored certificate is valid now, has more than a third of its life left, and has these names.
fn serves(pem: &str, names: &[String], now: OffsetDateTime) -> bool {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(pem.as_bytes()) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else { return false };
    let (start, end) = (certificate.validity().not_before, certificate.validity().not_after);
    let (start, end, now) = (start.timestamp(), end.timestamp(), now.unix_timestamp());
    if now < start || end - now < (end - start) / 3 {
        return false;
    }
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return false };
    let Ok(wanted) = names.iter().map(|name| san(name)).collect::<Result<Vec<_>, _>>() else { return false };
    wanted.len() == alternatives.value.general_names.len()
        && wanted.iter().all(|san| alternatives.value.general_names.iter().any(|have| same_name(san, have)))
}

fn same_name(wanted: &SanType, have: &x509_parser::extensions::GeneralName<'_>) -> bool {
    use x509_parser::extensions::GeneralName;
    match (wanted, have) {
        (SanType::DnsName(name), GeneralName::DNSName(have)) => name.as_str() == *have,
        (SanType::IpAddress(IpAddr::V4(ip)), GeneralName::IPAddress(have)) => ip.octets().as_slice() == *have,
        (SanType::IpAddress(IpAddr::V6(ip)), GeneralName::IPAddress(have)) => ip.octets().as_slice() == *have,
        _ => false,
    }
}

/// The subject and serial of a client certificate, if it carries exactly one Trestle identity.
pub fn identify(der: &[u8]) -> Option<(Subject, String)> {
    use x509_parser::extensions::GeneralName;
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let alternatives = certificate.subject_alternative_name().ok()??;
    let mut subjects = alternatives.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Subject::from_uri(uri).ok(),
        _ => None,
    });
    let subject = subjects.next()?;
    if subjects.next().is_some() {
        return None;
    }
    Some((subject, common::hex(certificate.raw_serial())))
}

/// Whether a certificate is valid now and is for `name`: a URI, or the name of a host.
pub fn is_for(der: &[u8], name: &str, now: OffsetDateTime) -> bool {
    use x509_parser::extensions::GeneralName;
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let (validity, now) = (certificate.validity(), now.unix_timestamp());
    if now < validity.not_before.timestamp() || now >= validity.not_after.timestamp() {
        return false;
    }
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return false };
    alternatives.value.general_names.iter().any(|have| match have {
        GeneralName::URI(have) | GeneralName::DNSName(have) => *have == name,
        _ => false,
    })
}

fn random_serial() -> [u8; 16] {
    let mut serial = random::bytes::<16>();
    // A serial is a positive integer without leading zeros (RFC 5280 §4.1.2.2).
    serial[0] = serial[0] & 0x7f | 0x40;
    serial
}

fn read_if_present(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(PkiError::Read { path: path.to_owned(), err }),
    }
}

fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    files::write(path, text.as_bytes()).map_err(|err| PkiError::Write { path: path.to_owned(), err })
}

#[cfg(test)]
mod tests;
