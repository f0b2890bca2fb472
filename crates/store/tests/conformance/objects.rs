//! Objects and transactions.

use bytes::Bytes;
use store::{Committed, Entry, Expected, Key, Prefix, Revision, Store, TransactError, Transaction};

use super::{delete, key, prefix, put};

pub(crate) async fn a_key_is_read_back_with_its_revisions(store: Store) {
    let first = put(&store, "a/b", "1").await;
    let entry = store.get(&key("a/b")).await.unwrap().unwrap();
    let expected = Entry {
        key: key("a/b"),
        value: Bytes::from_static(b"1"),
        created: first,
        modified: first,
        lease: None,
    };
    assert_eq!(entry, expected);
    let second = put(&store, "a/b", "1").await;
    assert!(second > first, "an equal value is a change too");
    let entry = store.get(&key("a/b")).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.modified), (first, second));
    let third = delete(&store, "a/b").await;
    let fourth = put(&store, "a/b", "2").await;
    assert!(second < third && third < fourth);
    let entry = store.get(&key("a/b")).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.modified), (fourth, fourth));
    assert_eq!(store.revision().await.unwrap(), fourth);
}

pub(crate) async fn absent_is_not_an_error(store: Store) {
    assert_eq!(store.get(&key("nothing")).await.unwrap(), None);
    assert_eq!(store.list(&prefix("nothing/")).await.unwrap().entries, []);
}

pub(crate) async fn a_list_is_sorted_and_of_one_prefix(store: Store) {
    for name in ["b/2", "a/2", "a/10", "a", "a/1", "a-b/1", "a0", "ab/1"] {
        put(&store, name, name).await;
    }
    let names =
        |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>();
    let listing = store.list(&prefix("a/")).await.unwrap();
    assert_eq!(listing.revision, store.revision().await.unwrap());
    assert_eq!(names(listing.entries), ["a/1", "a/10", "a/2"]);
    let all = names(store.list(&Prefix::all()).await.unwrap().entries);
    assert_eq!(all, ["a", "a-b/1", "a/1", "a/10", "a/2", "a0", "ab/1", "b/2"]);
}

pub(crate) async fn a_conflict_names_the_key_and_leaves_nothing(store: Store) {
    let at = put(&store, "there", "1").await;
    let before = store.revision().await.unwrap();
    let cases = [
        (Expected::Absent, "there", Some(at)),
        (Expected::Present, "absent", None),
        (Expected::ModifiedAt(Revision(at.0 + 1)), "there", Some(at)),
        (Expected::ModifiedAt(at), "absent", None),
    ];
    for (expected, name, found) in cases {
        let attempt = Transaction::new()
            .expect_present(key("there"))
            .expect(key(name), expected)
            .put(key("other"), "x")
            .delete(key("there"));
        let refused = store.transact(attempt).await.unwrap_err();
        assert_eq!(refused, TransactError::Conflict { key: key(name), found });
    }
    assert_eq!(store.get(&key("other")).await.unwrap(), None);
    assert!(store.get(&key("there")).await.unwrap().is_some());
    assert_eq!(store.revision().await.unwrap(), before);
    let accepted = Transaction::new()
        .expect_modified_at(key("there"), at)
        .expect_absent(key("absent"))
        .expect_present(key("there"))
        .put(key("there"), "2");
    store.transact(accepted).await.unwrap();
}

pub(crate) async fn compares_see_the_state_before_the_transaction(store: Store) {
    let swap = Transaction::new().expect_absent(key("a")).put(key("a"), "1").put(key("b"), "1");
    store.transact(swap.clone()).await.unwrap();
    let refused = store.transact(swap).await.unwrap_err();
    assert!(matches!(refused, TransactError::Conflict { key, .. } if key.as_str() == "a"));
}

pub(crate) async fn a_transaction_is_applied_whole_under_one_revision(store: Store) {
    for name in ["old/1", "old/2", "gone", "kept"] {
        put(&store, name, "0").await;
    }
    let Committed { revision } = store
        .transact(
            Transaction::new()
                .put(key("new/1"), "1")
                .put(key("kept"), "1")
                .delete(key("gone"))
                .delete_prefix(prefix("old/")),
        )
        .await
        .unwrap();
    let listing = store.list(&Prefix::all()).await.unwrap();
    assert_eq!(listing.revision, revision);
    let entries: Vec<_> = listing.entries.iter().map(|entry| (entry.key.as_str(), entry.modified)).collect();
    assert_eq!(entries, [("kept", revision), ("new/1", revision)]);
}

pub(crate) async fn a_key_touched_twice_is_refused(store: Store) {
    for twice in [
        Transaction::new().put(key("a"), "1").put(key("a"), "2"),
        Transaction::new().put(key("a"), "1").delete(key("a")),
        Transaction::new().put(key("b/c"), "1").delete_prefix(prefix("b/")),
    ] {
        let refused = store.transact(twice).await.unwrap_err();
        assert!(matches!(refused, TransactError::DuplicateKey { .. }), "{refused}");
    }
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries, []);
}

