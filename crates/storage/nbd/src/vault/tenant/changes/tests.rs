//! Volumes against plain arrays, on file systems that share blocks and on such that do not; killed at any moment.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use storage_provider::{ConsumerId, VolumeWish, decide_volume};
use uuid::Uuid;

use super::*;
use crate::{
    keys::{KeyStore, KeyStoreError, VolumeKey},
    testing::DirectoryKeys,
    vault::{Expected, Vault, VaultConfig},
};

const BLOCKS: u64 = 16;
const SIZE: u64 = BLOCKS * BLOCK;
const LIMIT: u64 = 400 * BLOCK;

fn id() -> ConsumerId {
    ConsumerId::new(Uuid::from_u128(1))
}

/// Where this is, all is encrypted.
const ENCRYPTED: &str = "encrypted";

fn keys(root: &Path) -> DirectoryKeys {
    DirectoryKeys(root.join("keys"))
}

fn reopen(root: &Path) -> Vault {
    let config = VaultConfig { root: root.to_owned(), reserve: 0 };
    Vault::open_with(config, &Expected::default(), Arc::new(keys(root))).unwrap()
}

fn open(root: &Path) -> Vault {
    let vault = reopen(root);
    vault.ensure(id(), SIZE, root.join(ENCRYPTED).exists()).unwrap();
    vault.tenant(id()).unwrap().set_limit(LIMIT).unwrap();
    vault
}

fn tenant(vault: &Vault) -> Arc<Tenant> {
    vault.tenant(id()).unwrap()
}

/// Does what is wished, as the provider does it; `false` when it is refused.
fn wish(tenant: &Tenant, wish: &VolumeWish) -> bool {
    match decide_volume(wish, &tenant.statuses(), LIMIT) {
        Ok(step) => {
            tenant.change(&step).unwrap();
            true
        }
        Err(_) => false,
    }
}

fn content(tenant: &Tenant, name: &str) -> Vec<u8> {
    let volume = tenant.inner.lock().volumes[name].clone();
    let mut bytes = vec![9; usize::try_from(volume.size()).unwrap()];
    volume.read(0, &mut bytes).unwrap();
    let mut again = vec![8; bytes.len()];
    for (index, piece) in again.chunks_mut(1000).enumerate() {
        if !volume.try_read(index as u64 * 1000, piece).unwrap() {
            volume.read(index as u64 * 1000, piece).unwrap();
        }
    }
    assert!(bytes == again, "both ways to read agree");
    let holes: u64 = volume
        .extents(0, u32::try_from(volume.size()).unwrap(), usize::MAX)
        .iter()
        .map(|it| u64::from(it.0))
        .sum();
    assert_eq!(holes, volume.size());
    bytes
}

/// The books say what the files hold, each file once.
fn check_books(tenant: &Tenant) {
    let inner = tenant.inner.lock();
    let held: u64 = inner.layers.values().map(|layer| layer.holds() * BLOCK).sum();
    assert_eq!(tenant.account.balance().used, held);
    assert_eq!(inner.layers.keys().cloned().collect::<std::collections::BTreeSet<_>>(), inner.record.files());
}

#[derive(Clone, Debug)]
enum Operation {
    Write { volume: usize, at: u64, len: u64, byte: u8 },
    Trim { volume: usize, at: u64, len: u64 },
    Zero { volume: usize, at: u64, len: u64, keep: bool },
    Snapshot { volume: usize, n: usize },
    Copy { from: usize, n: usize },
    Restore { snapshot: usize },
    Delete { volume: usize },
    Grow { volume: usize },
    Tidy,
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let range = || (0..SIZE, 1..5 * BLOCK).prop_map(|(at, len)| (at, len.min(SIZE - at)));
    prop_oneof![
        6 => (0..8usize, range(), any::<u8>()).prop_map(|(volume, (at, len), byte)| Operation::Write { volume, at, len, byte }),
        2 => (0..8usize, range()).prop_map(|(volume, (at, len))| Operation::Trim { volume, at, len }),
        2 => (0..8usize, range(), any::<bool>()).prop_map(|(volume, (at, len), keep)| Operation::Zero { volume, at, len, keep }),
        3 => (0..8usize, 0..3usize).prop_map(|(volume, n)| Operation::Snapshot { volume, n }),
        2 => (0..8usize, 0..3usize).prop_map(|(from, n)| Operation::Copy { from, n }),
        1 => (0..8usize).prop_map(|snapshot| Operation::Restore { snapshot }),
        2 => (0..8usize).prop_map(|volume| Operation::Delete { volume }),
        1 => (0..8usize).prop_map(|volume| Operation::Grow { volume }),
        1 => Just(Operation::Tidy),
        1 => Just(Operation::Reopen),
    ]
}

