//! One shape per noun: what `-o json` prints of it is what REST answers.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{fs, process::Command};

use harness::{Up, text};
use serde_json::{Value, json};

fn printed(up: &Up, command: &str) -> Value {
    let words: Vec<&str> = command.split(' ').chain(["-o", "json"]).collect();
    serde_json::from_str(&up.ok(&words)).unwrap()
}

fn asked(up: &Up, flags: &[&str], path: &str) -> Value {
    let token = fs::read_to_string(up.path("data/admin.token")).unwrap();
    let answer = Command::new("curl")
        .args(["-sS", "--fail-with-body", "--cacert", "data/pki/ca.pem"])
        .args(["-H", &format!("authorization: Bearer {}", token.trim())])
        .args(flags)
        .arg(format!("https://{}{path}", up.http))
        .current_dir(up.dir.path())
        .output()
        .unwrap_or_else(|err| panic!("curl: {err}; scripts/test-deps installs it"));
    assert!(answer.status.success(), "{path}: {}{}", text(&answer.stdout), text(&answer.stderr));
    serde_json::from_slice(&answer.stdout).unwrap()
}

fn answered(up: &Up, path: &str) -> Value {
    asked(up, &[], path)
}

/// What counts for itself while the two are asked.
fn settled(mut value: Value) -> Value {
    for one in value.as_array_mut().into_iter().flatten() {
        if let Some(node) = one.as_object_mut() {
            node.remove("lag_seconds");
        }
    }
    value
}

#[track_caller]
fn same(up: &Up, command: &str, path: &str) -> Value {
    let (printed, answered) = (settled(printed(up, command)), settled(answered(up, path)));
    assert_eq!(printed, answered, "`trestle {command} -o json` and {path}");
    assert!(!matches!(&printed, Value::Array(list) if list.is_empty()), "{path} shows nothing");
    printed
}

#[test]
fn nouns_of_clouds_are_printed_as_rest_answers_them() {
    let up = Up::start(&["--cloud", "a=fake", "--cloud", "b=fake"]);
    up.ok(&["resource", "create", "a.web", "--description", "west"]);
    up.ok(&["resource", "create", "b.db", "--description", "east"]);
    up.ok(&["rule", "add", "a.web", "--ping", "b.db"]);
    up.ok(&["rule", "add", "b.db", "--ping", "a.web"]);
    up.ok(&[
        "rule",
        "add",
        "a.web",
        "--name",
        "some",
        "--protocol",
        "tcp",
        "--port",
        "80-90",
        "--peer",
        "8.8.8.8",
    ]);
    let clouds = same(&up, "cloud list", "/clouds");
    let told: Vec<_> = clouds
        .as_array()
        .unwrap()
        .iter()
        .map(|cloud| (&cloud["name"], &cloud["state"], &cloud["resources"]))
        .collect();
    assert_eq!(told, [(&json!("a"), &json!("ready"), &json!(1)), (&json!("b"), &json!("ready"), &json!(1))]);
    assert_eq!(same(&up, "cloud get b", "/clouds/b"), clouds[1]);
    same(&up, "resource list --all", "/resources");
    let web = same(&up, "resource get a.web", "/namespaces/default/clouds/a/resources/web");
    assert_eq!(answered(&up, "/namespaces/default/clouds/a/resources"), json!([web]));
    assert_eq!(web["permit_list"].as_array().unwrap().len(), 3, "{web}");
    let rules = same(&up, "rule list a.web --own", "/namespaces/default/clouds/a/resources/web/rules");
    let in_force = same(&up, "rule list a.web", "/rules?resource=default.a.web");
    assert_eq!(in_force.as_array().unwrap().len(), 3, "{in_force}");
    assert_eq!((&in_force[0]["from"], &in_force[0]["state"]), (&json!("default.a.web"), &json!("in force")));
    same(&up, "rule list", "/rules?namespace=default");
    assert_eq!(same(&up, "rule list --all", "/rules").as_array().unwrap().len(), 5);
    let some = rules.as_array().unwrap().iter().find(|rule| rule["name"] == "some").unwrap();
    assert_eq!(
        (&some["dst_port"], &some["dst_port_last"], &some["protocol"]),
        (&80.into(), &90.into(), &6.into())
    );
    assert_eq!(some["targets"], json!(["8.8.8.8"]), "what it permits now");
    let links = same(&up, "link list", "/links");
    assert_eq!(printed(&up, "link get default.b default.a"), links[0]);
    assert_eq!(links[0]["ends"][0]["status"]["tunnels_up"], 2, "{links}");
    let jobs = same(&up, "job list", "/jobs");
    let id = jobs[0]["id"].as_str().unwrap();
    same(&up, &format!("job get {id}"), &format!("/jobs/{id}"));
    let rule = json!({ "name": "more", "protocol": -1, "src_port": -1, "dst_port": -1, "tags": ["9.9.9.9"] });
    let post = ["--json", &rule.to_string()];
    let plan = asked(&up, &post, "/namespaces/default/clouds/a/resources/web/rules?dry_run=true");
    assert_eq!(printed(&up, "rule add a.web --name more --peer 9.9.9.9 --dry-run"), plan);
    // What is listed can be put again, as a file of rules.
    fs::write(up.path("rules.json"), rules.to_string()).unwrap();
    up.ok(&["rule", "add", "a.web", "--file", "rules.json"]);
    assert_eq!(printed(&up, "rule list a.web --own"), rules);
}

