//! The vault without its server.

use storage_provider::ConsumerId;
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
        vault.ensure(id(1), 1 << 20).unwrap();
        let tenant = vault.tenant(id(1)).unwrap();
        tenant.set_limit(1 << 20).unwrap();
        tenant.ensure_volume("logs", 5 << 20).unwrap();
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
    vault.ensure(id(1), 1 << 20).unwrap();
    vault.ensure(id(2), 1 << 20).unwrap();
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
        assert!(matches!(tenant.ensure_volume(bad, 1), Err(VaultError::VolumeName { .. })), "{bad:?}");
    }
}

#[test]
fn a_volume_deleted_by_hand_is_noticed_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(dir.path());
    vault.ensure(id(1), 1 << 20).unwrap();
    let tenant = vault.tenant(id(1)).unwrap();
    tenant.set_limit(1 << 20).unwrap();
    tenant.volume("data").unwrap().write(0, &[1], false).unwrap();
    std::fs::remove_file(dir.path().join("volumes").join(id(1).to_string()).join("data")).unwrap();
    assert!(!vault.observe(id(1)).storage.unwrap().in_shape);
    vault.ensure(id(1), 1 << 20).unwrap();
    let storage = vault.observe(id(1)).storage.unwrap();
    assert!(storage.in_shape && storage.used == 0);
}

#[test]
fn a_trash_cut_off_half_way_is_finished_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    for cut in 0..3 {
        {
            let vault = vault(path);
            vault.ensure(id(1), 1 << 20).unwrap();
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
fn a_damaged_record_stops_the_start_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    vault(dir.path()).ensure(id(1), 1 << 20).unwrap();
    std::fs::write(dir.path().join("consumers").join(format!("{}.json", id(1))), "{").unwrap();
    let error = Vault::open(VaultConfig { root: dir.path().to_owned(), reserve: 0 }).unwrap_err();
    assert!(error.to_string().contains(&id(1).to_string()), "{error}");
}
