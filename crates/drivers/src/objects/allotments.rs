//! What Services have of addresses and node ports, kept beside them: one key each, so that two can never have the same,
//! whoever writes.
//!
//! ```text
//!   allotments/address/10.96.0.10   default/web
//!   allotments/node-port/30080      default/web
//! ```
//!
//! An API server may have given one to two Services: then both are named, the first that came first.
//!
//! Not here: who gets what (`services::allot`).

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use futures::StreamExt as _;
use model::{
    policy::{Kind, Object, ObjectId, service::ServiceSpec},
    service::ServiceName,
};
use serde_json::{Value, json};
use services::allot::{AllotError, Allotted, Claim, Ranges, Taken, Wish, allot, asked};
use store::{Key, Prefix, ReadError, Revision, Store, TransactError, Transaction};

use super::{Document, Found, ObjectsError, Stored, key, of_kind, plan::Write, read_entry, read_key};

/// Entries put right in one transaction: few enough for any store.
const BATCH: usize = 40;

/// Who has it. Never empty; nearly always one.
type Owners = Vec<ServiceName>;

/// What is taken, and the revision of each entry.
#[derive(Debug, Default)]
pub(super) struct Allotments {
    taken: BTreeMap<Claim, Owners>,
    revisions: BTreeMap<Claim, Revision>,
}

impl Allotments {
    pub async fn read(store: &Store) -> Result<Self, ReadError> {
        let mut found = Self::default();
        let mut snapshot = store.snapshot(&prefix()).await?;
        while let Some(page) = snapshot.pages.next().await {
            for entry in page? {
                let owners = std::str::from_utf8(&entry.value).ok().and_then(owners);
                let (Some(claim), Some(owners)) = (claim_of(&entry.key), owners) else {
                    tracing::warn!(key = entry.key.as_str(), "an allotment that makes no sense is left out");
                    continue;
                };
                found.taken.insert(claim, owners);
                found.revisions.insert(claim, entry.modified);
            }
        }
        Ok(found)
    }

    /// Services beside those in `documents` that have what these ask for.
    pub fn in_the_way(&self, documents: &[Document]) -> BTreeSet<ObjectId> {
        let named: BTreeSet<_> = documents.iter().map(|document| name_of(document.id())).collect();
        let services = documents.iter().filter_map(|document| spec(document.object()));
        let owners =
            services.flat_map(|spec| asked(spec).claims()).filter_map(|claim| self.taken.get(&claim));
        owners.flatten().filter(|owner| !named.contains(*owner)).map(object_id).collect()
    }

