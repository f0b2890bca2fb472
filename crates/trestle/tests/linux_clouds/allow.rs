//! Permissions with real packets, in a lab with two clouds, `a.web` and `b.db`, between which nothing is permitted.

use std::thread;

use super::{Lab, text};

/// Closes `db` to everybody in cloud `a`.
const BLOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/block.yaml");

fn listed(lab: &Lab) -> Vec<serde_json::Value> {
    serde_json::from_str(&lab.ok("allow list -o json")).unwrap()
}

/// One line is both ends and the link; the same again is nothing; taken back, everything is as before.
pub fn one_line_is_both_ends(lab: &Lab) {
    let (web, db) = (lab.address("a.web"), lab.address("b.db"));
    let run = |words: &str| lab.up().run(&words.split_whitespace().collect::<Vec<_>>());
    let plan = lab.ok("allow a.web b.db --ping --port 7000 --dry-run");
    for part in [
        "default.a.web: out tcp 7000",
        "default.b.db: in icmp",
        "the link default.a+default.b",
        "costs nothing",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let unasked = run("allow a.web b.db --ping --port 7000");
    let told = text(&unasked.stderr);
    assert!(!unasked.status.success() && told.contains("--yes") && told.contains("the link"), "{told}");
    assert!(listed(lab).is_empty() && lab.ok("link list -o json") == "[]\n", "nothing was changed");

    // Many at once, and all the same: one is stored, and each is told that it is so.
    let told: Vec<_> = thread::scope(|scope| {
        let asked = || scope.spawn(|| lab.ok("allow a.web b.db --ping --port 7000 --yes"));
        [asked(), asked(), asked()].map(|asked| asked.join().unwrap()).into()
    });
    for told in &told {
        assert!(told.contains("default.a.web to default.b.db, tcp 7000: allowed"), "{told}");
        assert!(told.contains("trestle deny resource:default.a.web resource:default.b.db"), "{told}");
    }
    assert_eq!(listed(lab).len(), 1);
    assert!(lab.pings("a.web", &db) && lab.carries_tcp("a.web", "b.db", 7000));
    assert!(!lab.pings("b.db", &web) && !lab.carries_tcp("a.web", "b.db", 7001), "and nothing else");

    // A policy that denies is not overruled: it is stored, and the answer says who denies it.
    lab.ok("deny a.web b.db --ping --port 7000");
    lab.ok(&format!("apply -f {BLOCK}"));
    let denied = run("allow a.web b.db --port 7000 --yes");
    let told = text(&denied.stdout);
    assert_eq!(denied.status.code(), Some(1), "{told}");
    assert!(told.contains("something still denies it") && told.contains("tiers"), "{told}");
    lab.ok(&format!("delete -f {BLOCK}"));
    lab.until("it opens when the policy goes", |lab| lab.carries_tcp("a.web", "b.db", 7000));

    // What somebody wrote by hand stands by itself, and is told.
    lab.ok("rule add a.web --name mine --out --protocol tcp --port 7000 --peer default.b.db");
    lab.ok("rule add b.db --name mine --in --protocol tcp --port 7000 --peer default.a.web");
    let told = lab.ok("deny a.web b.db --port 7000");
    assert!(told.contains("still permitted") && told.contains("rule mine"), "{told}");
    assert!(lab.carries_tcp("a.web", "b.db", 7000));
    lab.ok("rule delete a.web --rule mine");
    lab.ok("rule delete b.db --rule mine");
    assert!(listed(lab).is_empty());
    let gone = run("deny a.web b.db --port 7000");
    assert_eq!(gone.status.code(), Some(3), "{}", text(&gone.stderr));
    for (words, part) in [
        ("allow a.web b.nobody --port 80", "there is no"),
        ("allow a.web b.db", "say what is to be allowed"),
        ("allow 10.0.0.1 10.0.0.2 --port 80", "nothing is guarded"),
        ("allow a.web b.db --port 80 --proto icmp", "no ports"),
        ("allow a.web b.db --port 70000", "no port"),
        ("allow a.web 10.99.0.1 --port 80", "private"),
    ] {
        let refused = run(words);
        assert!(
            !refused.status.success() && text(&refused.stderr).contains(part),
            "{words}: {}",
            text(&refused.stderr)
        );
    }
    lab.until("the link goes with the last that asked for it", |lab| lab.ok("link list -o json") == "[]\n");
}
