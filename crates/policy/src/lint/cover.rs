//! Whether rules are about all that another rule is about.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use model::policy::output::{Direction, IpBlock, PortRef, Service};

use super::lines::{Line, Lines, Stage};
use crate::engine::{
    Engine,
    groups::{Group, Origin},
    matching::{Term, Test},
    policies::CompiledRule,
    selectors::{Reach, Selector},
    tables::{GroupId, NamespaceId, SelectorId},
};

/// The rules of one direction that are there to cover others.
pub(super) struct Cover<'a> {
    engine: &'a Engine,
    pub(super) lines: &'a Lines,
    /// Lines that are applied to somebody in this one namespace, and (none) in others too. Ascending.
    by_namespace: BTreeMap<Option<NamespaceId>, BTreeSet<usize>>,
}

/// One of those a rule is about.
#[derive(Clone, Copy)]
enum Peer<'a> {
    Group(GroupId),
    Block(&'a IpBlock),
}

impl<'a> Cover<'a> {
    pub(super) fn new(engine: &'a Engine, lines: &'a Lines, direction: Direction) -> Self {
        let mut cover = Self { engine, lines, by_namespace: BTreeMap::new() };
        for (at, line) in lines.list.iter().enumerate().filter(|(_, line)| line.direction == direction) {
            for namespace in cover.namespaces(line) {
                cover.by_namespace.entry(namespace).or_default().insert(at);
            }
        }
        cover
    }

    /// It covers nothing any more.
    pub(super) fn remove(&mut self, at: usize) {
        for namespace in self.namespaces(&self.lines.list[at]) {
            if let Some(lines) = self.by_namespace.get_mut(&namespace) {
                lines.remove(&at);
            }
        }
    }

    fn namespaces(&self, line: &Line) -> BTreeSet<Option<NamespaceId>> {
        let groups = line.compiled(self.engine).flat_map(|rule| line.applied_to(self.engine, rule));
        let selectors = groups.flat_map(|group| self.selectors(*group));
        selectors.map(|selector| within(&self.engine.selectors.rows[selector])).collect()
    }

    fn selectors(&self, group: GroupId) -> impl Iterator<Item = SelectorId> {
        self.engine.groups.rows[group].selectors.iter().copied()
    }

    /// The rules among `which` that cover all of one; none if they do not, or if it is about nothing.
    pub(super) fn of(&self, at: usize, which: impl Fn(&Line) -> bool) -> Option<Vec<usize>> {
        let line = &self.lines.list[at];
        if line.is_opaque || line.action.is_none() {
            return None;
        }
        let usable = |other: usize| {
            let line = &self.lines.list[other];
            other != at && !line.is_opaque && line.action.is_some() && which(line)
        };
        let mut by = BTreeSet::new();
        for rule in line.compiled(self.engine) {
            let groups = rule.groups.iter().map(|group| Peer::Group(*group));
            let peers: Vec<Peer<'_>> = groups.chain(rule.detail.ip_blocks.iter().map(Peer::Block)).collect();
            let services: Vec<Option<&Service>> = match rule.detail.services.as_slice() {
                [] => vec![None],
                services => services.iter().map(Some).collect(),
            };
            for (group, selector) in self.applied(line, rule) {
                for peer in &peers {
                    for service in &services {
                        let found = self.candidates(selector).find(|other| {
                            usable(*other) && self.covers(*other, (group, selector), *peer, *service)
                        });
                        by.insert(found?);
                    }
                }
            }
        }
        (!by.is_empty()).then(|| by.into_iter().collect())
    }

    /// The Kubernetes policies (a rule of each) that isolate all those a line is applied to.
    pub(super) fn isolation(&self, at: usize) -> Option<Vec<usize>> {
        let line = &self.lines.list[at];
        let mut by = BTreeSet::new();
        for rule in line.compiled(self.engine) {
            for (group, selector) in self.applied(line, rule) {
                // Baseline rules are looked at first: no Kubernetes rule has been removed yet.
                let isolates = |other: &usize| {
                    let other = &self.lines.list[*other];
                    other.stage == Stage::Kubernetes
                        && other.direction == line.direction
                        && other.compiled(self.engine).any(|rule| {
                            let groups = other.applied_to(self.engine, rule);
                            groups.iter().any(|cover| self.is_applied_within(group, selector, *cover))
                        })
                };
                by.insert(self.candidates(selector).find(|at| isolates(at))?);
            }
        }
        (!by.is_empty()).then(|| by.into_iter().collect())
    }

    fn applied(&self, line: &Line, rule: &'a CompiledRule) -> Vec<(GroupId, SelectorId)> {
        let groups = line.applied_to(self.engine, rule).iter();
        groups.flat_map(|group| self.selectors(*group).map(move |selector| (*group, selector))).collect()
    }