/// What there should be: name to content.
type Model = BTreeMap<String, Vec<u8>>;

fn pick(model: &Model, n: usize, snapshots: bool) -> Option<String> {
    let names: Vec<_> = model.keys().filter(|name| name.contains('@') == snapshots).collect();
    (!names.is_empty()).then(|| names[n % names.len()].clone())
}

fn range(at: u64, len: u64) -> std::ops::Range<usize> {
    usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap()
}

fn perform(vault: &mut Option<Vault>, root: &Path, model: &mut Model, operation: Operation) {
    let held = tenant(vault.as_ref().unwrap());
    let volume = |name: &str| held.volume(name).unwrap();
    match operation {
        Operation::Write { volume: n, at, len, byte } => {
            let name = pick(model, n, false).unwrap();
            if volume(&name).write(at, &vec![byte; usize::try_from(len).unwrap()], byte % 7 == 0).is_ok() {
                model.get_mut(&name).unwrap()[range(at, len)].fill(byte);
            }
        }
        Operation::Trim { volume: n, at, len } => {
            let name = pick(model, n, false).unwrap();
            volume(&name).trim(at, len).unwrap();
            // What a trimmed block reads as is nobody's promise: zeroes, or what was there.
            let now = content(&held, &name);
            let before = model.get_mut(&name).unwrap();
            for (block, (now, before)) in
                now.chunks(BLOCK as usize).zip(before.chunks_mut(BLOCK as usize)).enumerate()
            {
                let touched = (block as u64) * BLOCK >= at && (block as u64 + 1) * BLOCK <= at + len;
                assert!(now == before || (touched && now.iter().all(|byte| *byte == 0)), "block {block}");
                before.copy_from_slice(now);
            }
        }
        Operation::Zero { volume: n, at, len, keep } => {
            let name = pick(model, n, false).unwrap();
            if volume(&name).write_zeroes(at, len, keep).is_ok() {
                model.get_mut(&name).unwrap()[range(at, len)].fill(0);
            }
        }
        Operation::Snapshot { volume: n, n: which } => {
            let from = pick(model, n, false).unwrap();
            let name = format!("{from}@s{which}");
            if wish(&held, &VolumeWish::Snapshot { name: name.clone() }) {
                let content = model[&from].clone();
                model.entry(name).or_insert(content);
            }
        }
        Operation::Copy { from, n } => {
            let Some(from) = pick(model, from, from % 2 == 0) else { return };
            let name = format!("c{n}");
            let create = VolumeWish::Create {
                name: name.clone(),
                size: 0,
                from: Some(from.clone()),
                encrypted: false,
            };
            if !model.contains_key(&name) && wish(&held, &create) {
                model.insert(name, model[&from].clone());
            }
        }
        Operation::Restore { snapshot } => {
            let Some(from) = pick(model, snapshot, true) else { return };
            let name = from.split('@').next().unwrap().to_owned();
            let restored = wish(&held, &VolumeWish::Restore { name: name.clone(), from: from.clone() });
            assert_eq!(restored, model.contains_key(&name));
            if restored {
                let size = model[&name].len().max(model[&from].len());
                let mut content = model[&from].clone();
                content.resize(size, 0);
                model.insert(name, content);
            }
        }
        Operation::Delete { volume: n } => {
            let names: Vec<_> = model.keys().filter(|name| *name != DEFAULT_VOLUME).cloned().collect();
            let Some(name) = names.get(n % names.len().max(1)) else { return };
            assert!(wish(&held, &VolumeWish::Delete { name: name.clone(), kept_until: None }));
            model.remove(name);
        }
        Operation::Grow { volume: n } => {
            let name = pick(model, n, false).unwrap();
            let size = model[&name].len() as u64 + BLOCK;
            if wish(&held, &VolumeWish::Resize { name: name.clone(), size }) {
                model.get_mut(&name).unwrap().resize(usize::try_from(size).unwrap(), 0);
            }
        }
        Operation::Tidy => {
            held.tidy().unwrap();
            held.merge_all();
        }
        Operation::Reopen => {
            drop(held);
            *vault = None;
            *vault = Some(open(root));
        }
    }
}

