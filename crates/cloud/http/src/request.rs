//! A request and its reply.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Whether a request changes something; reads and writes have their own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// What may be done when nobody knows whether a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It can be sent again: a read, or a change under a fixed name.
    Safe,
    /// Sent twice it would happen twice. Whoever asked must look first.
    LookFirst,
}

#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked, as the cloud's permissions call it: `ec2:DescribeVpcs`, `compute.networks.insert`.
    pub operation: String,
    /// Whose limits count: a region, a project.
    pub scope: String,
    pub method: Method,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub access: Access,
    pub repeat: Repeat,
}

impl Request {
    pub fn new(operation: impl Into<String>, method: Method, url: impl Into<String>) -> Self {
        let access = if method == Method::GET { Access::Read } else { Access::Write };
        let repeat = if method == Method::POST { Repeat::LookFirst } else { Repeat::Safe };
        Self {
            operation: operation.into(),
            scope: String::new(),
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            access,
            repeat,
        }
    }

    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    #[must_use]
    pub fn safe(mut self) -> Self {
        self.repeat = Repeat::Safe;
        self
    }

    #[must_use]
    pub fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.header(http::header::CONTENT_TYPE, content_type);
        self.body = body.into();
        self
    }

    /// Sets a header; a value that cannot be in one is left out, and the cloud then says what is missing.
    pub fn header(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn is_json(&self) -> bool {
        serde_json::from_slice::<serde::de::IgnoredAny>(&self.body).is_ok()
    }

    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes all but RFC 3986's unreserved characters, as AWS signs them.
pub fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// A form or query: `a=b&c=d`.
pub fn form<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> String {
    let pairs = pairs.into_iter().map(|(key, value)| {
        format!("{}={}", encode_component(key.as_ref()), encode_component(value.as_ref()))
    });
    pairs.collect::<Vec<_>>().join("&")
}