pub(crate) async fn a_transaction_that_changes_nothing_has_no_revision_of_its_own(store: Store) {
    let at = put(&store, "a", "1").await;
    for nothing in [
        Transaction::new(),
        Transaction::new().expect_present(key("a")),
        Transaction::new().delete(key("absent")),
        Transaction::new().delete_prefix(prefix("absent/")).delete(key("absent")),
    ] {
        assert_eq!(store.transact(nothing).await.unwrap().revision, at);
    }
    assert_eq!(store.revision().await.unwrap(), at);
}

pub(crate) async fn an_oversized_transaction_is_refused(store: Store) {
    let wide = (0..10_000).fold(Transaction::new(), |wide, n| wide.put(key(&format!("k/{n}")), "x"));
    let refused = store.transact(wide).await.unwrap_err();
    assert!(matches!(refused, TransactError::TooLarge { .. }), "{refused}");
    let heavy = Transaction::new().put(key("k"), vec![0_u8; 32 << 20]);
    let refused = store.transact(heavy).await.unwrap_err();
    assert!(matches!(refused, TransactError::TooLarge { .. }), "{refused}");
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries, []);
}

pub(crate) async fn a_large_transaction_is_applied_whole_or_not_at_all(store: Store) {
    const KEYS: usize = 700;
    let keys: Vec<_> = (0..KEYS).map(|n| key(&format!("k/{n:04}"))).collect();
    let create =
        keys.iter().fold(Transaction::new(), |all, k| all.expect_absent(k.clone()).put(k.clone(), "1"));
    let created = store.transact(create.clone()).await.unwrap().revision;
    let entries = store.list(&prefix("k/")).await.unwrap().entries;
    assert_eq!(entries.len(), KEYS);
    assert!(entries.iter().all(|entry| entry.modified == created && entry.value == "1"));

    // Again, with one compare of all that does not hold, wherever it stands.
    let at = put(&store, "k/0650", "2").await;
    for odd in [0, 350, KEYS - 1] {
        let mut replace = Transaction::new().put(key("new"), "3");
        for (n, k) in keys.iter().enumerate() {
            let seen = if n == 650 { at } else { created };
            let seen = if n == odd { Revision(seen.0 - 1) } else { seen };
            replace = replace.expect_modified_at(k.clone(), seen).put(k.clone(), "3");
        }
        let refused = store.transact(replace).await.unwrap_err();
        let TransactError::Conflict { key, found } = &refused else { panic!("{refused}") };
        assert_eq!((key, *found), (&keys[odd], Some(created)));
    }
    let values = store.list(&Prefix::all()).await.unwrap().entries;
    assert_eq!(
        values.iter().filter(|entry| entry.value == "1").count(),
        KEYS - 1,
        "nothing else was written"
    );
    assert_eq!(values.len(), KEYS);

    let gone = keys.iter().fold(Transaction::new(), |all, k| all.expect_present(k.clone()).delete(k.clone()));
    store.transact(gone).await.unwrap();
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries, []);
}

pub(crate) async fn of_many_racing_creators_one_wins(store: Store) {
    let attempts = (0..32).map(|n| {
        let store = store.clone();
        let attempt = Transaction::new().expect_absent(key("one")).put(key("one"), n.to_string());
        tokio::spawn(async move { store.transact(attempt).await })
    });
    let mut won = 0;
    for attempt in futures::future::join_all(attempts).await {
        match attempt.unwrap() {
            Ok(_) => won += 1,
            Err(TransactError::Conflict { found: Some(_), .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
}

pub(crate) async fn a_counter_bumped_by_many_loses_no_bump(store: Store) {
    put(&store, "counter", "0").await;
    let bumpers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let entry = store.get(&key("counter")).await.unwrap().unwrap();
                    let count: u64 = str::from_utf8(&entry.value).unwrap().parse().unwrap();
                    let bump = Transaction::new()
                        .expect_modified_at(entry.key.clone(), entry.modified)
                        .put(entry.key, (count + 1).to_string());
                    match store.transact(bump).await {
                        Ok(_) => break,
                        Err(TransactError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        })
    });
    for bumper in futures::future::join_all(bumpers).await {
        bumper.unwrap();
    }
    assert_eq!(store.get(&key("counter")).await.unwrap().unwrap().value, "80");
}

pub(crate) async fn values_of_any_bytes_and_size_come_back(store: Store) {
    let long = "k".repeat(Key::MAX_LENGTH);
    let values = [Vec::new(), (0..=255).collect(), vec![0xff; 512 * 1024]];
    for value in values {
        store.transact(Transaction::new().put(key(&long), value.clone())).await.unwrap();
        assert_eq!(store.get(&key(&long)).await.unwrap().unwrap().value, value);
    }
    let escaped = prefix("nets/").key("10.0.0.0/8 %\u{7}").unwrap();
    store.transact(Transaction::new().put(escaped.clone(), "net")).await.unwrap();
    let entries = store.list(&prefix("nets/")).await.unwrap().entries;
    assert_eq!(entries[0].key, escaped);
}