    /// The documents with what Services among them lacked, when those that go are gone.
    pub fn complete<'a>(
        &self,
        ranges: &Ranges,
        documents: &'a [Document],
        going: &BTreeSet<ObjectId>,
        found: &Found,
    ) -> Result<Cow<'a, [Document]>, AllotError> {
        let mut wishes = Vec::new();
        for document in documents {
            if let Object::Service(service) = document.object() {
                let stored = found.get(document.id()).and_then(|(stored, _)| stored.as_ref());
                let before = stored.and_then(|stored| spec(stored.document.object()));
                wishes.push(Wish {
                    name: name_of(document.id()),
                    wanted: &service.spec,
                    before,
                    as_said: document.is_of_cluster(),
                });
            }
        }
        if wishes.is_empty() {
            return Ok(documents.into());
        }
        let named = |owner: &&ServiceName| {
            !going.contains(&object_id(owner)) && !wishes.iter().any(|wish| wish.name == **owner)
        };
        let others =
            self.taken.iter().filter_map(|(claim, owners)| Some((*claim, owners.iter().find(named)?)));
        let taken: Taken = others.map(|(claim, owner)| (claim, owner.clone())).collect();
        let mut allotted = allot(ranges, &taken, &wishes)?.into_iter();
        let completed = documents.iter().map(|document| match document.object() {
            Object::Service(service) => {
                let got = allotted.next().expect("each Service was a wish");
                if got == asked(&service.spec) { document.clone() } else { filled(document, &got) }
            }
            _ => document.clone(),
        });
        Ok(Cow::Owned(completed.collect()))
    }

    /// Adds to a transaction what its writes take and release.
    pub fn follow(&self, writes: &[Write], mut transaction: Transaction) -> Transaction {
        let services = writes.iter().filter(|write| write.id().kind == Kind::Service);
        let changed: BTreeSet<_> = services.map(|write| name_of(write.id())).collect();
        let mut asking: BTreeMap<Claim, Owners> = BTreeMap::new();
        for write in writes {
            if let Write::Put(stored) = write {
                let claims = claims_of(stored).into_iter();
                claims.for_each(|claim| asking.entry(claim).or_default().push(name_of(stored.id())));
            }
        }
        for claim in self.taken.keys().chain(asking.keys()).collect::<BTreeSet<_>>() {
            let (before, asking) = (self.taken.get(claim), asking.get(claim));
            let is_touched = before.is_some_and(|owners| owners.iter().any(|owner| changed.contains(owner)));
            if !is_touched && asking.is_none() {
                continue;
            }
            let asks = |owner: &&ServiceName| asking.is_some_and(|asking| asking.contains(owner));
            let stays = before.into_iter().flatten().filter(|owner| !changed.contains(*owner) || asks(owner));
            let stays: Owners = stays.cloned().collect();
            let new = asking.into_iter().flatten().filter(|owner| !stays.contains(owner)).cloned();
            let after: Owners = stays.iter().cloned().chain(new).collect();
            let key = key_of(*claim);
            transaction = match self.revisions.get(claim) {
                Some(revision) => transaction.expect_modified_at(key.clone(), *revision),
                None => transaction.expect_absent(key.clone()),
            };
            transaction = match after.as_slice() {
                _ if before.map_or(&[][..], Vec::as_slice) == after => transaction,
                [] => transaction.delete(key),
                owners => transaction.put(key, text_of(owners)),
            };
        }
        transaction
    }
}

/// Enters what stored Services have and was never entered, and removes entries of Services that are not there: for a
/// store that an earlier version wrote, or that was restored in part.
pub(super) async fn adopt(store: &Store) -> Result<usize, ObjectsError> {
    let allotments = Allotments::read(store).await.map_err(ObjectsError::Read)?;
    let (mut wanted, mut present) = (BTreeMap::<Claim, Owners>::new(), BTreeSet::new());
    let mut snapshot = store.snapshot(&of_kind(Some(Kind::Service))).await.map_err(ObjectsError::Read)?;
    while let Some(page) = snapshot.pages.next().await {
        for entry in page.map_err(ObjectsError::Read)? {
            let Some(stored) = read_entry(&entry) else {
                // What it has stays its own: it may only be this version that cannot read it.
                present.extend(read_key(&entry.key).map(|id| name_of(&id)));
                continue;
            };
            let (id, claims) = (stored.id().clone(), claims_of(&stored));
            for claim in claims {
                // Pages come in the order of names: the first by name has it, as on nodes.
                wanted.entry(claim).or_default().push(name_of(&id));
            }
            present.insert(name_of(&id));
        }
    }
    let missing = wanted.into_iter().filter(|(claim, _)| !allotments.taken.contains_key(claim));
    let orphans =
        allotments.taken.iter().filter(|(_, owners)| owners.iter().all(|one| !present.contains(one)));
    let wrong: Vec<_> = missing
        .map(|(claim, owners)| Mend { claim, owners, found: None })
        .chain(orphans.map(|(claim, owners)| {
            let found = allotments.revisions.get(claim).copied();
            Mend { claim: *claim, owners: owners.clone(), found }
        }))
        .collect();
    for batch in wrong.chunks(BATCH) {
        if mend(store, batch).await? {
            continue;
        }
        // Somebody changed one of them meanwhile, and with it its entry. The others are still to do.
        for one in batch.chunks(1) {
            mend(store, one).await?;
        }
    }
    Ok(wrong.len())
}

/// An entry that is missing, or, if it was found, one whose Service is.
struct Mend {
    claim: Claim,
    owners: Owners,
    found: Option<Revision>,
}