fn check(vault: &Vault, model: &Model) {
    let held = tenant(vault);
    let names: Vec<_> = held.statuses().into_keys().collect();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
    for (name, expected) in model {
        assert!(content(&held, name) == *expected, "{name}");
    }
    let found = vault.observe(id()).found;
    assert!(found.values().all(|found| matches!(found, Found::Whole(_))), "{found:?}");
    check_books(&held);
}

fn any_operations_leave_what_they_should(root: &Path, cases: u32) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let cases = (any::<bool>(), proptest::collection::vec(operation(), 1..60));
    let run = TestRunner::new(config).run(&cases, |(encrypted, operations)| {
        let dir = tempfile::tempdir_in(root).unwrap();
        if encrypted {
            fs::write(dir.path().join(ENCRYPTED), "").unwrap();
        }
        let mut vault = Some(open(dir.path()));
        let mut model = Model::from([(DEFAULT_VOLUME.to_owned(), vec![0; usize::try_from(SIZE).unwrap()])]);
        for operation in operations {
            perform(&mut vault, dir.path(), &mut model, operation);
            check(vault.as_ref().unwrap(), &model);
        }
        // In the end only what is needed is there, and only what is needed is stacked.
        let held = tenant(vault.as_ref().unwrap());
        held.tidy().unwrap();
        held.merge_all();
        check(vault.as_ref().unwrap(), &model);
        let record = held.inner.lock().record.clone();
        assert_eq!(record.needless(), None);
        assert_eq!(marks::files_in(&held.dir()).unwrap(), record.files().into_iter().collect::<Vec<_>>());
        assert!(!vault.as_ref().unwrap().observe(id()).untidy);
        assert_eq!(keys(dir.path()).list(id()).unwrap(), record.keys());
        assert_eq!(encrypted, !record.keys().is_empty());
        Ok(())
    });
    run.unwrap();
}

#[test]
fn volumes_and_snapshots_hold_what_was_written_where_blocks_cannot_be_shared() {
    any_operations_leave_what_they_should(&std::env::temp_dir(), 32);
}

