//! Agents that follow a controller through restarts, and policies too large to be told.

use std::{collections::BTreeMap, net::SocketAddr};

use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use serde_json::{Value, json};
use watch::proto;

use testkit_controllers::controller::{Fixture, tls};

use crate::client::{API, Call, Frames, PROTOBUF, apply, node_token, pod, shop};

/// Groups and the addresses in them, kept as a stock agent keeps them.
type Held = BTreeMap<String, BTreeMap<String, Vec<Vec<u8>>>>;

/// None if the controller is not there, or too busy.
pub(crate) async fn open(ca: &str, addr: SocketAddr, token: &str, node: &str) -> Option<Frames> {
    let stream = tls(ca, addr).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let path = format!("{API}/addressgroups?fieldSelector=nodeName%3D{node}&watch=true");
    let request = Request::builder().uri(path).header("host", "localhost").header(header::ACCEPT, PROTOBUF);
    let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    let response = sender.send_request(request.body(Full::new(bytes::Bytes::new())).unwrap()).await.ok()?;
    (response.status() == StatusCode::OK).then(|| Frames::of(response.into_body()))
}

fn put(members: &mut BTreeMap<String, Vec<Vec<u8>>>, list: Vec<proto::GroupMember>) {
    members.extend(list.into_iter().map(|member| (member.pod.unwrap().name, member.ips)));
}

/// Reads until the stream ends or the group has `until` in it; what was known before is replaced at the bookmark.
async fn follow(mut frames: Frames, mut held: Held, until: Option<&str>) -> Held {
    let mut initial = Some(Held::new());
    loop {
        let is_there =
            |held: &Held| until.is_some_and(|name| held.values().any(|group| group.contains_key(name)));
        if initial.is_none() && is_there(&held) {
            return held;
        }
        let Some((event, kind, object)) = frames.next().await else { return held };
        let target = initial.as_mut().unwrap_or(&mut held);
        match (event.as_str(), kind.as_str()) {
            ("ADDED", "AddressGroup") => {
                let group = proto::AddressGroup::decode(&*object).unwrap();
                let mut members = BTreeMap::new();
                put(&mut members, group.group_members);
                assert!(target.insert(group.metadata.name, members).is_none(), "told twice");
            }
            ("MODIFIED", "AddressGroupPatch") => {
                let patch = proto::AddressGroupPatch::decode(&*object).unwrap();
                let members = target.get_mut(&patch.metadata.name).expect("only what is there is patched");
                for member in patch.removed_group_members {
                    assert!(members.remove(&member.pod.unwrap().name).is_some());
                }
                put(members, patch.added_group_members);
            }
            ("DELETED", "AddressGroup") => {
                let group = proto::AddressGroup::decode(&*object).unwrap();
                assert!(target.remove(&group.metadata.name).is_some());
            }
            ("BOOKMARK", _) => held = initial.take().expect("one bookmark and no more"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_follow_through_restarts_under_load_end_with_the_truth() {
    const AGENTS: usize = 8;
    let mut fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let token = node_token(&fixture, "node-2").await;
    let mut held = vec![Held::new(); AGENTS];
    for epoch in 0..3 {
        let (ca, addr) = (fixture.ca.clone(), fixture.controller.watch_addr());
        let mut agents = Vec::new();
        for held in held.drain(..) {
            let frames = open(&ca, addr, &token, "node-2").await.expect("the controller is up");
            agents.push(tokio::spawn(follow(frames, held, None)));
        }
        for n in 0..25 {
            apply(
                &fixture,
                &[pod(&format!("web-{n}"), "web", "node-1", &format!("10.{}.1.{}", 30 + epoch, n + 1))],
            )
            .await;
        }
        // It stops while agents are still reading what was just written.
        let dir = fixture.stop().await;
        for agent in agents {
            held.push(agent.await.unwrap());
        }
        fixture = Fixture::start_in(dir, |_| {}).await;
    }
    apply(&fixture, &[pod("web-last", "web", "node-1", "10.99.0.1")]).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: "application/json" };
    let (_, truth) = call.json("GET", &format!("{API}/addressgroups"), Value::Null).await;
    assert_eq!(truth["items"][0]["groupMembers"].as_array().unwrap().len(), 26);
    for held in held {
        let frames = open(&fixture.ca, fixture.controller.watch_addr(), &token, "node-2").await.unwrap();
        let held = follow(frames, held, Some("web-last")).await;
        let members = held.values().next().unwrap();
        assert_eq!((held.len(), members.len()), (1, 26));
        assert_eq!(
            members["web-7"],
            [std::net::Ipv4Addr::new(10, 32, 1, 8).to_ipv6_mapped().octets().to_vec()]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_reports_are_awaited_again() {
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let report = async |fixture: &Fixture| {
        let call = Call { fixture, token: Some(&fixture.token), accept: "application/json" };
        let (_, policies) = call.json("GET", &format!("{API}/networkpolicies"), Value::Null).await;
        let metadata = &policies["items"][0]["metadata"];
        let node = json!({ "nodeName": "node-2", "generation": metadata["generation"] });
        let path = format!("{API}/networkpolicies/{}/status", metadata["name"].as_str().unwrap());
        let body = json!({ "metadata": {}, "nodes": [node] });
        assert_eq!(call.json("POST", &path, body).await.0, StatusCode::CREATED);
    };
    let phase = async |fixture: &Fixture| fixture.rest("GET", "/policies", "").await.1[0]["phase"].clone();
    assert_eq!(phase(&fixture).await, "Realizing");
    report(&fixture).await;
    assert_eq!(phase(&fixture).await, "Realized");
    // What nobody has said to this process is not claimed by it.
    let fixture = Fixture::start_in(fixture.stop().await, |_| {}).await;
    assert_eq!(phase(&fixture).await, "Realizing");
    report(&fixture).await;
    assert_eq!(phase(&fixture).await, "Realized");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_too_large_for_a_frame_is_told_closed_and_says_so() {
    let fixture = Fixture::start().await;
    let mut objects = shop();
    objects.extend((0..220).map(
        |n| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("n-{n}") } }),
    ));
    // 220 namespaces times 200 rules, each with a rule of its own per namespace.
    let rule = |n: usize| {
        json!({
            "action": "Allow", "name": format!("r{n}"), "ports": [{ "port": n + 1 }],
            "from": [{ "namespaces": { "match": "Self" } }],
        })
    };
    objects.push(json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy", "metadata": { "name": "bomb" },
        "spec": {
            "priority": 5, "appliedTo": [{ "namespaceSelector": {} }],
            "ingress": (0..200).map(rule).collect::<Vec<_>>(),
        },
    }));
    apply(&fixture, &objects).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: PROTOBUF };
    let mut policies = call.watch("networkpolicies?watch=true").await;
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(proto::NetworkPolicy::decode(&*policies.expect("ADDED", "NetworkPolicy").await).unwrap());
    }
    let bomb = told.iter().find(|policy| policy.source_ref.as_ref().unwrap().name == "bomb").unwrap();
    assert_eq!((bomb.rules.len(), bomb.rules[0].action.as_deref()), (1, Some("Drop")));
    let (_, policies) = fixture.rest("GET", "/policies", "").await;
    let state = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "bomb").unwrap();
    assert!(state["problems"][0]["message"].as_str().unwrap().contains("do not fit a frame"), "{state}");
}
