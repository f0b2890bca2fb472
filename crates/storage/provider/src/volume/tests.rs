use super::*;

const GRANT: u64 = 100 * BLOCK;

fn volumes(list: &[(&str, u64)]) -> Volumes {
    let one = |(name, blocks): &(&str, u64)| {
        let status =
            VolumeStatus { name: (*name).to_owned(), size: blocks * BLOCK, ..VolumeStatus::default() };
        ((*name).to_owned(), status)
    };
    list.iter().map(one).collect()
}

fn create(name: &str, size: u64, from: Option<&str>) -> VolumeWish {
    VolumeWish::Create { name: name.to_owned(), size, from: from.map(str::to_owned), encrypted: false }
}

fn code(wish: &VolumeWish, volumes: &Volumes) -> VolumeCode {
    decide_volume(wish, volumes, GRANT).unwrap_err().code()
}

#[test]
fn a_volume_is_made_once_and_asked_for_as_often_as_one_likes() {
    let there = volumes(&[("data", 100), ("logs", 2)]);
    let made = decide_volume(&create("new", BLOCK + 1, None), &there, GRANT);
    assert_eq!(made, Ok(VolumeStep::Create { name: "new".to_owned(), size: 2 * BLOCK, encrypted: false }));
    assert_eq!(decide_volume(&create("logs", 2 * BLOCK - 1, None), &there, GRANT), Ok(VolumeStep::Nothing));
    assert_eq!(code(&create("logs", 3 * BLOCK, None), &there), VolumeCode::Exists);
    assert_eq!(code(&create("logs", 2 * BLOCK, Some("data")), &there), VolumeCode::Exists);
    for size in [GRANT + 1, u64::MAX] {
        assert_eq!(code(&create("new", size, None), &there), VolumeCode::Full);
    }
    assert_eq!(code(&create("new", 0, None), &there), VolumeCode::Invalid);
    for name in ["", "a@b", "../x", "a b", ".a", &"x".repeat(65)] {
        assert_eq!(code(&create(name, BLOCK, None), &there), VolumeCode::Invalid, "{name:?}");
    }
    let full: Vec<_> = (0..MOST_VOLUMES).map(|n| format!("v{n}")).collect();
    let full: Vec<_> = full.iter().map(|name| (name.as_str(), 1)).collect();
    assert_eq!(code(&create("new", BLOCK, None), &volumes(&full)), VolumeCode::Full);
}

#[test]
fn a_copy_is_at_least_as_large_as_what_it_is_made_of() {
    let there = volumes(&[("data", 100), ("logs", 2), ("logs@mon", 2)]);
    let copy = |size, from: &str| decide_volume(&create("new", size, Some(from)), &there, GRANT);
    let made = |size, from: &str| VolumeStep::Copy { name: "new".to_owned(), size, from: from.to_owned() };
    assert_eq!(copy(0, "logs@mon"), Ok(made(2 * BLOCK, "logs@mon")));
    assert_eq!(copy(3 * BLOCK, "logs"), Ok(made(3 * BLOCK, "logs")));
    assert!(matches!(copy(BLOCK, "logs"), Err(VolumeRefusal::BelowSource { .. })));
    assert!(matches!(copy(0, "logs@tue"), Err(VolumeRefusal::Missing { .. })));
}

#[test]
fn what_must_be_encrypted_is_or_is_refused() {
    let mut there = volumes(&[("data", 100), ("logs", 2), ("plain", 2)]);
    there.get_mut("logs").unwrap().encrypted = true;
    let wish = |name: &str, from: Option<&str>| VolumeWish::Create {
        name: name.to_owned(),
        size: 2 * BLOCK,
        from: from.map(str::to_owned),
        encrypted: true,
    };
    let made = VolumeStep::Create { name: "new".to_owned(), size: 2 * BLOCK, encrypted: true };
    assert_eq!(decide_volume(&wish("new", None), &there, GRANT), Ok(made));
    assert_eq!(decide_volume(&wish("logs", None), &there, GRANT), Ok(VolumeStep::Nothing));
    assert_eq!(code(&wish("plain", None), &there), VolumeCode::Exists);
    // Where all is encrypted nobody need ask for it.
    assert_eq!(decide_volume(&create("logs", 2 * BLOCK, None), &there, GRANT), Ok(VolumeStep::Nothing));
    let plain = decide_volume(&create("new", BLOCK, None), &there, GRANT).unwrap();
    assert!(matches!(plain.encrypted(true), VolumeStep::Create { encrypted: true, .. }));
    assert!(matches!(decide_volume(&wish("new", Some("logs")), &there, GRANT), Ok(VolumeStep::Copy { .. })));
    let refused = decide_volume(&wish("new", Some("plain")), &there, GRANT);
    assert!(matches!(refused, Err(VolumeRefusal::SourceNotEncrypted { .. })));
}

