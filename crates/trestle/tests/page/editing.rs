//! Changes made on the page, with the commands that would do the same, and what goes wrong.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use super::{
    browser::Browser,
    harness::{TRESTLE, Up},
    is_clean, login, shop, start, view,
};

#[test]
fn a_rule_is_added_and_deleted() {
    let (up, mut browser) = start();
    up.ok(&["resource", "create", "a.web", "--description", "west"]);
    view(&mut browser, "#/resources");
    browser.click(".row");
    browser.click("text=Add a rule");
    browser.wait("document.querySelector('dialog[open]')");
    browser.fill("input[list=rule-on]", "default.a.web");
    browser.fill("input[list=rule-peers]", "9.9.9.0/24");
    browser.fill("input[pattern*='[0-9]+']", "443");
    browser.sees("trestle rule add default.a.web --in --protocol tcp --port 443 --peer 9.9.9.0/24");
    browser.click("text=Add rule");
    browser.wait("!document.querySelector('dialog[open]')");
    browser.sees("from 9.9.9.0/24 · tcp 443");
    let listed = up.ok(&["rule", "list", "a.web"]);
    assert!(listed.contains("443") && listed.contains("9.9.9.0/24"), "{listed}");
    browser.click(".rules button");
    browser.sees("trestle rule delete default.a.web --rule");
    browser.click("text=Delete rule");
    browser.sees("None: nobody may talk to it.");
    assert!(!up.ok(&["rule", "list", "a.web"]).contains("443"));
    is_clean(&up, &mut browser);
}

#[test]
fn what_the_controller_refuses_is_shown_in_its_words() {
    let (up, mut browser) = start();
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]);
    up.ok(&["tag", "set", "all", "--children", "db1"]);
    view(&mut browser, "#/tags");
    browser.click("text=Set a tag");
    browser.fill("dialog input", "all");
    browser.choose("dialog select", "group");
    browser.fill("dialog input[placeholder*='db1']", "nobody");
    browser.sees("trestle tag set all --children nobody");
    browser.click("text=Set tag");
    browser.wait("document.querySelector('dialog .trouble code')?.textContent === 'NOT_FOUND'");
    let said = browser.eval("document.querySelector('dialog .trouble p').textContent");
    let (_, expected) = up.fails(&["tag", "set", "all", "--children", "nobody"]);
    assert!(expected.contains(said.as_str().unwrap()), "{said} against {expected}");
    // Mended, it goes through, and the dialog closes.
    browser.fill("dialog input[placeholder*='db1']", "db1, 9.9.9.0/24");
    browser.click("text=Set tag");
    browser.wait("!document.querySelector('dialog[open]')");
    browser.sees("9.9.9.0/24");
    browser.complaints.retain(|complaint| !complaint.contains("404"));
    is_clean(&up, &mut browser);
}

#[test]
fn a_ticket_is_made_and_revoked() {
    let (up, mut browser) = start();
    view(&mut browser, "#/storage");
    browser.click("text=Create a ticket");
    browser.sees("trestle ticket create --limit 10Gi");
    browser.click("text=Create ticket");
    browser.sees("It is shown only now");
    let text = browser.eval("document.querySelector('dialog code').textContent");
    assert!(text.as_str().unwrap().len() > 40, "{text}");
    browser.click("text=Done");
    browser.sees("at most 10 GiB");
    browser.click("text=Revoke");
    browser.click("text=Revoke ticket");
    browser.misses("at most 10 GiB");
    assert!(up.ok(&["ticket", "list"]).contains("revoked"));
    is_clean(&up, &mut browser);
}

#[test]
fn a_host_is_added_and_shown_as_it_comes() {
    let (up, mut browser) = start();
    view(&mut browser, "#/hosts");
    browser.click("text=Add a host");
    browser.fill("dialog input[placeholder='web']", "web");
    browser.sees("trestle token create --join --tag web --for 1h");
    browser.click("text=Make the line");
    browser.sees("Waiting for it");
    let line = browser.eval("document.querySelector('dialog code').textContent");
    let line = line.as_str().unwrap().to_owned();
    assert!(line.starts_with("sudo trestle join https://"), "{line}");
    let (url, token) = (format!("https://{}", up.grpc), line.rsplit(' ').next().unwrap());
    let (etc, data) = (up.path("host").display().to_string(), up.path("agent").display().to_string());
    up.ok(&["join", &url, token, "--name", "page-1", "--etc", &etc, "--data-dir", &data, "--no-service"]);
    browser.sees("Joined: page-1");
    browser.click("text=Done");
    browser.sees("page-1");
    up.ok(&["leave", "--etc", &etc]);
    browser.misses("page-1");
    is_clean(&up, &mut browser);
}

