//! A small table beside the large one, which closes workloads of which it is not known what applies to them: after the
//! state was lost, before anything was heard. A packet that any table drops is dropped, so it needs no order among them.
//!
//! ```text
//!   forward, input ─► established? accept ─► interface or address closed? drop
//!                                         ─► interface begins as workloads' do, and is not one of those known? drop
//! ```

use std::{collections::BTreeSet, net::IpAddr};

use node_nft::{
    Chain, ChainKind, Cmp, Element, Expr, Family, FieldType, Hook, Key, MetaKey, Policy, Reg, Rule, Set,
    SetSchema, Table,
};

use crate::layout::{Place, family, loopback, neighbours, replies};

/// The table, in each network namespace.
pub const SHUTTER: &str = "trestle-closed";

const CLOSED: &str = "interfaces";
const KNOWN: &str = "known";

/// What is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shutter {
    pub interfaces: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
    /// Interfaces whose name begins so, but for those that are known.
    pub prefixes: Vec<String>,
    pub known: BTreeSet<String>,
}

impl Shutter {
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty() && self.addresses.is_empty() && self.prefixes.is_empty()
    }

    /// `name` is usually [`SHUTTER`].
    pub fn table(&self, name: &str) -> Table {
        let mut table = Table::new(Family::Inet, name);
        let base = |hook| Chain::base(ChainKind::Filter, hook, 0, Policy::Accept);
        let (enters, leaves) = (MetaKey::InInterfaceName, MetaKey::OutInterfaceName);
        table.chain("forward", self.close(base(Hook::Forward).rule(replies()), &[enters, leaves]));
        let input = base(Hook::Input).rule(loopback(enters)).rule(replies());
        table.chain("input", self.close(neighbours(input), &[enters]));
        table.set(CLOSED, interfaces(&self.interfaces));
        table.set(KNOWN, interfaces(&self.known));
        for ipv6 in [false, true] {
            let mut set = Set::new(Place::Closed(ipv6).schema());
            for address in self.addresses.iter().filter(|address| address.is_ipv6() == ipv6) {
                set.insert(Key::new().address(*address).into_boxed(), Element::member());
            }
            table.set(Place::Closed(ipv6).name(), set);
        }
        table
    }

    fn close(&self, mut chain: Chain, sides: &[MetaKey]) -> Chain {
        for side in sides {
            let closed = Rule::new("closed").meta(*side, Reg(0)).in_set(Reg(0), CLOSED);
            chain = chain.rule(closed.discard());
            for prefix in &self.prefixes {
                let unknown = Rule::new("unknown workload")
                    .meta(*side, Reg(0))
                    .expr(Expr::Cmp { op: Cmp::Eq, from: Reg(0), value: prefix.as_bytes().to_vec() })
                    .meta(*side, Reg(0))
                    .not_in_set(Reg(0), KNOWN);
                chain = chain.rule(unknown.discard());
            }
        }
        for ipv6 in [false, true] {
            let set = Place::Closed(ipv6).name();
            let source = family("closed", ipv6).ip_saddr(ipv6, Reg(0)).in_set(Reg(0), set.clone());
            let destination = family("closed", ipv6).ip_daddr(ipv6, Reg(0)).in_set(Reg(0), set);
            chain = chain.rule(source.discard()).rule(destination.discard());
        }
        chain
    }
}

fn interfaces(names: &BTreeSet<String>) -> Set {
    let mut set = Set::new(SetSchema::set([FieldType::InterfaceName]));
    for name in names {
        set.insert(Key::new().interface(name).into_boxed(), Element::member());
    }
    set
}
