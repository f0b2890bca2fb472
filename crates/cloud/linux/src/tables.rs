//! nftables of many namespaces: one netlink socket for each, opened inside it and kept.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt as _, sync::Arc};

use cloud_api::{CloudError, Result};
use node_kernel::nft::{Nft, TableId};
use node_nft::{CurrentTable, Family, Limits, Live, Plan, Table, Transaction};
use parking_lot::Mutex;

use crate::{namespace, permit::TABLE};

/// A socket and the namespace it is in: a namespace that was made anew under the same name is another one.
struct Open {
    inode: u64,
    nft: Arc<Mutex<Nft>>,
}

#[derive(Default)]
pub(crate) struct Tables {
    open: Mutex<HashMap<String, Open>>,
}

fn failed(namespace: &str, err: &dyn std::error::Error) -> CloudError {
    let mut text = format!("nftables in {namespace}: {err}");
    let mut source = err.source();
    while let Some(below) = source {
        text = format!("{text}: {below}");
        source = below.source();
    }
    CloudError::unavailable(text)
}

impl Tables {
    async fn socket(&self, namespace: &str) -> Result<Arc<Mutex<Nft>>> {
        let inode = fs::metadata(format!("/run/netns/{namespace}")).map_or(0, |file| file.ino());
        if let Some(open) = self.open.lock().get(namespace).filter(|open| open.inode == inode) {
            return Ok(Arc::clone(&open.nft));
        }
        let name = namespace.to_owned();
        let nft =
            namespace::inside(namespace, move || Nft::open().map_err(|err| failed(&name, &err))).await?;
        let nft = Arc::new(Mutex::new(nft));
        self.open.lock().insert(namespace.to_owned(), Open { inode, nft: Arc::clone(&nft) });
        Ok(nft)
    }

    async fn with<T: Send + 'static>(
        &self,
        namespace: &str,
        act: impl FnOnce(&mut Nft, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (nft, name) = (self.socket(namespace).await?, namespace.to_owned());
        let done = tokio::task::spawn_blocking(move || act(&mut nft.lock(), &name)).await;
        done.unwrap_or_else(|_| Err(CloudError::unavailable("a call to nftables has panicked")))
    }

    /// Makes the namespace's table as given, whatever it is now. Does nothing if it is so already.
    pub(crate) async fn reconcile(&self, namespace: &str, table: Table) -> Result {
        self.with(namespace, move |nft, name| {
            nft.reconcile(&table, Live::Atomic, Limits::default()).map(drop).map_err(|err| failed(name, &err))
        })
        .await
    }

    /// Commits what was worked out against what was last committed; if the kernel has something else, it refuses.
    pub(crate) async fn commit(&self, namespace: &str, plan: Plan) -> Result {
        if plan.is_empty() {
            return Ok(());
        }
        self.with(namespace, move |nft, name| {
            let id = TableId::new(Family::Inet, TABLE);
            nft.apply(&id, &plan).map(drop).map_err(|err| failed(name, &err))
        })
        .await
    }

    pub(crate) async fn commit_one(&self, namespace: &str, transaction: Transaction) -> Result {
        self.commit(namespace, Plan { transactions: vec![transaction] }).await
    }

    /// The namespace's table; none if there is none.
    pub(crate) async fn read(&self, namespace: &str) -> Result<Option<CurrentTable>> {
        self.with(namespace, |nft, name| {
            nft.read(&TableId::new(Family::Inet, TABLE)).map_err(|err| failed(name, &err))
        })
        .await
    }

    /// Forgets the socket of a namespace that is going: an open socket would keep it alive.
    pub(crate) fn forget(&self, namespace: &str) {
        self.open.lock().remove(namespace);
    }
}
