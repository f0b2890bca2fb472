//! What lies between the sites of this machine: addresses for their edges, and a namespace that routes between them.
//!
//! ```text
//!   edge of a.x ── wan 100.64.0.4 ──┐                       ┌── up ── the host, or a namespace that plays the internet
//!                       .5 .6       ├── exchange (trx.MARK) ┘
//!   edge of b.x ── wan 100.64.0.8 ──┘
//! ```
//!
//! The clouds of one directory share it, whichever process they are in: a file with a lock says who has which
//! addresses. A block is four addresses of RFC 6598's shared space: the edge's own, and one for each tunnel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use cloud_api::{CloudError, Result};
use model::Site;
use serde::{Deserialize, Serialize};

use crate::{
    names::Names,
    namespace,
    shell::{delete_link, ip_in, veth},
    tables::Tables,
};

mod uplink;

pub use uplink::Uplink;

/// The exchange's end of every line.
pub(crate) const HUB: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
/// All blocks are within it.
pub(crate) const SPACE: &str = "100.64.0.0/16";
const BLOCKS: u16 = 1 << 14;
const TUNNELS: u32 = 2;

/// The addresses of a site's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(u16);

impl Block {
    fn base(self) -> u32 {
        u32::from(Ipv4Addr::new(100, 64, 0, 0)) + u32::from(self.0) * 4
    }

    /// The edge's own address.
    pub(crate) fn edge(self) -> Ipv4Addr {
        self.base().into()
    }

    /// The address that a tunnel ends at.
    pub(crate) fn tunnel(self, which: usize) -> Ipv4Addr {
        (self.base() + 1 + u32::try_from(which).unwrap_or_default() % TUNNELS).into()
    }

    /// The addresses that peers are told.
    pub(crate) fn tunnels(self) -> Vec<IpAddr> {
        (0..TUNNELS as usize).map(|which| self.tunnel(which).into()).collect()
    }

