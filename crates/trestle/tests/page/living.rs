//! Views show what is, and follow along.

use super::{is_clean, shop, start, view};

#[test]
fn every_view_loads_and_says_what_to_do_when_there_is_nothing() {
    let (up, mut browser) = start();
    browser.sees("Nothing is guarded yet");
    browser.sees("Everything that reports is as it should be");
    for (name, text) in [
        ("overview", "Nothing is guarded yet"),
        ("map", "0 workloads in 0 groups and 2 places"),
        ("reachability", "Nothing to compare yet"),
        ("explain", "Ask about a connection"),
        ("resources", "No resources yet"),
        ("tags", "No tags yet"),
        ("policies", "No policies yet"),
        ("services", "No services yet"),
        ("hosts", "No host has joined yet"),
        ("nodes", "No node has connected yet"),
        ("storage", "No cluster uses storage yet"),
        ("flows", "No flows yet"),
        ("jobs", "No jobs yet"),
        ("audit", "trestle.v1.Access/CreateLogin"),
    ] {
        browser.click(&format!("nav a[href='#/{name}']"));
        browser.sees(text);
        let heading =
            browser.eval("document.querySelector('h1').textContent").as_str().unwrap().to_lowercase();
        assert_eq!(heading, name);
    }
    is_clean(&up, &mut browser);
}

#[test]
fn the_page_follows_changes_and_comes_back_after_a_restart() {
    let (up, mut browser) = start();
    view(&mut browser, "#/tags");
    browser.sees("No tags yet");
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]);
    browser.sees("10.0.0.5");
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.6"]);
    browser.sees("10.0.0.6");
    // What changes while the page looks elsewhere is there when it looks again.
    view(&mut browser, "#/policies");
    browser.sees("No policies yet");
    up.ok(&["tag", "delete", "db1"]);
    shop(&up);
    browser.sees("NetworkPolicy");
    view(&mut browser, "#/tags");
    browser.sees("No tags yet");
    is_clean(&up, &mut browser);
    // Another process with the same data: the session goes on, and so do the news.
    let up = up.restart(&[]);
    browser.wait("document.querySelector('.connection.live')");
    up.ok(&["tag", "set", "db2", "--ip", "10.0.0.7"]);
    browser.sees("10.0.0.7");
}

#[test]
fn the_map_and_the_matrix_show_who_may_talk_to_whom_and_explain_says_why() {
    let (up, mut browser) = start();
    shop(&up);
    view(&mut browser, "#/map?list=1");
    browser.wait("document.querySelector('.sum')?.dataset.groups >= 2 && document.querySelector('.sum').dataset.ways >= 1");
    // The list reads as the map looks: into a namespace, and to a group.
    browser.click(".twist[aria-label='What is in shop']");
    browser.click("text=web");
    browser.wait("location.hash.includes('shop%2Fweb')");
    browser.wait("document.querySelector('.drawer')?.textContent.includes('tcp 5432')");
    view(&mut browser, "#/reachability");
    browser.wait("document.querySelector('td.some')");
    // Down to the endpoints, and to the reason, with the keyboard alone.
    browser.eval("document.querySelector('td.some').focus()");
    browser.key("Enter");
    browser.wait("location.hash.includes('level=end')");
    browser.wait("document.querySelector('.matrix:not(.stale) td.some') && document.querySelector('.matrix tbody th').textContent.includes('web-1')");
    browser.eval("document.querySelector('td.some').focus()");
    browser.key("Enter");
    browser.wait("location.hash.startsWith('#/explain')");
    // Without a port every port is answered for, and nobody is told to open all of them.
    browser.sees("Permitted in part");
    browser.wait("document.querySelector('.openings').textContent.includes('5432')");
    assert_eq!(browser.eval("document.querySelectorAll('.remedies').length"), 0);
    browser.fill(".question input[inputmode=numeric]", "22");
    browser.sees("Denied");
    browser.sees("What would permit it");
    browser.fill(".question input[inputmode=numeric]", "5432");
    browser.wait("document.querySelector('.verdict.good')");
    browser.sees("trestle explain");
    // An answer is not kept beyond its reasons.
    up.ok(&["delete", "-f", "shop.yaml"]);
    browser.wait("document.querySelector('.trouble')");
    browser.sees("is not known here");
    browser.complaints.retain(|complaint| !complaint.contains("404"));
    is_clean(&up, &mut browser);
}

#[test]
fn a_map_that_changes_says_so() {
    let (up, mut browser) = start();
    for (name, region) in [("a.web", "west"), ("b.db", "east")] {
        up.ok(&["resource", "create", name, "--description", region]);
    }
    view(&mut browser, "#/map");
    browser.wait("document.querySelector('.sum')?.dataset.groups === '2'");
    assert_eq!(browser.eval("document.querySelector('.sum').dataset.ways"), "0");
    up.ok(&["rule", "add", "b.db", "--in", "--protocol", "tcp", "--port", "5432", "--peer", "a.web"]);
    up.ok(&["rule", "add", "a.web", "--out", "--protocol", "tcp", "--port", "5432", "--peer", "b.db"]);
    browser.wait("document.querySelector('.sum').dataset.ways === '1'");
    browser.sees("can now reach");
    // The drawing is changed, not made anew.
    browser.eval("document.querySelector('.chart').dataset.mark = 'same'");
    up.ok(&["rule", "delete", "b.db", "--rule", rule(&up).as_str()]);
    browser.wait("document.querySelector('.sum').dataset.ways === '0'");
    assert_eq!(browser.eval("document.querySelector('.chart').dataset.mark"), "same");
    is_clean(&up, &mut browser);
}

/// What was no TCP was drawn as nothing, and the drawer said "Nobody".
#[test]
fn the_map_and_the_matrix_show_every_protocol() {
    let (up, mut browser) = start();
    for (name, region) in [("a.web", "west"), ("b.dns", "east")] {
        up.ok(&["resource", "create", name, "--description", region]);
    }
    for more in [&["--protocol", "udp", "--port", "53"][..], &["--protocol", "icmp"]] {
        up.ok(&[&["rule", "add", "b.dns", "--in", "--peer", "a.web"], more].concat());
        up.ok(&[&["rule", "add", "a.web", "--out", "--peer", "b.dns"], more].concat());
    }
    view(&mut browser, "#/map");
    browser.wait("document.querySelector('.sum')?.dataset.ways === '1'");
    view(&mut browser, "#/map?open=site%3Adefault.b%2Fdns");
    browser.wait("document.querySelector('.ways') && document.querySelector('.ways').textContent.includes('udp 53; icmp')");
    view(&mut browser, "#/reachability");
    browser.wait("document.querySelectorAll('td.some').length === 1");
    browser.wait("document.querySelector('td.some').getAttribute('aria-label').includes('udp 53; icmp')");
    // Of one protocol alone it is open or not.
    view(&mut browser, "#/reachability?protocol=icmp");
    browser.wait("document.querySelectorAll('td.all').length === 1");
    view(&mut browser, "#/reachability?protocol=tcp");
    browser.wait("document.querySelectorAll('td.none').length === 2 && document.querySelectorAll('td.all').length === 0");
    is_clean(&up, &mut browser);
}

fn rule(up: &super::Up) -> String {
    let rules: serde_json::Value =
        serde_json::from_str(&up.ok(&["rule", "list", "b.db", "-o", "json"])).unwrap();
    rules[0]["rule"]["name"].as_str().unwrap().to_owned()
}
