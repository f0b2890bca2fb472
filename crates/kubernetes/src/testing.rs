//! An API server in memory, for tests: lists in pages, watches with bookmarks, first states as streams, versions that are
//! forgotten, kinds that are installed later, and a way to be gone and back.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::resource::{RESOURCES, Resource};

/// A handle on it; it is gone with the last one.
pub struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    world: Mutex<World>,
    /// Counts changes of the world.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct World {
    version: u64,
    /// Watches from before this version are refused.
    forgotten: u64,
    streaming: bool,
    installed: BTreeSet<String>,
    objects: BTreeMap<(String, String, String), Value>,
    history: Vec<Change>,
    events: BTreeMap<String, Value>,
    requests: Vec<String>,
    /// Watches are cut when this moves on.
    generation: u64,
}

#[derive(Clone)]
struct Change {
    version: u64,
    path: String,
    word: &'static str,
    object: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    #[serde(default)]
    watch: bool,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    send_initial_events: bool,
    limit: Option<usize>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl ApiServer {
    /// On a free port, with the kinds that every cluster has.
    pub async fn start() -> Self {
        let installed = RESOURCES.iter().filter(|resource| resource.always).map(Resource::path).collect();
        let world = World { version: 1, streaming: true, installed, ..World::default() };
        let shared = Arc::new(Shared { world: Mutex::new(world), changed: watch::Sender::new(0) });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let server = Self { shared, address, running: Mutex::default() };
        server.serve(listener);
        server
    }

    fn serve(&self, listener: TcpListener) {
        let router = Router::new()
            .route("/version", get(version))
            .fallback(answer)
            .with_state(Arc::clone(&self.shared));
        let served = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        *self.running.lock() = Some(served);
    }

    /// A kubeconfig for it.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        std::fs::write(path, text.to_string())
    }

    /// Nobody answers any more, and watches are cut.
    pub async fn stop(&self) {
        let running = self.running.lock().take();
        if let Some(running) = running {
            running.abort();
            let _ = running.await;
        }
        self.cut();
    }

    /// As it was before [`Self::stop`], at the same address.
    pub async fn go_on(&self) {
        let listener = loop {
            let socket = TcpSocket::new_v4().expect("there are sockets");
            socket.set_reuseaddr(true).expect("it is a socket");
            match socket.bind(self.address).and_then(|()| socket.listen(64)) {
                Ok(listener) => break listener,
                // Connections of the one before are still being closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        self.serve(listener);
    }

    /// Ends all watches, as a server does that is restarted.
    pub fn cut(&self) {
        self.change(|world| world.generation += 1);
    }

    /// Whether first states are streamed to those who ask.
    pub fn stream(&self, streaming: bool) {
        self.change(|world| world.streaming = streaming);
    }

    pub fn install(&self, resource: &Resource) {
        self.change(|world| {
            world.installed.insert(resource.path());
        });
    }

    pub fn uninstall(&self, resource: &Resource) {
        self.change(|world| {
            world.installed.remove(&resource.path());
            world.objects.retain(|(path, ..), _| *path != resource.path());
            world.generation += 1;
        });
    }

    /// Forgets what changed until now: watches from before must begin anew.
    pub fn forget(&self) {
        self.change(|world| {
            world.version += 1;
            world.forgotten = world.version;
            world.history.clear();
            world.generation += 1;
        });
    }

    /// Creates or replaces an object, as its `kind` and `apiVersion` say.
    pub fn put(&self, mut object: Value) {
        let resource = resource_of(&object);
        self.change(|world| {
            world.version += 1;
            object["metadata"]["resourceVersion"] = world.version.to_string().into();
            let key = key(&resource, &object);
            if object["metadata"]["uid"].is_null() {
                let uid = world.objects.get(&key).map(|old| old["metadata"]["uid"].clone());
                object["metadata"]["uid"] = uid.unwrap_or_else(|| format!("uid-{}", world.version).into());
            }
            let word = if world.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
            world.objects.insert(key, object.clone());
            world.tell(resource.path(), word, object);
        });
    }

    pub fn delete(&self, object: &Value) {
        let resource = resource_of(object);
        self.change(|world| {
            let Some(mut object) = world.objects.remove(&key(&resource, object)) else { return };
            world.version += 1;
            object["metadata"]["resourceVersion"] = world.version.to_string().into();
            world.tell(resource.path(), "DELETED", object);
        });
    }

    /// How often a request was made that contains all of these words.
    pub fn asked(&self, words: &[&str]) -> usize {
        let world = self.shared.world.lock();
        world.requests.iter().filter(|asked| words.iter().all(|word| asked.contains(word))).count()
    }

    /// All requests, as `METHOD URI`.
    pub fn requests(&self) -> Vec<String> {
        self.shared.world.lock().requests.clone()
    }

    /// An object as it is.
    pub fn get(&self, object: &Value) -> Option<Value> {
        self.shared.world.lock().objects.get(&key(&resource_of(object), object)).cloned()
    }

    pub fn events(&self) -> Vec<Value> {
        self.shared.world.lock().events.values().cloned().collect()
    }

    fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.shared.world.lock());
        self.shared.changed.send_modify(|count| *count += 1);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.lock().take() {
            running.abort();
        }
    }
}

impl World {
    fn tell(&mut self, path: String, word: &'static str, object: Value) {
        self.history.push(Change { version: self.version, path, word, object });
    }