#[test]
fn a_policy_is_written_and_tried_before_it_is_stored() {
    let (up, mut browser) = start();
    shop(&up);
    view(&mut browser, "#/policies");
    browser.click("text=New policy");
    browser.fill("dialog input[placeholder='web-to-db']", "closed");
    browser.fill("dialog .pair label:nth-child(2) input", "shop");
    browser.fill("dialog input[placeholder='app=db']", "app=web");
    browser.click("dialog button[aria-label='Remove this peer']");
    browser.sees("NetworkPolicy shop/closed would be new");
    browser.wait("document.querySelector('dialog .reach .less')?.textContent.includes('shop/web')");
    browser.wait("document.querySelector('dialog code').textContent.includes('trestle apply -f -')");
    up.fails(&["get", "NetworkPolicy", "closed", "-n", "shop"]);
    browser.click("text=Store it");
    browser.wait("!document.querySelector('dialog[open]')");
    browser.sees("NetworkPolicy shop/closed: created");
    assert!(up.ok(&["get", "NetworkPolicy", "closed", "-n", "shop", "-o", "yaml"]).contains("app: web"));
    // What it says is there to be read and changed; what is wrong with a change is told as it is typed.
    view(&mut browser, "#/policies?open=NetworkPolicy%2Fshop%2Fclosed");
    browser.sees("What it says");
    browser.click("text=Change");
    browser.wait("document.querySelector('dialog textarea')?.value.includes('app: web')");
    let text = browser.eval("document.querySelector('dialog textarea').value");
    let text = text.as_str().unwrap();
    browser.fill("dialog textarea", &text.replace("policyTypes", "policyTyps"));
    browser.wait("document.querySelector('dialog .trouble')?.textContent.includes('policyTyps')");
    assert_eq!(browser.eval("document.querySelector('dialog footer .primary').disabled"), true);
    // What may stand at the cursor is offered, and taken as it is written.
    let begun =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: closed\nspec:\n  podS";
    browser.fill("dialog textarea", begun);
    browser.click("dialog .offers button");
    browser.wait("document.querySelector('dialog textarea').value.endsWith('spec:\\n  podSelector:\\n    ')");
    browser.fill("dialog textarea", &text.replace("app: web", "app: nobody"));
    browser.wait(
        "document.querySelector('dialog .reach .more') && document.querySelector('dialog .difference')",
    );
    browser.click("text=Store it");
    browser.wait("!document.querySelector('dialog[open]')");
    browser.click("text=Delete");
    browser.sees("trestle delete NetworkPolicy closed -n shop");
    browser.click("text=Delete policy");
    browser.sees("closed is deleted");
    up.fails(&["get", "NetworkPolicy", "closed", "-n", "shop"]);
    browser.complaints.retain(|complaint| !complaint.contains("400"));
    is_clean(&up, &mut browser);
}

#[test]
fn a_permission_is_given_seen_and_taken_back() {
    let (up, mut browser) = start();
    up.ok(&["tag", "set", "web", "--ip", "10.0.0.1"]);
    up.ok(&["tag", "set", "db", "--ip", "10.0.0.2"]);
    view(&mut browser, "#/permissions");
    browser.sees("Nothing is allowed yet");
    up.ok(&["allow", "web", "db", "--port", "5432", "--yes"]);
    browser.sees("tag:web");
    let listed = up.ok(&["allow", "list", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let name = listed[0]["name"].as_str().unwrap().to_owned();
    view(&mut browser, &format!("#/permissions?open={name}"));
    browser.sees("trestle deny");
    browser.click("text=Take back");
    browser.click("text=Take it back");
    browser.sees("Nothing is allowed yet");
    assert_eq!(up.ok(&["allow", "list", "-o", "json"]), "[]\n");
    is_clean(&up, &mut browser);
}

/// A cloud whose plugin has gone lets a job wait; on the page it is cancelled.
#[test]
fn a_job_is_cancelled() {
    let mut plugin = Command::new(TRESTLE)
        .args(["plugin", "fake", "--name", "far", "--listen", "127.0.0.1:0", "--plaintext-loopback"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(plugin.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    let up = Up::start(&["--cloud", &format!("far=http://{address}")]);
    up.ok(&["resource", "create", "far.a", "--description", "west"]);
    up.ok(&["resource", "create", "far.b", "--description", "west"]);
    plugin.kill().unwrap();
    plugin.wait().unwrap();
    let detached = up.ok(&["rule", "add", "far.a", "--ping", "far.b", "--detach"]);
    let id = detached.trim().strip_prefix("Job: ").unwrap();
    let mut browser = Browser::start();
    login(&up, &mut browser);
    view(&mut browser, &format!("#/jobs?open={id}"));
    browser.sees("running");
    browser.click("text=Cancel the job");
    browser.sees(&format!("trestle job cancel {id}"));
    browser.click("text=Cancel job");
    browser.sees("The job is cancelled");
    browser.misses("Cancel the job");
    let job = up.ok(&["job", "get", id]);
    assert!(!job.contains("running"), "{job}");
    is_clean(&up, &mut browser);
}

#[test]
fn the_keyboard_is_enough() {
    let (up, mut browser) = start();
    for n in 0..5 {
        up.ok(&["tag", "set", &format!("t{n}"), "--ip", &format!("10.0.0.{n}")]);
    }
    view(&mut browser, "#/tags");
    browser.sees("t4");
    // The first stop is the way past the navigation.
    browser.eval("document.body.focus(); document.activeElement.blur()");
    browser.key("Tab");
    assert_eq!(browser.eval("document.activeElement.textContent"), "Skip to content");
    browser.key("Enter");
    assert_eq!(browser.eval("document.activeElement.id"), "content");
    browser.eval("document.querySelector('.body').focus()");
    browser.key("ArrowDown");
    browser.key("ArrowDown");
    browser.key("Enter");
    browser.wait("document.querySelector('.drawer h2')?.textContent === 't2'");
    assert_eq!(browser.eval("document.activeElement.textContent"), "t2");
    browser.key("Escape");
    browser.wait("!document.querySelector('.drawer')");
    // Everything that can be pressed says what it is.
    let nameless = browser.eval(
        "[...document.querySelectorAll('button, a, input, select')].filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)",
    );
    assert_eq!(nameless, serde_json::json!([]));
    is_clean(&up, &mut browser);
}
