//! The vault without its server.

use storage_provider::{ConsumerId, Found};
use uuid::Uuid;

use super::*;

fn vault(root: &Path) -> Vault {
    Vault::open(VaultConfig { root: root.to_owned(), reserve: 0 }).unwrap()
}

fn id(n: u128) -> ConsumerId {
    ConsumerId::new(Uuid::from_u128(n))
}

#[test]
fn a_vault_belongs_to_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = vault(dir.path());
    let second = Vault::open(VaultConfig { root: dir.path().to_owned(), reserve: 0 });
    assert!(matches!(second, Err(VaultError::InUse { .. })));
    drop(first);
    vault(dir.path());
}

#[test]
fn limits_volumes_and_use_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let vault = vault(dir.path());
        vault.ensure(id(1), 1 << 20, false).unwrap();
        let tenant = vault.tenant(id(1)).unwrap();
        tenant.set_limit(1 << 20).unwrap();
        tenant.ensure_volume("logs", 5 << 20, false).unwrap();
        tenant.volume("logs").unwrap().write(4 << 20, &[1; 8192], false).unwrap();
        tenant.volume("").unwrap().write(0, &[1], false).unwrap();
    }
    let vault = vault(dir.path());
    let tenant = vault.tenant(id(1)).unwrap();
    assert_eq!(tenant.account.balance(), crate::account::Balance { used: 3 * 4096, limit: 1 << 20 });
    assert_eq!(tenant.volume("logs").unwrap().size(), 5 << 20);
    assert!(vault.observe(id(1)).storage.unwrap().in_shape);
}

#[test]
fn names_from_clients_reach_volumes_only() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    vault.ensure(id(1), 1 << 20, false).unwrap();
    vault.ensure(id(2), 1 << 20, false).unwrap();
    let tenant = vault.tenant(id(1)).unwrap();
    assert!(tenant.volume("data").is_some() && tenant.volume(&format!("{}/data", id(1))).is_some());
    let other = format!("{}/data", id(2));
    for bad in [
        "../data",
        "..",
        ".",
        "/etc/passwd",
        "data/",
        "data/../data",
        "data\0",
        "DATA",
        other.as_str(),
        "../../lock",
    ] {
        assert!(tenant.volume(bad).is_none(), "{bad:?}");
    }
    for bad in ["", "../x", "a/b", ".x", "-x", "x y", "é", &"x".repeat(65)] {
        assert!(matches!(tenant.ensure_volume(bad, 1, false), Err(VaultError::VolumeName { .. })), "{bad:?}");
    }
}

fn made(vault: &Vault, n: u128) -> Arc<Tenant> {
    vault.ensure(id(n), 1 << 20, false).unwrap();
    let tenant = vault.tenant(id(n)).unwrap();
    tenant.set_limit(1 << 20).unwrap();
    tenant
}

fn data(root: &Path, n: u128) -> PathBuf {
    root.join("volumes").join(id(n).to_string()).join("data")
}

fn found(vault: &Vault, n: u128) -> Found {
    vault.observe(id(n)).found.remove("data").unwrap()
}

#[test]
fn a_volume_deleted_by_hand_is_closed_and_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    let tenant = made(&vault, 1);
    let open = tenant.volume("data").unwrap();
    open.write(0, &[1], false).unwrap();
    std::fs::remove_file(data(dir.path(), 1)).unwrap();
    assert!(tenant.volume("data").is_none(), "nobody opens a file without a name");
    assert_eq!(found(&vault, 1), Found::Missing);
    assert!(open.write(0, &[1], false).is_err(), "what is written there would be lost");
    assert!(tenant.keep(1 << 20).is_err() && vault.ensure(id(1), 1 << 20, false).is_err());
    assert!(tenant.ensure_volume("other", 4096, false).is_ok(), "others can still be made");
    assert!(!data(dir.path(), 1).exists(), "but not this one");
    assert_eq!(tenant.account.balance().used, 0);
}

