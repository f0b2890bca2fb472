//! The page, in a real browser against a real controller.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod access;
mod browser;
mod editing;
#[path = "../harness/mod.rs"]
mod harness;
mod living;
mod pictures;
mod scale;
mod security;

use std::{fs, path::Path};

use browser::Browser;
use harness::Up;

/// A controller with two clouds in memory, and a browser that is logged in to it.
fn start() -> (Up, Browser) {
    let up = Up::start(&["--cloud", "a=fake", "--cloud", "b=fake"]);
    let mut browser = Browser::start();
    login(&up, &mut browser);
    (up, browser)
}

fn login(up: &Up, browser: &mut Browser) {
    let link = up.ok(&["page"]);
    browser.open(link.trim());
    browser.wait("document.querySelector('.connection.live') || document.querySelector('h1')?.textContent.includes('not in this binary')");
    let built = browser.eval("document.querySelector('#app') !== null");
    assert_eq!(
        built, true,
        "this binary has no page: run `make page` (needs nodejs and npm) and build again"
    );
}

/// The example that the README applies.
fn shop(up: &Up) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/shop.yaml");
    fs::copy(example, up.path("shop.yaml")).unwrap();
    up.ok(&["apply", "-f", "shop.yaml"]);
}

fn view(browser: &mut Browser, hash: &str) {
    browser.eval(&format!("location.hash = {}", serde_json::json!(hash)));
}

/// Nothing was complained of, and nothing was asked of anybody but the controller.
#[track_caller]
fn is_clean(up: &Up, browser: &mut Browser) {
    // What is still on its way comes before the answer to this.
    browser.eval("1");
    assert_eq!(browser.complaints, Vec::<String>::new(), "the page complains");
    let own = format!("https://{}/", up.http);
    let strange: Vec<_> =
        browser.requests.iter().filter(|url| !url.starts_with(&own) && *url != "about:blank").collect();
    assert_eq!(strange, Vec::<&String>::new(), "the page asks elsewhere");
}
