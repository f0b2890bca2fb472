//! Ends the sessions of nodes whose certificate or token is not good any more, so that it is known of each why it ended.

use ::transport::{End, Hub};
use jiff::Timestamp;

use crate::access::{Credential, Credentials};

/// Ends those whose credential is not good at `now`.
pub fn end_sessions(hub: &Hub, credentials: &Credentials, now: Timestamp) {
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