/// A file system of its own, in a file.
struct Mounted(PathBuf, #[allow(dead_code, reason = "it is there as long as this is")] tempfile::TempDir);

impl Mounted {
    fn xfs() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        must(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image));
        must(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        Self(at, dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn must(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("running {command:?}: {error}; scripts/test-deps.d/storage lists the packages")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn volumes_and_snapshots_hold_what_was_written_where_blocks_are_shared() {
    let mounted = Mounted::xfs();
    any_operations_leave_what_they_should(&mounted.0, 16);
    // They are shared in fact: a snapshot stands alone, and deleting it leaves nothing to merge.
    let dir = tempfile::tempdir_in(&mounted.0).unwrap();
    let vault = open(dir.path());
    let held = tenant(&vault);
    held.volume("data").unwrap().write(0, &[7; 8 * BLOCK as usize], true).unwrap();
    assert!(wish(&held, &VolumeWish::Snapshot { name: "data@a".to_owned() }));
    assert!(held.inner.lock().volumes["data"].is_flat());
    assert_eq!(held.account.balance().used, 16 * BLOCK, "it counts in full");
    // Without room for that, it is stacked.
    held.set_limit(20 * BLOCK).unwrap();
    assert!(wish(&held, &VolumeWish::Snapshot { name: "data@b".to_owned() }));
    assert!(!held.inner.lock().volumes["data"].is_flat());
    assert_eq!(held.account.balance().used, 16 * BLOCK);
}

#[test]
fn a_snapshot_is_one_moment_of_a_volume_that_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let vault = open(dir.path());
    let held = tenant(&vault);
    let writer = {
        let volume = held.volume("data").unwrap();
        std::thread::spawn(move || {
            // The second block is never ahead of the first, and one step behind at most.
            for n in 0..2000u32 {
                volume.write(100, &n.to_be_bytes(), n % 50 == 0).unwrap();
                volume.write(3 * BLOCK + 7, &n.to_be_bytes(), false).unwrap();
            }
        })
    };
    for n in 0..30 {
        assert!(wish(&held, &VolumeWish::Snapshot { name: format!("data@{n}") }));
        if n % 3 == 2 {
            assert!(wish(&held, &VolumeWish::Delete { name: format!("data@{}", n - 1), kept_until: None }));
            held.merge_all();
        }
    }
    writer.join().unwrap();
    let number = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut last = 0;
    for n in (0..30).filter(|n| n % 3 != 1) {
        let bytes = content(&held, &format!("data@{n}"));
        let (first, second) = (number(&bytes, 100), number(&bytes, 3 * 4096 + 7));
        assert!(first == second || first == second + 1, "{first} {second}");
        assert!(first >= last);
        last = first;
    }
    assert_eq!(number(&content(&held, "data"), 100), 1999);
    check_books(&held);
}

#[test]
fn what_is_deleted_comes_back_until_it_is_tidied_up() {
    let dir = tempfile::tempdir().unwrap();
    let vault = open(dir.path());
    let held = tenant(&vault);
    assert!(wish(
        &held,
        &VolumeWish::Create { name: "logs".to_owned(), size: SIZE, from: None, encrypted: false }
    ));
    held.volume("logs").unwrap().write(0, &[5; 100], false).unwrap();
    let delete = |until| VolumeWish::Delete { name: "logs".to_owned(), kept_until: Some(until) };
    let far = super::super::now() + 1000;
    let session = held.volume("logs").unwrap().user();
    assert!(!wish(&held, &delete(far)), "nobody is pulled the ground from under");
    drop(session);
    assert!(wish(&held, &delete(far)));
    assert!(held.volume("logs").is_none() && !held.exports().contains(&"logs".to_owned()));
    assert!(!vault.observe(id()).untidy);
    assert_eq!(held.account.balance().used, BLOCK, "it still counts");
    assert!(wish(&held, &VolumeWish::Keep { name: "logs".to_owned() }));
    assert_eq!(content(&held, "logs")[..100], [5; 100]);
    assert!(wish(&held, &delete(1)));
    assert!(vault.observe(id()).untidy);
    held.tidy().unwrap();
    let seen = vault.observe(id());
    assert!(!seen.untidy && !seen.found.contains_key("logs") && seen.gone.len() == 1, "{seen:?}");
    assert_eq!(held.account.balance().used, 0);
    // The name is free again, and what is made under it is another volume.
    assert!(wish(
        &held,
        &VolumeWish::Create { name: "logs".to_owned(), size: SIZE, from: None, encrypted: false }
    ));
    assert!(content(&held, "logs").iter().all(|byte| *byte == 0));
}

#[test]
fn a_volume_that_stands_on_a_damaged_file_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let below = {
        let vault = open(dir.path());
        let held = tenant(&vault);
        held.volume("data").unwrap().write(0, &[5; 100], true).unwrap();
        assert!(wish(&held, &VolumeWish::Snapshot { name: "data@a".to_owned() }));
        assert!(wish(
            &held,
            &VolumeWish::Create { name: "other".to_owned(), size: SIZE, from: None, encrypted: false }
        ));
        held.path("data")
    };
    let away = dir.path().join("away");
    fs::rename(&below, &away).unwrap();
    {
        let vault = Vault::open(VaultConfig { root: dir.path().to_owned(), reserve: 0 }).unwrap();
        let found = vault.observe(id()).found;
        for name in ["data", "data@a"] {
            assert!(matches!(&found[name], Found::Damaged { .. } | Found::Missing), "{name}: {found:?}");
            assert!(tenant(&vault).volume(name).is_none());
        }
        assert!(tenant(&vault).volume("other").is_some());
        let trouble = &tenant(&vault).statuses()["data"].trouble;
        assert!(trouble.is_some());
    }
    // Brought back, it is as it was.
    fs::rename(&away, &below).unwrap();
    let vault = open(dir.path());
    assert_eq!(content(&tenant(&vault), "data")[..100], [5; 100]);
    // While it is served, too.
    fs::rename(&below, &away).unwrap();
    assert!(tenant(&vault).volume("data").is_none());
    // Adopted without it, what stood on it is given up and the rest stays.
    vault.observe(id());
    vault.adopt(id(), 9).unwrap();
    assert_eq!(tenant(&vault).statuses().into_keys().collect::<Vec<_>>(), ["other"]);
}

#[test]
fn without_its_record_files_are_not_taken_for_what_they_are_not() {
    let dir = tempfile::tempdir().unwrap();
    {
        let vault = open(dir.path());
        let held = tenant(&vault);
        held.volume("data").unwrap().write(0, &[5; 100], true).unwrap();
        assert!(wish(&held, &VolumeWish::Snapshot { name: "data@a".to_owned() }));
        held.volume("data").unwrap().write(0, &[6; 100], true).unwrap();
    }
    let record = dir.path().join(format!("consumers/{}.json", id()));
    let text = fs::read(&record).unwrap();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    let vault = Vault::open(VaultConfig { root: dir.path().to_owned(), reserve: 0 }).unwrap();
    // The file `data` holds what was there before the snapshot.
    let refused = vault.adopt(id(), 9).unwrap_err();
    assert!(
        matches!(&refused, VaultError::Unusable { reason, .. } if reason.contains("put that back")),
        "{refused:?}"
    );
    drop(vault);
    fs::write(&record, text).unwrap();
    let vault = open(dir.path());
    assert_eq!(content(&tenant(&vault), "data")[..100], [6; 100]);
}

/// A vault in which everything is encrypted.
fn encrypted() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(ENCRYPTED), "").unwrap();
    dir
}