#[test]
fn a_volume_shrinks_to_its_data_if_nobody_has_it_open() {
    let mut there = volumes(&[("data", 100), ("logs", 10), ("logs@mon", 2)]);
    let to = |name: &str, blocks: u64| VolumeWish::Resize { name: name.to_owned(), size: blocks * BLOCK };
    there.get_mut("logs").unwrap().end = 4 * BLOCK;
    let lower = |blocks: u64| Ok(VolumeStep::Lower { name: "logs".to_owned(), size: blocks * BLOCK });
    assert_eq!(decide_volume(&to("logs", 4), &there, GRANT), lower(4));
    assert!(matches!(decide_volume(&to("logs", 3), &there, GRANT), Err(VolumeRefusal::BelowData { .. })));
    there.get_mut("logs").unwrap().sessions = 1;
    assert!(matches!(decide_volume(&to("logs", 4), &there, GRANT), Err(VolumeRefusal::InUse { .. })));
    // It grows under its clients.
    let grown = VolumeStep::Grow { name: "logs".to_owned(), size: 20 * BLOCK };
    assert_eq!(decide_volume(&to("logs", 20), &there, GRANT), Ok(grown));
    assert_eq!(decide_volume(&to("logs", 10), &there, GRANT), Ok(VolumeStep::Nothing));
    assert_eq!(code(&to("logs", 101), &there), VolumeCode::Full);
    assert_eq!(code(&to("data", 50), &there), VolumeCode::NotNow);
    assert_eq!(code(&to("logs@mon", 50), &there), VolumeCode::NotNow);
    // After its grant shrank it is larger than that, and still becomes smaller.
    assert_eq!(code(&to("logs", 9), &there), VolumeCode::NotNow);
    there.get_mut("logs").unwrap().sessions = 0;
    assert_eq!(decide_volume(&to("logs", 9), &there, 5 * BLOCK), lower(9));
}

#[test]
fn what_is_deleted_is_out_of_reach_and_comes_back_until_its_time() {
    let mut there = volumes(&[("data", 100), ("logs", 10)]);
    let delete = |name: &str, kept_until| VolumeWish::Delete { name: name.to_owned(), kept_until };
    let hidden = VolumeStep::Hide { name: "logs".to_owned(), kept_until: 9 };
    assert_eq!(decide_volume(&delete("logs", Some(9)), &there, GRANT), Ok(hidden));
    assert_eq!(code(&delete("data", None), &there), VolumeCode::NotNow);
    assert_eq!(code(&delete("none", None), &there), VolumeCode::Missing);
    there.get_mut("logs").unwrap().sessions = 2;
    assert_eq!(code(&delete("logs", None), &there), VolumeCode::NotNow);
    let logs = there.get_mut("logs").unwrap();
    (logs.sessions, logs.kept_until) = (0, Some(9));
    assert_eq!(decide_volume(&delete("logs", Some(20)), &there, GRANT), Ok(VolumeStep::Nothing));
    let removed = VolumeStep::Remove { name: "logs".to_owned() };
    assert_eq!(decide_volume(&delete("logs", None), &there, GRANT), Ok(removed));
    for wish in [
        create("logs", 10 * BLOCK, None),
        create("copy", 0, Some("logs")),
        VolumeWish::Snapshot { name: "logs@a".to_owned() },
        VolumeWish::Resize { name: "logs".to_owned(), size: BLOCK },
        VolumeWish::Restore { name: "logs".to_owned(), from: "logs@a".to_owned() },
    ] {
        assert!(
            matches!(decide_volume(&wish, &there, GRANT), Err(VolumeRefusal::Deleted { .. })),
            "{wish:?}"
        );
    }
    let keep = VolumeWish::Keep { name: "logs".to_owned() };
    assert_eq!(decide_volume(&keep, &there, GRANT), Ok(VolumeStep::Show { name: "logs".to_owned() }));
    there.get_mut("logs").unwrap().kept_until = None;
    assert_eq!(decide_volume(&keep, &there, GRANT), Ok(VolumeStep::Nothing));
}

