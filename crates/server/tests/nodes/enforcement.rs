//! Whether a change is in force, as its caller is told: nodes that say so late, could not, are away, or are not concerned.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tonic::Streaming;
use wire::trestle::v1::{
    ApplyObjectsRequest, EnforcementRequest, EnforcementState, GetStatusRequest, NodeObjectError, NodeReport,
    ObjectKind, PolicyPlace, PolicyRequest, admin_client::AdminClient, enforcement_client::EnforcementClient,
    objects_client::ObjectsClient, policies_client::PoliciesClient,
};

use testkit_controllers::{controller::Credential, nodes::Harness};

use super::agent::{Agent, State};

fn pod(namespace: &str, name: &str, node: &str, ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node}, "status": {"podIP": ip, "podIPs": [{"ip": ip}]}})
}

fn closed(namespace: &str) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": namespace}, "spec": {"podSelector": {}}})
}

/// Applies objects; the name of the change, if there was one.
async fn apply(harness: &Harness, objects: &[Value]) -> Option<String> {
    let documents = objects.iter().map(|object| object.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    let reply = ObjectsClient::new(harness.admin().await).apply_objects(request).await.unwrap();
    reply.metadata().get("trestle-change").map(|name| name.to_str().unwrap().to_owned())
}

async fn watch(harness: &Harness, change: &str) -> Streaming<EnforcementState> {
    let request = EnforcementRequest { changes: vec![change.to_owned()] };
    EnforcementClient::new(harness.admin().await).watch_enforcement(request).await.unwrap().into_inner()
}

/// What is told until it is as it should be; the last word.
async fn until(
    states: &mut Streaming<EnforcementState>,
    what: &str,
    holds: impl Fn(&EnforcementState) -> bool,
) -> EnforcementState {
    let mut last = None;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), states.message()).await;
        match next {
            Ok(Ok(Some(state))) if holds(&state) => return state,
            Ok(Ok(Some(state))) => last = Some(state),
            other => panic!("{what}: {other:?} after {last:?}"),
        }
    }
}

/// A node that has taken everything in, and says so.
async fn node(harness: &Harness, name: &str) -> (Agent, Credential) {
    let credential = harness.node(name).await;
    let mut agent = Agent::connect(harness, &credential, State::default()).await;
    let revision = agent.step().await.unwrap();
    agent.report(NodeReport { revision, ..NodeReport::default() }).await;
    (agent, credential)
}

async fn places(harness: &Harness) -> Vec<PolicyPlace> {
    let request =
        PolicyRequest { kind: "NetworkPolicy".into(), namespace: "shop".into(), name: "closed".into() };
    let mut policies = PoliciesClient::new(harness.admin().await);
    policies.get_policy(request).await.unwrap().into_inner().realization
}

