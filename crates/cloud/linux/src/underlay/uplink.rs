//! The way out of this machine, there while a site has NAT.
//!
//! ```text
//!   exchange: uplink 100.127.x.y+2/30 ── masquerade ── MARK's port 100.127.x.y+1/30: the host, which masquerades again
//! ```
//!
//! In the host's own namespace there are then one interface and one nftables table, both with the mark in their
//! names, and forwarding is on ([`forwarding`]). They go with the last NAT.

use std::net::Ipv4Addr;

use cloud_api::{CloudError, Result};
use node_kernel::nft::{Nft, TableId};
use node_nft::{Chain, ChainKind, Family, Hook, Limits, Live, MetaKey, Policy, Reg, Rule, Table};

use super::{Book, Underlay};
use crate::{
    namespace,
    permit::TABLE,
    shell::{delete_link, ip_in, run, run_with},
    tables::Tables,
};

mod forwarding;

/// The interface at the far end is called this, and its mark.
const FAR: &str = "tru";

/// Where public addresses are reached from the exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uplink {
    /// Through this machine.
    #[default]
    Host,
    /// Through a namespace that stands for the internet. It has the interface, and its owner does the rest.
    Namespace(String),
    /// Not at all: rules to public addresses are refused.
    None,
}

impl Underlay {
    pub(crate) fn has_uplink(&self) -> bool {
        self.uplink != Uplink::None
    }

    /// Makes the way out if a site wants it, and takes it away if none does.
    pub(super) async fn settle_uplink(&self, book: &Book, exchange: &str, tables: &Tables) -> Result {
        match book.outward.is_empty() {
            false => self.make_uplink(exchange, tables).await,
            true => self.remove_uplink(exchange).await,
        }
    }

    /// The interface at the far end.
    fn far(&self) -> String {
        format!("{FAR}{}", self.names.mark())
    }

    /// A /30 of its own for each mark, in shared address space that the blocks do not use.
    fn addresses(&self) -> [Ipv4Addr; 2] {
        let mark = u32::from_str_radix(self.names.mark(), 16).unwrap_or_default();
        let base = u32::from(Ipv4Addr::new(100, 127, 0, 0)) + (mark % (1 << 14)) * 4;
        [(base + 1).into(), (base + 2).into()]
    }

    async fn make_uplink(&self, exchange: &str, tables: &Tables) -> Result {
        let (far, [there, here]) = (self.far(), self.addresses());
        let far_lines =
            [format!("address replace {there}/30 dev {far}"), format!("link set {far} up")].join("\n") + "\n";
        match &self.uplink {
            Uplink::None => return Ok(()),
            Uplink::Namespace(name) => {
                crate::shell::veth((exchange, "uplink"), (name, &far)).await?;
                run_with(&["ip", "-n", name, "-batch", "-"], &far_lines).await?;
            }
            Uplink::Host => {
                if !is_host_link(&far).await || !namespace::has_link(exchange, "uplink").await {
                    if is_host_link(&far).await {
                        run(&["ip", "link", "delete", &far]).await?;
                    }
                    run(&[
                        "ip", "link", "add", &far, "type", "veth", "peer", "name", "uplink", "netns",
                        exchange,
                    ])
                    .await?;
                }
                run_with(&["ip", "-batch", "-"], &far_lines).await?;
                self.host_rules(true).await?;
            }
        }
        let lines = [
            format!("address replace {here}/30 dev uplink"),
            "link set uplink up".to_owned(),
            format!("route replace default via {there} dev uplink"),
        ];
        ip_in(exchange, &lines).await?;
        tables.reconcile(exchange, table()).await
    }

    async fn remove_uplink(&self, exchange: &str) -> Result {
        if namespace::exists(exchange) {
            delete_link(exchange, "uplink").await?;
        }
        if self.uplink == Uplink::Host && is_host_link(&self.far()).await {
            run(&["ip", "link", "delete", &self.far()]).await?;
        }
        if self.uplink == Uplink::Host {
            self.host_rules(false).await?;
        }
        Ok(())
    }

    /// The table in the host's namespace: nothing but the translation of what comes from the uplink. Forwarding comes and
    /// goes with it.
    async fn host_rules(&self, wanted: bool) -> Result {
        let name = format!("trestle-{}", self.names.mark());
        let source = self.addresses()[1];
        let done = tokio::task::spawn_blocking(move || {
            let refused =
                |err: &dyn std::fmt::Display| CloudError::unavailable(format!("nftables of the host: {err}"));
            let mut nft = Nft::open().map_err(|err| refused(&err))?;
            if !wanted {
                nft.delete(&TableId::new(Family::Ip, name)).map_err(|err| refused(&err))?;
                return forwarding::release(&mut nft);
            }
            let mut table = Table::new(Family::Ip, name);
            let translate = Chain::base(ChainKind::Nat, Hook::Postrouting, 100, Policy::Accept).rule(
                Rule::new("the Linux cloud's way out")
                    .ip_saddr(false, Reg(0))
                    .is(Reg(0), &source.octets())
                    .masquerade(),
            );
            table.chain("postrouting", translate);
            nft.reconcile(&table, Live::Atomic, Limits::default()).map_err(|err| refused(&err))?;
            forwarding::claim(&mut nft)
        });
        done.await.unwrap_or_else(|_| Err(CloudError::unavailable("a call of nftables has panicked")))
    }
}

async fn is_host_link(name: &str) -> bool {
    run(&["ip", "link", "show", name]).await.is_ok()
}

/// The exchange routes between edges; what goes up is translated, and nothing comes down unasked.
pub(super) fn table() -> Table {
    let zero = Reg(0);
    let up = |rule: Rule, key| rule.meta(key, zero).is(zero, b"uplink\0");
    let mut table = Table::new(Family::Inet, TABLE);
    table.chain(
        "forward",
        Chain::base(ChainKind::Filter, Hook::Forward, 0, Policy::Accept)
            .rule(Rule::new("answers").ct_established_or_related().accept())
            .rule(up(Rule::new("nothing unasked"), MetaKey::InInterfaceName).discard()),
    );
    table.chain(
        "postrouting",
        Chain::base(ChainKind::Nat, Hook::Postrouting, 100, Policy::Accept)
            .rule(up(Rule::new("outward"), MetaKey::OutInterfaceName).masquerade()),
    );
    table
}
