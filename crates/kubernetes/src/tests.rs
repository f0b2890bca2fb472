//! A cluster is read from an API server in memory, over HTTP.

mod real;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use life::Life;
use model::policy::Kind;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use crate::{Access, Cluster, Event, RESOURCES, Resource, Standing, Told, testing::ApiServer};

/// What is known when what was told is taken as it is meant, and how.
struct Reader {
    cluster: std::sync::Arc<Cluster>,
    told: mpsc::Receiver<Told>,
    known: BTreeMap<(Kind, String), Value>,
    listed: BTreeMap<Kind, Vec<String>>,
    /// How often each kind was told as a whole.
    wholes: BTreeMap<Kind, usize>,
    _life: Life,
    _dir: tempfile::TempDir,
}

impl Reader {
    fn start(server: &ApiServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        server.write_kubeconfig(&kubeconfig).unwrap();
        Self::at(Access { kubeconfig: Some(kubeconfig), context: None }, dir)
    }

    fn at(access: Access, dir: tempfile::TempDir) -> Self {
        let life = Life::default();
        let (cluster, told) = Cluster::start("test", access, &life);
        let (known, listed, wholes) = Default::default();
        Self { cluster, told, known, listed, wholes, _life: life, _dir: dir }
    }

    /// Takes in what is told until that is so.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let seen = timeout(Duration::from_secs(60), async {
            while !is_so(self) {
                match timeout(Duration::from_millis(50), self.told.recv()).await {
                    Ok(Some(told)) => self.take(told),
                    Ok(None) => panic!("the cluster is read no more"),
                    Err(_) => {}
                }
            }
        });
        let seen = seen.await.is_ok();
        assert!(seen, "{what}: {:?}, {:?}", self.known.keys(), self.cluster.state());
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Begin(kind) => drop(self.listed.insert(kind, Vec::new())),
            Told::Apply(kind, object) => {
                let name = name(&object);
                if let Some(listed) = self.listed.get_mut(&kind) {
                    listed.push(name.clone());
                }
                self.known.insert((kind, name), object);
            }
            Told::Delete(kind, object) => drop(self.known.remove(&(kind, name(&object)))),
            Told::Complete(kind) => {
                let listed = self.listed.remove(&kind).unwrap();
                self.known.retain(|(of, name), _| *of != kind || listed.contains(name));
                *self.wholes.entry(kind).or_default() += 1;
            }
        }
    }

    fn pods(&self) -> Vec<&str> {
        self.known.keys().filter(|(kind, _)| *kind == Kind::Pod).map(|(_, name)| name.as_str()).collect()
    }

    fn standing(&self, kind: Kind) -> Standing {
        self.cluster.state().kinds.into_iter().find(|state| state.kind == kind).unwrap().standing
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}})
}

