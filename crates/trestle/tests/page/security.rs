//! Who gets in, who does not, and what a browser is told.

use std::process::Command;

use super::{browser::Browser, harness::Up, login, start};

#[test]
fn a_login_link_works_once_leaves_no_trace_and_a_session_can_be_ended() {
    let up = Up::start(&[]);
    let link = up.ok(&["page"]);
    let mut browser = Browser::start();
    browser.open(link.trim());
    browser.wait("document.querySelector('.connection.live')");
    assert!(!browser.eval("location.href").as_str().unwrap().contains("login"), "the code left the address");
    assert_eq!(browser.eval("document.cookie"), "", "scripts cannot read the session");
    assert_eq!(
        browser.eval("[...Array(localStorage.length).keys()].map((n) => localStorage.key(n))"),
        serde_json::json!([])
    );
    browser.sees("admin");
    // Nobody else gets in with the same link.
    let mut second = Browser::start();
    second.open(link.trim());
    second.sees("was used already");
    second.sees("trestle page");
    // A token is as good.
    let token = std::fs::read_to_string(up.path("data/admin.token")).unwrap();
    second.fill("input[name=token]", "trestle-no-such");
    second.click("text=Log in");
    second.sees("not known");
    second.fill("input[name=token]", token.trim());
    second.click("text=Log in");
    second.wait("document.querySelector('.connection.live')");
    // The session ends here, and is no longer on record.
    assert_eq!(sessions(&up).len(), 2);
    second.click("text=Log out");
    second.sees("paste a token");
    // One that is revoked elsewhere is shown out.
    let left = sessions(&up);
    assert_eq!(left.len(), 1);
    up.ok(&["token", "revoke", &left[0]]);
    browser.wait("document.querySelector('.login')");
}

fn sessions(up: &Up) -> Vec<String> {
    let tokens: serde_json::Value = serde_json::from_str(&up.ok(&["token", "list", "-o", "json"])).unwrap();
    let sessions = tokens.as_array().unwrap().iter().filter(|token| token["kind"] == "session");
    sessions.map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_viewer_sees_and_changes_nothing() {
    let up = Up::start(&["--cloud", "a=fake"]);
    let made = up.ok(&["token", "create", "guest", "--role", "viewer", "-o", "json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    std::fs::write(up.path("guest"), made["secret"].as_str().unwrap()).unwrap();
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]);
    let mut browser = Browser::start();
    browser.open(up.ok(&["page", "--token-file", "guest"]).trim());
    browser.wait("document.querySelector('.connection.live')");
    super::view(&mut browser, "#/tags");
    browser.sees("10.0.0.5");
    assert_eq!(browser.eval("document.querySelectorAll('main button.primary').length"), 0);
    let refused = browser.eval(
        "fetch('/tags/x/applyMembers', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{\"ip\":\"10.0.0.1\"}' }).then((r) => r.status)",
    );
    assert_eq!(refused, 403);
    super::view(&mut browser, "#/audit");
    browser.sees("For administrators");
}

#[test]
fn a_cookie_is_worth_nothing_to_other_pages() {
    let (up, mut browser) = start();
    let cookies = browser.call("Network.getAllCookies", serde_json::json!({}));
    let cookie = &cookies["cookies"][0];
    assert_eq!(
        (&cookie["httpOnly"], &cookie["secure"], &cookie["sameSite"]),
        (&true.into(), &true.into(), &"Strict".into())
    );
    let pair = format!("cookie: {}={}", cookie["name"].as_str().unwrap(), cookie["value"].as_str().unwrap());
    let ask = |site: Option<&str>, extra: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-k", "-H", &pair]);
        if let Some(site) = site {
            curl.args(["-H", &format!("sec-fetch-site: {site}")]);
        }
        let output = curl.args(extra).arg(format!("https://{}/tags", up.http)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(Some("same-origin"), &[]), "200");
    for site in [Some("same-site"), Some("cross-site"), Some("none"), None] {
        assert_eq!(ask(site, &[]), "401", "{site:?}");
    }
    // A session is no bearer token.
    let bearer = format!("authorization: Bearer {}", cookie["value"].as_str().unwrap());
    assert_eq!(ask(None, &["-H", &bearer]), "401");
}

#[test]
fn browsers_are_told_to_trust_nothing_but_this_page() {
    let up = Up::start(&[]);
    for path in ["/", "/page/app.js", "/tags", "/nowhere"] {
        let url = format!("https://{}{path}", up.http);
        let output =
            Command::new("curl").args(["-s", "-k", "-D", "-", "-o", "/dev/null", &url]).output().unwrap();
        let headers = String::from_utf8(output.stdout).unwrap().to_lowercase();
        for header in [
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "nosniff",
            "no-referrer",
        ] {
            assert!(headers.contains(header), "{path} lacks {header}: {headers}");
        }
        assert!(headers.contains("cache-control: no-"), "{headers}");
    }
    let mut browser = Browser::start();
    login(&up, &mut browser);
    let blocked = browser.eval(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } })()",
    );
    assert_eq!(blocked, true, "markup cannot be written into the page");
}
