//! The table that stays the same however many services there are: base chains, their rules, and empty sets.

use std::net::IpAddr;

use node_nft::{
    Chain, ChainKind, CtKey, Direction, Element, Expr, Family, FieldType, Hook, Key, Policy, Ranges, Reg,
    Reject, Rule, Set, SetSchema, Table, Verdict,
};

use super::{Class, Config};
use crate::Frontend;

pub const TABLE: &str = "trestle-services";

pub const SERVICES: &str = "services";
pub const ENDPOINTS: &str = "endpoints";
pub const LOCAL_ENDPOINTS: &str = "local-endpoints";
pub const NO_ENDPOINTS: &str = "no-endpoints";
pub const CLUSTER_IPS: &str = "cluster-ips";
pub const HAIRPIN: &str = "hairpin";
pub const FIREWALL: &str = "firewall";
pub const ALLOWED_SOURCES: &str = "allowed-sources";
pub const AFFINITY: &str = "affinity";
pub const AFFINITY_TIMEOUTS: &str = "affinity-timeouts";
pub const STICKY_ENDPOINTS: &str = "sticky-endpoints";
pub const PODS: &str = "pods";
pub const SERVICE_PREFIXES: &str = "service-prefixes";

pub const REJECT: &str = "reject";
const DISPATCH: &str = "dispatch";
const FIREWALL_CHECK: &str = "firewall-check";
const ENDPOINTS_CHECK: &str = "endpoints-check";
const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
const REMEMBER: &str = "remember";

/// Clients that are remembered at most; more of them are balanced anew each time.
const CLIENTS: u32 = 1 << 20;

/// Priorities of destination and source translation.
const DSTNAT: i32 = -100;
const SRCNAT: i32 = 100;

/// What differs between the families: lengths, and so the registers that values lie in.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub ipv6: bool,
}

/// A frontend in the form of keys.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub layout: Layout,
    pub protocol: u8,
    pub frontend: Frontend,
}

impl Place {
    pub fn key(self) -> Key {
        Key::new().address(self.frontend.address).proto(self.protocol).port(self.frontend.port)
    }

    /// The key of one of the endpoints.
    pub fn indexed(self, index: u32) -> Box<[u8]> {
        self.key().mark(index).into()
    }
}

impl Layout {
    /// Registers that an address fills.
    fn wide(self) -> u8 {
        if self.ipv6 { 4 } else { 1 }
    }

    fn address(self) -> FieldType {
        if self.ipv6 { FieldType::Ipv6 } else { FieldType::Ipv4 }
    }

    /// Address, protocol and port, and the fields that follow.
    fn place_fields(self, more: &[FieldType]) -> Vec<FieldType> {
        [&[self.address(), FieldType::Proto, FieldType::Port], more].concat()
    }

    /// Bytes of a frontend in keys.
    pub fn place_len(self) -> usize {
        SetSchema::set(self.place_fields(&[])).key_len()
    }

    pub fn schema(self, set: &str) -> SetSchema {
        let address = self.address();
        let socket = [address, FieldType::Port];
        match set {
            SERVICES | NO_ENDPOINTS | AFFINITY_TIMEOUTS => SetSchema::verdict_map(self.place_fields(&[])),
            ENDPOINTS | LOCAL_ENDPOINTS => SetSchema::map(self.place_fields(&[FieldType::Mark]), socket),
            HAIRPIN => SetSchema::set([address, address, FieldType::Proto, FieldType::Port]),
            FIREWALL => SetSchema::set(self.place_fields(&[])),
            STICKY_ENDPOINTS => SetSchema::set(self.place_fields(&socket)),
            ALLOWED_SOURCES => SetSchema::set(self.place_fields(&[address])).interval(),
            AFFINITY => {
                SetSchema::map([address, address, FieldType::Proto, FieldType::Port], socket).dynamic(CLIENTS)
            }
            PODS | SERVICE_PREFIXES => SetSchema::set([address]).interval(),
            _ => SetSchema::set([address]),
        }
    }

    /// An endpoint as a value of maps.
    pub fn value(self, socket: (IpAddr, u16)) -> Key {
        Key::new().address(socket.0).port(socket.1)
    }

    /// The reverse of [`Self::value`].
    pub fn socket(self, value: &[u8]) -> Option<(IpAddr, u16)> {
        if self.ipv6 {
            let (address, rest) = value.split_first_chunk::<16>()?;
            Some((IpAddr::from(*address), u16::from_be_bytes(*rest.first_chunk()?)))
        } else {
            let (address, rest) = value.split_first_chunk::<4>()?;
            Some((IpAddr::from(*address), u16::from_be_bytes(*rest.first_chunk()?)))
        }
    }

