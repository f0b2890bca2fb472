//! Sessions of browsers, and the one-time codes that begin them.
//!
//! ```text
//!   trestle page ─ CreateLogin ─► code (once, short) ─► page ─ POST /session ─► cookie = a token that ends by itself
//! ```
//!
//! A code stands in the fragment of a link, which browsers send to nobody; the page trades it for a cookie that scripts
//! cannot read. A session is a token of the store, so that it works at every controller, is listed with the others, and
//! can be revoked. A cookie counts only if the browser says that the page itself makes the request: ports of one host
//! share cookies, and `SameSite` does not tell them apart.

use std::time::Duration;

use aws_lc_rs::constant_time;
use axum::{
    extract::Request,
    http::{HeaderMap, Uri, header},
};
use drivers::random;
use jiff::Timestamp;
use model::{Secret, Subject};
use serde::{Deserialize, Serialize};
use store::{TransactError, Transaction};
use tonic::Code;

use super::{
    Credential,
    credentials::{Credentials, CredentialsError, NewToken, hash, json, key},
    issue::after,
};
use crate::failure::Failure;

/// How long a session lasts.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// How long a login link can be used.
pub const LOGIN: Duration = Duration::from_secs(600);
/// Login links of one credential that nobody has used yet, and its sessions: of these the oldest goes.
const MAX_LOGINS: usize = 64;
pub(super) const MAX_SESSIONS: usize = 64;

/// A code as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LoginRecord {
    subject: Subject,
    hash: String,
    pub(super) expires_at: Timestamp,
    /// What it was made with, which the session shall not outlive: a credential's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

impl Credentials {
    /// Makes a code that lets whoever has it begin one session as `subject`, for as long as `parent` is good.
    pub async fn create_login(
        &self,
        subject: Subject,
        parent: Option<&Credential>,
    ) -> Result<Secret, CredentialsError> {
        let (id, secret) = (common::hex(&random::bytes::<8>()), common::hex(&random::bytes::<16>()));
        let expires_at = after(Timestamp::now(), LOGIN)?;
        let parent = parent.map(|parent| self.root(parent).to_string());
        if parent.is_some() && self.open_logins(parent.as_deref()).await? >= MAX_LOGINS {
            return Err(CredentialsError::Logins);
        }
        let record = LoginRecord { subject, hash: hash(&secret), expires_at, parent };
        let key = key("logins", &id).expect("hexadecimal is a legal key");
        let transaction = Transaction::new().expect_absent(key.clone()).put(key, json(&record));
        self.store().transact(transaction).await.map_err(CredentialsError::Write)?;
        Ok(Secret::new(format!("{id}-{secret}")))
    }

    /// How many codes of one credential nobody has used yet.
    async fn open_logins(&self, parent: Option<&str>) -> Result<usize, CredentialsError> {
        let (logins, now) = (self.stored::<LoginRecord>("logins").await?, Timestamp::now());
        let is_open = |login: &LoginRecord| login.parent.as_deref() == parent && now < login.expires_at;
        Ok(logins.iter().filter(|(_, login)| is_open(login)).count())
    }

    /// Trades a code for a session. A code works once, at whichever controller it is shown first. `proven` hears whose it
    /// is before it is used up, and may still refuse.
    pub async fn redeem_login(
        &self,
        code: &Secret,
        proven: impl FnOnce(&Subject) -> Result<(), Failure>,
    ) -> Result<(Subject, NewToken), Failure> {
        let unknown = || {
            let text = "the login link was used already, or has expired; make a new one with `trestle page`";
            Failure::new(Code::Unauthenticated, text)
        };
        let (id, secret) = code.expose().split_once('-').ok_or_else(unknown)?;
        let key = key("logins", id).ok_or_else(unknown)?;
        let Some((record, at)) = self.read::<LoginRecord>(&key).await? else { return Err(unknown()) };
        constant_time::verify_slices_are_equal(hash(secret).as_bytes(), record.hash.as_bytes())
            .map_err(|_| unknown())?;
        let parent = record.parent.as_deref().map(|parent| Credential::parse(parent).ok_or_else(unknown));
        let parent = parent.transpose()?;
        if parent.as_ref().is_some_and(|parent| !self.is_usable(parent, Timestamp::now())) {
            return Err(unknown());
        }
        proven(&record.subject)?;
        let used = Transaction::new().expect_modified_at(key.clone(), at).delete(key);
        match self.store().transact(used).await {
            Ok(_) if Timestamp::now() < record.expires_at => {}
            Ok(_) | Err(TransactError::Conflict { .. }) => return Err(unknown()),
            Err(err) => return Err(CredentialsError::Write(err).into()),
        }
        let session = self.create_session(record.subject.clone(), parent.as_ref()).await?;
        Ok((record.subject, session))
    }
}