/// Whether nothing stood in the way.
async fn mend(store: &Store, batch: &[Mend]) -> Result<bool, ObjectsError> {
    let (mut transaction, mut seen) = (Transaction::new(), BTreeSet::new());
    for Mend { claim, owners, found } in batch {
        let entry = key_of(*claim);
        transaction = match found {
            Some(revision) => transaction.expect_modified_at(entry.clone(), *revision).delete(entry),
            None => transaction.expect_absent(entry.clone()).put(entry, text_of(owners)),
        };
        for object in owners.iter().map(|owner| key(&object_id(owner))) {
            if seen.insert(object.as_str().to_owned()) {
                transaction = match found {
                    Some(_) => transaction.expect_absent(object),
                    None => transaction.expect_present(object),
                };
            }
        }
    }
    match store.transact(transaction).await {
        Ok(_) => Ok(true),
        Err(TransactError::Conflict { .. }) => Ok(false),
        Err(error) => Err(ObjectsError::Write(error)),
    }
}

/// The document with what was allotted, where it had nothing.
fn filled(document: &Document, got: &Allotted) -> Document {
    document.with_spec(|spec| {
        let had = |spec: &serde_json::Map<String, Value>, field: &str| spec.get(field).is_some_and(is_given);
        let addresses: Vec<_> = got.cluster_ips.iter().map(ToString::to_string).collect();
        if let Some(first) = addresses.first() {
            if !had(spec, "clusterIP") {
                spec.insert("clusterIP".into(), json!(first));
            }
            let listed = spec.get("clusterIPs").and_then(Value::as_array).map_or(0, Vec::len);
            if listed < addresses.len() {
                spec.insert("clusterIPs".into(), json!(addresses));
            }
        }
        if got.health_check_node_port != 0 {
            spec.insert("healthCheckNodePort".into(), json!(got.health_check_node_port));
        }
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for (port, number) in ports.into_iter().flatten().zip(&got.node_ports) {
            if let (Some(port), true) = (port.as_object_mut(), *number != 0) {
                port.insert("nodePort".into(), json!(number));
            }
        }
    })
}