    /// Loads address, protocol and port of the packet's destination into registers from `first` on.
    pub fn destination(self, rule: Rule, first: u8) -> Rule {
        let next = first + self.wide();
        rule.ip_daddr(self.ipv6, Reg(first)).l4proto(Reg(next)).dport(Reg(next + 1))
    }

    /// Translates to one of so many endpoints in a map.
    pub fn pick(self, map: &str, count: u32) -> Rule {
        let index = self.wide() + 2;
        let rule = self.destination(Rule::new(format!("one of {count}")), 0).random(count, Reg(index));
        self.translate(rule, map)
    }

    /// Translates to the endpoint that the client is bound to.
    pub fn remembered(self) -> Rule {
        let rule = Rule::new("the endpoint it had before").ip_saddr(self.ipv6, Reg(0));
        self.translate(self.destination(rule, self.wide()), AFFINITY)
    }

    fn translate(self, rule: Rule, map: &str) -> Rule {
        // Behind the longest key: two addresses, protocol and port.
        let result = 2 * self.wide() + 2;
        rule.map(Reg(0), map, Reg(result)).dnat(self.ipv6, Reg(result), Some(Reg(result + self.wide())))
    }

    /// Binds a client to its endpoint, or leaves it bound, if that is still one of the frontend's.
    pub fn remember(self, seconds: u32) -> Rule {
        let rule = Rule::new(format!("keep the endpoint for {seconds} s"));
        let (rule, endpoint) = self.binding(rule.ip_saddr(self.ipv6, Reg(0)));
        rule.in_set(Reg(self.wide()), STICKY_ENDPOINTS)
            .refresh(AFFINITY, Reg(0), Some(endpoint), u64::from(seconds) * 1_000)
            .verdict(Verdict::Return)
    }

    /// Unbinds a client that was sent to an endpoint which is gone. The packet ends here: a rule of nftables cannot look
    /// up what it has looked up, so this is seen only now. It is sent again, and balanced anew.
    pub fn forget(self) -> Rule {
        let rule = Rule::new("the endpoint it had before is gone").ip_saddr(self.ipv6, Reg(0));
        // Whoever is not bound was sent there by somebody else's rules.
        let rule =
            self.original_destination(rule, self.wide()).map(Reg(0), AFFINITY, Reg(2 * self.wide() + 2));
        let (rule, endpoint) = self.binding(rule);
        rule.remove(AFFINITY, Reg(0), Some(endpoint)).discard()
    }

    /// Loads the frontend, which is what the connection was first sent to, and the endpoint behind it.
    fn binding(self, rule: Rule) -> (Rule, Reg) {
        let wide = self.wide();
        let endpoint = 2 * wide + 2;
        let rule = self.original_destination(rule, wide);
        (rule.ip_daddr(self.ipv6, Reg(endpoint)).dport(Reg(endpoint + wide)), Reg(endpoint))
    }

    fn original_destination(self, rule: Rule, first: u8) -> Rule {
        let direction = Some(Direction::Original);
        let address = if self.ipv6 { CtKey::DstIp6 } else { CtKey::DstIp };
        let next = first + self.wide();
        rule.expr(Expr::Ct { key: address, direction, to: Reg(first) }).l4proto(Reg(next)).expr(Expr::Ct {
            key: CtKey::ProtoDst,
            direction,
            to: Reg(next + 1),
        })
    }

    /// Under a local policy: Pods and the node itself may still go to any endpoint.
    pub fn short_cut(self, chain: Chain, any: u32, pods: Class, node: Class) -> Chain {
        if any == 0 {
            return chain;
        }
        let from_pod =
            Rule::new("from a Pod").ip_saddr(self.ipv6, Reg(0)).in_set(Reg(0), PODS).goto(pods.name());
        chain.rule(from_pod).rule(Rule::new("from the node").saddr_local().goto(node.name()))
    }

    /// To a guarded frontend, and from somebody who may not use it.
    pub fn not_allowed(self) -> Rule {
        let guarded = self.destination(Rule::new("not from an allowed source"), 0).in_set(Reg(0), FIREWALL);
        guarded.ip_saddr(self.ipv6, Reg(self.wide() + 2)).not_in_set(Reg(0), ALLOWED_SOURCES)
    }

    /// From an endpoint to the endpoint itself.
    pub fn to_itself(self, rule: Rule) -> Rule {
        self.destination(rule.ip_saddr(self.ipv6, Reg(0)), self.wide()).in_set(Reg(0), HAIRPIN)
    }

