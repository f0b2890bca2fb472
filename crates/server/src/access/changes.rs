//! What calls changed among tokens and certificates, for the record. Of secrets not even hashes are in it.

use model::change::Change;
use serde_json::Value;

use super::{CertificateRecord, TokenRecord};

/// A token was made or revoked; sessions are tokens.
pub fn token(id: &str, before: Option<&TokenRecord>, after: Option<&TokenRecord>) -> Change {
    let shown = |record: &TokenRecord| {
        let mut shown = serde_json::to_value(record).unwrap_or_default();
        if let Value::Object(fields) = &mut shown {
            fields.remove("hash");
        }
        shown
    };
    let session = before.or(after).is_some_and(|record| record.session);
    let kind = if session { "session" } else { "token" };
    Change::between(format!("{kind} {id}"), before.map(shown).as_ref(), after.map(shown).as_ref())
}

/// A certificate was issued or revoked.
pub fn certificate(
    serial: &str,
    before: Option<&CertificateRecord>,
    after: Option<&CertificateRecord>,
) -> Change {
    let shown = |record: &CertificateRecord| serde_json::to_value(record).unwrap_or_default();
    Change::between(format!("certificate {serial}"), before.map(shown).as_ref(), after.map(shown).as_ref())
}
