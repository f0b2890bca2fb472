//! A real Chromium without a window, driven over a pipe by its debugging protocol.
//!
//! Standard input and output of a shell become descriptors 3 and 4 of the browser, where it speaks JSON messages that
//! end in a zero byte. Everything the page complains of, and every address it asks for, is kept to be looked at.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    last: u64,
    session: String,
    /// Complaints of the page: exceptions, console errors, what the content policy blocked.
    pub complaints: Vec<String>,
    /// Every address the page asked for.
    pub requests: Vec<String>,
    dir: TempDir,
}

impl Browser {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars \
            --disable-background-networking --disable-component-update --disable-sync --ignore-certificate-errors \
            --remote-debugging-pipe";
        // Nothing but this machine can be reached, whatever the page tries.
        let rules = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1";
        let script = format!(
            "exec chromium {flags} --host-resolver-rules='{rules}' --user-data-dir=\"$1\" about:blank 3<&0 4>&1 >/dev/null"
        );
        let mut child = Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take(), child.stdout.take().unwrap());
        let (tx, from) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if tx.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            from,
            last: 0,
            session: String::new(),
            complaints: Vec::new(),
            requests: Vec::new(),
            dir,
        };
        let targets = browser.call("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|one| one["type"] == "page");
        let page =
            page.expect("chromium has a page; is it installed (apt-get install chromium)?")["targetId"]
                .clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": page, "flatten": true }));
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.size(1280, 800, 1.0);
        browser
    }

    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        let sent = self.to.as_mut().unwrap().write_all(&bytes);
        sent.expect("chromium takes commands; is it installed (apt-get install chromium)?");
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left);
            let message = message.unwrap_or_else(|_| {
                panic!("chromium did not answer {method}; is it installed (apt-get install chromium)?")
            });
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.complaints.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if params["type"] == "error" || params["type"] == "warning" => {
                self.complaints.push(params["args"].to_string());
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    pub fn size(&mut self, width: u32, height: u32, scale: f64) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub fn dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.eval(&format!("Boolean({expression})")) != true {
            if Instant::now() > end {
                let text = self.eval("document.body.innerText");
                panic!(
                    "never true: {expression}\ncomplaints: {:?}\npage:\n{}",
                    self.complaints,
                    text.as_str().unwrap_or_default()
                );
            }
            thread::sleep(Duration::from_millis(25));
        }
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        self.wait(&format!("document.body?.innerText.includes({})", json!(text)));
    }

    /// Waits until it does not.
    #[track_caller]
    pub fn misses(&mut self, text: &str) {
        self.wait(&format!("!document.body?.innerText.includes({})", json!(text)));
    }

    /// Clicks the middle of an element with the mouse. `text=…` finds a button or link by its text.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let find = finder(selector);
        // There, and in sight: a dialog is in the document before it is shown.
        self.wait(&format!("{find}?.getClientRects().length"));
        let at = self.eval(&format!(
            "(() => {{ const e = {find}; e.scrollIntoView({{ block: 'center', inline: 'center' }}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Puts the focus on a field, empties it, and types.
    #[track_caller]
    pub fn fill(&mut self, selector: &str, text: &str) {
        let find = finder(selector);
        self.wait(&format!("{find}?.getClientRects().length"));
        self.eval(&format!("(() => {{ const e = {find}; e.focus(); e.select?.(); }})()"));
        self.call("Input.insertText", json!({ "text": text }));
        self.eval(&format!("{find}.dispatchEvent(new Event('change', {{ bubbles: true }}))"));
    }

    pub fn choose(&mut self, selector: &str, value: &str) {
        let find = finder(selector);
        self.wait(&find);
        self.eval(&format!(
            "(() => {{ const e = {find}; e.value = {}; e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()",
            json!(value)
        ));
    }

    pub fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            " " => " ",
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "End" => 35,
            " " => 32,
            _ => 0,
        };
        let down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", down);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Lets animations end, then takes a picture of the window.
    pub fn picture(&mut self, path: &Path) {
        thread::sleep(Duration::from_millis(1100));
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = decode(shot["data"].as_str().unwrap());
        std::fs::write(path, bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A closed pipe ends it, with its children; the shell became the browser, so there is one process to wait for.
        self.to.take();
        let end = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.dir.path();
    }
}

/// An expression that finds an element.
fn finder(selector: &str) -> String {
    match selector.strip_prefix("text=") {
        Some(text) => format!(
            "[...document.querySelectorAll('dialog[open] button, dialog[open] a')].concat([...document.querySelectorAll('button, a')])\
             .find((e) => e.textContent.trim() === {})",
            json!(text)
        ),
        None => format!("document.querySelector({})", json!(selector)),
    }
}

/// Base64, as the protocol carries pictures.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().fold(0, |bits, byte| bits << 6 | value(*byte)) << (6 * (4 - chunk.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}