/// Whether the request is made by the page itself, as the browser says. Browsers set this header, pages cannot.
fn is_own(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes() == b"same-origin")
}

/// The session cookie of a request that the page itself makes.
pub fn cookie(request: &Request, secure: bool) -> Option<Secret> {
    if !is_own(request.headers()) {
        return None;
    }
    let name = cookie_name(request.headers(), request.uri(), secure);
    let cookies = request.headers().get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| Secret::new(value))
}

/// Several controllers of one host have one cookie each. `__Host-`: only ever set by this host, over TLS.
pub fn cookie_name(headers: &HeaderMap, uri: &Uri, secure: bool) -> String {
    let authority = uri.authority().map(ToString::to_string);
    let authority = authority.or_else(|| Some(headers.get(header::HOST)?.to_str().ok()?.to_owned()));
    let port = authority.as_deref().and_then(|text| text.rsplit_once(':')?.1.parse::<u16>().ok());
    format!("{}trestle-{}", if secure { "__Host-" } else { "" }, port.unwrap_or(0))
}

/// Whether a caller without credentials may be taken for somebody: not on behalf of a page from elsewhere, nor through
/// a name that somebody else's resolver says is this machine.
pub fn may_be_anonymous(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return false;
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = request.uri().authority().map(|authority| authority.as_str()).or(host) else {
        return true;
    };
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request {
        let builder =
            headers.iter().fold(Request::get("/tags"), |builder, (key, value)| builder.header(*key, *value));
        builder.body(Body::empty()).unwrap()
    }

    #[test]
    fn a_cookie_counts_only_for_requests_of_the_page_itself() {
        let cookies = ("cookie", "a=b; __Host-trestle-8080=secret; __Host-trestle-9090=other");
        let host = ("host", "127.0.0.1:8080");
        let found = |site| {
            let request = request(&[cookies, host, ("sec-fetch-site", site)]);
            cookie(&request, true).map(|secret| secret.expose().to_owned())
        };
        assert_eq!(found("same-origin").as_deref(), Some("secret"));
        for site in ["same-site", "cross-site", "none", ""] {
            assert_eq!(found(site), None, "{site}");
        }
        assert!(cookie(&request(&[cookies, host]), true).is_none());
        assert!(cookie(&request(&[cookies, host, ("sec-fetch-site", "same-origin")]), false).is_none());
    }

    #[test]
    fn nobody_is_anonymous_on_behalf_of_another_page() {
        let may = |headers: &[(&str, &str)]| may_be_anonymous(&request(headers));
        assert!(may(&[]) && may(&[("host", "127.0.0.1:8080")]) && may(&[("host", "[::1]:8080")]));
        assert!(may(&[("host", "localhost:1"), ("sec-fetch-site", "same-origin")]));
        assert!(!may(&[("host", "localhost:1"), ("sec-fetch-site", "cross-site")]));
        assert!(!may(&[("host", "localhost:1"), ("sec-fetch-site", "same-site")]));
        assert!(!may(&[("host", "rebound.example:8080"), ("sec-fetch-site", "same-origin")]));
        assert!(!may(&[("host", "192.0.2.1:8080")]));
    }
}
