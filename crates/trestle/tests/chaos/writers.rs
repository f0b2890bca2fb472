//! Clients that write through whichever controller, note what they are told, and read it back at the end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value as Json, json};
use tokio::time::sleep;
use tonic::{Code, Status};
use wire::{
    invisinetspb::PermitListRule,
    tagservicepb::{ListTagsRequest, Tag, TagMapping},
    trestle::v1::{
        ApplyObjectsRequest, DeleteObjectsRequest, DeleteRulesRequest, ListObjectsRequest, ObjectRef,
        PutRulesRequest, RuleHolder, rule_holder::Holder,
    },
};

use super::{
    book::{Book, Key, Kind},
    client::Clients,
};

/// What rules are on: a resource in the lab's cloud.
pub const RESOURCE: &str = "default.far.web";
/// Keys of a kind that a client has in use at once.
const SLOTS: u64 = 6;
const KINDS: [Kind; 6] = [Kind::Tag, Kind::Tag, Kind::Pod, Kind::Policy, Kind::Policy, Kind::Rule];

pub struct Writer {
    pub number: u64,
    /// Pods are placed on nodes `n0` up to this many.
    pub nodes: u64,
    pub clients: Clients,
    pub random: fastrand::Rng,
    pub stop: Arc<AtomicBool>,
}

impl Writer {
    pub async fn run(mut self) -> Book {
        let mut book = Book::default();
        // Which number the key of a slot has; and how many numbers are used.
        let mut slots: BTreeMap<(Kind, u64), u64> = BTreeMap::new();
        let mut numbers = 0;
        while !self.stop.load(Relaxed) {
            let kind = *self.random.choice(&KINDS).unwrap();
            let number = slots.entry((kind, self.random.u64(..SLOTS))).or_insert_with(|| {
                numbers += 1;
                numbers
            });
            let key = (kind, format!("w{}-{number}", self.number));
            if !self.write(&mut book, &key, *number).await {
                numbers += 1;
                *number = numbers;
                sleep(Duration::from_millis(200)).await;
            }
            sleep(Duration::from_millis(self.random.u64(..60))).await;
        }
        book
    }

    /// Writes something new to a key; false if the outcome is unknown.
    async fn write(&mut self, book: &mut Book, key: &Key, number: u64) -> bool {
        let had = book.value(key);
        let next = if had.is_some() && self.random.u8(..5) == 0 { None } else { Some(self.value(key.0)) };
        let controller = self.random.usize(..self.clients.count());
        match self.put(controller, key, number, next.as_deref()).await {
            Ok(()) => {
                book.acknowledge(key, next);
                self.read_back(book, key, controller).await;
            }
            Err(status) if is_refusal(&status) => {
                book.refused += 1;
                sleep(Duration::from_millis(100)).await;
            }
            Err(status) if status.code() == Code::NotFound => {
                book.wrong.push(format!("controller {controller}: {key:?} was {had:?}: {status}"));
            }
            Err(status) if status.code() == Code::InvalidArgument => panic!("{key:?}: {status}"),
            Err(status) => {
                let told: String =
                    status.message().chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
                book.doubt(key, next, format!("{:?}: {:?}: {told}", key.0, status.code()));
                return false;
            }
        }
        true
    }

    /// Who was told that it is written finds it at once where it was told so. This client alone writes the key.
    async fn read_back(&mut self, book: &mut Book, key: &Key, controller: usize) {
        if key.0 != Kind::Tag || self.random.bool() {
            return;
        }
        let tag = Tag { tag_name: key.1.clone() };
        let found = match self.clients.tags(controller).get_tag(tag).await {
            Ok(found) => found.into_inner().ip,
            Err(status) if status.code() == Code::NotFound => None,
            // It fell meanwhile.
            Err(_) => return,
        };
        if found != book.value(key) {
            let text = format!("controller {controller}: {key:?} is {found:?} after {:?}", book.value(key));
            book.wrong.push(text);
        }
    }