fn tier() -> (Resource, Value) {
    let resource = RESOURCES.iter().find(|resource| resource.kind == Kind::Tier).unwrap();
    let metadata = json!({"name": "mine"});
    (
        *resource,
        json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "Tier", "metadata": metadata, "spec": {"priority": 7}}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_state_comes_whole_and_then_what_changes() {
    for streaming in [true, false] {
        let server = ApiServer::start().await;
        server.stream(streaming);
        // More than a page.
        (0..1203).for_each(|number| server.put(pod(&format!("p{number:04}"))));
        let mut reader = Reader::start(&server);
        reader
            .until("everything is known", |it| {
                it.cluster.state().is_known() && it.wholes.len() == crate::RESOURCES.len()
            })
            .await;
        assert_eq!(reader.pods().len(), 1203);
        assert_eq!(reader.standing(Kind::Tier), Standing::Absent);
        server.put(pod("new"));
        server.delete(&pod("p0007"));
        reader
            .until("changes are heard", |it| it.pods().contains(&"new") && !it.pods().contains(&"p0007"))
            .await;
        let lists = server.asked(&["/pods", "limit=500"]);
        assert_eq!(lists, if streaming { 0 } else { 3 }, "a state is streamed where that is possible");
        assert_eq!(reader.cluster.state().version, "v1.34.0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_costs_what_changed_meanwhile_and_no_first_state() {
    let server = ApiServer::start().await;
    server.put(pod("a"));
    let mut reader = Reader::start(&server);
    reader.until("it is known", |it| it.cluster.state().is_known()).await;
    server.stop().await;
    reader.until("it is missed", |it| matches!(it.standing(Kind::Pod), Standing::Failed(_))).await;
    assert_eq!(reader.pods(), ["a"], "a fault takes nothing away");
    assert!(reader.cluster.state().is_known(), "what was known stays so");
    server.put(pod("b"));
    server.delete(&pod("a"));
    server.go_on().await;
    reader.until("what was missed is heard", |it| it.pods() == ["b"]).await;
    reader.until("it is whole again", |it| it.standing(Kind::Pod) == Standing::InSync).await;
    assert_eq!(reader.wholes[&Kind::Pod], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_too_far_behind_begins_anew_and_what_is_gone_goes() {
    let server = ApiServer::start().await;
    ["a", "b"].iter().for_each(|name| server.put(pod(name)));
    let mut reader = Reader::start(&server);
    reader.until("both are known", |it| it.cluster.state().is_known() && it.pods().len() == 2).await;
    server.stop().await;
    server.delete(&pod("a"));
    server.forget();
    server.go_on().await;
    reader.until("the state is told anew", |it| it.wholes[&Kind::Pod] == 2).await;
    assert_eq!(reader.pods(), ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_found_when_it_is_installed_and_gone_when_it_is_not_any_more() {
    let server = ApiServer::start().await;
    let mut reader = Reader::start(&server);
    reader.until("all else is known", |it| it.cluster.state().is_known()).await;
    let (resource, mine) = tier();
    server.install(&resource);
    server.put(mine);
    reader.until("it is found", |it| it.known.contains_key(&(Kind::Tier, "mine".to_owned()))).await;
    server.uninstall(&resource);
    reader.until("it is gone", |it| it.known.is_empty()).await;
    // That is told first, and noted when it has been taken.
    reader.until("it is absent", |it| it.standing(Kind::Tier) == Standing::Absent).await;
    assert!(server.asked(&["/tiers"]) >= 4, "it was not believed at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_cluster_has_is_never_absent() {
    let server = ApiServer::start().await;
    let pods = RESOURCES.iter().find(|resource| resource.kind == Kind::Pod).unwrap();
    server.uninstall(pods);
    let mut reader = Reader::start(&server);
    reader.until("it is missed", |it| matches!(it.standing(Kind::Pod), Standing::Failed(_))).await;
    assert!(!reader.cluster.state().is_known());
    server.install(pods);
    reader.until("it is there", |it| it.cluster.state().is_known()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_cannot_be_asked_says_why() {
    let server = ApiServer::start().await;
    server.stop().await;
    let mut reader = Reader::start(&server);
    reader.until("it is said", |it| it.cluster.state().trouble.is_some()).await;
    server.go_on().await;
    reader.until("it is reached", |it| it.cluster.state().is_known()).await;
    assert_eq!(reader.cluster.state().trouble, None);
}

/// `verb group/resource` of a request.
fn used(request: &str) -> Option<String> {
    let (method, uri) = request.split_once(' ').unwrap();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    let group = match parts.remove(0) {
        "api" => "",
        "apis" => parts.remove(0),
        _ => return None,
    };
    parts.remove(0);
    if parts.len() > 2 && parts[0] == "namespaces" {
        parts.drain(..2);
    }
    let resource = match parts.as_slice() {
        [resource, _, part] => format!("{resource}/{part}"),
        [resource, ..] => (*resource).to_owned(),
        [] => return None,
    };
    let verb = match (method, parts.len()) {
        ("GET", 1) if query.contains("watch=true") => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("PATCH", _) => "patch",
        ("POST", _) => "create",
        other => panic!("{other:?} is not expected"),
    };
    Some(format!("{verb} {group}/{resource}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_allowed_is_what_is_used_and_no_more() {
    let server = ApiServer::start().await;
    RESOURCES.iter().for_each(|resource| server.install(resource));
    let mut requests = Vec::new();
    for streaming in [true, false] {
        server.stream(streaming);
        let mut reader = Reader::start(&server);
        reader.until("everything is known", |it| it.cluster.state().is_known()).await;
        for resource in RESOURCES.iter().filter(|resource| resource.kind.is_policy()) {
            let namespace = if resource.kind.is_namespaced() { "shop" } else { "" };
            let about = model::policy::ObjectId {
                kind: resource.kind,
                namespace: namespace.to_owned(),
                name: "a".to_owned(),
            };
            let metadata = json!({"name": "a", "namespace": namespace, "uid": "the-uid"});
            let document =
                json!({"apiVersion": resource.api_version(), "kind": resource.word(), "metadata": metadata});
            server.put(document.clone());
            if resource.has_status() {
                reader.cluster.write_status(&about, &json!({"phase": "Realized"})).await.unwrap();
                assert_eq!(server.get(&document).unwrap()["status"]["phase"], "Realized");
            }
            let at = jiff::Timestamp::UNIX_EPOCH;
            let event = Event {
                about,
                reason: "NotEnforced",
                message: "why".to_owned(),
                key: resource.plural.to_owned() + resource.group,
                at,
            };
            reader.cluster.report(&event).await.unwrap();
            reader.cluster.report(&event).await.unwrap();
        }
        requests.extend(server.requests());
    }
    assert_eq!(server.events()[0]["involvedObject"]["uid"], "the-uid");
    let used: BTreeSet<String> = requests.iter().filter_map(|request| used(request)).collect();
    let allowed = crate::rbac::rules().into_iter().flat_map(|rule| {
        let resources = rule.resources.into_iter();
        resources.flat_map(move |resource| {
            rule.verbs.iter().map(move |verb| format!("{verb} {}/{resource}", rule.group))
        })
    });
    assert_eq!(used, allowed.collect());
}
