//! Resources, rules, links and jobs through a whole controller, over REST and gRPC, on fake clouds.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;

use cloud_api::{
    FakeCloud, Faults,
    grpc::{PluginService, RemoteCloud},
    prelude::*,
};
use http::StatusCode;
use serde_json::{Value, json};
use server::{
    CertificateFiles, CloudConfig, PluginConfig,
    pki::{self, Pki},
};
use testkit_controllers::controller::{Fixture, call_with};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};
use wire::{
    invisinetspb::{
        ConnectCloudsRequest, FindUnusedAsnRequest, Namespace, cloud_plugin_server::CloudPluginServer,
        controller_client::ControllerClient,
    },
    paragliderpb,
    trestle::v1::{
        ListLinksRequest, Role, cloud_extension_server::CloudExtensionServer,
        orchestrator_client::OrchestratorClient,
    },
};

async fn controller() -> Fixture {
    let cloud = |name: &str| CloudConfig { name: name.parse().unwrap(), plugin: PluginConfig::Fake {} };
    let fixture = Fixture::start_with(|config| config.clouds = vec![cloud("azure"), cloud("gcp")]).await;
    // Clouds are known as soon as their plugins answer.
    for _ in 0..200 {
        let (status, _) = fixture.rest("PUT", &path("azure", "probe?dry_run=true"), &description("r")).await;
        if status == StatusCode::OK {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    fixture
}

fn path(cloud: &str, rest: &str) -> String {
    format!("/namespaces/default/clouds/{cloud}/resources/{rest}")
}

fn description(text: &str) -> String {
    json!({ "description": text }).to_string()
}

async fn job(fixture: &Fixture, reply: (StatusCode, Value)) -> Value {
    let (status, body) = reply;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    let id = body["id"].as_str().unwrap();
    fixture.rest("GET", &format!("/jobs/{id}?wait=true"), "").await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_original_projects_routes_make_two_clouds_talk() {
    let fixture = controller().await;
    let made = fixture.rest("PUT", &path("azure", "a?wait=true"), &description("west")).await;
    assert_eq!((made.0, made.1["name"].as_str()), (StatusCode::OK, Some("default.azure.a")), "{}", made.1);
    // PUT and POST agree, and the resource's tag resolves afterwards.
    let body = json!({ "name": "b", "description": "east" }).to_string();
    let ended =
        job(&fixture, fixture.rest("POST", "/namespaces/default/clouds/gcp/resources", &body).await).await;
    assert_eq!(ended["state"], "done", "{ended}");
    let (_, resolved) = fixture.rest("POST", "/tags/default.gcp.b/resolveMembers", "").await;
    let ip = fixture.rest("GET", &path("gcp", "b"), "").await.1["ip"].as_str().unwrap().to_owned();
    assert_eq!(resolved[0]["ip"].as_str(), Some(ip.as_str()));
    let rule = json!({ "name": "ping", "tags": ["default.gcp.b"], "direction": 1, "protocol": 1,
        "src_port": -1, "dst_port": -1, "targets": ["9.9.9.9"] });
    let (status, plan) =
        fixture.rest("POST", &path("azure", "a/rules?dry_run=true"), &rule.to_string()).await;
    assert!(
        status == StatusCode::OK && plan.to_string().contains("link default.azure and default.gcp"),
        "{plan}"
    );
    // As there, one end is reason enough for a link, unless the caller says otherwise.
    let modest =
        fixture.rest("POST", &path("azure", "a/rules?dry_run=true&build=false"), &rule.to_string()).await;
    assert!(modest.0 == StatusCode::OK && !modest.1.to_string().contains("link default"), "{}", modest.1);
    let ended = job(&fixture, fixture.rest("POST", &path("azure", "a/rules"), &rule.to_string()).await).await;
    assert_eq!(ended["state"], "done", "{ended}");
    // The targets are what the tag resolves to, not what the user sent.
    let (_, rules) = fixture.rest("GET", &path("azure", "a/rules"), "").await;
    assert_eq!(rules[0]["targets"], json!([ip]), "{rules}");
    let mut client = OrchestratorClient::new(fixture.admin().await);
    let links = client.list_links(ListLinksRequest {}).await.unwrap().into_inner().links;
    assert_eq!((links.len(), links[0].state.as_str()), (1, "ready"));
    let (status, _) = fixture.rest("DELETE", &path("azure", "a/rules/ping?wait=true"), "").await;
    assert_eq!(status, StatusCode::OK);
    for (cloud, name) in [("azure", "a"), ("gcp", "b")] {
        let (status, body) = fixture.rest("DELETE", &path(cloud, &format!("{name}?wait=true")), "").await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    assert_eq!(fixture.rest("GET", "/tags/default.gcp.b", "").await.0, StatusCode::NOT_FOUND);
    fixture.stop().await;
}

/// Paraglider's command line as it is: no type of its bodies, 200 or an error, and strings in the answer to a create.
#[tokio::test(flavor = "multi_thread")]
async fn paragliders_own_command_line_is_answered_as_it_expects() {
    let fixture = controller().await;
    let token = ("authorization", format!("Bearer {}", fixture.token));
    let glide = async |extra: &[(&str, String)], method: &str, path: &str, body: String| {
        let headers: Vec<_> = [token.clone()].into_iter().chain(extra.iter().cloned()).collect();
        let addr = fixture.controller.http_addr();
        let (status, _, body) = call_with(&fixture.ca, addr, &headers, method, path, body.into()).await;
        (status, serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null))
    };
    for (cloud, name) in [("azure", "a"), ("gcp", "b")] {
        let (status, made) = glide(&[], "PUT", &path(cloud, name), description("west")).await;
        assert_eq!(status, StatusCode::OK, "{made}");
        let made: std::collections::BTreeMap<String, String> = serde_json::from_value(made).unwrap();
        assert_eq!(made["name"], format!("default.{cloud}.{name}"));
        assert!(!made["ip"].is_empty() && !made["uri"].is_empty());
    }
    // A resource's tag is its own: lists that name it would permit another machine.
    for (method, path, body) in [
        ("POST", "/tags/default.gcp.b/applyMembers", json!({ "ip": "10.2.0.1" }).to_string()),
        ("DELETE", "/tags/default.gcp.b", String::new()),
    ] {
        let (status, body) = glide(&[], method, path, body).await;
        assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("FAILED_PRECONDITION")), "{body}");
    }
    let rules = json!([{ "name": "ping-in-b", "tags": ["default.gcp.b"], "src_port": -1, "dst_port": -1,
        "protocol": 1 }]);
    let (status, body) = glide(&[], "POST", &path("azure", "a/applyRules"), rules.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (_, listed) = glide(&[], "GET", &path("azure", "a/rules"), String::new()).await;
    assert_eq!(listed[0]["name"], "ping-in-b");
    let (status, body) =
        glide(&[], "POST", &path("azure", "a/deleteRules"), json!(["ping-in-b"]).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let tag = json!({ "name": "iptag", "ip": "1.1.1.1" }).to_string();
    assert_eq!(glide(&[], "POST", "/tags/iptag/applyMembers", tag.clone()).await.0, StatusCode::OK);
    assert_eq!(glide(&[], "DELETE", "/tags/iptag", String::new()).await.0, StatusCode::OK);
    // A page of others cannot pass for it: browsers say where they come from, or whose session they have.
    for header in ["origin", "cookie", "sec-fetch-site"] {
        let from_a_page = [(header, "https://elsewhere.example".to_owned())];
        let (status, body) = glide(&from_a_page, "POST", "/tags/iptag/applyMembers", tag.clone()).await;
        assert!(status.is_client_error(), "{header}: {status} {body}");
    }
    fixture.stop().await;
}

/// What `glide` sent for each of its commands (labs/glide) is sent once more, and answered with the same code.
#[tokio::test(flavor = "multi_thread")]
async fn what_glide_sends_is_answered_as_recorded() {
    let fixture = controller().await;
    let token = ("authorization", format!("Bearer {}", fixture.token));
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/glide.jsonl");
    let mut sent = 0;
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(line["type"], Value::Null, "glide says no type of its bodies");
        let (method, path, addr) = (text("method"), text("path"), fixture.controller.http_addr());
        let headers = [token.clone()];
        let (status, _, body) =
            call_with(&fixture.ca, addr, &headers, &method, &path, text("body").into()).await;
        let body = String::from_utf8_lossy(&body);
        assert_eq!(u64::from(status.as_u16()), line["status"], "{method} {path}: {body}");
        sent += 1;
    }
    assert!(sent > 20, "{sent}");
    fixture.stop().await;
}

/// What cannot be is refused, with a code that says why.
#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused() {
    let fixture = controller().await;
    fixture.rest("PUT", &path("azure", "a?wait=true"), &description("west")).await;
    let rule = |tags: Value| {
        json!({ "name": "r", "tags": tags, "protocol": 6, "src_port": -1, "dst_port": 80 }).to_string()
    };
    let attach = "/namespaces/default/clouds/azure/resources";
    for (method, path, body, status) in [
        ("PUT", path("nowhere", "x"), description("west"), StatusCode::NOT_FOUND),
        (
            "PUT",
            "/namespaces/nope/clouds/azure/resources/x".to_owned(),
            description("west"),
            StatusCode::NOT_FOUND,
        ),
        ("PUT", path("azure", "a"), description("west"), StatusCode::CONFLICT),
        ("PUT", path("azure", "x"), description("west network"), StatusCode::BAD_REQUEST),
        ("PUT", path("azure", "x.y"), description("west"), StatusCode::BAD_REQUEST),
        ("PUT", path("azure", "x"), "{".to_owned(), StatusCode::BAD_REQUEST),
        ("POST", attach.to_owned(), "{}".to_owned(), StatusCode::BAD_REQUEST),
        ("POST", path("azure", "nobody/rules"), rule(json!(["8.8.8.8"])), StatusCode::NOT_FOUND),
        ("POST", path("azure", "a/rules"), rule(json!([])), StatusCode::BAD_REQUEST),
        ("DELETE", path("azure", "a/rules/none"), String::new(), StatusCode::NOT_FOUND),
        ("DELETE", "/jobs/none".to_owned(), String::new(), StatusCode::NOT_FOUND),
    ] {
        let (found, reply) = fixture.rest(method, &path, &body).await;
        assert_eq!(found, status, "{method} {path}: {reply}");
    }
    for tags in [json!(["unknown"]), json!(["192.168.1.1"])] {
        let (status, reply) = fixture.rest("POST", &path("azure", "a/rules"), &rule(tags)).await;
        assert!(status.is_client_error() && reply["code"] == "FAILED_PRECONDITION", "{reply}");
    }
    fixture.stop().await;
}

/// Paraglider's own service, for a plugin with its certificate.
#[tokio::test(flavor = "multi_thread")]
async fn plugins_get_spaces_and_links() {
    let fixture = controller().await;
    let identity = fixture.issue(Role::Plugin, "azure").await.identity();
    let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
    let mut plugin = ControllerClient::new(channel.clone());
    let namespace = Namespace { namespace: "default".to_owned() };
    // Nothing is held.
    for _ in 0..2 {
        let unused = plugin.find_unused_address_space(namespace.clone()).await.unwrap().into_inner();
        assert_eq!(unused.address, "10.0.0.0/16");
    }
    fixture.rest("PUT", &path("azure", "a?wait=true"), &description("west")).await;
    let used = plugin.get_used_address_spaces(namespace).await.unwrap().into_inner().address_space_mappings;
    assert_eq!((used.len(), used[0].address_spaces.as_slice()), (1, ["10.0.0.0/16".to_owned()].as_slice()));
    let request = ConnectCloudsRequest {
        cloud_a: "azure".to_owned(),
        cloud_b: "gcp".to_owned(),
        cloud_a_namespace: "default".to_owned(),
        cloud_b_namespace: "default".to_owned(),
        ..ConnectCloudsRequest::default()
    };
    for _ in 0..2 {
        assert!(plugin.connect_clouds(request.clone()).await.unwrap().into_inner().success);
    }
    // From the second revision on, the namespaces are where the first has address spaces.
    let later = ConnectCloudsRequest {
        cloud_a_address_space: "default".to_owned(),
        cloud_b_address_space: "default".to_owned(),
        cloud_a_namespace: String::new(),
        cloud_b_namespace: String::new(),
        ..request.clone()
    };
    assert!(plugin.connect_clouds(later.clone()).await.unwrap().into_inner().success);
    let unsure = ConnectCloudsRequest { cloud_a_namespace: "default".to_owned(), ..later };
    assert_eq!(plugin.connect_clouds(unsure).await.unwrap_err().code(), Code::InvalidArgument);
    assert_ne!(plugin.find_unused_asn(FindUnusedAsnRequest {}).await.unwrap().into_inner().asn, 0);
    // And today's have a package of their own.
    let mut today = paragliderpb::controller_client::ControllerClient::new(channel.clone());
    let used = today.get_used_address_spaces(()).await.unwrap().into_inner().address_space_mappings;
    assert_eq!((used.len(), used[0].namespace.as_str()), (1, "default"));
    let sizes = paragliderpb::FindUnusedAddressSpacesRequest { sizes: vec![200, 1000] };
    let spaces = today.find_unused_address_spaces(sizes).await.unwrap().into_inner().address_spaces;
    assert_eq!(spaces.len(), 2);
    let connect = paragliderpb::ConnectCloudsRequest {
        cloud_a: "azure".to_owned(),
        cloud_b: "gcp".to_owned(),
        cloud_a_namespace: "default".to_owned(),
        cloud_b_namespace: "default".to_owned(),
        ..Default::default()
    };
    today.connect_clouds(connect).await.unwrap();
    let (key, cloud, namespace) = ("sg-rule/1".to_owned(), "ibm".to_owned(), "default".to_owned());
    let get = paragliderpb::GetValueRequest { key, cloud, namespace };
    assert_eq!(today.get_value(get.clone()).await.unwrap_err().code(), Code::NotFound);
    let set = paragliderpb::SetValueRequest {
        key: get.key.clone(),
        value: "r006-1".to_owned(),
        cloud: get.cloud.clone(),
        namespace: get.namespace.clone(),
    };
    today.set_value(set).await.unwrap();
    assert_eq!(today.get_value(get).await.unwrap().into_inner().value, "r006-1");
    let same = ConnectCloudsRequest { cloud_b: "azure".to_owned(), ..request };
    assert_eq!(plugin.connect_clouds(same).await.unwrap_err().code(), Code::InvalidArgument);
    // A plugin is no operator.
    let mut operator = OrchestratorClient::new(channel);
    let refused = operator.list_links(ListLinksRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    fixture.stop().await;
}

/// A plugin in its own process, mTLS both ways: the controller shows its certificate, and strangers get nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_behind_mutual_tls_is_a_cloud_like_any_other() {
    for shows_its_own in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let now = time::OffsetDateTime::from(std::time::SystemTime::now());
        let controller_ca = Pki::open(&dir.path().join("pki"), now).unwrap().ca_pem().to_owned();
        let authority = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = params.self_signed(&authority).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, authority);
        let issue = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (client_pem, client_key) = issue("controller.example");
        let (client_ca, admitted, client) = match shows_its_own {
            true => (&controller_ca, pki::CONTROLLER, None),
            false => {
                let (certificate, key) = (write("c.pem", &client_pem), write("c.key", &client_key));
                (&ca_pem, "controller.example", Some(CertificateFiles { certificate, key }))
            }
        };
        let url = plugin(issue("127.0.0.1"), client_ca, admitted).await;
        let ca = Some(write("ca.pem", &ca_pem));
        let plugin = PluginConfig::Remote { url: url.clone(), ca, client, revision: None };
        let far = CloudConfig { name: "far".parse().unwrap(), plugin };
        let fixture = Fixture::start_in(dir, |config| config.clouds = vec![far]).await;
        let mut status = StatusCode::NOT_FOUND;
        for _ in 0..100 {
            status = fixture.rest("PUT", &path("far", "a?wait=true"), &description("west")).await.0;
            if status == StatusCode::OK {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(status, StatusCode::OK);
        let stranger = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca_pem));
        let channel = Endpoint::from_shared(url).unwrap().tls_config(stranger).unwrap().connect_lazy();
        assert!(RemoteCloud::new(channel).describe().await.is_err());
        fixture.stop().await;
    }
}

