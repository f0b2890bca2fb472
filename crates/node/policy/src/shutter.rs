//! A small table beside the large one, which closes workloads of which it is not known what applies to them: after the
//! state was lost, before anything was heard. A packet that any table drops is dropped, so it needs no order among them.
//!
//! ```text
//!   forward, input ─► established? accept ─► interface or address closed? drop
//!                                         ─► interface begins as workloads' do, and is not one of those known? drop
//!   input, output  ─► fail-safe? accept   ─► the node itself is closed? drop
//!   forward, and what leaves hidden behind the node: as in the large table, and no port is published
//! ```

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use model::policy::output::Direction;
use node_nft::{
    Chain, ChainKind, Cmp, Element, Expr, Family, FieldType, Hook, Key, MetaKey, PayloadBase, Policy, Reg,
    Rule, Set, SetSchema, Table,
};

use crate::layout::{AFTER_NAT, Place, family, inner, loopback, neighbours, replies};
use crate::object::Permit;

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
    pub host: Option<ClosedHost>,
}

/// The node itself: what comes in, what goes out, or both, but for what is safe from that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedHost {
    pub input: bool,
    pub output: bool,
    pub fail_safes: Vec<Permit>,
    /// As in [`Options`](crate::Options).
    pub inner_prefixes: Vec<String>,
}

impl Shutter {
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
            && self.addresses.is_empty()
            && self.prefixes.is_empty()
            && self.host.is_none()
    }

    /// `name` is usually [`SHUTTER`].
    pub fn table(&self, name: &str) -> Table {
        let mut table = Table::new(Family::Inet, name);
        let base = |hook| Chain::base(ChainKind::Filter, hook, 0, Policy::Accept);
        let (enters, leaves) = (MetaKey::InInterfaceName, MetaKey::OutInterfaceName);
        let forward = self.close(base(Hook::Forward).rule(replies()), &[enters, leaves]);
        table.chain("forward", self.close_forward(forward));
        let input = base(Hook::Input).rule(loopback(enters)).rule(replies());
        let input = self.close(neighbours(input), &[enters]);
        table.chain("input", self.close_host(input, Direction::In));
        if self.host.is_some() {
            let output = neighbours(base(Hook::Output).rule(loopback(leaves)).rule(replies()));
            let own = |set| Rule::new("a workload").meta(leaves, Reg(0)).in_set(Reg(0), set).accept();
            let output = output.rule(own(KNOWN)).rule(own(CLOSED));
            table.chain("output", self.close_host(output, Direction::Out));
            let leaving = Chain::base(ChainKind::Filter, Hook::Postrouting, AFTER_NAT, Policy::Accept);
            table.chain("leaving", self.close_leaving(leaving.rule(loopback(leaves)).rule(replies())));
        }
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

    fn close_forward(&self, chain: Chain) -> Chain {
        let Some(host) = &self.host else { return chain };
        let mut chain = inner(chain, &host.inner_prefixes, MetaKey::InInterfaceName);
        if host.input {
            chain = chain.rule(Rule::new("no port is published").ct_dnated().discard());
        }
        inner(chain, &host.inner_prefixes, MetaKey::OutInterfaceName)
            .rule(Rule::new("nothing is routed").discard())
    }

    fn close_leaving(&self, chain: Chain) -> Chain {
        let Some(host) = self.host.as_ref().filter(|host| host.output) else { return chain };
        let chain = inner(chain, &host.inner_prefixes, MetaKey::OutInterfaceName);
        // Those that are its own have passed already, and others' have no more right than these.
        let chain = save(chain, host, Direction::Out);
        chain.rule(Rule::new("hidden behind the node").ct_snated().discard())
    }

    fn close_host(&self, chain: Chain, direction: Direction) -> Chain {
        let is_closed = |host: &&ClosedHost| match direction {
            Direction::In => host.input,
            Direction::Out => host.output,
        };
        let Some(host) = self.host.as_ref().filter(is_closed) else { return chain };
        save(chain, host, direction).rule(Rule::new("the node itself is closed").discard())
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

fn save(mut chain: Chain, host: &ClosedHost, direction: Direction) -> Chain {
    for permit in host.fail_safes.iter().filter(|permit| permit.direction == direction) {
        for prefix in &permit.prefixes {
            chain = chain.rule(fail_safe(permit, *prefix));
        }
    }
    chain
}

fn fail_safe(permit: &Permit, prefix: IpNet) -> Rule {
    let ipv6 = prefix.addr().is_ipv6();
    let rule = family("fail-safe", ipv6);
    let rule = match permit.direction {
        Direction::In => rule.ip_saddr(ipv6, Reg(0)),
        Direction::Out => rule.ip_daddr(ipv6, Reg(0)),
    };
    let bytes = |address: IpAddr| Key::new().address(address).as_bytes().to_vec();
    let mask = bytes(prefix.netmask());
    let xor = vec![0; mask.len()];
    let rule = rule.expr(Expr::Bitwise { from: Reg(0), mask, xor, to: Reg(0) });
    let rule = rule.is(Reg(0), &bytes(prefix.network()));
    let Some(protocol) = permit.protocol else { return rule.accept() };
    let mut rule = rule.l4proto(Reg(0)).is(Reg(0), &[protocol]);
    for (ports, offset) in [(permit.source_ports, 0), (permit.ports, 2)] {
        let Some((low, high)) = ports else { continue };
        let (low, high) = (low.to_be_bytes().to_vec(), high.to_be_bytes().to_vec());
        rule = rule.payload(PayloadBase::Transport, offset, 2, Reg(0));
        rule = rule.expr(Expr::Range { inverted: false, from: Reg(0), low, high });
    }
    rule.accept()
}

fn interfaces(names: &BTreeSet<String>) -> Set {
    let mut set = Set::new(SetSchema::set([FieldType::InterfaceName]));
    for name in names {
        set.insert(Key::new().interface(name).into_boxed(), Element::member());
    }
    set
}
