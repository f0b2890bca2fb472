//! Pictures of the page: `make pictures` takes those of the README, and all views in all sizes to look at.

use std::{env, fs, path::PathBuf};

use super::{shop, start, view};

#[test]
#[ignore = "takes pictures; run by `make pictures`"]
fn pictures() {
    let out = PathBuf::from(env::var("TRESTLE_PICTURES").expect("TRESTLE_PICTURES says where to put them"));
    fs::create_dir_all(&out).unwrap();
    let (up, mut browser) = start();
    shop(&up);
    for (name, region) in [("a.web", "west"), ("a.worker", "west"), ("b.db", "east"), ("b.cache", "east")] {
        up.ok(&["resource", "create", name, "--description", region]);
    }
    for (on, peer, port) in
        [("b.db", "a.web", "5432"), ("b.cache", "a.worker", "6379"), ("b.cache", "a.web", "6379")]
    {
        up.ok(&["rule", "add", on, "--in", "--protocol", "tcp", "--port", port, "--peer", peer]);
        up.ok(&["rule", "add", peer, "--out", "--protocol", "tcp", "--port", port, "--peer", on]);
    }
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]);
    up.ok(&["tag", "set", "db2", "--ip", "10.0.0.6"]);
    up.ok(&["tag", "set", "databases", "--children", "db1,db2,192.0.2.0/24"]);
    up.ok(&["ticket", "create", "--limit", "10Gi"]);
    // Notices of the changes are gone before the first picture.
    browser.wait("document.querySelectorAll('.notices p').length === 0");
    let views = [
        ("overview", "#/overview"),
        ("map", "#/map"),
        ("map-open", "#/map?open=namespace%3Ashop%2Fdb"),
        ("reachability", "#/reachability"),
        ("explain", "#/explain?source=shop%2Fweb-1&destination=shop%2Fdb-0&port=22"),
        ("explain-resource", "#/explain?source=default.a.web&destination=default.b.db&port=5432"),
        ("resources", "#/resources?open=default.b.db"),
        ("tags", "#/tags?open=databases"),
        ("policies", "#/policies"),
        ("services", "#/services"),
        ("hosts", "#/hosts"),
        ("nodes", "#/nodes"),
        ("storage", "#/storage"),
        ("jobs", "#/jobs"),
        ("flows", "#/flows"),
        ("audit", "#/audit"),
    ];
    for (size, width, height) in [("desktop", 1280, 800), ("tablet", 820, 1100), ("phone", 390, 800)] {
        for dark in [false, true] {
            browser.size(width, height, 1.0);
            browser.dark(dark);
            for (name, hash) in views {
                view(&mut browser, hash);
                let theme = if dark { "dark" } else { "light" };
                browser.picture(&out.join(format!("{name}-{size}-{theme}.png")));
            }
        }
    }
    browser.size(1280, 800, 1.0);
    browser.dark(false);
    view(&mut browser, "#/resources");
    browser.click("text=Add a rule");
    browser.fill("input[list=rule-on]", "default.b.db");
    browser.fill("input[list=rule-peers]", "default.a.worker");
    browser.picture(&out.join("add-rule.png"));
}
