//! The provider killed with signal 9 before and after everything it does to storage, network and records. A new
//! process over what it left must converge.
//!
//! The victim is this test binary again, as a process of its own; it counts what it does and dies at the point it was
//! told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::SystemTime,
};

use async_trait::async_trait;
use storage_backend::{
    BackendError, Caller, Change, CommitError, NetworkError, Records, RecordsError, Stored, Usage,
};
use storage_provider::{
    ConnectionItem, Consumer, ConsumerId, Ledger, Observed, Phase, Sources, TicketHash, TicketRecord, VaultId,
};

use storage_nbd::{Expected, NbdBackend, Vault, VaultConfig};
use time::OffsetDateTime;

use super::{open::LocalCa, volume_keys::StoreKeys, *};

const DIR: &str = "TRESTLE_TEST_PROVIDER_DIR";
const DIE_AT: &str = "TRESTLE_TEST_DIE_AT";
const GRANT: &[u8] = b"1Mi";
const ANYBODY: Caller<'static> = Caller { client: None };

/// Dies when it has burnt down.
struct Fuse(AtomicI64);

impl Fuse {
    fn burn(&self) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 0 {
            let own = std::process::id().to_string();
            Command::new("kill").args(["-9", &own]).status().unwrap();
            unreachable!("signal 9 does not return");
        }
    }

    /// A point at which it may die before something is done, and one after.
    async fn around<T>(&self, work: impl Future<Output = T>) -> T {
        self.burn();
        let done = work.await;
        self.burn();
        done
    }
}

/// A part of the provider that dies when its fuse has burnt down.
struct Mortal<T>(T, Arc<Fuse>);

#[async_trait]
impl<B: Backend> Backend for Mortal<B> {
    async fn capacity(&self) -> Result<u64, BackendError> {
        self.0.capacity().await
    }
    async fn observe(&self, id: ConsumerId) -> Result<Observed, BackendError> {
        self.0.observe(id).await
    }
    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        self.0.observe_all().await
    }
    async fn ensure_storage(&self, id: ConsumerId, bytes: u64, encrypted: bool) -> Result<(), BackendError> {
        self.1.around(self.0.ensure_storage(id, bytes, encrypted)).await
    }
    async fn vault(&self) -> Result<VaultId, BackendError> {
        self.0.vault().await
    }
    async fn keep_storage(&self, id: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.1.around(self.0.keep_storage(id, bytes)).await
    }
    async fn withhold(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.1.around(self.0.withhold(id)).await
    }
    async fn adopt_storage(&self, id: ConsumerId, generation: u64) -> Result<(), BackendError> {
        self.1.around(self.0.adopt_storage(id, generation)).await
    }
    async fn set_quota(&self, id: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.1.around(self.0.set_quota(id, bytes)).await
    }
    async fn ensure_credentials(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.1.around(self.0.ensure_credentials(id)).await
    }
    async fn connection_details(&self, id: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
        self.0.connection_details(id).await
    }
    async fn usage(&self, id: ConsumerId) -> Result<Usage, BackendError> {
        self.0.usage(id).await
    }
    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        self.0.usage_all().await
    }
    async fn revoke(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.1.around(self.0.revoke(id)).await
    }
    async fn trash(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.1.around(self.0.trash(id)).await
    }
    async fn purge(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.1.around(self.0.purge(id)).await
    }
}

#[async_trait]
impl<R: Records> Records for Mortal<R> {
    async fn consumer(&self, id: ConsumerId) -> Result<Option<Stored<Consumer>>, RecordsError> {
        self.0.consumer(id).await
    }
    async fn consumers(&self) -> Result<Vec<Stored<Consumer>>, RecordsError> {
        self.0.consumers().await
    }
    async fn ticket(&self, hash: &TicketHash) -> Result<Option<Stored<TicketRecord>>, RecordsError> {
        self.0.ticket(hash).await
    }
    async fn tickets(&self) -> Result<Vec<Stored<TicketRecord>>, RecordsError> {
        self.0.tickets().await
    }
    async fn ledger(&self) -> Result<Stored<Ledger>, RecordsError> {
        self.0.ledger().await
    }
    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        self.1.around(self.0.commit(changes)).await
    }
}

/// A network whose rules are files, so that they outlive the process.
struct FileNetwork(PathBuf, Arc<Fuse>);

impl FileNetwork {
    fn open_for(&self, id: ConsumerId) -> Sources {
        let text = fs::read_to_string(self.0.join(id.to_string())).unwrap_or_default();
        Sources::parse(&text.split_whitespace().collect::<Vec<_>>()).unwrap()
    }
}

#[async_trait]
impl Network for FileNetwork {
    async fn permits_exactly(&self, id: ConsumerId, sources: &Sources) -> Result<bool, NetworkError> {
        Ok(self.open_for(id) == *sources)
    }

    async fn permit(&self, id: ConsumerId, sources: &Sources) -> Result<(), NetworkError> {
        let write = async { fs::write(self.0.join(id.to_string()), sources.to_texts().join("\n")).unwrap() };
        self.1.around(write).await;
        Ok(())
    }
}

type MortalProvider = Provider<Mortal<StoreRecords>, Mortal<NbdBackend>>;

/// A provider process over a directory.
struct World {
    provider: Arc<MortalProvider>,
    network: Arc<FileNetwork>,
    store: Store,
}