fn key_of_data(vault: &Vault) -> VolumeKeyId {
    tenant(vault).inner.lock().record.volumes["data"].mark.unwrap().key.unwrap()
}

#[test]
fn without_its_key_or_with_another_an_encrypted_volume_is_not_served() {
    let dir = encrypted();
    let path = {
        let vault = open(dir.path());
        let held = tenant(&vault);
        held.volume("data").unwrap().write(0, &[5; 100], true).unwrap();
        assert!(wish(&held, &VolumeWish::Snapshot { name: "data@a".to_owned() }));
        assert!(held.statuses().values().all(|status| status.encrypted));
        keys(dir.path()).path(id(), key_of_data(&vault))
    };
    let key = fs::read(&path).unwrap();
    let locked = |why: &str| {
        let vault = reopen(dir.path());
        let held = tenant(&vault);
        let found = vault.observe(id()).found;
        for name in ["data", "data@a"] {
            assert!(
                matches!(&found[name], Found::Locked { reason, .. } if reason.contains(why)),
                "{found:?}"
            );
            assert!(held.volume(name).is_none());
            assert!(held.statuses()[name].trouble.as_ref().is_some_and(|trouble| trouble.contains(why)));
        }
        let refused = vault.adopt(id(), 9).unwrap_err();
        assert!(
            matches!(&refused, VaultError::Unusable { reason, .. } if reason.contains(why)),
            "{refused:?}"
        );
    };
    fs::remove_file(&path).unwrap();
    locked("is not there");
    fs::write(&path, [1; 64].map(|byte: u8| byte)).unwrap();
    locked("there is another");
    fs::write(&path, b"short").unwrap();
    locked("cannot be read");
    // Brought back, all of it is there again, also to who waited.
    let vault = reopen(dir.path());
    fs::write(&path, key).unwrap();
    assert!(matches!(vault.observe(id()).found["data"], Found::Whole(_)));
    tenant(&vault).keep(SIZE).unwrap();
    assert_eq!(content(&tenant(&vault), "data")[..100], [5; 100]);
}

