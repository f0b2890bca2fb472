//! What was asked and answered, without secrets: one line of JSON per exchange.

use std::{fs::File, io::Write as _, path::Path};

use parking_lot::Mutex;
use serde::Serialize;

use crate::{Reply, Request};

/// One request and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Exchange {
    pub operation: String,
    pub method: String,
    pub url: String,
    pub body: String,
    /// 0 if no answer came.
    pub status: u16,
    pub reply: String,
}

impl Exchange {
    pub(crate) fn new(request: &Request, reply: Option<&Reply>) -> Self {
        // Azure has a resource that is nothing but a key, under a name that says nothing.
        let is_key = request.url.to_ascii_lowercase().contains("/sharedkey");
        let shown = |text: &str| match is_key {
            true => cut(&redact(text), "\"value\":\"", &["\""]),
            false => redact(text),
        };
        Self {
            operation: request.operation.clone(),
            method: request.method.to_string(),
            url: redact(&request.url),
            body: shown(&String::from_utf8_lossy(&request.body)),
            status: reply.map_or(0, |reply| reply.status),
            reply: reply.map(|reply| shown(&reply.text())).unwrap_or_default(),
        }
    }
}

/// Hears of every exchange.
pub trait Recorder: Send + Sync {
    fn record(&self, exchange: Exchange);
}

/// Appends to a file.
pub struct FileRecorder(Mutex<File>);

impl FileRecorder {
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Mutex::new(File::options().append(true).create(true).open(path)?)))
    }
}

impl Recorder for FileRecorder {
    fn record(&self, exchange: Exchange) {
        // A recording is a help, not a promise: the cloud was asked, and that counts.
        if let Ok(mut line) = serde_json::to_vec(&exchange) {
            line.push(b'\n');
            let _ = self.0.lock().write_all(&line);
        }
    }
}

/// Names whose values are secrets, in forms, JSON and XML of all clouds.
const SECRETS: [&str; 16] = [
    "sharedKey",
    "sharedSecret",
    "sharedSecretHash",
    "psk",
    "PreSharedKey",
    "preSharedKey",
    "customerGatewayConfiguration",
    "client_secret",
    "client_assertion",
    "assertion",
    "apikey",
    "adminPassword",
    "access_token",
    "refresh_token",
    "SecretAccessKey",
    "SessionToken",
];

/// Replaces the values of secrets in a form, a JSON text or an XML text.
pub fn redact(text: &str) -> String {
    let mut text = text.to_owned();
    for secret in SECRETS {
        text = cut(&text, &format!("{secret}="), &["&"]);
        text = cut(&text, &format!("\"{secret}\":\""), &["\""]);
        text = cut(&text, &format!("\"{secret}\": \""), &["\""]);
        text = cut(&text, &format!("<{secret}>"), &["</"]);
    }
    text
}

fn cut(text: &str, start: &str, ends: &[&str]) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(found) = rest.find(start) {
        let (before, after) = rest.split_at(found + start.len());
        let end = ends.iter().filter_map(|end| after.find(end)).min().unwrap_or(after.len());
        out.push_str(before);
        out.push('…');
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_recorded() {
        for text in [
            "Options.TunnelOptions.1.PreSharedKey=hunter2&Version=1",
            r#"{"sharedSecret":"hunter2","name":"x"}"#,
            r#"{"a":1,"psk": "hunter2"}"#,
            "<preSharedKey>hunter2</preSharedKey><a>hunt</a>",
            "apikey=hunter2",
        ] {
            let shown = redact(text);
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(redact("a=b&psk=x&c=d&psk=y"), "a=b&psk=…&c=d&psk=…");
        assert_eq!(redact(r#"{"name":"x"}"#), r#"{"name":"x"}"#);
    }
}
