//! For fuzz targets only: what they need and nobody else may have.

use rustls::pki_types::CertificateDer;
use storage_provider::ConsumerId;

use crate::Vault;

/// The consumer a certificate names.
pub fn consumer_of(der: &[u8]) -> Option<ConsumerId> {
    crate::identity::consumer_of(&CertificateDer::from(der))
}

/// A volume for a consumer that nobody has granted anything.
pub fn make_volume(vault: &Vault, consumer: ConsumerId, name: &str, bytes: u64) {
    vault.ensure(consumer, bytes, false).expect("an empty vault has room");
    let tenant = vault.tenant(consumer).expect("it was made a moment ago");
    tenant.ensure_volume(name, bytes, false).expect("it fits the limit");
}
