//! nftables of many namespaces: one netlink socket for each, opened inside it and kept.
//!
//! The kernel counts what is committed in a namespace, by anybody. A table that was read is what the kernel has for as long as
//! that count stays the same, so to look at ten thousand rules again costs a question.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt as _, sync::Arc};

use cloud_api::{CloudError, Result};
use node_kernel::nft::{Nft, ReadError, TableId};
use node_nft::{CurrentTable, Family, Limits, Live, Plan, Table, Transaction};
use parking_lot::Mutex;

use crate::{namespace, permit::TABLE};

/// A socket and the namespace it is in: a namespace that was made anew under the same name is another one. As long as the
/// socket is open its namespace is not gone, and no other has its number.
struct Open {
    inode: u64,
    eyes: Arc<Mutex<Eyes>>,
}

/// A socket, and what was last read through it.
struct Eyes {
    nft: Nft,
    seen: Option<(u32, Arc<CurrentTable>)>,
}

impl Eyes {
    fn read(&mut self, table: &TableId) -> std::result::Result<Option<Arc<CurrentTable>>, ReadError> {
        let counted =
            |nft: &mut Nft| nft.generation().map_err(|source| ReadError { table: table.clone(), source });
        let before = counted(&mut self.nft)?;
        if let Some((generation, seen)) = &self.seen
            && *generation == before
        {
            return Ok(Some(Arc::clone(seen)));
        }
        self.seen = None;
        let Some(read) = self.nft.read(table)?.map(Arc::new) else { return Ok(None) };
        // Somebody may have committed something while it was read.
        if counted(&mut self.nft)? == before {
            self.seen = Some((before, Arc::clone(&read)));
        }
        Ok(Some(read))
    }
}

#[derive(Default)]
pub(crate) struct Tables {
    open: Mutex<HashMap<String, Open>>,
}

fn failed(namespace: &str, err: &dyn std::error::Error) -> CloudError {
    CloudError::unavailable(format!("nftables in {namespace}: {}", common::chain(err)))
}

impl Tables {
    async fn eyes(&self, namespace: &str) -> Result<Arc<Mutex<Eyes>>> {
        let inode = fs::metadata(format!("/run/netns/{namespace}")).map_or(0, |file| file.ino());
        if let Some(open) = self.open.lock().get(namespace).filter(|open| open.inode == inode) {
            return Ok(Arc::clone(&open.eyes));
        }
        let name = namespace.to_owned();
        let nft =
            namespace::inside(namespace, move || Nft::open().map_err(|err| failed(&name, &err))).await?;
        let eyes = Arc::new(Mutex::new(Eyes { nft, seen: None }));
        self.open.lock().insert(namespace.to_owned(), Open { inode, eyes: Arc::clone(&eyes) });
        Ok(eyes)
    }

    async fn with<T: Send + 'static>(
        &self,
        namespace: &str,
        act: impl FnOnce(&mut Eyes, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (eyes, name) = (self.eyes(namespace).await?, namespace.to_owned());
        let done = tokio::task::spawn_blocking(move || act(&mut eyes.lock(), &name)).await;
        done.unwrap_or_else(|_| Err(CloudError::unavailable("a call to nftables has panicked")))
    }

    /// Makes the namespace's table as given, whatever it is now. Does nothing if it is so already.
    pub(crate) async fn reconcile(&self, namespace: &str, table: Table) -> Result {
        self.with(namespace, move |eyes, name| {
            let done = eyes.nft.reconcile(&table, Live::Atomic, Limits::default());
            done.map(drop).map_err(|err| failed(name, &err))
        })
        .await
    }

    /// Commits what was worked out against what was last committed; if the kernel has something else, it refuses.
    pub(crate) async fn commit(&self, namespace: &str, plan: Plan) -> Result {
        if plan.is_empty() {
            return Ok(());
        }
        self.with(namespace, move |eyes, name| {
            let id = TableId::new(Family::Inet, TABLE);
            eyes.nft.apply(&id, &plan).map(drop).map_err(|err| failed(name, &err))
        })
        .await
    }

    pub(crate) async fn commit_one(&self, namespace: &str, transaction: Transaction) -> Result {
        self.commit(namespace, Plan { transactions: vec![transaction] }).await
    }

    /// The namespace's table; none if there is none.
    pub(crate) async fn read(&self, namespace: &str) -> Result<Option<Arc<CurrentTable>>> {
        self.with(namespace, |eyes, name| {
            eyes.read(&TableId::new(Family::Inet, TABLE)).map_err(|err| failed(name, &err))
        })
        .await
    }

    /// Forgets the socket of a namespace that is going: an open socket would keep it alive.
    pub(crate) fn forget(&self, namespace: &str) {
        self.open.lock().remove(namespace);
    }
}