    fn value(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Tag => std::net::Ipv4Addr::from(0x0a00_0000 | self.random.u32(..1 << 24)).to_string(),
            Kind::Pod => format!("a{}", self.random.u8(..8)),
            // None of those that the lab's packets go to.
            Kind::Policy | Kind::Rule => self.random.u16(9000..10_000).to_string(),
        }
    }

    async fn put(
        &self,
        controller: usize,
        key: &Key,
        number: u64,
        value: Option<&str>,
    ) -> Result<(), Status> {
        match (key.0, value) {
            (Kind::Tag, Some(ip)) => {
                let tag =
                    TagMapping { tag_name: key.1.clone(), ip: Some(ip.to_owned()), ..Default::default() };
                self.clients.tags(controller).set_tag(tag).await.map(drop)
            }
            (Kind::Tag, None) => {
                self.clients.tags(controller).delete_tag(Tag { tag_name: key.1.clone() }).await.map(drop)
            }
            (Kind::Pod, Some(app)) => self.apply(controller, &self.pod(&key.1, number, app)).await,
            (Kind::Policy, Some(port)) => self.apply(controller, &policy(&key.1, number, port)).await,
            (Kind::Pod, None) => self.delete(controller, "Pod", "load", &key.1).await,
            (Kind::Policy, None) => self.delete(controller, "NetworkPolicy", namespace(number), &key.1).await,
            (Kind::Rule, Some(port)) => {
                let port = port.parse().unwrap();
                let rule = PermitListRule {
                    id: key.1.clone(),
                    tags: vec!["9.9.9.0/24".to_owned()],
                    src_port: -1,
                    dst_port: port,
                    protocol: 6,
                    ..PermitListRule::default()
                };
                let request =
                    PutRulesRequest { on: Some(holder()), rules: vec![rule], dry_run: false, build: false };
                self.clients.orchestrator(controller).put_rules(request).await.map(drop)
            }
            (Kind::Rule, None) => {
                let names = vec![key.1.clone()];
                let request = DeleteRulesRequest { on: Some(holder()), names, dry_run: false };
                self.clients.orchestrator(controller).delete_rules(request).await.map(drop)
            }
        }
    }

    async fn apply(&self, controller: usize, document: &Json) -> Result<(), Status> {
        let documents = vec![document.to_string().into_bytes()];
        let request = ApplyObjectsRequest { documents, ..Default::default() };
        self.clients.objects(controller).apply_objects(request).await.map(drop)
    }

    async fn delete(&self, controller: usize, kind: &str, namespace: &str, name: &str) -> Result<(), Status> {
        let object = ObjectRef { kind: kind.into(), namespace: namespace.into(), name: name.into() };
        let request = DeleteObjectsRequest { objects: vec![object], ..Default::default() };
        self.clients.objects(controller).delete_objects(request).await.map(drop)
    }

    fn pod(&self, name: &str, number: u64, app: &str) -> Json {
        let address = format!("10.{}.{}.{}", 128 + self.number, number / 256 % 256, number % 256);
        pod(name, number % self.nodes, app, &address)
    }
}

/// Nothing was written: nobody was reached, or the one who was says so. It is held to that.
fn is_refusal(status: &Status) -> bool {
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        Code::Unavailable => {
            let words = ["tcp connect error", "cannot speak for its store", "still being read"];
            words.into_iter().any(says) || says("nothing was written") || says("nothing was changed")
        }
        Code::FailedPrecondition => says("leads"),
        Code::Aborted => true,
        _ => false,
    }
}

pub fn pod(name: &str, node: u64, app: &str, address: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "load", "name": name, "labels": { "app": app } },
        "spec": { "nodeName": format!("n{node}"), "containers": [{ "name": "c" }] },
        "status": { "podIP": address, "podIPs": [{ "ip": address }] },
    })
}

/// Every third is for a Pod that packets go to.
fn namespace(number: u64) -> &'static str {
    if number.is_multiple_of(3) { "x" } else { "load" }
}

fn policy(name: &str, number: u64, port: &str) -> Json {
    let namespace = namespace(number);
    let guarded = match namespace {
        "x" => json!({ "pod": "a" }),
        _ => json!({ "app": format!("a{}", number % 8) }),
    };
    let peer = json!({ "app": format!("a{}", number / 8 % 8) });
    let peers = if namespace == "x" {
        json!([{ "podSelector": {} }])
    } else {
        json!([{ "podSelector": { "matchLabels": peer } }])
    };
    let ports = json!([{ "protocol": "TCP", "port": port.parse::<u16>().unwrap() }]);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "podSelector": { "matchLabels": guarded }, "policyTypes": ["Ingress"],
            "ingress": [{ "from": peers, "ports": ports }],
        },
    })
}

fn holder() -> RuleHolder {
    RuleHolder { holder: Some(Holder::Resource(RESOURCE.to_owned())) }
}

/// All that clients may have written, as a controller has it.
pub async fn stored(clients: &Clients, controller: usize) -> Result<BTreeMap<Key, String>, Status> {
    let mut found = BTreeMap::new();
    let tags = clients.tags(controller).list_tags(ListTagsRequest { prefix: "w".to_owned() }).await?;
    for tag in tags.into_inner().tags {
        found.insert((Kind::Tag, tag.tag_name), tag.ip.unwrap_or_default());
    }
    for (kind, name, pointer) in [
        (Kind::Pod, "Pod", "/metadata/labels/app"),
        (Kind::Policy, "NetworkPolicy", "/spec/ingress/0/ports/0/port"),
    ] {
        let request = ListObjectsRequest { kind: name.to_owned(), namespace: String::new() };
        let mut pages = clients.objects(controller).list_objects(request).await?.into_inner();
        while let Some(page) = pages.message().await? {
            for object in page.objects {
                let name = object.object.unwrap_or_default().name;
                let document: Json = serde_json::from_slice(&object.document).unwrap();
                if name.starts_with('w') {
                    let value = document.pointer(pointer).expect("what a client wrote");
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    found.insert((kind, name), value);
                }
            }
        }
    }
    let rules = clients.orchestrator(controller).list_rules(holder()).await?.into_inner().rules;
    found.extend(rules.into_iter().map(|rule| ((Kind::Rule, rule.id), rule.dst_port.to_string())));
    Ok(found)
}
