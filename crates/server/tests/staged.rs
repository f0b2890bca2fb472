//! Policy tests, staged changes, lint, replay and suggestions, over gRPC and REST, across a restart.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use serde_json::{Value, json};
use testkit_controllers::controller::Fixture;
use tonic::{Code, Status};
use wire::trestle::v1::{
    AllowRequest, Applied, ApplyObjectsRequest, DeleteObjectsRequest, DenyRequest, DiscardStagedRequest,
    ExplainRequest, FlowDirection, FlowVerdict, GetStatusRequest, LintRequest, ListPermissionsRequest,
    ListPoliciesRequest, ListStagedRequest, NodeFlow, NodeFlows, ObjectRef, Outcome, PolicyRequest,
    PromoteStagedRequest, PruneObjectsRequest, ReplayRequest, Role, RunPolicyTestsRequest,
    RunPolicyTestsResponse, SeenEnd, SeenFlow, SuggestRequest, admin_client::AdminClient,
    flows_client::FlowsClient, objects_client::ObjectsClient, permissions_client::PermissionsClient,
    policies_client::PoliciesClient,
};

fn pod(name: &str, app: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": app, "pod-template-hash": name}},
        "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": address}]},
    })
}

fn pods() -> Vec<Value> {
    vec![
        pod("web-1", "web", "10.0.0.1"),
        pod("web-2", "web", "10.0.0.2"),
        pod("db-0", "db", "10.0.0.3"),
        pod("cron-0", "cron", "10.0.0.4"),
    ]
}

/// What may come to the database, by port.
fn policy(from: &str, port: u16) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": from}}}], "ports": [{"port": port}]},
        ]},
    })
}

fn test(name: &str, tests: Value) -> Value {
    json!({
        "apiVersion": "trestle.dev/v1", "kind": "PolicyTest",
        "metadata": {"name": name, "namespace": "shop"}, "spec": {"tests": tests},
    })
}

fn basics() -> Value {
    test(
        "basics",
        json!([
            {"from": "shop/app=web", "to": "shop/db-0", "port": 5432, "expect": "allow"},
            {"from": "shop/cron-0", "to": "shop/app=db", "expect": "deny"},
            {"from": "shop/web-1", "to": "shop/app=nobody", "port": 80, "expect": "deny"},
        ]),
    )
}

fn bytes(documents: &[Value]) -> Vec<Vec<u8>> {
    documents.iter().map(|document| document.to_string().into_bytes()).collect()
}

async fn send(fixture: &Fixture, request: ApplyObjectsRequest) -> Result<Vec<Applied>, Status> {
    let reply = ObjectsClient::new(fixture.admin().await).apply_objects(request).await?;
    Ok(reply.into_inner().applied)
}

async fn apply(fixture: &Fixture, documents: &[Value]) -> Result<Vec<Applied>, Status> {
    send(fixture, ApplyObjectsRequest { documents: bytes(documents), ..Default::default() }).await
}

async fn stage(fixture: &Fixture, documents: &[Value]) -> Vec<Applied> {
    let request = ApplyObjectsRequest { documents: bytes(documents), stage: true, ..Default::default() };
    send(fixture, request).await.unwrap()
}

async fn run(fixture: &Fixture, documents: &[Value], staged: bool) -> RunPolicyTestsResponse {
    let request = RunPolicyTestsRequest { documents: bytes(documents), staged, deleted: Vec::new() };
    PoliciesClient::new(fixture.admin().await).run_policy_tests(request).await.unwrap().into_inner()
}

async fn is_open(fixture: &Fixture, from: &str, port: u32, staged: bool) -> bool {
    let request = ExplainRequest {
        source: format!("shop/{from}"),
        destination: "shop/db-0".into(),
        port: Some(port),
        staged: Some(staged),
        ..ExplainRequest::default()
    };
    PoliciesClient::new(fixture.admin().await).explain(request).await.unwrap().into_inner().allowed
}

/// What a permission gives comes after it is stored.
async fn until_open(fixture: &Fixture, from: &str, port: u32) {
    let opened = async {
        while !is_open(fixture, from, port, false).await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), opened).await.expect("it opens");
}

fn named(kind: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: kind.into(), namespace: "shop".into(), name: name.into() }
}