    fn of(&self, path: &str) -> Vec<Value> {
        self.objects.iter().filter(|((at, ..), _)| at == path).map(|(_, object)| object.clone()).collect()
    }
}

fn resource_of(object: &Value) -> Resource {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let types = model::policy::TypeMeta { api_version: text("apiVersion"), kind: text("kind") };
    let kind = types.kind().expect("a kind that is read");
    *RESOURCES.iter().find(|resource| resource.kind == kind).expect("every kind is read")
}

fn key(resource: &Resource, object: &Value) -> (String, String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (resource.path(), text("namespace"), text("name"))
}

async fn version() -> Json<Value> {
    let fields = ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
    let mut version = json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"});
    fields.iter().for_each(|field| version[*field] = "".into());
    Json(version)
}

fn refused(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {}, "reason": reason,
                        "message": message, "code": code.as_u16()});
    (code, Json(status)).into_response()
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    Query(asked): Query<Asked>,
    body: Bytes,
) -> Response {
    if method == Method::GET && RESOURCES.iter().any(|resource| resource.path() == uri.path()) {
        return collection(shared, uri, asked);
    }
    one(&shared, &method, &uri, &body)
}

/// What concerns one object.
fn one(shared: &Shared, method: &Method, uri: &Uri, body: &[u8]) -> Response {
    let sent: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut world = shared.world.lock();
    world.requests.push(format!("{method} {uri}"));
    if method == Method::POST && uri.path().ends_with("/events") {
        let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if world.events.insert(name, sent.clone()).is_some() {
            return refused(StatusCode::CONFLICT, "AlreadyExists", "it exists");
        }
        return (StatusCode::CREATED, Json(sent)).into_response();
    }
    let path = uri.path().strip_suffix("/status").unwrap_or(uri.path());
    let found = world.objects.iter().find(|((of, namespace, name), _)| {
        let resource = RESOURCES.iter().find(|resource| resource.path() == *of);
        resource.is_some_and(|resource| format!("{}/{name}", resource.path_in(namespace)) == path)
    });
    let Some((key, object)) = found.map(|(key, object)| (key.clone(), object.clone())) else {
        return refused(StatusCode::NOT_FOUND, "NotFound", "not found");
    };
    if method == Method::PATCH {
        world.version += 1;
        let mut object = object;
        object["metadata"]["resourceVersion"] = world.version.to_string().into();
        for (field, value) in sent["status"].as_object().into_iter().flatten() {
            object["status"][field] = value.clone();
        }
        world.objects.insert(key.clone(), object.clone());
        world.tell(key.0, "MODIFIED", object.clone());
        drop(world);
        shared.changed.send_modify(|count| *count += 1);
        return Json(object).into_response();
    }
    Json(object).into_response()
}

fn collection(shared: Arc<Shared>, uri: Uri, asked: Asked) -> Response {
    let path = uri.path().to_owned();
    let mut world = shared.world.lock();
    world.requests.push(format!("GET {uri}"));
    if !world.installed.contains(&path) {
        return refused(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
    }
    if asked.watch {
        if asked.send_initial_events && !world.streaming {
            // As servers answer whose etcd is too old.
            let why = "the required storage feature RequestWatchProgress is disabled";
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", why);
        }
        let from = asked.resource_version.parse().unwrap_or(0);
        if !asked.send_initial_events && from < world.forgotten {
            return refused(StatusCode::GONE, "Expired", "too old resource version");
        }
        let (lines, body) = mpsc::channel(16);
        let changed = shared.changed.subscribe();
        let generation = world.generation;
        drop(world);
        tokio::spawn(watching(shared, path, asked.send_initial_events, from, generation, changed, lines));
        return Body::from_stream(ReceiverStream::new(body).map(Ok::<_, io::Error>)).into_response();
    }
    let all = world.of(&path);
    let (from, limit) =
        (asked.next.and_then(|at| at.parse().ok()).unwrap_or(0), asked.limit.unwrap_or(usize::MAX));
    let mut items: Vec<_> = all.iter().skip(from).take(limit).cloned().collect();
    // As in every list of an API server.
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.retain(|field, _| !matches!(field.as_str(), "kind" | "apiVersion"));
    }
    let next = from + items.len();
    let next = if next < all.len() { next.to_string() } else { String::new() };
    Json(
        json!({"metadata": {"resourceVersion": world.version.to_string(), "continue": next}, "items": items}),
    )
    .into_response()
}

fn line(word: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": word, "object": object})))
}

fn bookmark(version: u64, end: bool) -> Bytes {
    let mut object =
        json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}});
    if end {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &object)
}

async fn watching(
    shared: Arc<Shared>,
    path: String,
    initial: bool,
    mut from: u64,
    generation: u64,
    mut changed: watch::Receiver<u64>,
    lines: mpsc::Sender<Bytes>,
) {
    if initial {
        let (all, version) = {
            let world = shared.world.lock();
            (world.of(&path), world.version)
        };
        from = version;
        for object in &all {
            if lines.send(line("ADDED", object)).await.is_err() {
                return;
            }
        }
        if lines.send(bookmark(version, true)).await.is_err() {
            return;
        }
    }
    loop {
        let due: Vec<Change> = {
            let world = shared.world.lock();
            if world.generation != generation {
                return;
            }
            world.history.iter().filter(|it| it.version > from && it.path == path).cloned().collect()
        };
        for change in due {
            from = change.version;
            if lines.send(line(change.word, &change.object)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = lines.closed() => return,
        }
    }
}