#[test]
fn a_volume_put_back_is_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    let tenant = made(&vault, 1);
    tenant.volume("data").unwrap().write(0, &[7; 4096], false).unwrap();
    let before = found(&vault, 1);
    let (here, away) = (data(dir.path(), 1), dir.path().join("away"));
    std::fs::rename(&here, &away).unwrap();
    assert_eq!(found(&vault, 1), Found::Missing);
    std::fs::rename(&away, &here).unwrap();
    assert_eq!(found(&vault, 1), before);
    tenant.keep(1 << 20).unwrap();
    let mut back = [0; 4096];
    tenant.volume("data").unwrap().read(0, &mut back).unwrap();
    assert_eq!((back, tenant.account.balance().used), ([7; 4096], 4096));
}

#[test]
fn what_is_beside_a_mark_is_told_for_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    (1..=2).for_each(|n| drop(made(&vault, n)));
    let (first, second) = (data(dir.path(), 1), data(dir.path(), 2));
    let (mark, others) = (first.with_extension("mark"), second.with_extension("mark"));
    let text = std::fs::read(&mark).unwrap();
    let Found::Whole(whole) = found(&vault, 1) else { panic!("it is whole") };
    assert_eq!((whole.vault, whole.generation, whole.size), (vault.id(), 1, 1 << 20));
    // A bit of each byte: noticed, or without meaning.
    for byte in 0..text.len() {
        let mut flipped = text.clone();
        flipped[byte] ^= 1 << (byte % 8);
        std::fs::write(&mark, flipped).unwrap();
        let seen = found(&vault, 1);
        assert!(
            matches!(seen, Found::Damaged { .. }) || seen == Found::Whole(whole),
            "byte {byte}: {seen:?}"
        );
    }
    std::fs::copy(&others, &mark).unwrap();
    assert!(matches!(found(&vault, 1), Found::Damaged { reason } if reason.contains(&id(2).to_string())));
    std::fs::remove_file(&mark).unwrap();
    assert_eq!(found(&vault, 1), Found::Unmarked { size: 1 << 20 });
    std::fs::write(&mark, &text).unwrap();
    std::fs::File::options().write(true).open(&first).unwrap().set_len(4096).unwrap();
    assert!(matches!(found(&vault, 1), Found::Short { size: 4096, .. }));
    // An administrator takes it as it is.
    vault.adopt(id(1), 5).unwrap();
    let Found::Whole(adopted) = found(&vault, 1) else { panic!("it was adopted") };
    assert_eq!((adopted.volume, adopted.generation, adopted.size), (whole.volume, 5, 4096));
    assert!(vault.tenant(id(1)).unwrap().volume("data").is_some());
}

#[test]
fn another_directory_is_not_taken_for_the_vault() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |root: &Path, expected: &Expected| {
        Vault::open_expected(VaultConfig { root: root.to_owned(), reserve: 0 }, expected)
    };
    let first = open(dir.path(), &Expected::default()).unwrap().id();
    let second = vault(other.path()).id();
    assert_ne!(first, second);
    let expected = Expected { vault: Some(first), opening: 1 };
    assert_eq!(open(dir.path(), &expected).unwrap().id(), first);
    assert!(matches!(open(other.path(), &expected), Err(VaultError::Foreign { .. })));
    let empty = other.path().join("mountpoint");
    assert!(matches!(open(&empty, &expected), Err(VaultError::Gone { .. })));
    assert!(!empty.exists(), "nothing is made where a disk is missing");
}

#[test]
fn a_flipped_bit_in_what_names_the_vault_or_a_consumer_is_noticed_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    drop(made(&vault(dir.path()), 1));
    let record = dir.path().join("consumers").join(format!("{}.json", id(1)));
    for path in [dir.path().join("vault"), record] {
        let text = std::fs::read(&path).unwrap();
        for at in (0..text.len() - 1).step_by(7) {
            let mut flipped = text.clone();
            flipped[at] ^= 1 << (at % 7);
            std::fs::write(&path, &flipped).unwrap();
            let opened = Vault::open(VaultConfig { root: dir.path().to_owned(), reserve: 0 });
            match opened {
                Err(error) => assert!(matches!(error, VaultError::Record { .. }), "{at}: {error:?}"),
                Ok(vault) => {
                    let why = vault.observe(id(1)).trouble.expect("the record says nothing");
                    assert!(why.contains(&id(1).to_string()), "{at}: {why}");
                    assert!(vault.tenant(id(1)).unwrap().volume("data").is_none());
                }
            }
        }
        std::fs::write(&path, &text).unwrap();
    }
    assert!(vault(dir.path()).tenant(id(1)).unwrap().volume("data").is_some(), "nothing was made anew");
}

