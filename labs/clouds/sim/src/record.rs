//! Requests written down as they came, one line of JSON each: what an official client sent can be sent again.

use std::{fs::File, io::Write as _, time::Duration};

use serde_json::json;

use crate::server::Ask;

pub(crate) struct Recorder {
    pub(crate) file: File,
    /// When the last request came.
    pub(crate) last: Duration,
}

impl Recorder {
    pub(crate) fn write(&mut self, ask: &Ask<'_>, status: u16, now: Duration) {
        let region = ask.headers.get("authorization").and_then(|value| value.to_str().ok());
        let region =
            region.and_then(|text| text.split_once("Credential=")?.1.split('/').nth(2)).unwrap_or_default();
        let waited = now.saturating_sub(self.last).as_secs();
        // What is less than a second counts with the next request.
        self.last += Duration::from_secs(waited);
        let line = json!({
            "after": waited,
            "method": ask.method.as_str(),
            "path": ask.uri.path_and_query().map(ToString::to_string),
            "region": region,
            "anonymous": !ask.headers.contains_key("authorization"),
            "body": String::from_utf8_lossy(ask.body),
            "status": status,
        });
        // A recording is a help; the answer counts.
        let _ = writeln!(self.file, "{line}");
    }
}