#[tokio::test]
async fn what_would_break_a_test_is_refused_with_the_connection_over_every_way() {
    let fixture = Fixture::start().await;
    apply(&fixture, &pods()).await.unwrap();
    apply(&fixture, &[policy("web", 5432), basics()]).await.unwrap();
    let ran = run(&fixture, &[], false).await;
    assert_eq!((ran.passed, ran.failed, ran.undecided), (2, 0, 1), "{ran:#?}");
    assert_eq!((ran.results[0].pairs, ran.results[0].traffic.as_str()), (2, "tcp 5432"));
    assert!(ran.results[2].because.contains("nobody is shop/app=nobody"), "{ran:#?}");

    // Another port: the test names who is shut out, and by what.
    let refused = apply(&fixture, &[policy("web", 80)]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for part in
        ["shop/basics, line 1", "shop/web-1 to shop/db-0 tcp 5432: denied", "1 more pairs", "despite_tests"]
    {
        assert!(refused.message().contains(part), "{part}: {}", refused.message());
    }
    assert!(is_open(&fixture, "web-1", 5432, false).await, "nothing was changed");
    let tried = run(&fixture, &[policy("web", 80)], false).await;
    assert_eq!((tried.failed, tried.broken.len()), (1, 1), "{tried:#?}");
    let dry =
        ApplyObjectsRequest { documents: bytes(&[policy("web", 80)]), dry_run: true, ..Default::default() };
    assert_eq!(send(&fixture, dry).await.unwrap_err().code(), Code::FailedPrecondition);
    let (status, problem) = fixture.rest("POST", "/objects", &policy("web", 80).to_string()).await;
    assert_eq!(
        (status.as_u16(), problem["code"].as_str().unwrap()),
        (409, "FAILED_PRECONDITION"),
        "{problem}"
    );

    // A permission.
    let allow = AllowRequest {
        from: "pod:shop/cron-0".into(),
        to: "pod:shop/db-0".into(),
        traffic: vec!["tcp 22".into()],
        ..AllowRequest::default()
    };
    let mut permissions = PermissionsClient::new(fixture.admin().await);
    let refused = permissions.allow(allow.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("shop/cron-0 to shop/db-0 all: some (tcp 22)"),
        "{}",
        refused.message()
    );
    assert!(
        permissions
            .list_permissions(ListPermissionsRequest {})
            .await
            .unwrap()
            .get_ref()
            .permissions
            .is_empty()
    );
    let harmless = AllowRequest { from: "pod:shop/web-1".into(), ..allow };
    permissions.allow(harmless.clone()).await.unwrap();
    let relies =
        test("relies", json!([{"from": "shop/web-1", "to": "shop/db-0", "port": 22, "expect": "allow"}]));
    until_open(&fixture, "web-1", 22).await;
    apply(&fixture, std::slice::from_ref(&relies)).await.unwrap();
    let AllowRequest { from, to, traffic, .. } = harmless;
    let deny = DenyRequest { from, to, traffic, ..DenyRequest::default() };
    assert_eq!(permissions.deny(deny.clone()).await.unwrap_err().code(), Code::FailedPrecondition);
    // The Pod keeps what it is permitted when it is stored anew.
    let mut again = pod("web-1", "web", "10.0.0.1");
    again["metadata"]["labels"]["more"] = "x".into();
    apply(&fixture, &[again]).await.unwrap();
    permissions.deny(DenyRequest { despite_tests: true, ..deny }).await.unwrap();
    let objects = vec![named("PolicyTest", "relies")];
    let gone = DeleteObjectsRequest { objects, ..Default::default() };
    ObjectsClient::new(fixture.admin().await).delete_objects(gone).await.unwrap();

    // Without the policy the database is open to all.
    let objects = vec![named("NetworkPolicy", "db")];
    let gone = DeleteObjectsRequest { objects, ..Default::default() };
    let refused = ObjectsClient::new(fixture.admin().await).delete_objects(gone.clone()).await.unwrap_err();
    assert!(refused.message().contains("cron-0 to shop/db-0 all: allowed"), "{}", refused.message());
    // A Pod that is called otherwise.
    let moved = apply(&fixture, &[pod("web-1", "cron", "10.0.0.1"), pod("web-2", "cron", "10.0.0.2")]).await;
    assert!(moved.is_ok(), "nobody is left whom the test is about: {moved:?}");
    apply(&fixture, &pods()).await.unwrap();
    // A set that is pruned.
    let set = ApplyObjectsRequest {
        documents: bytes(&[policy("web", 5432)]),
        set: "s".into(),
        ..Default::default()
    };
    send(&fixture, set).await.unwrap();
    let prune = PruneObjectsRequest { set: "s".into(), ..Default::default() };
    let refused = ObjectsClient::new(fixture.admin().await).prune_objects(prune.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);

    // A test that would fail from the start, and one that comes with what makes it true.
    let strict =
        test("strict", json!([{"from": "shop/web-1", "to": "shop/db-0", "port": 5432, "expect": "deny"}]));
    assert!(apply(&fixture, std::slice::from_ref(&strict)).await.is_err());
    let without = test("basics", json!([{"from": "shop/cron-0", "to": "shop/db-0", "expect": "deny"}]));
    apply(&fixture, &[strict, without, policy("web", 80)]).await.unwrap();
    assert!(!is_open(&fixture, "web-1", 5432, false).await);
    // What is meant.
    let meant = DeleteObjectsRequest { despite_tests: true, ..gone };
    ObjectsClient::new(fixture.admin().await).delete_objects(meant).await.unwrap();
    assert!(is_open(&fixture, "cron-0", 22, false).await);
    // What fails already stops nobody.
    apply(&fixture, &[pod("cron-1", "cron", "10.0.0.9")]).await.unwrap();
    let (status, ran) = fixture.rest("GET", "/policy-tests", "").await;
    assert_eq!((status.as_u16(), ran["failed"].as_u64()), (200, Some(2)), "{ran}");
}

#[tokio::test]
async fn a_test_that_is_none_is_refused_with_its_place() {
    let fixture = Fixture::start().await;
    for (tests, part) in [
        (json!([]), "spec.tests"),
        (json!([{"from": "", "to": "b", "expect": "deny"}]), "spec.tests[0].from"),
        (json!([{"from": "a", "to": "b", "expect": "maybe"}]), "spec.tests[0].expect"),
        (json!([{"from": "a", "to": "b", "port": 70000, "expect": "deny"}]), "spec.tests[0].port"),
        (json!([{"from": "a", "to": "b", "protocol": "icmp", "port": 1, "expect": "deny"}]), "has no ports"),
        (json!([{"from": "a", "to": "b", "protocol": "smtp", "expect": "deny"}]), "spec.tests[0].protocol"),
        (json!([{"form": "a", "to": "b", "expect": "deny"}]), "did you mean \"from\""),
    ] {
        let refused = apply(&fixture, &[test("t", tests)]).await.unwrap_err();
        assert!(refused.message().contains(part), "{part}: {}", refused.message());
    }
    // What names no end is known when it runs.
    apply(&fixture, &[test("t", json!([{"from": "a/b/c/d", "to": "10.0.0.1", "expect": "deny"}]))])
        .await
        .unwrap();
    let ran = run(&fixture, &[], false).await;
    assert_eq!(ran.undecided, 1, "{ran:#?}");
}

#[tokio::test]
async fn staged_changes_outlive_a_restart_and_decide_nothing_until_they_are_promoted() {
    let fixture = Fixture::start().await;
    apply(&fixture, &pods()).await.unwrap();
    apply(&fixture, &[policy("web", 5432), basics()]).await.unwrap();
    let staged = stage(&fixture, &[policy("cron", 9090), pod("new-0", "new", "10.0.0.7")]).await;
    assert_eq!(
        staged.iter().map(Applied::outcome).collect::<Vec<_>>(),
        [Outcome::Configured, Outcome::Created]
    );
    assert!(is_open(&fixture, "web-1", 5432, false).await && !is_open(&fixture, "web-1", 5432, true).await);
    assert!(!is_open(&fixture, "cron-0", 9090, false).await && is_open(&fixture, "cron-0", 9090, true).await);
    let fixture = Fixture::start_in(fixture.stop().await, |_| {}).await;

    let mut objects = ObjectsClient::new(fixture.admin().await);
    let listed = objects
        .list_staged(ListStagedRequest { reach: true, since: String::new() })
        .await
        .unwrap()
        .into_inner();
    let [pods, policy_change] = listed.changes.as_slice() else { panic!("{listed:#?}") };
    assert_eq!(pods.object.as_ref().unwrap().name, "new-0");
    assert_eq!(policy_change.outcome(), Outcome::Configured);
    assert!(policy_change.difference.contains("9090"), "{}", policy_change.difference);
    assert_eq!(policy_change.breaks.len(), 2, "{:?}", policy_change.breaks);
    let reach = policy_change.reach.as_ref().unwrap();
    let pairs: Vec<_> =
        reach.pairs.iter().map(|one| (one.from.as_str(), one.before.as_str(), one.after.as_str())).collect();
    assert_eq!(
        pairs,
        [("namespace:shop/cron", "", "tcp 9090"), ("namespace:shop/web", "tcp 5432", "")],
        "{reach:#?}"
    );
    assert_eq!((reach.pairs[1].pairs, reach.pairs[1].open_before, reach.pairs[1].open_after), (2, 2, 0));
    assert!(listed.together.is_some());
    let status = AdminClient::new(fixture.admin().await).get_status(GetStatusRequest {}).await.unwrap();
    assert_eq!(status.into_inner().staged, 2);
    assert_eq!(run(&fixture, &[], true).await.failed, 2);
    let (status, rest) = fixture.rest("GET", "/staged", "").await;
    assert_eq!(
        (status.as_u16(), rest["changes"][1]["outcome"].as_str()),
        (200, Some("configured")),
        "{rest}"
    );

    // It breaks tests; and what is not staged is not there.
    let objects_of = |name: &str| vec![named("NetworkPolicy", name)];
    let promote = PromoteStagedRequest { objects: objects_of("db"), ..Default::default() };
    let refused = objects.promote_staged(promote.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let absent = DiscardStagedRequest { objects: objects_of("nothing") };
    assert_eq!(objects.discard_staged(absent).await.unwrap_err().code(), Code::NotFound);
    let meant = PromoteStagedRequest { despite_tests: true, ..promote };
    let applied = objects.promote_staged(meant).await.unwrap().into_inner().applied;
    assert_eq!(applied[0].outcome(), Outcome::Configured);
    assert!(is_open(&fixture, "cron-0", 9090, false).await);
    let (status, gone) = fixture.rest("POST", "/staged/discard", "{}").await;
    assert_eq!((status.as_u16(), gone[0]["name"].as_str()), (200, Some("new-0")), "{gone}");
    let (status, _) = fixture.rest("POST", "/staged/promotion", "{}").await;
    assert_eq!(status.as_u16(), 404, "nothing is staged");

    // A deletion is staged too.
    let (status, _) =
        fixture.rest("DELETE", "/objects?kind=NetworkPolicy&namespace=shop&name=db&stage=true", "").await;
    assert_eq!(status.as_u16(), 200);
    assert!(is_open(&fixture, "cron-0", 9090, false).await && !is_open(&fixture, "cron-0", 22, false).await);
    assert!(is_open(&fixture, "cron-0", 22, true).await);
    let (status, told) = fixture.rest("POST", "/staged/promotion", r#"{"despite_tests": true}"#).await;
    assert_eq!((status.as_u16(), told[0]["outcome"].as_str()), (200, Some("deleted")), "{told}");
    assert!(is_open(&fixture, "cron-0", 22, false).await);
}

fn end(app: &str) -> Option<SeenEnd> {
    let labels = [("app".to_owned(), app.to_owned()), ("pod-template-hash".to_owned(), "gone".to_owned())];
    Some(SeenEnd { namespace: "shop".into(), labels: labels.into(), address: String::new() })
}

#[tokio::test]
async fn what_was_seen_is_replayed_and_made_into_policies_that_lint_has_nothing_to_say_about() {
    let fixture = Fixture::start().await;
    apply(&fixture, &pods()).await.unwrap();
    let mut policies = PoliciesClient::new(fixture.admin().await);
    let flow = |from: &str, to: &str, port, count| SeenFlow {
        from: end(from),
        to: end(to),
        protocol: "tcp".into(),
        port,
        count,
        last: String::new(),
    };
    let flows = vec![flow("web", "db", 5432, 12), flow("cron", "web", 80, 1), flow("cron", "nobody", 80, 3)];
    let request =
        SuggestRequest { flows: flows[..2].to_vec(), namespace: "shop".into(), ..Default::default() };
    let suggestion = policies.suggest(request).await.unwrap().into_inner();
    let documents: Vec<Value> =
        suggestion.policies.iter().map(|one| serde_json::from_str(&one.document).unwrap()).collect();
    assert_eq!(documents.len(), 3, "{documents:#?}");
    let replay = |documents: &[Value]| ReplayRequest {
        flows: flows.clone(),
        documents: bytes(documents),
        ..Default::default()
    };
    let same = policies.replay(replay(&documents)).await.unwrap().into_inner();
    assert_eq!((same.changed.len(), same.same, same.unknown), (0, 13, 3), "{same:#?}");
    let other = policies.replay(replay(&[policy("web", 80)])).await.unwrap().into_inner();
    assert_eq!((other.changed.len(), other.same), (1, 1), "{other:#?}");
    let changed = &other.changed[0];
    assert_eq!((changed.before.as_str(), changed.after.as_str(), changed.count), ("allowed", "denied", 12));
    assert!(changed.decided_after.iter().any(|why| why.contains("shop/db")), "{changed:#?}");
    apply(&fixture, &documents).await.unwrap();
    assert!(is_open(&fixture, "web-1", 5432, false).await && !is_open(&fixture, "web-1", 22, false).await);
    let found = policies.lint(LintRequest::default()).await.unwrap().into_inner().findings;
    assert_eq!(found, [], "{documents:#?}");
    // One that says the same again, and is not stored.
    let mut again = policy("web", 5432);
    again["metadata"]["name"] = "zz".into();
    let (status, found) = fixture.rest("POST", "/lint", &again.to_string()).await;
    assert_eq!(
        (status.as_u16(), found[0]["problem"].as_str(), found[0]["path"].as_str()),
        (200, Some("redundant"), Some("spec.ingress[0]")),
        "{found}"
    );
    // What is no flow.
    let bad =
        ReplayRequest { flows: vec![SeenFlow { port: 0, ..flow("web", "db", 1, 1) }], ..Default::default() };
    assert_eq!(policies.replay(bad).await.unwrap_err().code(), Code::InvalidArgument);
    let (status, _) =
        fixture.rest("POST", "/suggestions", r#"{"flows": [{"from": {}, "to": {}, "port": 1}]}"#).await;
    assert_eq!(status.as_u16(), 400);
}

/// A row as a node tells it: an address that is the last of 10.0.0.0/24, to another one's port.
fn told(verdict: FlowVerdict, rule: u32, ends: [u8; 2], port: u32, count: u64, at: u64) -> NodeFlow {
    let [from, to] = ends.map(|last| vec![10, 0, 0, last]);
    NodeFlow {
        verdict: verdict.into(),
        direction: FlowDirection::In.into(),
        from,
        to,
        protocol: 6,
        port: Some(port),
        rule,
        count,
        first: at,
        last: at,
        ..NodeFlow::default()
    }
}

async fn tell(fixture: &Fixture, number: u64, flows: Vec<NodeFlow>) {
    let node = fixture.issue(Role::Node, "n1").await;
    let channel = fixture.endpoint(Some(node.identity())).connect().await.unwrap();
    let words = ["ingress rule 0 of NetworkPolicy shop/db", "isolated by NetworkPolicy shop/db"];
    let words = words.map(str::to_owned).to_vec();
    let report = NodeFlows { node: "n1".into(), run: 1, number, flows, words, ..NodeFlows::default() };
    FlowsClient::new(channel).report_flows(report).await.unwrap();
}

fn millis() -> u64 {
    jiff::Timestamp::now().as_millisecond().try_into().unwrap()
}

fn rfc(at: u64) -> String {
    jiff::Timestamp::from_millisecond(at.try_into().unwrap()).unwrap().to_string()
}

#[tokio::test]
async fn connections_that_were_seen_are_held_against_what_is_staged() {
    let fixture = Fixture::start().await;
    let begun = millis();
    apply(&fixture, &pods()).await.unwrap();
    apply(&fixture, &[policy("web", 5432)]).await.unwrap();
    let flows = vec![
        told(FlowVerdict::Allowed, 1, [1, 3], 5432, 12, begun + 1),
        told(FlowVerdict::Allowed, 1, [2, 3], 5432, 3, begun + 2),
        told(FlowVerdict::Denied, 2, [1, 3], 80, 4, begun + 3),
        told(FlowVerdict::Denied, 2, [4, 3], 22, 5, begun + 3),
    ];
    tell(&fixture, 1, flows).await;
    stage(&fixture, &[policy("web", 80), pod("new-0", "new", "10.0.0.7")]).await;
    let mut objects = ObjectsClient::new(fixture.admin().await);
    let asked = ListStagedRequest { reach: false, since: rfc(begun) };
    let listed = objects.list_staged(asked.clone()).await.unwrap().into_inner();
    let [new_pod, change] = listed.changes.as_slice() else { panic!("{listed:#?}") };
    let seen = new_pod.seen.as_ref().unwrap();
    assert_eq!((seen.changed.len(), seen.same, seen.unknown), (0, 24, 0), "{seen:#?}");
    let seen = change.seen.as_ref().unwrap();
    let rows: Vec<_> = seen
        .changed
        .iter()
        .map(|one| (&*one.from, &*one.traffic, one.count, &*one.before, &*one.after))
        .collect();
    let expected = [
        ("shop/app=web", "tcp 80", 4, "denied", "allowed"),
        ("shop/app=web", "tcp 5432", 15, "allowed", "denied"),
    ];
    assert_eq!((rows.as_slice(), seen.same), (&expected[..], 5), "newest first: {seen:#?}");
    let one = &seen.changed[1];
    assert!(
        one.decided_before.iter().any(|why| why.contains("ingress rule 0 (Allow) of NetworkPolicy shop/db"))
    );
    assert!(
        one.decided_after.iter().any(|why| why.contains("isolated by NetworkPolicy shop/db")),
        "{one:#?}"
    );
    assert_eq!(
        one.last.parse::<jiff::Timestamp>().unwrap().as_millisecond(),
        i64::try_from(begun + 2).unwrap()
    );
    assert_eq!(listed.together_seen.as_ref(), change.seen.as_ref());
    assert_eq!(listed.notes, Vec::<String>::new());
    // The record is not as old as that, which is said.
    let old = ListStagedRequest { since: "7d".into(), ..asked };
    let listed = objects.list_staged(old).await.unwrap().into_inner();
    assert!(listed.notes[0].contains("the record goes back to"), "{:?}", listed.notes);

    // What would cut somebody off is not promoted, nor what is not known to be clean for so long.
    let promote = |name: &str, kind: &str, since: String| PromoteStagedRequest {
        objects: vec![named(kind, name)],
        if_clean: since,
        ..Default::default()
    };
    let refused = objects.promote_staged(promote("db", "NetworkPolicy", rfc(begun))).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for part in ["nothing was changed", "shop/app=web to shop/app=db tcp 5432, 15 times", "would be denied"] {
        assert!(refused.message().contains(part), "{part}: {}", refused.message());
    }
    let refused = objects.promote_staged(promote("new-0", "Pod", "7d".into())).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("the record goes back to"), "{}", refused.message());
    let wrong = objects.promote_staged(promote("new-0", "Pod", "last week".into())).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
    let (status, problem) =
        fixture.rest("POST", "/staged/promotion", &json!({"if_clean": rfc(begun)}).to_string()).await;
    assert_eq!(status.as_u16(), 409, "{problem}");
    objects.promote_staged(promote("new-0", "Pod", rfc(begun))).await.unwrap();
    assert!(is_open(&fixture, "web-1", 5432, false).await, "the policy is as it was");
    // The same over REST, and by files.
    let (_, rest) = fixture.rest("GET", &format!("/staged?since={}", rfc(begun)), "").await;
    assert_eq!(rest["changes"][0]["seen"]["changed"][1]["count"], 15, "{rest}");
    let body = json!({"since": rfc(begun), "documents": policy("web", 80).to_string()});
    let (_, rest) = fixture.rest("POST", "/replay", &body.to_string()).await;
    assert_eq!(rest["changed"][0]["traffic"], "tcp 5432", "the most frequent first: {rest}");
    let (_, rest) =
        fixture.rest("POST", "/suggestions", &json!({"since": rfc(begun), "egress": true}).to_string()).await;
    let names: Vec<_> = rest["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| serde_json::from_str::<Value>(one["document"].as_str().unwrap()).unwrap())
        .map(|document| document["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["allow-to-db", "deny-the-rest", "allow-from-web", "deny-the-rest-out"], "{rest}");
    let both = ReplayRequest { flows: vec![SeenFlow::default()], since: "1h".into(), ..Default::default() };
    let refused = PoliciesClient::new(fixture.admin().await).replay(both).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn where_nothing_is_recorded_that_is_said() {
    let fixture = Fixture::start_with(|config| config.flows.enabled = false).await;
    apply(&fixture, &pods()).await.unwrap();
    stage(&fixture, &[policy("web", 80)]).await;
    let mut objects = ObjectsClient::new(fixture.admin().await);
    let asked = ListStagedRequest { reach: false, since: "1h".into() };
    let listed = objects.list_staged(asked).await.unwrap().into_inner();
    assert!(listed.notes[0].contains("records no flows") && listed.changes[0].seen.is_none(), "{listed:#?}");
    let promote = PromoteStagedRequest { if_clean: "1h".into(), ..Default::default() };
    assert_eq!(objects.promote_staged(promote).await.unwrap_err().code(), Code::FailedPrecondition);
    let mut policies = PoliciesClient::new(fixture.admin().await);
    let unused = LintRequest { unused_since: "1h".into(), ..Default::default() };
    assert_eq!(policies.lint(unused).await.unwrap_err().code(), Code::FailedPrecondition);
    apply(&fixture, &[policy("web", 80)]).await.unwrap();
    let listed = policies.list_policies(ListPoliciesRequest { places: false }).await.unwrap().into_inner();
    assert_eq!((listed.policies[0].counted_since, listed.policies[0].last_used), (None, None));
}

#[tokio::test]
async fn rules_tell_how_often_and_when_last_they_decided_and_since_when_that_is_known() {
    let before = millis();
    let fixture = Fixture::start().await;
    apply(&fixture, &pods()).await.unwrap();
    let mut two = policy("web", 5432);
    let more =
        json!({"from": [{"podSelector": {"matchLabels": {"app": "cron"}}}], "ports": [{"port": 9090}]});
    two["spec"]["ingress"].as_array_mut().unwrap().push(more);
    apply(&fixture, &[two.clone()]).await.unwrap();
    let mut policies = PoliciesClient::new(fixture.admin().await);
    let listed = policies.list_policies(ListPoliciesRequest { places: false }).await.unwrap().into_inner();
    let state = &listed.policies[0];
    let since = u64::try_from(state.counted_since.unwrap()).unwrap();
    assert!(since >= before && since <= millis());
    assert_eq!((state.uses, state.last_used, state.silent), (0, None, 1), "n1 has told nothing: {state:?}");
    // Of a policy whose place has told nothing it is not said that it is unused.
    let lint = |unused_since: String| LintRequest { unused_since, ..Default::default() };
    let none = policies.lint(lint(rfc(since))).await.unwrap().into_inner();
    assert!(none.findings.is_empty() && none.notes[0].contains("told of no connection"), "{none:#?}");

    let flows = vec![
        told(FlowVerdict::Allowed, 1, [1, 3], 5432, 12, since + 5),
        told(FlowVerdict::Denied, 2, [4, 3], 22, 5, since + 3),
    ];
    tell(&fixture, 1, flows).await;
    let asked = PolicyRequest { kind: "NetworkPolicy".into(), namespace: "shop".into(), name: "db".into() };
    let detail = policies.get_policy(asked).await.unwrap().into_inner();
    let state = detail.policy.as_ref().unwrap();
    let last = i64::try_from(since + 5).unwrap();
    assert_eq!((state.uses, state.last_used, state.silent), (17, Some(last), 0));
    let rules: Vec<_> =
        detail.rules.iter().map(|rule| (&*rule.rule, rule.uses, rule.last_used.is_some())).collect();
    let expected = [("spec.ingress[0]", 12, true), ("spec.ingress[1]", 0, false), ("isolation", 5, true)];
    assert_eq!(rules, expected);
    let told = policies.lint(lint(rfc(since))).await.unwrap().into_inner();
    let [unused] = told.findings.as_slice() else { panic!("{told:#?}") };
    assert_eq!((&*unused.path, &*unused.problem), ("spec.ingress[1]", "not used"));
    assert!(unused.proof[0].contains("it has decided nothing; counted since"), "{unused:?}");
    let (_, rest) = fixture.rest("GET", "/lint?unused_since=0s", "").await;
    assert_eq!(rest.as_array().unwrap().len(), 2, "all of it was before: {rest}");
    // Nobody knows what was before it was counted.
    let long = policies.lint(lint("30d".into())).await.unwrap().into_inner();
    assert!(long.findings.is_empty() && long.notes[0].contains("counted"), "{long:#?}");
    // Its rules may say something else now.
    two["spec"]["ingress"].as_array_mut().unwrap().reverse();
    apply(&fixture, &[two]).await.unwrap();
    let anew = async {
        loop {
            let (_, rest) = fixture.rest("GET", "/policies/NetworkPolicy/shop/db", "").await;
            if rest["uses"] == 0 {
                return rest;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let anew =
        tokio::time::timeout(std::time::Duration::from_secs(60), anew).await.expect("it is counted anew");
    assert!(anew["last_used"].is_null() && anew["counted_since"].is_string(), "{anew}");
    assert_eq!(anew["rules"][0]["rule"], "spec.ingress[0]", "{anew}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_end_a_staged_change_at_once_one_does() {
    let fixture = Fixture::start().await;
    apply(&fixture, &pods()).await.unwrap();
    for round in 0..20_u16 {
        let port = 1_000 + round;
        stage(&fixture, &[policy("web", port)]).await;
        let promote = || async {
            ObjectsClient::new(fixture.admin().await).promote_staged(PromoteStagedRequest::default()).await
        };
        let discard = || async {
            ObjectsClient::new(fixture.admin().await).discard_staged(DiscardStagedRequest::default()).await
        };
        let is_in_force = if round % 2 == 0 {
            let (one, other) = tokio::join!(promote(), promote());
            assert!(one.is_ok() != other.is_ok(), "round {round}: {one:?} {other:?}");
            true
        } else {
            let (one, other) = tokio::join!(promote(), discard());
            assert!(one.is_ok() != other.is_ok(), "round {round}: {one:?} {other:?}");
            one.is_ok()
        };
        assert_eq!(is_open(&fixture, "web-1", port.into(), false).await, is_in_force, "round {round}");
        let asked = ListStagedRequest::default();
        let left = ObjectsClient::new(fixture.admin().await).list_staged(asked).await.unwrap().into_inner();
        assert_eq!(left.changes, [], "round {round}");
        if !is_in_force {
            apply(&fixture, &[policy("web", port)]).await.unwrap();
        }
    }
}

/// A test that comes while a change goes by: whichever is first, what is stored in the end holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_test_and_what_would_break_it_are_not_both_stored() {
    let fixture = Fixture::start().await;
    apply(&fixture, &pods()).await.unwrap();
    let mut refused = [0, 0];
    for round in 0..25 {
        apply(&fixture, &[policy("web", 5432)]).await.unwrap();
        let expectation = json!([{"from": "shop/web-1", "to": "shop/db-0", "port": 5432, "expect": "allow"}]);
        let (added, broken) = (test("t", expectation), policy("web", 80));
        let change = async {
            match round % 3 {
                0 => apply(&fixture, std::slice::from_ref(&broken)).await.map(drop),
                1 => {
                    let staged = stage(&fixture, std::slice::from_ref(&broken)).await;
                    assert_eq!(staged.len(), 1);
                    let mut objects = ObjectsClient::new(fixture.admin().await);
                    objects.promote_staged(PromoteStagedRequest::default()).await.map(drop)
                }
                // Another policy, in a tier before.
                _ => apply(&fixture, &[closed()]).await.map(drop),
            }
        };
        let (test_stored, changed) = tokio::join!(apply(&fixture, std::slice::from_ref(&added)), change);
        refused[0] += usize::from(test_stored.is_err());
        refused[1] += usize::from(changed.is_err());
        let ran = run(&fixture, &[], false).await;
        assert_eq!(ran.failed, 0, "round {round}: {ran:#?}");
        assert!(test_stored.is_ok() || changed.is_ok(), "round {round}: one of them may");
        // As it was.
        for (kind, name) in [("NetworkPolicy", "db"), ("AntreaNetworkPolicy", "closed"), ("PolicyTest", "t")]
        {
            let objects = vec![named(kind, name)];
            let gone = DeleteObjectsRequest { objects, despite_tests: true, ..Default::default() };
            ObjectsClient::new(fixture.admin().await).delete_objects(gone).await.ok();
        }
        let all = DiscardStagedRequest::default();
        ObjectsClient::new(fixture.admin().await).discard_staged(all).await.ok();
    }
    assert!(refused[0] + refused[1] > 0, "{refused:?}");
}

/// In an earlier tier nothing may come to the database.
fn closed() -> Value {
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "shop"},
        "spec": {"priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": "db"}}}],
            "ingress": [{"action": "Drop"}]},
    })
}
