//! For fuzz targets only: what strangers say of themselves, without a connection.

use model::Grant;
use serde_json::{Map, Value};

use crate::access::join::identity::{Identities, IdentityConfig, Message};

/// Whether a statement about a machine admits it.
pub async fn is_admitted(identities: &Identities, provider: &str, statement: &str, now: i64) -> bool {
    identities.admit(provider, statement, "", now).await.is_ok()
}

/// What claims come to that were signed rightly.
pub fn judged(identity: &IdentityConfig, claims: &Map<String, Value>) -> Option<Grant> {
    identity.judge(claims).map(|(grant, _)| grant)
}

/// What a signed document says, if the owner of an RSA key (PKCS #1, in DER) has signed it.
pub fn signed_content(document: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let message = Message::read(document)?;
    message.is_signed_by(key).then_some(message.content)
}