    /// Lines that may be applied to all that a selector selects.
    fn candidates(&self, selector: SelectorId) -> impl Iterator<Item = usize> {
        let within = within(&self.engine.selectors.rows[selector]);
        let same = within.and_then(|_| self.by_namespace.get(&within)).into_iter().flatten();
        let wider = self.by_namespace.get(&None).into_iter().flatten();
        same.chain(wider).copied()
    }

    fn covers(
        &self,
        other: usize,
        applied: (GroupId, SelectorId),
        peer: Peer<'_>,
        service: Option<&Service>,
    ) -> bool {
        let line = &self.lines.list[other];
        line.compiled(self.engine).any(|rule| {
            let groups = line.applied_to(self.engine, rule);
            if !groups.iter().any(|cover| self.is_applied_within(applied.0, applied.1, *cover)) {
                return false;
            }
            // At the source, names of ports are looked up at members of the rule's groups only.
            let by_group = line.direction == Direction::Out
                && service.is_some_and(|service| matches!(service.port, Some(PortRef::Name(_))));
            self.is_peer_within(peer, rule, by_group) && is_service_within(service, &rule.detail.services)
        })
    }

    /// Whether all of a group that a selector of it selects are in another AppliedToGroup.
    fn is_applied_within(&self, group: GroupId, selector: SelectorId, cover: GroupId) -> bool {
        let row = &self.engine.groups.rows[cover];
        // What a namespaced Group selects elsewhere is not meant by it.
        let is_narrowed = matches!(&row.origin, Origin::Named(name) if !name.namespace.is_empty());
        // A Service on every node is not the nodes.
        let is_service = |group: &Group| matches!(group.origin, Origin::Service(_));
        let is_apart = is_narrowed || is_service(row) || is_service(&self.engine.groups.rows[group]);
        group == cover || !is_apart && self.is_selector_within(selector, row)
    }

    fn is_peer_within(&self, peer: Peer<'_>, rule: &CompiledRule, by_group: bool) -> bool {
        match peer {
            Peer::Group(group) => {
                if rule.groups.contains(&group) {
                    return true;
                }
                let row = &self.engine.groups.rows[group];
                if matches!(row.origin, Origin::Service(_)) {
                    return false;
                }
                let is_within = |selector: &SelectorId| {
                    let selectors = rule.groups.iter().map(|group| &self.engine.groups.rows[*group]);
                    let mut selectors = selectors.filter(|row| !matches!(row.origin, Origin::Service(_)));
                    selectors.any(|row| self.is_selector_within(*selector, row))
                };
                // Whoever has an address has it in one of the two.
                let is_everywhere = !by_group && is_everywhere(&rule.detail.ip_blocks);
                is_everywhere || !row.selectors.is_empty() && row.selectors.iter().all(is_within)
            }
            Peer::Block(block) => block
                .networks()
                .into_iter()
                .all(|net| rule.detail.ip_blocks.iter().any(|cover| is_net_within(net, cover))),
        }
    }

    fn is_selector_within(&self, selector: SelectorId, group: &Group) -> bool {
        group.selectors.iter().any(|cover| {
            *cover == selector || {
                let rows = &self.engine.selectors.rows;
                let (inner, outer) = (&rows[selector], &rows[*cover]);
                inner.kind == outer.kind
                    && self.is_reach_within(inner.reach, outer.reach)
                    && implies(&inner.terms, &outer.terms)
            }
        })
    }

    fn is_reach_within(&self, inner: Reach, outer: Reach) -> bool {
        let selectors = &self.engine.namespaces.selectors;
        match (inner, outer) {
            (Reach::Within(inner), Reach::Within(outer)) => inner == outer,
            (Reach::Within(inner), Reach::Across(outer)) => selectors[outer].namespaces.contains(inner),
            (Reach::Across(inner), Reach::Across(outer)) => {
                implies(&selectors[inner].terms, &selectors[outer].terms)
            }
            (Reach::Across(_), Reach::Within(_)) => false,
        }
    }
}

fn within(selector: &Selector) -> Option<NamespaceId> {
    match selector.reach {
        Reach::Within(namespace) => Some(namespace),
        Reach::Across(_) => None,
    }
}

/// Whether whatever meets the first meets the second.
fn implies(terms: &[Term], then: &[Term]) -> bool {
    terms.iter().any(is_impossible)
        || then.iter().all(|wanted| terms.iter().any(|term| implies_term(term, wanted)))
}

fn is_impossible(term: &Term) -> bool {
    term.test == Test::Never || term.test == Test::In && term.values.is_empty()
}