#[test]
fn what_is_encrypted_is_never_taken_for_what_is_not() {
    let dir = encrypted();
    let file = {
        let vault = open(dir.path());
        tenant(&vault).volume("data").unwrap().write(0, &[5; 100], true).unwrap();
        tenant(&vault).path("data")
    };
    let mark_file = file.with_extension("mark");
    let (mark, record) = (fs::read(&mark_file).unwrap(), dir.path().join(format!("consumers/{}.json", id())));
    let known = fs::read(&record).unwrap();
    // A mark that says it is plain, with a good checksum.
    {
        let vault = reopen(dir.path());
        let held = tenant(&vault);
        let Found::Whole(ours) = vault.observe(id()).found["data"].clone() else { panic!() };
        marks::write(&file, id(), "data", &held.identity, Mark { key: None, ..ours }).unwrap();
    }
    assert!(tenant(&reopen(dir.path())).volume("data").is_none());
    // Neither mark nor record: nothing says what it is.
    fs::remove_file(&mark_file).unwrap();
    fs::write(&record, b"{").unwrap();
    {
        let vault = reopen(dir.path());
        let refused = vault.adopt(id(), 9).unwrap_err();
        assert!(matches!(&refused, VaultError::Unusable { .. }), "{refused:?}");
        assert!(tenant(&vault).volume("data").is_none());
    }
    // Either of them will do.
    fs::write(&mark_file, &mark).unwrap();
    let vault = reopen(dir.path());
    vault.adopt(id(), 9).unwrap();
    assert_eq!(content(&tenant(&vault), "data")[..100], [5; 100]);
    drop(vault);
    fs::write(&record, known).unwrap();
    fs::remove_file(&mark_file).unwrap();
    let vault = reopen(dir.path());
    vault.adopt(id(), 10).unwrap();
    assert_eq!(content(&tenant(&vault), "data")[..100], [5; 100]);
}

/// Keys that cannot be destroyed for a while.
struct Stubborn(DirectoryKeys, std::sync::atomic::AtomicBool);

impl KeyStore for Stubborn {
    fn put(&self, consumer: ConsumerId, key: &VolumeKey) -> Result<(), KeyStoreError> {
        self.0.put(consumer, key)
    }