fn is_given(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn claims_of(stored: &Stored) -> BTreeSet<Claim> {
    spec(stored.document.object()).map(|spec| asked(spec).claims()).unwrap_or_default()
}

fn spec(object: &Object) -> Option<&ServiceSpec> {
    if let Object::Service(service) = object { Some(&service.spec) } else { None }
}

fn name_of(id: &ObjectId) -> ServiceName {
    ServiceName::new(id.namespace.as_str(), id.name.as_str())
}

fn object_id(name: &ServiceName) -> ObjectId {
    ObjectId { kind: Kind::Service, namespace: name.namespace.to_string(), name: name.name.to_string() }
}

fn owners(text: &str) -> Option<Owners> {
    let owner = |text: &str| {
        let (namespace, name) = text.split_once('/')?;
        Some(ServiceName::new(namespace, name))
    };
    text.split(' ').map(owner).collect()
}

fn text_of(owners: &[ServiceName]) -> String {
    owners.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn prefix() -> Prefix {
    Prefix::below("allotments").expect("a fixed path is a legal prefix")
}

fn key_of(claim: Claim) -> Key {
    let (kind, name) = match claim {
        Claim::ClusterIp(address) => ("address", address.to_string()),
        Claim::NodePort(port) => ("node-port", port.to_string()),
    };
    let prefix = prefix().child(kind);
    prefix.and_then(|prefix| prefix.key(&name)).expect("addresses and ports are short")
}

fn claim_of(key: &Key) -> Option<Claim> {
    let segments: Vec<&str> = key.segments().collect();
    match segments.as_slice() {
        ["allotments", "address", _] => Some(Claim::ClusterIp(key.name().ok()?.parse().ok()?)),
        ["allotments", "node-port", _] => Some(Claim::NodePort(key.name().ok()?.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Applied, Objects, Outcome};

    fn service(name: &str, spec: &Value) -> Document {
        let metadata = json!({ "name": name, "namespace": "shop" });
        let document = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
        Document::read(document.to_string().as_bytes(), crate::objects::Validation::Strict).unwrap()
    }

    #[tokio::test]
    async fn what_services_of_an_earlier_version_have_is_entered_and_entries_of_nobody_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = store::embedded::open(dir.path().join("store")).unwrap();
        let objects = Objects::new(store.clone(), Ranges::default());
        for number in 0..100 {
            let spec = json!({ "clusterIP": format!("10.96.1.{number}"), "ports": [{ "port": 80 }] });
            objects.apply([service(&format!("s{number}"), &spec)].into(), "", None, false).await.unwrap();
        }
        // As an earlier version left it, and with an entry whose Service is gone.
        store.transact(Transaction::new().delete_prefix(prefix())).await.unwrap();
        let stale = Claim::NodePort(30_000);
        store.transact(Transaction::new().put(key_of(stale), "shop/nobody")).await.unwrap();
        assert_eq!(objects.adopt_allotments().await.unwrap(), 101);
        let found = Allotments::read(&store).await.unwrap();
        assert_eq!((found.taken.len(), found.taken.contains_key(&stale)), (100, false));
        assert_eq!(objects.adopt_allotments().await.unwrap(), 0);
        let thief = service("thief", &json!({ "clusterIP": "10.96.1.7", "ports": [{ "port": 80 }] }));
        let refused = objects.apply([thief].into(), "", None, false).await.unwrap_err();
        assert!(refused.to_string().contains("10.96.1.7 is taken by Service shop/s7"), "{refused}");
    }

    #[tokio::test]
    async fn an_address_that_an_api_server_gave_twice_is_free_when_both_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let store = store::embedded::open(dir.path().join("store")).unwrap();
        let objects = Objects::new(store.clone(), Ranges::default());
        let spec = json!({ "clusterIP": "10.96.1.7", "ports": [{ "port": 80 }] });
        let of_cluster = |name: &str| {
            let metadata = json!({ "name": name, "namespace": "shop", "uid": name, "resourceVersion": "5" });
            let document =
                json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
            Document::read(document.to_string().as_bytes(), crate::objects::Validation::Strict).unwrap()
        };
        let id = |name: &str| object_id(&ServiceName::new("shop", name));
        let typed = || objects.apply([service("typed", &spec)].into(), "", None, false);
        objects.apply([of_cluster("b")].into(), "", None, false).await.unwrap();
        objects.apply([of_cluster("a")].into(), "", None, false).await.unwrap();
        assert!(typed().await.unwrap_err().to_string().contains("is taken by Service shop/b"));
        objects.delete(&[id("b")], false).await.unwrap();
        assert!(typed().await.unwrap_err().to_string().contains("is taken by Service shop/a"));
        objects.delete(&[id("a")], false).await.unwrap();
        typed().await.unwrap();
    }

    #[tokio::test]
    async fn what_is_pruned_gives_way_to_what_takes_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let store = store::embedded::open(dir.path().join("store")).unwrap();
        let objects = Objects::new(store.clone(), Ranges::default());
        let spec = json!({ "clusterIP": "10.96.1.7", "ports": [{ "port": 80 }] });
        objects.apply([service("old", &spec)].into(), "mine", None, false).await.unwrap();
        let new: [Document; 1] = [service("new", &spec)];
        let keep = Some(new.iter().map(|document| document.id().clone()).collect());
        let refused = objects.apply(new.clone().into(), "other", keep.clone(), false).await.unwrap_err();
        assert!(refused.to_string().contains("taken by Service shop/old"), "not of the set: {refused}");
        let (dry, _) = objects.apply(new.clone().into(), "mine", keep.clone(), true).await.unwrap();
        let (applied, _) = objects.apply(new.into(), "mine", keep, false).await.unwrap();
        // The digests of what is stored differ: each run thinks of a UID.
        let told = |all: &[Applied]| {
            let one = |one: &Applied| {
                (one.id.clone(), one.outcome, one.difference.clone(), one.change.object.clone())
            };
            all.iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(told(&dry), told(&applied));
        let outcomes: Vec<_> = applied.iter().map(|one| (&*one.id.name, one.outcome)).collect();
        assert_eq!(outcomes, [("old", Outcome::Deleted), ("new", Outcome::Created)]);
        assert_eq!(Allotments::read(&store).await.unwrap().taken.len(), 1);
    }
}
