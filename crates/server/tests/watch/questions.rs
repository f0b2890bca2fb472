//! What people ask: members of groups, groups of a Pod and of an address, the deciding rule.

use http::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};
use watch::{MAGIC, proto};
use wire::trestle::v1::Role;

use testkit_controllers::controller::Fixture;

use crate::client::{API, Call, PROTOBUF, apply, node_token, pod, shop};

fn groups() -> Vec<Value> {
    let group = |kind: &str, metadata: Value, spec: Value| json!({ "apiVersion": "crd.antrea.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec });
    let web = json!({ "matchLabels": { "app": "web" } });
    vec![
        group(
            "ClusterGroup",
            json!({ "name": "web", "uid": "u-web" }),
            json!({ "podSelector": web, "namespaceSelector": {} }),
        ),
        group("ClusterGroup", json!({ "name": "both" }), json!({ "childGroups": ["web", "blocks"] })),
        group(
            "ClusterGroup",
            json!({ "name": "blocks" }),
            json!({ "ipBlocks": [{ "cidr": "10.20.0.0/30", "except": ["10.20.0.1/32"] }] }),
        ),
        group(
            "Group",
            json!({ "name": "db", "namespace": "shop" }),
            json!({ "podSelector": { "matchLabels": { "app": "db" } } }),
        ),
    ]
}

fn names(answer: &Value) -> Vec<String> {
    let groups = answer["associatedGroups"].as_array().unwrap().iter();
    groups
        .map(|group| {
            format!("{}/{}", group["namespace"].as_str().unwrap_or_default(), group["name"].as_str().unwrap())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_groups_come_in_pages() {
    let fixture = Fixture::start().await;
    let mut objects = shop();
    objects.extend((2..=7).map(|n| pod(&format!("web-{n}"), "web", "node-1", &format!("10.10.1.{}", n + 4))));
    objects.extend(groups());
    apply(&fixture, &objects).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: "application/json" };
    let get = async |path: &str| call.json("GET", &format!("{API}/{path}"), Value::Null).await;

    let (status, all) = get("clustergroupmembers/web").await;
    assert_eq!((status, &all["kind"]), (StatusCode::OK, &json!("ClusterGroupMembers")));
    assert_eq!(
        (&all["totalMembers"], &all["totalPages"], &all["metadata"]["uid"]),
        (&json!(7), &json!(1), &json!("u-web"))
    );
    let (_, page) = get("clustergroupmembers/web?page=3&limit=3").await;
    assert_eq!((&page["totalPages"], &page["currentPage"]), (&json!(3), &json!(3)));
    assert_eq!(page["effectiveMembers"].as_array().unwrap().len(), 1);
    assert_eq!(page["effectiveMembers"][0]["pod"]["name"], "web-7");
    assert_eq!(page["effectiveMembers"][0]["ips"][0], "AAAAAAAAAAAAAP//CgoBCw==");

    // Exceptions are taken out of blocks, which is where others are wrong.
    let (_, both) = get("clustergroupmembers/both").await;
    let lengths =
        both["effectiveIPBlocks"].as_array().unwrap().iter().map(|net| net["prefixLength"].as_i64().unwrap());
    assert_eq!((&both["totalMembers"], lengths.collect::<Vec<_>>()), (&json!(7), vec![32, 31]));
    let (_, own) = get("namespaces/shop/groupmembers/db").await;
    assert_eq!((&own["kind"], &own["totalMembers"]), (&json!("GroupMembers"), &json!(1)));

    assert_eq!(get("clustergroupmembers/nonesuch").await.0, StatusCode::NOT_FOUND);
    assert_eq!(get("namespaces/shop/groupmembers/web").await.0, StatusCode::NOT_FOUND);
    assert_eq!(get("clustergroupmembers/web?page=x").await.0, StatusCode::BAD_REQUEST);
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: PROTOBUF };
    let (_, _, body) = call.send("GET", &format!("{API}/clustergroupmembers/web"), Vec::new()).await;
    let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    let unknown = proto::Unknown::decode(bytes.strip_prefix(MAGIC).unwrap()).unwrap();
    assert_eq!(proto::ClusterGroupMembers::decode(&*unknown.raw).unwrap().effective_members.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_and_an_address_know_their_groups() {
    let fixture = Fixture::start().await;
    apply(&fixture, &[shop(), groups()].concat()).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: "application/json" };
    let get = async |path: &str| call.json("GET", &format!("{API}/{path}"), Value::Null).await;
    let (_, web) = get("namespaces/shop/groupassociations/web-1").await;
    assert_eq!(
        (&web["kind"], names(&web)),
        (&json!("GroupAssociation"), vec!["/both".into(), "/web".into()])
    );
    let (_, db) = get("ipgroupassociations/10.10.2.7").await;
    assert_eq!((&db["kind"], names(&db)), (&json!("IPGroupAssociation"), vec!["shop/db".into()]));
    let (_, block) = get("ipgroupassociations/10.20.0.2").await;
    assert_eq!(names(&block), ["/blocks", "/both"]);
    assert_eq!(names(&get("ipgroupassociations/10.20.0.1").await.1), Vec::<String>::new());
    assert_eq!(get("ipgroupassociations/nonsense").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(get("namespaces/shop/groupassociations/nobody").await.0, StatusCode::NOT_FOUND);

    // Whoever may read policies may ask; a node has no business with groups of others.
    let viewer = fixture.token_of(Role::Viewer).await;
    let call = Call { fixture: &fixture, token: Some(&viewer), accept: "application/json" };
    let path = format!("{API}/ipgroupassociations/10.10.2.7");
    assert_eq!(call.json("GET", &path, Value::Null).await.0, StatusCode::OK);
    let node = node_token(&fixture, "node-1").await;
    let call = Call { fixture: &fixture, token: Some(&node), accept: "application/json" };
    assert_eq!(call.json("GET", &path, Value::Null).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deciding_rule_is_told() {
    let fixture = Fixture::start().await;
    let mut objects = shop();
    objects.push(pod("batch", "batch", "node-1", "10.10.1.9"));
    apply(&fixture, &objects).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: "application/json" };
    let ask = async |from: &str, to: &str| {
        let end = |name: &str| json!({ "pod": { "namespace": "shop", "name": name } });
        let body = json!({ "request": { "source": end(from), "destination": end(to) } });
        call.json("POST", &format!("{API}/networkpolicyevaluation"), body).await
    };
    let (status, allowed) = ask("web-1", "db-0").await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(allowed["response"]["networkPolicy"]["type"], "K8sNetworkPolicy");
    assert_eq!(allowed["response"]["rule"], json!({ "direction": "In", "action": "Allow" }));
    let (_, denied) = ask("batch", "db-0").await;
    assert_eq!(
        (&denied["response"]["ruleIndex"], &denied["response"]["rule"]["action"]),
        (&json!(i32::MAX), &json!("Drop"))
    );
    assert_eq!(ask("web-1", "batch").await.1["response"], Value::Null, "no policy has a say");

    // A tier comes before Kubernetes policies, whatever the ports.
    let drop = json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": { "name": "stop" },
        "spec": {
            "priority": 5, "tier": "securityops", "appliedTo": [{ "namespaceSelector": {} }],
            "ingress": [{ "name": "no-web", "action": "Drop", "ports": [{ "port": 5432 }],
                          "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }] }],
        },
    });
    apply(&fixture, &[drop]).await;
    let (_, dropped) = ask("web-1", "db-0").await;
    assert_eq!(dropped["response"]["rule"]["name"], "no-web");
    assert_eq!(ask("nobody", "db-0").await.0, StatusCode::NOT_FOUND);
    let path = format!("{API}/networkpolicyevaluation");
    for body in
        [json!({}), json!({ "request": {} }), json!([1]), json!({ "request": { "source": { "pod": 7 } } })]
    {
        assert_eq!(call.json("POST", &path, body.clone()).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
}