#[test]
fn a_vault_put_back_from_an_older_copy_says_so_until_it_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let open = |opening| {
        let expected = Expected { vault: None, opening };
        Vault::open_expected(VaultConfig { root: dir.path().to_owned(), reserve: 0 }, &expected).unwrap()
    };
    (1..=2).for_each(|n| drop(made(&open(0), n)));
    let again = open(2);
    assert!(matches!((again.opening(), found(&again, 1)), (3, Found::Whole(_))));
    drop(again);
    // The store knows of seven openings, the directory of three.
    let older = open(7);
    assert_eq!((older.opening(), found(&older, 1), found(&older, 2)), (8, Found::Older, Found::Older));
    assert!(older.tenant(id(1)).unwrap().volume("data").is_none());
    older.adopt(id(1), 2).unwrap();
    assert!(matches!(found(&older, 1), Found::Whole(_)));
    drop(older);
    let later = open(8);
    assert!(matches!(found(&later, 1), Found::Whole(_)));
    assert_eq!(found(&later, 2), Found::Older, "it stays so over restarts");
}

#[test]
fn volumes_from_before_marks_are_served_and_marked_by_adopting() {
    let dir = tempfile::tempdir().unwrap();
    {
        let vault = vault(dir.path());
        made(&vault, 1).volume("data").unwrap().write(0, &[9; 4096], false).unwrap();
    }
    // As the version before left it: a plain record, no marks.
    std::fs::remove_file(dir.path().join("vault")).unwrap();
    std::fs::remove_file(data(dir.path(), 1).with_extension("mark")).unwrap();
    let record = dir.path().join("consumers").join(format!("{}.json", id(1)));
    let old =
        "{\n  \"limit\": 1048576,\n  \"volumes\": {\n    \"data\": 1048576\n  },\n  \"credential\": null\n}";
    std::fs::write(&record, old).unwrap();
    let vault = vault(dir.path());
    assert_eq!(found(&vault, 1), Found::Unmarked { size: 1 << 20 });
    let tenant = vault.tenant(id(1)).unwrap();
    assert!(tenant.volume("data").is_some() && tenant.account.balance().used == 4096);
    vault.adopt(id(1), 1).unwrap();
    let Found::Whole(mark) = found(&vault, 1) else { panic!("it is marked") };
    assert_eq!((mark.vault, mark.generation, mark.size), (vault.id(), 1, 1 << 20));
    assert_eq!(tenant.account.balance(), crate::account::Balance { used: 4096, limit: 1 << 20 });
    // One that was cut before it could be marked is not taken.
    std::fs::write(&record, old).unwrap();
    std::fs::remove_file(data(dir.path(), 1).with_extension("mark")).unwrap();
    std::fs::File::options().write(true).open(data(dir.path(), 1)).unwrap().set_len(4096).unwrap();
    drop(tenant);
    drop(vault);
    assert!(matches!(found(&self::vault(dir.path()), 1), Found::Damaged { .. }));
}

#[test]
fn a_lowered_grant_takes_the_volume_along_where_nobody_notices() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    let tenant = made(&vault, 1);
    tenant.volume("data").unwrap().write(8192, &[1; 4096], false).unwrap();
    assert_eq!(tenant.floor(), 3 * 4096);
    tenant.set_limit(16 << 10).unwrap();
    assert_eq!(tenant.volume("data").unwrap().size(), 16 << 10);
    assert!(matches!(found(&vault, 1), Found::Whole(mark) if mark.size == 16 << 10 && mark.generation == 2));
    tenant.keep(1 << 20).unwrap();
    let client = tenant.volume("data").unwrap().user();
    assert_eq!(tenant.floor(), 1 << 20, "somebody is connected and relies on it");
    tenant.set_limit(64 << 10).unwrap();
    assert_eq!(tenant.volume("data").unwrap().size(), 1 << 20, "forced: the limit goes, the volume stays");
    drop(client);
}

