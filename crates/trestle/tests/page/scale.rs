//! Thousands of things, and a page that still answers.

use std::{fmt::Write as _, fs};

use super::{is_clean, start, view};

const PODS: usize = 5000;

#[test]
fn thousands_of_workloads_and_tags_stay_usable() {
    let (up, mut browser) = start();
    let mut yaml = String::new();
    for n in 0..PODS {
        let (namespace, app) = (n % 80, n % 7);
        write!(
            yaml,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{ namespace: ns-{namespace}, name: pod-{n}, labels: {{ app: app-{app} }} }}\n\
             spec: {{ nodeName: node-{} }}\nstatus: {{ podIP: 10.{}.{}.{} }}\n",
            n % 20,
            n / 65536 + 1,
            n / 256 % 256,
            n % 256,
        )
        .unwrap();
    }
    write!(
        yaml,
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{ namespace: ns-1, name: closed }}\n\
         spec: {{ podSelector: {{}}, policyTypes: [Ingress], ingress: [{{ from: [{{ podSelector: {{}} }}] }}] }}\n"
    )
    .unwrap();
    fs::write(up.path("many.yaml"), yaml).unwrap();
    up.ok(&["apply", "-f", "many.yaml"]);
    let tags: Vec<String> = (0..3000).map(|n| format!("10.2.{}.{}", n / 256, n % 256)).collect();
    for part in tags.chunks(1000) {
        up.ok(&["tag", "set", "many", "--children", &part.join(",")]);
    }
    view(&mut browser, "#/map");
    browser.sees("5,000 workloads in 560 groups and 82 places");
    // Whoever is sought is flown to, and what it may reach is told.
    browser.fill(".map-view .find input", "pod-4321");
    browser.wait("document.querySelector('.find li[aria-selected=true]')?.textContent.includes('pod-4321')");
    browser.key("Enter");
    browser.wait("document.querySelector('.chart').dataset.detail === 'near'");
    browser.wait("document.querySelector('.drawer h3')");
    view(&mut browser, "#/reachability");
    browser.wait("document.querySelectorAll('td.all').length > 3000");
    browser.wait("document.querySelectorAll('td.none').length >= 79");
    // The audit and a long list: only what is in sight is in the document.
    view(&mut browser, "#/audit");
    browser.sees("record");
    view(&mut browser, "#/explain?source=ns-2%2Fpod-2&destination=ns-1%2Fpod-1");
    browser.sees("Denied");
    view(&mut browser, "#/tags");
    browser.sees("many");
    is_clean(&up, &mut browser);
}

#[test]
fn a_long_table_holds_only_what_is_in_sight() {
    let (up, mut browser) = start();
    let mut yaml = String::new();
    for n in 0..3000 {
        write!(
            yaml,
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{ namespace: shop, name: policy-{n:04} }}\n\
             spec: {{ podSelector: {{ matchLabels: {{ app: a{n} }} }} }}\n"
        )
        .unwrap();
    }
    fs::write(up.path("many.yaml"), yaml).unwrap();
    up.ok(&["apply", "-f", "many.yaml"]);
    view(&mut browser, "#/policies");
    browser.sees("3,000 policies");
    let rows = browser.eval("document.querySelectorAll('.row').length").as_u64().unwrap();
    assert!(rows < 60, "{rows} rows are in the document");
    browser.eval("document.querySelector('.body').focus()");
    browser.key("End");
    browser.sees("policy-2999");
    browser.fill(".search", "policy-1234");
    browser.sees("1 of 3,000 policies");
    browser.wait("document.querySelectorAll('.row').length === 1");
    is_clean(&up, &mut browser);
}

/// One change among thousands costs about one item, and rows that did not change stay the elements they were.
#[test]
fn one_change_among_thousands_is_one_item_on_the_wire() {
    let (up, mut browser) = start();
    let policy = |n: usize, app: &str| {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{ namespace: shop, name: policy-{n:04} }}\n\
             spec: {{ podSelector: {{ matchLabels: {{ app: {app} }} }} }}\n"
        )
    };
    let yaml: String = (0..3000).map(|n| policy(n, "a")).collect();
    fs::write(up.path("many.yaml"), yaml).unwrap();
    up.ok(&["apply", "-f", "many.yaml"]);
    view(&mut browser, "#/policies");
    browser.sees("3,000 policies");
    browser.eval("document.querySelectorAll('.row').forEach((row) => { row.marked = true; })");
    browser.eval("performance.clearResourceTimings()");
    fs::write(up.path("one.yaml"), policy(3000, "b")).unwrap();
    up.ok(&["apply", "-f", "one.yaml"]);
    browser.sees("3,001 policies");
    let sizes = "performance.getEntriesByType('resource').filter((one) => new URL(one.name).pathname === '/policies')\
                 .map((one) => one.decodedBodySize)";
    let sizes = browser.eval(sizes);
    let most = sizes.as_array().unwrap().iter().filter_map(serde_json::Value::as_u64).max().unwrap();
    assert!((1..4096).contains(&most), "the whole list was sent again: {sizes}");
    let marked = browser.eval("[...document.querySelectorAll('.row')].every((row) => row.marked)");
    assert_eq!(marked, true, "rows were drawn anew");
    is_clean(&up, &mut browser);
}