    fn get(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<Option<VolumeKey>, KeyStoreError> {
        self.0.get(consumer, key)
    }

    fn list(&self, consumer: ConsumerId) -> Result<std::collections::BTreeSet<VolumeKeyId>, KeyStoreError> {
        self.0.list(consumer)
    }

    fn remove(&self, consumer: ConsumerId, key: VolumeKeyId) -> Result<(), KeyStoreError> {
        match self.1.load(Ordering::Acquire) {
            true => Err(KeyStoreError { reason: "not now".to_owned() }),
            false => self.0.remove(consumer, key),
        }
    }
}

#[test]
fn a_key_is_destroyed_with_the_last_of_what_is_encrypted_with_it() {
    let dir = encrypted();
    let store = Arc::new(Stubborn(keys(dir.path()), false.into()));
    let config = VaultConfig { root: dir.path().to_owned(), reserve: 0 };
    let vault = Vault::open_with(config, &Expected::default(), Arc::clone(&store) as _).unwrap();
    vault.ensure(id(), SIZE, true).unwrap();
    let held = tenant(&vault);
    held.set_limit(LIMIT).unwrap();
    let kept = || keys(dir.path()).list(id()).unwrap().len();
    let create = |name: &str, from: Option<&str>, encrypted| VolumeWish::Create {
        name: name.to_owned(),
        size: SIZE,
        from: from.map(str::to_owned),
        encrypted,
    };
    let now = |name: &str| VolumeWish::Delete { name: name.to_owned(), kept_until: None };
    assert!(wish(&held, &create("plain", None, false)));
    assert_eq!(kept(), 1);
    assert!(wish(&held, &create("logs", None, true)));
    assert_eq!(kept(), 2);
    fill(&held.volume("logs").unwrap(), 7);
    assert!(wish(&held, &VolumeWish::Snapshot { name: "logs@a".to_owned() }));
    assert!(wish(&held, &create("copy", Some("logs@a"), true)));
    assert!(wish(&held, &create("other", Some("copy"), false)));
    assert_eq!(kept(), 2, "they share blocks, and so the key");
    for name in ["logs", "logs@a", "other"] {
        assert!(wish(&held, &now(name)));
        held.merge_all();
        assert_eq!(kept(), 2, "{name}");
    }
    assert_eq!(numbers(&content(&held, "copy")), [7; 6]);
    // It could not be destroyed at once: that is not forgotten, over a restart either.
    store.1.store(true, Ordering::Release);
    assert!(matches!(held.change(&VolumeStep::Remove { name: "copy".to_owned() }), Err(VaultError::Key(_))));
    assert!(!held.statuses().contains_key("copy") && vault.observe(id()).untidy && kept() == 2);
    drop((held, vault));
    let vault = reopen(dir.path());
    assert!(vault.observe(id()).untidy);
    tenant(&vault).tidy().unwrap();
    assert!(!vault.observe(id()).untidy && kept() == 1);
    // All of a consumer's go with it, before its data does.
    vault.trash(id()).unwrap();
    assert_eq!(kept(), 0);
    vault.purge(id()).unwrap();
    // With nowhere to keep a key, nothing is made.
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::open(VaultConfig { root: dir.path().to_owned(), reserve: 0 }).unwrap();
    assert!(matches!(vault.ensure(id(), SIZE, true), Err(VaultError::Key(_))));
    assert!(tenant(&vault).statuses().is_empty());
}

const ROOT: &str = "TRESTLE_TEST_VOLUMES";

/// Fills the first blocks with one number, each time another.
fn fill(volume: &Volume, n: u64) {
    for block in 0..6 {
        volume.write(block * BLOCK + 8, &n.to_be_bytes(), block == 5).unwrap();
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let number =
        |block: usize| u64::from_be_bytes(bytes[block * 4096 + 8..block * 4096 + 16].try_into().unwrap());
    (0..6).map(number).collect()
}

/// Not a test: the test below runs it as a process of its own and kills it.
#[test]
#[ignore = "runs for ever; the test below starts it and kills it"]
fn change_volumes_for_ever() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let vault = open(Path::new(&root));
    let held = tenant(&vault);
    let after = numbers(&content(&held, "data"))[0] + 1;
    for n in after.. {
        fill(&held.volume("data").unwrap(), n);
        let snapshot = format!("data@{}", n % 4);
        let now = |name: &str| VolumeWish::Delete { name: name.to_owned(), kept_until: None };
        wish(&held, &now(&snapshot));
        wish(&held, &VolumeWish::Snapshot { name: snapshot.clone() });
        wish(&held, &now("copy"));
        wish(
            &held,
            &VolumeWish::Create {
                name: "copy".to_owned(),
                size: 0,
                from: Some(snapshot.clone()),
                encrypted: false,
            },
        );
        if n % 3 == 0 {
            fill(&held.volume("data").unwrap(), n + 1_000_000_000);
            wish(&held, &VolumeWish::Restore { name: "data".to_owned(), from: snapshot });
        }
        held.tidy().unwrap();
        held.merge_all();
    }
}

fn survives_kills(root: &Path, rounds: u64) {
    let dir = tempfile::tempdir_in(root).unwrap();
    for round in 0..rounds {
        if round == rounds / 2 {
            // The second half is of encrypted volumes.
            fs::remove_dir_all(dir.path()).unwrap();
            fs::create_dir(dir.path()).unwrap();
            fs::write(dir.path().join(ENCRYPTED), "").unwrap();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "vault::tenant::changes::tests::change_volumes_for_ever", "--ignored"])
            .env(ROOT, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(120 + round * 37));
        child.kill().unwrap();
        child.wait().unwrap();
        let vault = open(dir.path());
        let held = tenant(&vault);
        let found = vault.observe(id()).found;
        assert!(found.values().all(|found| matches!(found, Found::Whole(_))), "{found:?}");
        check_books(&held);
        for (name, status) in held.statuses() {
            assert_eq!(status.trouble, None, "{name}");
            let numbers = numbers(&content(&held, &name));
            if let Some((_, snapshot)) = name.split_once('@') {
                assert!(numbers.iter().all(|n| *n == numbers[0]), "{name}: {numbers:?}");
                assert_eq!((numbers[0] % 4).to_string(), snapshot, "{name}: {numbers:?}");
            } else if name == "copy" {
                assert!(numbers.iter().all(|n| *n == numbers[0]), "{name}: {numbers:?}");
            }
        }
        held.tidy().unwrap();
        held.merge_all();
        check_books(&held);
        assert_eq!(held.inner.lock().record.spent.len(), 0);
        assert_eq!(keys(dir.path()).list(id()).unwrap().is_empty(), !dir.path().join(ENCRYPTED).exists());
        // As the next process starts from: whole numbers.
        fill(&held.volume("data").unwrap(), round * 1000 + 1);
    }
}

#[test]
fn killed_at_any_moment_every_snapshot_is_whole_or_absent() {
    survives_kills(&std::env::temp_dir(), 12);
}

#[test]
fn killed_at_any_moment_shared_blocks_are_whole_too() {
    let mounted = Mounted::xfs();
    survives_kills(&mounted.0, 6);
}
