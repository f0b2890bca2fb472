//! Every view can be used by everybody: axe finds nothing, the keyboard reaches everything, on a screen and on a phone.

use std::{fs, path::Path};

use serde_json::json;

use super::{is_clean, shop, start, view};

const VIEWS: [&str; 18] = [
    "#/overview",
    "#/map",
    "#/map?list=1",
    "#/map?open=namespace%3Ashop%2Fdb",
    "#/reachability",
    "#/explain?source=shop%2Fweb-1&destination=shop%2Fdb-0&port=22",
    "#/permissions",
    "#/policies",
    "#/policies?open=NetworkPolicy%2Fshop%2Fdb",
    "#/tags",
    "#/resources?open=default.a.web",
    "#/services",
    "#/hosts",
    "#/nodes",
    "#/storage",
    "#/jobs",
    "#/audit",
    "#/api",
];

#[test]
fn axe_finds_nothing_in_any_view() {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/node_modules/axe-core/axe.min.js");
    let axe = fs::read_to_string(axe).expect("`make page` has brought axe-core");
    let (up, mut browser) = start();
    shop(&up);
    up.ok(&["resource", "create", "a.web", "--description", "west"]);
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]);
    // What moves has other colours while it does.
    let still = json!({ "features": [{ "name": "prefers-reduced-motion", "value": "reduce" }] });
    browser.call("Emulation.setEmulatedMedia", still);
    browser.eval(&format!("{axe}; undefined"));
    let found = "axe.run({ resultTypes: ['violations'] }).then((told) => told.violations.map((one) => \
        [one.id, one.nodes[0].html.slice(0, 200), one.nodes[0].failureSummary].join(' | ')))";
    for (width, height) in [(1280, 800), (390, 800)] {
        browser.size(width, height, 1.0);
        for theme in ["light", "dark"] {
            browser.eval(&format!("document.documentElement.dataset.theme = '{theme}'"));
            for hash in VIEWS {
                view(&mut browser, hash);
                browser.wait("document.querySelector('h1') && !document.querySelector('.loading')");
                assert_eq!(browser.eval(found), json!([]), "{hash}, {theme}, {width} wide");
            }
        }
    }
    // It would have said something.
    browser.eval("document.querySelector('h1').append(document.createElement('img'))");
    assert_ne!(browser.eval(found), json!([]));
    is_clean(&up, &mut browser);
}

#[test]
fn the_map_is_walked_with_the_keyboard() {
    let (up, mut browser) = start();
    shop(&up);
    view(&mut browser, "#/map");
    browser.wait("document.querySelector('.sum')?.dataset.groups >= 2 && document.querySelector('.chart')");
    browser.eval("document.querySelector('.chart').focus()");
    browser.key("ArrowRight");
    browser.wait("document.querySelector('.chart [aria-live]').textContent.includes('in shop')");
    browser.key("Enter");
    browser.wait("document.querySelector('.drawer h3') && location.hash.includes('open=')");
    browser.key("Escape");
    browser.wait("!document.querySelector('.drawer')");
    is_clean(&up, &mut browser);
}

#[test]
fn anything_is_found_by_name_or_address() {
    let (up, mut browser) = start();
    shop(&up);
    up.ok(&["tag", "set", "ledger", "--ip", "10.77.0.5"]);
    browser.sees("Nodes");
    browser.eval("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true }))");
    browser.wait("document.activeElement.matches('dialog[open] input')");
    browser.fill("dialog[open] input", "10.77.0");
    browser.wait(
        "document.querySelector('dialog[open] li[aria-selected=true]')?.textContent.includes('ledger')",
    );
    browser.key("Enter");
    browser.wait("location.hash === '#/tags?open=ledger' && !document.querySelector('dialog[open]')");
    // Commands are found by what they are for.
    browser.click(".search-all");
    browser.fill("dialog[open] input", "kubernetes yaml");
    browser.sees("trestle apply");
    is_clean(&up, &mut browser);
}

/// On a phone every view is two touches away, and no table hides what it has.
#[test]
fn a_phone_shows_every_view_and_every_column() {
    let (up, mut browser) = start();
    shop(&up);
    browser.size(390, 800, 1.0);
    browser.click(".menu");
    browser.wait("document.querySelectorAll('nav.wide li a').length === 16");
    let out = "[...document.querySelectorAll('nav.wide li a')].filter((one) => { const box = one.getBoundingClientRect(); \
        return box.left < 0 || box.right > innerWidth || box.bottom > innerHeight || box.height < 30; }).length";
    assert_eq!(browser.eval(out), 0);
    browser.click("nav.wide a[href='#/policies']");
    browser.wait("!document.querySelector('nav.wide') && document.querySelector('.row.tall')");
    browser.sees("Phase");
    browser.sees("Nodes");
    // Nothing reaches beyond the window.
    for hash in VIEWS {
        view(&mut browser, hash);
        browser.wait("document.querySelector('h1')");
        assert_eq!(browser.eval("document.documentElement.scrollWidth <= innerWidth"), true, "{hash}");
    }
    is_clean(&up, &mut browser);
}