#[test]
fn a_trash_cut_off_half_way_is_finished_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    for cut in 0..3 {
        {
            let vault = vault(path);
            vault.ensure(id(1), 1 << 20, false).unwrap();
            vault.tenant(id(1)).unwrap().set_limit(1 << 20).unwrap();
        }
        let volumes = path.join("volumes").join(id(1).to_string());
        let bin = path.join("trash").join(id(1).to_string());
        if cut > 0 {
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::rename(&volumes, bin.join("0")).unwrap();
        }
        if cut > 1 {
            std::fs::remove_file(path.join("consumers").join(format!("{}.json", id(1)))).unwrap();
        }
        let vault = vault(path);
        vault.trash(id(1)).unwrap();
        vault.purge(id(1)).unwrap();
        assert_eq!(vault.observe(id(1)), Observed::default());
        assert!(!volumes.exists() && !bin.exists());
    }
}

#[test]
fn data_without_a_record_is_seen_and_strangers_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    std::fs::create_dir_all(dir.path().join("volumes").join(id(9).to_string())).unwrap();
    std::fs::create_dir_all(dir.path().join("volumes/lost+found")).unwrap();
    let all = vault.observe_all().unwrap();
    assert_eq!(all.keys().collect::<Vec<_>>(), [&id(9)]);
    vault.trash(id(9)).unwrap();
    vault.purge(id(9)).unwrap();
    assert!(vault.observe_all().unwrap().is_empty());
    assert!(dir.path().join("volumes/lost+found").exists());
}

#[test]
fn a_damaged_record_harms_nobody_else_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    {
        let vault = vault(dir.path());
        (1..=2).for_each(|n| drop(made(&vault, n)));
    }
    let record = dir.path().join("consumers").join(format!("{}.json", id(1)));
    let text = std::fs::read(&record).unwrap();
    for damage in [&b"{"[..], b"", &text[..text.len() / 2]] {
        std::fs::write(&record, damage).unwrap();
        let vault = vault(dir.path());
        let seen = vault.observe(id(1));
        assert!(seen.trouble.as_ref().is_some_and(|why| why.contains(&id(1).to_string())), "{seen:?}");
        assert!(vault.tenant(id(1)).unwrap().volume("data").is_none());
        assert!(vault.tenant(id(2)).unwrap().volume("data").is_some());
    }
    std::fs::remove_file(&record).unwrap();
    let vault = vault(dir.path());
    assert!(vault.observe(id(1)).trouble.is_some());
    assert!(matches!(vault.ensure(id(1), 1 << 20, false), Err(VaultError::NotOurs { .. })));
    vault.adopt(id(1), 2).unwrap();
    assert!(vault.observe(id(1)).trouble.is_none());
    assert!(vault.tenant(id(1)).unwrap().volume("data").is_some());
}

/// Certificates that are due for renewal as soon as they are made.
struct ShortLived(std::sync::atomic::AtomicU8);

impl crate::identity::Issuer for ShortLived {
    fn issue(&self, _: &str) -> Result<crate::identity::IssuedIdentity, IssueError> {
        let n = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let certificate = format!("-----BEGIN CERTIFICATE-----\nAAA{n}\n-----END CERTIFICATE-----\n");
        let renew_at = std::time::SystemTime::UNIX_EPOCH;
        Ok(crate::identity::IssuedIdentity {
            certificate,
            key: String::new(),
            authority: String::new(),
            renew_at,
        })
    }
}

#[test]
fn a_renewed_certificate_opens_until_it_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    vault.ensure(id(1), 1 << 20, false).unwrap();
    let tenant = vault.tenant(id(1)).unwrap();
    let issuer = ShortLived(0.into());
    let shown = |n: u8| Fingerprint::of(&vec![0, 0, 0x34 + n].into());
    let opens = || (0..3).map(|n| vault.admits(id(1), shown(n))).collect::<Vec<_>>();
    tenant.ensure_credential(&issuer).unwrap();
    assert_eq!(opens(), [true, false, false]);
    assert!(!vault.observe(id(1)).credentials, "it is due");
    tenant.ensure_credential(&issuer).unwrap();
    assert_eq!(opens(), [true, true, false]);
    tenant.ensure_credential(&issuer).unwrap();
    assert_eq!(opens(), [false, true, true]);
    tenant.revoke().unwrap();
    assert_eq!(opens(), [false, false, false]);
    tenant.ensure_credential(&issuer).unwrap();
    assert_eq!(opens(), [false, false, false], "what was revoked does not come back with a new one");
}