#[test]
fn what_is_being_imported_is_nobodys_until_all_of_it_is_there() {
    let mut there = volumes(&[("data", 100), ("in", 4)]);
    there.get_mut("in").unwrap().importing = true;
    let import = |name: &str, blocks: u64| VolumeWish::Import {
        name: name.to_owned(),
        size: blocks * BLOCK,
        encrypted: false,
    };
    assert_eq!(decide_volume(&import("in", 4), &there, GRANT), Ok(VolumeStep::Nothing));
    assert_eq!(code(&import("in", 5), &there), VolumeCode::Exists);
    assert_eq!(code(&import("data", 100), &there), VolumeCode::Exists);
    assert_eq!(code(&create("in", 4 * BLOCK, None), &there), VolumeCode::Exists);
    let begun = VolumeStep::Import { name: "new".to_owned(), size: BLOCK, encrypted: false };
    assert_eq!(decide_volume(&import("new", 1), &there, GRANT), Ok(begun));
    for wish in [create("copy", 0, Some("in")), VolumeWish::Snapshot { name: "in@a".to_owned() }] {
        assert!(matches!(decide_volume(&wish, &there, GRANT), Err(VolumeRefusal::Importing { .. })));
    }
    assert_eq!(check_import("in", &there), Ok(4 * BLOCK));
    assert!(check_import("data", &there).is_err() && check_export("in", &there).is_err());
    let removed = VolumeWish::Delete { name: "in".to_owned(), kept_until: None };
    assert_eq!(decide_volume(&removed, &there, GRANT), Ok(VolumeStep::Remove { name: "in".to_owned() }));
}

#[test]
fn a_volume_is_one_writers_until_it_is_given_back_or_taken_over() {
    let mut there = volumes(&[("data", 100), ("logs", 4), ("logs@mon", 4)]);
    let publish = |writer: &str, take_over| VolumeWish::Publish {
        name: "logs".to_owned(),
        writer: writer.to_owned(),
        take_over,
    };
    let given = |writer: &str| Ok(VolumeStep::Publish { name: "logs".to_owned(), writer: writer.to_owned() });
    assert_eq!(decide_volume(&publish("a", false), &there, GRANT), given("a"));
    for bad in ["", "a\n", &"x".repeat(254)] {
        assert_eq!(code(&publish(bad, false), &there), VolumeCode::Invalid);
    }
    let logs = there.get_mut("logs").unwrap();
    (logs.writer, logs.epoch) = (Some("a".to_owned()), 7);
    assert_eq!(export_of(logs), "logs:7");
    assert_eq!(decide_volume(&publish("a", false), &there, GRANT), Ok(VolumeStep::Nothing));
    assert_eq!(code(&publish("b", false), &there), VolumeCode::NotNow);
    assert_eq!(decide_volume(&publish("b", true), &there, GRANT), given("b"));
    let back = |writer: Option<&str>| VolumeWish::Unpublish {
        name: "logs".to_owned(),
        writer: writer.map(str::to_owned),
    };
    assert_eq!(decide_volume(&back(Some("b")), &there, GRANT), Ok(VolumeStep::Nothing), "not its any more");
    for writer in [Some("a"), None] {
        let unpublished = VolumeStep::Unpublish { name: "logs".to_owned() };
        assert_eq!(decide_volume(&back(writer), &there, GRANT), Ok(unpublished));
    }
    let snapshot =
        VolumeWish::Publish { name: "logs@mon".to_owned(), writer: "a".to_owned(), take_over: false };
    assert_eq!(code(&snapshot, &there), VolumeCode::NotNow);
}

#[test]
fn a_snapshot_is_of_a_volume_and_restores_that_one_only() {
    let mut there = volumes(&[("data", 100), ("logs", 10), ("logs@mon", 10)]);
    let snapshot = |name: &str| VolumeWish::Snapshot { name: name.to_owned() };
    let taken = VolumeStep::Snapshot { volume: "data".to_owned(), name: "data@1".to_owned() };
    assert_eq!(decide_volume(&snapshot("data@1"), &there, GRANT), Ok(taken));
    assert_eq!(decide_volume(&snapshot("logs@mon"), &there, GRANT), Ok(VolumeStep::Nothing));
    for name in ["data", "data@", "@x", "data@a@b", "data@../x"] {
        assert_eq!(code(&snapshot(name), &there), VolumeCode::Invalid, "{name:?}");
    }
    assert_eq!(code(&snapshot("none@x"), &there), VolumeCode::Missing);
    let restore =
        |name: &str, from: &str| VolumeWish::Restore { name: name.to_owned(), from: from.to_owned() };
    let restored = VolumeStep::Restore { name: "logs".to_owned(), from: "logs@mon".to_owned() };
    assert_eq!(decide_volume(&restore("logs", "logs@mon"), &there, GRANT), Ok(restored.clone()));
    assert_eq!(code(&restore("data", "logs@mon"), &there), VolumeCode::Invalid);
    assert_eq!(code(&restore("logs", "data"), &there), VolumeCode::Invalid);
    there.get_mut("logs").unwrap().trouble = Some("no more writes".to_owned());
    assert_eq!(decide_volume(&restore("logs", "logs@mon"), &there, GRANT), Ok(restored));
    assert_eq!(code(&snapshot("logs@tue"), &there), VolumeCode::NotNow);
    there.get_mut("logs").unwrap().sessions = 1;
    assert_eq!(code(&restore("logs", "logs@mon"), &there), VolumeCode::NotNow);
}