    /// The table without services.
    pub fn scaffold(self, config: &Config) -> Table {
        let family = if self.ipv6 { Family::Ip6 } else { Family::Ip };
        let mut table = Table::new(family, TABLE);
        for name in [
            SERVICES,
            ENDPOINTS,
            LOCAL_ENDPOINTS,
            NO_ENDPOINTS,
            CLUSTER_IPS,
            HAIRPIN,
            FIREWALL,
            ALLOWED_SOURCES,
            AFFINITY,
            AFFINITY_TIMEOUTS,
            STICKY_ENDPOINTS,
        ] {
            table.set(name, Set::new(self.schema(name)));
        }
        for (name, prefixes) in [(PODS, &config.pod_prefixes), (SERVICE_PREFIXES, &config.service_prefixes)] {
            let mut set = Set::new(self.schema(name));
            for (first, last) in Ranges::new(self.ipv6, prefixes.iter().copied()).iter() {
                set.insert(Key::new().address(first), Element::member().until(Key::new().address(last)));
            }
            table.set(name, set);
        }
        self.translation(&mut table, config);
        self.filters(&mut table);
        self.memory(&mut table);
        table
    }

    fn translation(self, table: &mut Table, config: &Config) {
        let nat = |hook, priority| Chain::base(ChainKind::Nat, hook, priority, Policy::Accept);
        let to_dispatch = || Rule::new("services").jump(DISPATCH);
        let mark = config.masquerade_mark;
        let mut dispatch = Chain::regular();
        let to_cluster_ip =
            |comment: &str| Rule::new(comment).ip_daddr(self.ipv6, Reg(0)).in_set(Reg(0), CLUSTER_IPS);
        if config.masquerade_all {
            dispatch = dispatch.rule(to_cluster_ip("hide all sources").set_mark(!mark, mark));
        } else if config.pod_prefixes.iter().any(|prefix| prefix.addr().is_ipv6() == self.ipv6) {
            let from_outside = to_cluster_ip("hide sources that are not Pods").ip_saddr(self.ipv6, Reg(0));
            dispatch = dispatch.rule(from_outside.not_in_set(Reg(0), PODS).set_mark(!mark, mark));
        }
        dispatch = dispatch.rule(self.destination(Rule::new("by frontend"), 0).vmap(Reg(0), SERVICES));
        let to_itself = self.to_itself(Rule::new("to itself through a service").ct_dnated()).masquerade();
        let hidden = Rule::new("sources to hide").mark_has(mark).set_mark(!0, mark).masquerade();
        table
            .chain(DISPATCH, dispatch)
            .chain("nat-prerouting", nat(Hook::Prerouting, DSTNAT).rule(to_dispatch()))
            .chain("nat-output", nat(Hook::Output, DSTNAT).rule(to_dispatch()))
            .chain("nat-postrouting", nat(Hook::Postrouting, SRCNAT).rule(hidden).rule(to_itself));
    }

    fn filters(self, table: &mut Table) {
        let filter = |hook, priority| Chain::base(ChainKind::Filter, hook, priority, Policy::Accept);
        let on_new = |chain: &str| Rule::new(chain).ct_new().jump(chain);
        let to_prefix =
            |comment: &str, set| Rule::new(comment).ip_daddr(self.ipv6, Reg(0)).in_set(Reg(0), set);
        let checks = |hook| filter(hook, 0).rule(on_new(ENDPOINTS_CHECK)).rule(on_new(CLUSTER_IPS_CHECK));
        table
            .chain(FIREWALL_CHECK, Chain::regular().rule(self.not_allowed().discard()))
            .chain("filter-prerouting", filter(Hook::Prerouting, DSTNAT - 10).rule(on_new(FIREWALL_CHECK)))
            .chain("filter-output-early", filter(Hook::Output, DSTNAT - 10).rule(on_new(FIREWALL_CHECK)))
            .chain(REJECT, Chain::regular().rule(Rule::new("nobody answers").reject(Reject::PortUnreachable)))
            .chain(
                ENDPOINTS_CHECK,
                Chain::regular()
                    .rule(self.destination(Rule::new("without endpoints"), 0).vmap(Reg(0), NO_ENDPOINTS)),
            )
            .chain(
                CLUSTER_IPS_CHECK,
                Chain::regular()
                    .rule(to_prefix("not a port of the service", CLUSTER_IPS).goto(REJECT))
                    .rule(to_prefix("no such service", SERVICE_PREFIXES).discard()),
            )
            .chain("filter-input", filter(Hook::Input, 0).rule(on_new(ENDPOINTS_CHECK)))
            .chain("filter-forward", checks(Hook::Forward))
            .chain("filter-output", checks(Hook::Output));
    }

    fn memory(self, table: &mut Table) {
        let filter = |hook| Chain::base(ChainKind::Filter, hook, DSTNAT + 10, Policy::Accept);
        let translated = || Rule::new(REMEMBER).ct_new().ct_dnated().jump(REMEMBER);
        let remember = self.original_destination(Rule::new("by affinity"), 0).vmap(Reg(0), AFFINITY_TIMEOUTS);
        table
            .chain(REMEMBER, Chain::regular().rule(remember))
            .chain("remember-prerouting", filter(Hook::Prerouting).rule(translated()))
            .chain("remember-output", filter(Hook::Output).rule(translated()));
    }
}