#[test]
fn nouns_of_policies_and_services_are_printed_as_rest_answers_them() {
    let up = Up::start(&[]);
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/");
    for example in ["shop.yaml", "services.yaml"] {
        up.ok(&["apply", "-f", &format!("{examples}{example}")]);
    }
    let policies = same(&up, "policy list", "/policies");
    assert!(policies[0]["span"].is_array(), "where it is enforced: {policies}");
    same(&up, "node list", "/nodes");
    same(&up, "node get node-1", "/nodes/node-1");
    same(&up, "service list", "/services");
    same(&up, "service get web -n shop", "/services/shop/web");
    same(
        &up,
        "service explain 10.96.0.10:80 --node node-1",
        "/services/explain?address=10.96.0.10&port=80&node=node-1",
    );
    same(&up, "explain shop/web-1 shop/db-0", "/explain?source=shop/web-1&destination=shop/db-0");
    same(&up, "get services", "/objects?kind=Service");
}

#[test]
fn other_nouns_are_printed_as_rest_answers_them() {
    let up = Up::start(&[]);
    up.ok(&["tag", "set", "db1", "--ip", "10.0.0.5"]);
    up.ok(&["tag", "set", "all", "--children", "db1,192.0.2.0/24"]);
    up.ok(&["tag", "subscribe", "all", "me"]);
    same(&up, "tag list", "/tags");
    same(&up, "tag get all", "/tags/all");
    assert_eq!(printed(&up, "tag resolve all"), asked(&up, &["-X", "POST"], "/tags/all/resolveMembers"));
    assert_eq!(same(&up, "tag subscribers all", "/tags/all/subscribers"), json!(["me"]));
    // REST answers with the deployments alone, in a map by name, as clients of Paraglider expect.
    let namespace = printed(&up, "namespace create shop --deployment gcp=projects/shop");
    assert_eq!(namespace["deployments"], json!([{ "Name": "gcp", "Deployment": "projects/shop" }]));
    assert_eq!(namespace["deployments"], answered(&up, "/namespaces/shop"));
    assert_eq!(printed(&up, "namespace get shop"), namespace);
    assert_eq!(answered(&up, "/namespaces")["shop"], namespace["deployments"]);
    same(&up, "whoami", "/whoami");
    let made = printed(&up, "ticket create --limit 1Gi");
    assert!(
        made["ticket"]["id"] == same(&up, "ticket list", "/tickets")[0]["id"] && made["text"].is_string()
    );
    fs::write(up.path("ticket"), made["text"].as_str().unwrap()).unwrap();
    up.ok(&["consumer", "onboard", "--ticket-file", "ticket", "--capacity", "1Mi", "--out", "storage"]);
    let consumers = same(&up, "consumer list", "/consumers");
    let id = consumers[0]["id"].as_str().unwrap();
    same(&up, &format!("consumer get {id}"), &format!("/consumers/{id}"));
    let records = same(&up, "audit --operation SetTag", "/audit?operation=SetTag");
    assert_eq!(records[0]["caller"]["role"], "admin", "{records}");
    // A report has the controller's status and more.
    let (report, status) = (printed(&up, "status"), answered(&up, "/status"));
    for (key, value) in status.as_object().unwrap() {
        assert!(key == "revision" || report[key] == *value, "{key}: {report} and {status}");
    }
}
