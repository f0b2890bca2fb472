//! AWS Signature Version 4. Pure.

use aws_lc_rs::{digest, hmac};

use crate::{Request, encode_component};

/// What a signature is made with.
pub(super) struct Context<'c> {
    pub access_key: &'c str,
    pub secret_key: &'c str,
    pub session_token: Option<&'c str>,
    pub region: &'c str,
    pub service: &'c str,
    /// `20150830T123600Z`
    pub time: &'c str,
}

/// Adds the headers `x-amz-date`, `x-amz-security-token` where there is one, and `authorization`.
/// None if the URL cannot be read.
pub(super) fn sign(request: &mut Request, context: &Context<'_>) -> Option<()> {
    let uri: http::Uri = request.url.parse().ok()?;
    let host = uri.authority()?.as_str().to_owned();
    request.header(http::HeaderName::from_static("x-amz-date"), context.time);
    if let Some(token) = context.session_token {
        request.header(http::HeaderName::from_static("x-amz-security-token"), token);
    }
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.trim().to_owned())))
        .chain([("host".to_owned(), host)])
        .collect();
    headers.sort();
    let signed = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{signed}\n{}",
        request.method,
        uri.path(),
        canonical_query(uri.query().unwrap_or_default()),
        hex(digest::digest(&digest::SHA256, &request.body).as_ref())
    );
    let day = context.time.get(..8)?;
    let scope = format!("{day}/{}/{}/aws4_request", context.region, context.service);
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hashed}", context.time);
    let mut key = format!("AWS4{}", context.secret_key).into_bytes();
    for part in [day, context.region, context.service, "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hex(&mac(&key, &to_sign));
    let credential = format!("{}/{scope}", context.access_key);
    let value =
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}");
    request.header(http::header::AUTHORIZATION, &value);
    Some(())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sorted, as already encoded.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&")
}

/// The time of a signature.
pub(super) fn stamp(unix: std::time::Duration) -> String {
    let at = jiff::Timestamp::from_second(i64::try_from(unix.as_secs()).unwrap_or_default());
    at.unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// A role's session name must be short and plain.
pub(super) fn plain(text: &str) -> String {
    encode_component(text)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const CONTEXT: Context<'static> = Context {
        access_key: "AKIDEXAMPLE",
        secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        session_token: None,
        region: "us-east-1",
        service: "service",
        time: "20150830T123600Z",
    };

    fn signature(mut request: Request) -> String {
        sign(&mut request, &CONTEXT).unwrap();
        let value = request.headers["authorization"].to_str().unwrap();
        value.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    /// Three of the cases that AWS publishes.
    #[test]
    fn known_signatures_hold() {
        let get = Request::new("x", Method::GET, "https://example.amazonaws.com/");
        assert_eq!(signature(get), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        let query =
            Request::new("x", Method::GET, "https://example.amazonaws.com/?Param2=value2&Param1=value1");
        assert_eq!(signature(query), "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
        let post = Request::new("x", Method::POST, "https://example.amazonaws.com/");
        assert_eq!(signature(post), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    }

    #[test]
    fn the_time_of_a_signature_is_written_as_aws_wants_it() {
        assert_eq!(stamp(std::time::Duration::from_secs(1_440_938_160)), "20150830T123600Z");
    }
}