fn implies_term(term: &Term, wanted: &Term) -> bool {
    if term == wanted {
        return true;
    }
    if term.key != wanted.key {
        return false;
    }
    let names_values = matches!(term.test, Test::Equals | Test::In);
    match wanted.test {
        Test::Exists => names_values,
        Test::Equals | Test::In => {
            names_values && term.values.iter().all(|value| wanted.values.contains(value))
        }
        Test::NotIn => match term.test {
            Test::Equals | Test::In => term.values.iter().all(|value| !wanted.values.contains(value)),
            Test::NotIn => wanted.values.iter().all(|value| term.values.contains(value)),
            Test::DoesNotExist => true,
            Test::Exists | Test::Never => false,
        },
        Test::DoesNotExist | Test::Never => false,
    }
}

fn is_everywhere(blocks: &[IpBlock]) -> bool {
    [false, true].into_iter().all(|six| {
        let is_all = |block: &IpBlock| {
            block.cidr.prefix_len() == 0 && block.cidr.addr().is_ipv6() == six && block.except.is_empty()
        };
        blocks.iter().any(is_all)
    })
}

fn is_net_within(net: IpNet, cover: &IpBlock) -> bool {
    cover.cidr.contains(&net)
        && !cover.except.iter().any(|except| except.contains(&net) || net.contains(except))
}

/// None: every protocol and port.
fn is_service_within(service: Option<&Service>, cover: &[Service]) -> bool {
    cover.is_empty() || service.is_some_and(|service| cover.iter().any(|cover| is_one_within(service, cover)))
}

fn is_one_within(service: &Service, cover: &Service) -> bool {
    if service == cover {
        return true;
    }
    let is_range_within = |inner: Option<(u16, u16)>, outer: Option<(u16, u16)>| match (inner, outer) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(inner), Some(outer)) => outer.0 <= inner.0 && inner.1 <= outer.1,
    };
    let source = |one: &Service| one.source_port.map(|first| (first, one.source_end_port.unwrap_or(first)));
    let ports = match (&service.port, &cover.port) {
        (_, None) => true,
        (Some(PortRef::Number(first)), Some(PortRef::Number(from))) => {
            let inner = (*first, service.end_port.unwrap_or(*first));
            is_range_within(Some(inner), Some((*from, cover.end_port.unwrap_or(*from))))
        }
        (Some(PortRef::Name(one)), Some(PortRef::Name(other))) => one == other,
        _ => false,
    };
    let is_icmp_within = cover.icmp_type.is_none_or(|kind| {
        service.icmp_type == Some(kind) && cover.icmp_code.is_none_or(|code| service.icmp_code == Some(code))
    });
    service.protocol == cover.protocol
        && ports
        && is_range_within(source(service), source(cover))
        && is_icmp_within
        && cover.igmp_type.is_none_or(|kind| service.igmp_type == Some(kind))
        && (cover.group_address.is_empty() || cover.group_address == service.group_address)
}

#[cfg(test)]
mod tests {
    use model::policy::output::Protocol;

    use super::*;

    fn tcp(port: Option<u16>, end_port: Option<u16>) -> Service {
        Service { port: port.map(PortRef::Number), end_port, ..Service::any(Protocol::Tcp) }
    }

    #[test]
    fn ports_are_within_ranges() {
        let cases = [
            (tcp(Some(80), None), tcp(None, None), true),
            (tcp(None, None), tcp(Some(80), None), false),
            (tcp(Some(80), Some(90)), tcp(Some(80), Some(90)), true),
            (tcp(Some(80), Some(91)), tcp(Some(80), Some(90)), false),
            (tcp(Some(85), None), tcp(Some(80), Some(90)), true),
            (tcp(Some(80), None), Service::any(Protocol::Udp), false),
        ];
        for (inner, outer, expected) in cases {
            assert_eq!(
                is_service_within(Some(&inner), std::slice::from_ref(&outer)),
                expected,
                "{inner:?} {outer:?}"
            );
        }
        assert!(is_service_within(None, &[]));
        assert!(!is_service_within(None, &[tcp(None, None)]), "every protocol is more than all of one");
    }

    #[test]
    fn blocks_are_within_blocks_without_their_exceptions() {
        let block = |cidr: &str, except: &[&str]| IpBlock {
            cidr: cidr.parse().unwrap(),
            except: except.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let within = |inner: &IpBlock, outer: &IpBlock| {
            inner.networks().into_iter().all(|net| is_net_within(net, outer))
        };
        let (wide, holed) = (block("10.0.0.0/8", &[]), block("10.0.0.0/8", &["10.1.0.0/16"]));
        assert!(within(&holed, &wide) && !within(&wide, &holed));
        assert!(within(&block("10.2.0.0/16", &[]), &holed) && !within(&block("10.1.2.0/24", &[]), &holed));
        assert!(within(&block("10.0.0.0/15", &["10.1.0.0/16"]), &holed));
        assert!(!is_everywhere(&[block("0.0.0.0/0", &[])]));
    }
}
