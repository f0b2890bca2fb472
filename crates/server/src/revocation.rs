//! Ends the streams of nodes whose certificate or token was revoked or has expired.

use std::time::Duration;

use ::transport::{End, Hub};
use jiff::Timestamp;

use crate::access::{Credential, Credentials};

/// Certificates also end by the clock.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

/// Looks whenever credentials change, and now and then.
pub async fn end_revoked(hub: &Hub, credentials: &Credentials) {
    let [mut tokens, mut certificates] = credentials.changes();
    loop {
        // Whether credentials changed or time went by: all are looked at in the same way.
        tokio::select! {
            _ = tokens.changed() => {}
            _ = certificates.changed() => {}
            () = tokio::time::sleep(EXPIRY_CHECK) => {}
        }
        let now = Timestamp::now();
        hub.end_where(|session| {
            let credential = Credential::parse(session.credential.as_deref()?)?;
            let what = match &credential {
                Credential::Token(_) => "token",
                Credential::Certificate(_) => "certificate",
            };
            let end = || End { code: 16, message: format!("the node's {what} was revoked or has expired") };
            (!credentials.is_usable(&credential, now)).then(end)
        });
    }
}