    /// The edge's port in the exchange.
    fn port(self) -> String {
        format!("x{:08x}", self.base())
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Book {
    blocks: BTreeMap<Site, u16>,
    /// Sites that reach beyond this machine.
    #[serde(default)]
    outward: BTreeSet<Site>,
}

pub(crate) struct Underlay {
    dir: PathBuf,
    names: Names,
    uplink: Uplink,
}

impl Underlay {
    pub(crate) fn new(dir: PathBuf, names: Names, uplink: Uplink) -> Self {
        Self { dir, names, uplink }
    }

    /// Gives a site's edge its line and addresses; what it has, it keeps.
    pub(crate) async fn join(
        &self,
        tables: &Tables,
        site: &Site,
        edge: &str,
        outward: bool,
    ) -> Result<Block> {
        let _turn = self.turn().await?;
        let mut book = self.read()?;
        let block = match book.blocks.get(site) {
            Some(number) => Block(*number),
            None => {
                Block(free(&book).ok_or_else(|| CloudError::conflict("all addresses of edges are in use"))?)
            }
        };
        book.blocks.insert(site.clone(), block.0);
        match outward {
            true => book.outward.insert(site.clone()),
            false => book.outward.remove(site),
        };
        self.write(&book)?;
        let exchange = self.names.exchange();
        self.ensure_exchange(tables, &exchange).await?;
        veth((edge, "wan"), (&exchange, &block.port())).await?;
        let mut lines = vec![
            format!("address replace {HUB}/32 dev {}", block.port()),
            format!("link set {} up", block.port()),
            format!("route replace {}/32 dev {}", block.edge(), block.port()),
        ];
        lines.extend(block.tunnels().iter().map(|address| {
            format!("route replace {address}/32 via {} dev {} onlink", block.edge(), block.port())
        }));
        ip_in(&exchange, &lines).await?;
        let lines = [
            format!("address replace {}/32 dev wan", block.edge()),
            "link set wan up".to_owned(),
            format!("route replace {HUB}/32 dev wan"),
            format!("route replace default via {HUB} dev wan onlink"),
        ];
        ip_in(edge, &lines).await?;
        self.settle_uplink(&book, &exchange, tables).await?;
        Ok(block)
    }

    /// The addresses of a site's edge; none if it has not joined.
    pub(crate) fn block(&self, site: &Site) -> Result<Option<Block>> {
        Ok(self.read()?.blocks.get(site).copied().map(Block))
    }

    /// Takes a site's line away; the last one takes the exchange with it.
    pub(crate) async fn leave(&self, tables: &Tables, site: &Site) -> Result {
        let _turn = self.turn().await?;
        let mut book = self.read()?;
        let exchange = self.names.exchange();
        if let Some(block) = book.blocks.get(site).copied().map(Block) {
            delete_link(&exchange, &block.port()).await?;
        }
        book.outward.remove(site);
        self.settle_uplink(&book, &exchange, tables).await?;
        book.blocks.remove(site);
        if book.blocks.is_empty() {
            tables.forget(&exchange);
            namespace::delete(&exchange).await?;
            let _ = fs::remove_file(self.file());
            return Ok(());
        }
        self.write(&book)
    }

    /// Blocks of sites of this cloud that have no edge any more are given back.
    pub(crate) async fn sweep(&self, tables: &Tables, edges: &BTreeSet<&Site>) -> Result {
        let of_cloud = |site: &&Site| site.cloud == *self.names.cloud() && !edges.contains(*site);
        let stale: Vec<Site> = self.read()?.blocks.keys().filter(of_cloud).cloned().collect();
        for site in stale {
            self.leave(tables, &site).await?;
        }
        // Nobody is left to say so of an exchange whose book was lost.
        if self.read()?.blocks.is_empty() && namespace::exists(&self.names.exchange()) {
            let _turn = self.turn().await?;
            if self.read()?.blocks.is_empty() {
                self.settle_uplink(&Book::default(), &self.names.exchange(), tables).await?;
                namespace::delete(&self.names.exchange()).await?;
            }
        }
        Ok(())
    }

    async fn ensure_exchange(&self, tables: &Tables, exchange: &str) -> Result {
        namespace::ensure(exchange).await?;
        tables.reconcile(exchange, uplink::table()).await?;
        namespace::forward(exchange).await
    }

    fn file(&self) -> PathBuf {
        self.dir.join("underlay.json")
    }

    /// Whoever changes the exchange, in whatever process, waits for the others.
    async fn turn(&self) -> Result<files::Lock> {
        let path = self.dir.join("underlay.lock");
        let io =
            |err: std::io::Error| CloudError::unavailable(format!("cannot use {}: {err}", path.display()));
        // Waiting in the kernel would hold up a thread that the others may need.
        for _ in 0..3000 {
            match files::Lock::take(&path) {
                Ok(lock) => return Ok(lock),
                Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(fs::TryLockError::Error(err)) => return Err(io(err)),
            }
        }
        Err(CloudError::unavailable(format!("somebody has held {} for half a minute", path.display())))
    }

    fn read(&self) -> Result<Book> {
        let failed = |err: &dyn std::fmt::Display| {
            CloudError::unavailable(format!("cannot read {}: {err}", self.file().display()))
        };
        match fs::read(self.file()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|err| failed(&err)),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(Book::default()),
            Err(err) => Err(failed(&err)),
        }
    }

    fn write(&self, book: &Book) -> Result {
        let text = serde_json::to_string_pretty(book).expect("names and numbers can be written");
        files::write(&self.file(), text.as_bytes())
            .map_err(|err| CloudError::unavailable(format!("cannot write {}: {err}", self.file().display())))
    }
}

/// Block 0 holds the exchange's own address.
fn free(book: &Book) -> Option<u16> {
    let used: BTreeSet<u16> = book.blocks.values().copied().collect();
    (1..BLOCKS).find(|number| !used.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_stay_within_their_space() {
        let space: ipnet::Ipv4Net = SPACE.parse().unwrap();
        let mut seen = BTreeSet::from([HUB]);
        for number in (1..BLOCKS).step_by(7).chain([BLOCKS - 1]) {
            let block = Block(number);
            let tunnels = block.tunnels().into_iter().map(|ip| match ip {
                IpAddr::V4(ip) => ip,
                IpAddr::V6(_) => unreachable!("blocks are IPv4"),
            });
            for ip in tunnels.chain([block.edge()]) {
                assert!(space.contains(&ip) && seen.insert(ip), "{ip}");
            }
        }
    }
}
