//! Logins that nobody used, and sessions that have ended: more of them than one transaction of etcd takes.

use std::time::Duration;

use store::{Prefix, Store, Transaction, etcd};
use wire::trestle::v1::{CreateLoginRequest, access_client::AccessClient};

use super::Etcd;

/// More than etcd's 128 operations of one transaction.
const STALE: usize = 300;

async fn leave_behind(store: &Store) {
    let record = |session: bool| {
        let subject = r#"{"role": "viewer", "name": "somebody"}"#;
        let ended = "2020-01-01T00:00:00Z";
        match session {
            true => format!(
                r#"{{"subject": {subject}, "hash": "0", "created_at": "{ended}", "expires_at": "{ended}", "session": true}}"#
            ),
            false => format!(r#"{{"subject": {subject}, "hash": "0", "expires_at": "{ended}"}}"#),
        }
    };
    for (kind, session) in [("access/logins", false), ("access/tokens", true)] {
        let prefix = Prefix::below(kind).unwrap();
        for batch in 0..STALE / 60 {
            let keys = (0..60).map(|n| prefix.key(&format!("old-{batch}-{n}")).unwrap());
            let put = keys.fold(Transaction::new(), |made, key| made.put(key, record(session)));
            store.transact(put).await.unwrap();
        }
    }
}

async fn left(store: &Store) -> usize {
    let mut left = 0;
    for kind in ["access/logins", "access/tokens"] {
        let listed = store.list(&Prefix::below(kind).unwrap()).await.unwrap();
        left += listed.entries.iter().filter(|entry| entry.key.to_string().contains("/old-")).count();
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_logins_and_sessions_keep_nobody_out_and_are_forgotten() {
    let etcd = Etcd::start();
    let store = etcd::Options::new([etcd.0.url().to_owned()]).connect().await.unwrap();
    // Made while the controller runs, and so before it sweeps again; then found by one that starts.
    let fixture = etcd.controller(tempfile::tempdir().unwrap(), |_| {}).await;
    leave_behind(&store).await;
    let mut access = AccessClient::new(fixture.admin().await);
    let code = access.create_login(CreateLoginRequest {}).await.unwrap().into_inner().code;
    let body = format!(r#"{{"code": "{code}"}}"#);
    let (status, ..) = fixture.rest_as(None, "POST", "/session", body).await;
    assert_eq!(status, http::StatusCode::OK);
    let dir = fixture.stop().await;
    if left(&store).await == 0 {
        leave_behind(&store).await;
    }
    let _fixture = etcd.controller(dir, |_| {}).await;
    let swept = async {
        while left(&store).await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), swept).await.expect("they are forgotten");
}