fn states_of(places: &[PolicyPlace]) -> Vec<(&str, &str)> {
    places.iter().map(|place| (place.place.as_str(), place.state.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_in_force_when_all_whom_it_concerns_have_said_so() {
    let harness = Harness::synced().await;
    let pods = [
        pod("shop", "a", "n1", "10.0.0.1"),
        pod("shop", "b", "n2", "10.0.0.2"),
        pod("other", "c", "n3", "10.0.0.3"),
    ];
    apply(&harness, &pods).await;
    let ((mut n1, _), (mut n2, _), (n3, _)) =
        (node(&harness, "n1").await, node(&harness, "n2").await, node(&harness, "n3").await);
    // A node that is behind with something else keeps nobody waiting whom it does not concern.
    let other = apply(&harness, &[closed("other")]).await.unwrap();
    drop(n3);

    let change = apply(&harness, &[closed("shop")]).await.unwrap();
    let mut states = watch(&harness, &change).await;
    let told = until(&mut states, "whom it concerns", |state| state.concerned == 2).await;
    assert_eq!((told.state.as_str(), told.enforced), ("pending", 0), "{told:?}");
    let revision = n1.step().await.unwrap();
    n1.report(NodeReport { revision, ..NodeReport::default() }).await;
    let told = until(&mut states, "one has it", |state| state.enforced == 1).await;
    assert_eq!(told.waiting.len(), 1, "{told:?}");
    assert_eq!((told.waiting[0].place.as_str(), told.waiting[0].failed), ("n2", false), "{told:?}");
    assert_eq!(states_of(&places(&harness).await), [("n1", "in force"), ("n2", "pending")]);

    // The same again changes nothing, and is not in force as long as what made it so is not.
    assert_eq!(apply(&harness, &[closed("shop")]).await.as_deref(), Some(&*change));

    // The other could not, says why, and can later.
    let revision = n2.step().await.unwrap();
    let name =
        n2.state.objects.keys().find(|(kind, _)| *kind == ObjectKind::Policy as i32).unwrap().1.clone();
    let error = NodeObjectError { kind: ObjectKind::Policy as i32, name, message: "no room".into() };
    n2.report(NodeReport { revision, errors: vec![error], ..NodeReport::default() }).await;
    let told =
        until(&mut states, "it could not", |state| state.waiting.iter().any(|place| place.failed)).await;
    assert!(told.waiting[0].reason.contains("no room"), "{told:?}");
    assert_eq!((told.state.as_str(), told.enforced), ("pending", 1));
    n2.report(NodeReport { revision, ..NodeReport::default() }).await;
    let told = until(&mut states, "all have it", |state| state.state == "enforced").await;
    assert_eq!((told.concerned, told.enforced, told.waiting.len()), (2, 2, 0));
    assert!(told.seconds > 0.0);
    assert!(states.message().await.unwrap().is_none(), "there is no more to say");

    let places = places(&harness).await;
    assert_eq!(states_of(&places), [("n1", "in force"), ("n2", "in force")]);
    assert!(
        places.iter().all(|place| place.since.is_some_and(|since| since > 0) && !place.at_latest),
        "{places:?}"
    );
    let status =
        AdminClient::new(harness.admin().await).get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.slowest_nodes.len(), 2, "{:?}", status.slowest_nodes);

    // And whom the first one concerned is away.
    let told = until(&mut watch(&harness, &other).await, "it is away", |state| state.concerned == 1).await;
    assert_eq!((told.state.as_str(), told.waiting[0].place.as_str()), ("pending", "n3"), "{told:?}");
    let (status, _, metrics) = harness.rest_as(Some(&harness.token), "GET", "/metrics", "").await;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert_eq!(status, StatusCode::OK);
    let counted =
        |stage: &str| format!("trestle_enforcement_seconds_count{{kind=\"policy\",stage=\"{stage}\"}} 2");
    for stage in ["stored", "computed", "sent", "enforced"] {
        assert!(metrics.contains(&counted(stage)), "{stage}: {metrics}");
    }
    assert!(metrics.contains("trestle_enforcement_pending 1"), "{metrics}");
    // By now the same again has nothing to wait for.
    assert_eq!(apply(&harness, &[closed("shop")]).await, None);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_over_rest_wait_by_a_word_in_the_query() {
    let harness = Harness::synced().await;
    let leaf = json!({ "ip": "10.0.0.5" }).to_string();
    let path = "/tags/db/applyMembers?wait=enforced";
    let (status, headers, body) = harness.rest_as(Some(&harness.token), "POST", path, leaf.clone()).await;
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &told["state"], &told["concerned"]), (StatusCode::OK, &json!("enforced"), &json!(0)));
    let change = headers["trestle-change"].to_str().unwrap();
    let (status, again) = harness.rest("GET", &format!("/enforcement/{change}?wait=enforced"), "").await;
    assert_eq!((status, &again["state"]), (StatusCode::OK, &json!("enforced")));
    // Who does not wait is told the name all the same, and answered as ever.
    let (_, headers, body) =
        harness.rest_as(Some(&harness.token), "POST", "/tags/db2/applyMembers", leaf).await;
    assert!(headers.contains_key("trestle-change") && &*body == b"{}");
    // A subscription changes nothing of who may talk to whom.
    let (_, headers, _) = harness.rest_as(Some(&harness.token), "PUT", "/tags/db/subscribers/me", "").await;
    assert!(!headers.contains_key("trestle-change"));
    for (path, wanted) in [
        ("/enforcement/1", StatusCode::NOT_FOUND),
        ("/enforcement/0123456789abcdef-1", StatusCode::NOT_FOUND),
        (&format!("/enforcement/{change}9"), StatusCode::NOT_FOUND),
        (&format!("/enforcement/{change}?wait=sometimes"), StatusCode::BAD_REQUEST),
    ] {
        let (status, told) = harness.rest("GET", path, "").await;
        assert_eq!(status, wanted, "{path}: {told}");
    }
    let refused = EnforcementClient::new(harness.admin().await)
        .watch_enforcement(EnforcementRequest { changes: Vec::new() })
        .await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);
    harness.stop().await;
}

/// Nor because it is still being worked out whom a change concerns.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_stops_right_after_a_change() {
    let harness = Harness::synced().await;
    let leaf = json!({ "ip": "10.0.0.5" }).to_string();
    for tag in ["a", "b", "c"] {
        harness.rest("POST", &format!("/tags/{tag}/applyMembers"), &leaf).await;
    }
    tokio::time::timeout(Duration::from_secs(60), harness.stop()).await.expect("it stops");
}

/// A controller does not stop later because somebody waits for what does not come.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_that_the_controller_stops() {
    let harness = Harness::synced().await;
    apply(&harness, &[pod("shop", "a", "n1", "10.0.0.1")]).await;
    let change = apply(&harness, &[closed("shop")]).await.unwrap();
    let mut states = watch(&harness, &change).await;
    let told = until(&mut states, "nobody is there", |state| state.state == "pending").await;
    assert!(told.waiting[0].reason.contains("no agent"), "{told:?}");
    let (stopped, told) = tokio::join!(harness.stop(), async {
        loop {
            match states.message().await {
                Ok(Some(_)) => {}
                ended => return ended,
            }
        }
    });
    assert_eq!(told.unwrap_err().code(), tonic::Code::Unavailable);
    drop(stopped);
}