fn open(dir: &Path, die_at: Option<i64>) -> World {
    let fuse = Arc::new(Fuse(AtomicI64::new(die_at.unwrap_or(i64::MAX))));
    let rules = dir.join("rules");
    fs::create_dir_all(&rules).unwrap();
    let store = store::embedded::open(dir.join("store")).unwrap();
    let pki = Arc::new(Pki::open(&dir.join("pki"), OffsetDateTime::from(SystemTime::now())).unwrap());
    let keys = Arc::new(StoreKeys::new(store.clone(), true));
    let config = VaultConfig { root: dir.join("volumes"), reserve: 0 };
    let opened = tokio::task::block_in_place(|| Vault::open_with(config, &Expected::default(), keys));
    let vault = Arc::new(opened.unwrap());
    let backend = NbdBackend::new(vault, Arc::new(LocalCa(pki)), "localhost", 1);
    let (keys, sealer) = KeysFile::open(dir.join("keys.json")).unwrap().load().unwrap();
    let network = Arc::new(FileNetwork(rules, Arc::clone(&fuse)));
    let opened = Arc::clone(&network) as Arc<dyn Network>;
    let config = ProviderConfig {
        keys,
        sealer,
        clock: Arc::new(now),
        resync: RESYNC,
        grace: 3600,
        network: Some(opened),
        terms: Terms::unbounded(),
    };
    let records = Mortal(StoreRecords::new(store.clone()), Arc::clone(&fuse));
    World { provider: Arc::new(Provider::new(records, Mortal(backend, fuse), config)), network, store }
}

/// One consumer's whole life. What the consumer was told is on disk, as a consumer would keep it; told before, it is
/// not asked again.
async fn live(dir: &Path, world: &World) {
    let (ticket, id, left) = (dir.join("ticket"), dir.join("id"), dir.join("left"));
    let provider = &world.provider;
    if !ticket.exists() {
        let sources = Sources::parse(&["10.1.0.0/16"]).unwrap();
        let minted = provider
            .create_ticket(3600, None, sources, storage_provider::Rates::default(), true)
            .await
            .unwrap();
        fs::write(&ticket, minted.text.expose()).unwrap();
    }
    if !id.exists() {
        let ticket = fs::read_to_string(&ticket).unwrap();
        let onboarded = provider.onboard(&ticket, GRANT, &[], ANYBODY).await.unwrap();
        fs::write(&id, onboarded.id.expose()).unwrap();
    }
    provider.reconcile_all().await.unwrap();
    let id = fs::read_to_string(&id).unwrap();
    if !left.exists() {
        provider.update_capacity(&id, b"2Mi", ANYBODY).await.unwrap();
        provider.offboard(&id, ANYBODY).await.unwrap();
        fs::write(&left, "").unwrap();
    }
    provider.reconcile_all().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "dies; the test below starts it"]
async fn the_victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let die_at = std::env::var(DIE_AT).unwrap().parse().unwrap();
    live(Path::new(&dir), &open(Path::new(&dir), Some(die_at))).await;
}

/// What must be true once a new process has looked at everything.
async fn converged(dir: &Path, world: &World, at: i64) {
    let provider = &world.provider;
    let consumers = provider.consumers().await.unwrap();
    let granted = provider.records().ledger().await.unwrap().value.granted;
    assert_eq!(consumers.iter().map(|consumer| consumer.granted).sum::<u64>(), granted, "died at {at}");
    assert!(provider.orphans().await.unwrap().is_empty(), "died at {at}: storage nobody owns");
    for consumer in &consumers {
        assert_eq!(consumer.phase, Phase::Ready, "died at {at}");
        let seen = provider.backend().observe(consumer.id).await.unwrap();
        let storage = seen.storage.unwrap();
        assert!(storage.in_shape && seen.credentials && storage.quota == Some(consumer.granted), "{seen:?}");
        assert_eq!(world.network.open_for(consumer.id), consumer.sources, "died at {at}");
    }
    if dir.join("left").exists() {
        assert!(consumers.is_empty(), "died at {at}: it was told that it has left");
    } else if dir.join("id").exists() {
        let id = fs::read_to_string(dir.join("id")).unwrap();
        // It may have been put off without having been told.
        if provider.storage_config(&id, ANYBODY).await.is_err() {
            assert!(consumers.is_empty(), "died at {at}: an id that was handed out opens nothing");
        }
    }
    let known: BTreeSet<String> = consumers.iter().map(|consumer| consumer.id.to_string()).collect();
    for rule in fs::read_dir(dir.join("rules")).unwrap() {
        let rule = rule.unwrap();
        let open = !fs::read(rule.path()).unwrap().is_empty();
        assert_eq!(
            open,
            known.contains(rule.file_name().to_str().unwrap()),
            "died at {at}: a rule stays open"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_step_a_new_process_converges() {
    let mut deaths = 0;
    for at in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "storage::crash::the_victim", "--ignored"])
            .env(DIR, dir.path())
            .env(DIE_AT, at.to_string())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let survived = victim.success();
        deaths += u32::from(!survived);
        let world = open(dir.path(), None);
        world.provider.reconcile_all().await.unwrap();
        converged(dir.path(), &world, at).await;
        // The consumer goes on where it was, and in the end nothing is left.
        if !dir.path().join("left").exists()
            && (dir.path().join("id").exists() || !world.provider.consumers().await.unwrap().is_empty())
        {
            for consumer in world.provider.consumers().await.unwrap() {
                world.provider.put_off(consumer.id, true).await.unwrap();
            }
            world.provider.reconcile_all().await.unwrap();
        }
        assert_eq!(world.provider.records().ledger().await.unwrap().value.granted, 0, "died at {at}");
        assert!(world.provider.backend().observe_all().await.unwrap().is_empty(), "died at {at}");
        let keys = world.store.list(&secrets()[0]).await.unwrap().entries;
        assert!(keys.is_empty(), "died at {at}: a key of data that is gone is left");
        if survived {
            break;
        }
        assert!(at < 100, "it must end some time");
    }
    // Three steps to make, one to open; four to take down; a new size; and the transactions between: before and after.
    assert!(deaths >= 26, "it died only {deaths} times");
}