/// A plugin that obeys one name only, as `trestle plugin` does.
async fn plugin((certificate, key): (String, String), client_ca: &str, admitted: &'static str) -> String {
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(Certificate::from_pem(client_ca));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let name: model::Segment = "far".parse().unwrap();
    let service = PluginService::new(name.clone(), Arc::new(FakeCloud::new(name)));
    let admit = move |request: tonic::Request<()>| {
        let now = time::OffsetDateTime::from(std::time::SystemTime::now());
        let chain = request.peer_certs();
        let leaf = chain.as_ref().and_then(|chain| chain.first());
        match leaf.is_some_and(|leaf| pki::is_for(leaf, admitted, now)) {
            true => Ok(request),
            false => Err(tonic::Status::permission_denied(admitted)),
        }
    };
    let router = Server::builder()
        .tls_config(tls)
        .unwrap()
        .add_service(CloudPluginServer::with_interceptor(service.clone(), admit))
        .add_service(CloudExtensionServer::with_interceptor(service, admit));
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    url
}

/// Whoever waits until a rule is in force waits for the cloud, and is told why it does not have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_in_force_when_its_cloud_has_it() {
    let name: model::Segment = "far".parse().unwrap();
    let cloud = Arc::new(FakeCloud::new(name.clone()));
    let service = PluginService::new(name.clone(), Arc::clone(&cloud) as _);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Server::builder()
        .add_service(CloudPluginServer::new(service.clone()))
        .add_service(CloudExtensionServer::new(service));
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    let plugin = PluginConfig::Remote { url, ca: None, client: None, revision: None };
    let fixture = Fixture::start_with(|config| config.clouds = vec![CloudConfig { name, plugin }]).await;
    let until = async |what: &str, path: &str, holds: &dyn Fn(&Value) -> bool| {
        let mut told = Value::Null;
        for _ in 0..600 {
            told = fixture.rest("GET", path, "").await.1;
            if holds(&told) {
                return told;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("{what}: {told}");
    };
    let mut status = StatusCode::NOT_FOUND;
    for _ in 0..600 {
        status = fixture.rest("PUT", &path("far", "a?wait=true"), &description("west")).await.0;
        if status == StatusCode::OK {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(status, StatusCode::OK, "the plugin answers");

    cloud.set_faults(Faults { before: 1000, ..Faults::default() });
    let rule =
        json!({ "tags": ["8.8.8.0/24"], "direction": 0, "protocol": 6, "src_port": -1, "dst_port": 22 });
    let put = path("far", "a/rules/ssh");
    let (status, headers, _) = fixture.rest_as(Some(&fixture.token), "PUT", &put, rule.to_string()).await;
    assert!(status.is_success(), "{status}");
    let change = headers["trestle-change"].to_str().unwrap().to_owned();
    let change = format!("/enforcement/{change}");
    let waits = |told: &Value| {
        let place = &told["waiting"][0];
        let reason = place["reason"].as_str().unwrap_or_default();
        place["place"] == "default.far.a" && reason.contains("does not answer")
    };
    let told = until("it is said who does not have it, and why", &change, &waits).await;
    assert_eq!(
        (&told["state"], &told["concerned"], &told["enforced"]),
        (&json!("pending"), &json!(1), &json!(0))
    );
    let (_, rules) = cloud.truth(&"default.far.a".parse().unwrap()).unwrap();
    assert!(rules.is_empty(), "{rules:?}");

    cloud.set_faults(Faults::default());
    let told = until("it is in force", &change, &|told| told["state"] == "enforced").await;
    assert_eq!((&told["concerned"], &told["enforced"]), (&json!(1), &json!(1)));
    let (_, rules) = cloud.truth(&"default.far.a".parse().unwrap()).unwrap();
    assert_eq!(rules.len(), 1, "and the cloud has it");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_to_resources_and_rules_is_on_record() {
    let fixture = controller().await;
    let made = fixture.rest("PUT", &path("azure", "a?wait=true"), &description("secret-west")).await;
    assert_eq!(made.0, StatusCode::OK, "{}", made.1);
    let rule =
        json!({ "tags": ["8.8.8.0/24"], "direction": 0, "protocol": 6, "src_port": -1, "dst_port": 22 });
    job(&fixture, fixture.rest("PUT", &path("azure", "a/rules/ssh"), &rule.to_string()).await).await;
    job(&fixture, fixture.rest("DELETE", &path("azure", "a/rules/ssh"), "").await).await;
    fixture.rest("DELETE", &path("azure", "a?wait=true"), "").await;
    let (_, records) = fixture.rest("GET", "/audit?object=default.azure.a", "").await;
    let told: Vec<_> = records
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|record| {
            let change = &record["changes"][0];
            (
                change["object"].as_str().unwrap(),
                change["what"].as_str().unwrap(),
                change["fields"].to_string(),
            )
        })
        .collect();
    let [made, put, deleted, gone] = told.as_slice() else { panic!("{records:#}") };
    assert_eq!((made.0, made.1, made.2.as_str()), ("resource default.azure.a", "created", "null"));
    assert_eq!((put.0, put.1), ("rules of default.azure.a", "changed"));
    assert!(put.2.contains(r#"{"after":"8.8.8.0/24","path":"ssh.peers[0]"}"#), "{}", put.2);
    assert!(deleted.2.contains(r#"{"before":"8.8.8.0/24","path":"ssh.peers[0]"}"#), "{}", deleted.2);
    assert_eq!((gone.0, gone.1), ("resource default.azure.a", "deleted"));
    let log = std::fs::read_to_string(fixture.dir.path().join("audit.log")).unwrap();
    assert!(!log.contains("secret-west"), "descriptions of resources may hold secrets");
}
