//! Classes: one chain for each way of treating packets and each number of endpoints.
//!
//! Services share those without affinity. Those with it belong to one port of a service: clients are remembered for the
//! port as a whole, so its anchor is part of the rules.

use node_nft::{Chain, Rule};

use super::{
    Config,
    layout::{Anchor, Bond, ENDPOINTS, LOCAL_ENDPOINTS, Layout},
};

// Chains are unmade in this order: what leads to others goes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Pods and the node itself may go to any of the first number, others only to one of the second number on this
    /// node, with their source as it is.
    Local { any: u32, here: u32 },
    /// As `Pick`, with the source hidden.
    External(u32),
    /// One of so many endpoints at random.
    Pick(u32),
    /// Pods as `Sticky` and the node itself as `ExternalSticky`; others as `StickyHere`.
    LocalSticky(Anchor),
    /// As `Sticky`, with the source hidden.
    ExternalSticky(Anchor),
    /// The endpoint that the client had before, else as without affinity.
    Sticky(Anchor),
    /// The endpoint on this node that the client had before, else as without affinity.
    StickyHere(Anchor),
    /// Not a way to an endpoint: of Pods and the node itself as `Remember`, of others as `RememberHere`.
    RememberLocal(Memory),
    /// Binds the client to the endpoint it got, unless that is gone.
    Remember(Memory),
    /// The same of an endpoint on this node.
    RememberHere(Memory),
}

/// How long clients of a port are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Memory {
    pub anchor: Anchor,
    pub seconds: u32,
}

impl Class {
    pub fn name(self) -> String {
        let memory = |kind, Memory { anchor, seconds }| format!("{kind}-{seconds}-{anchor}");
        match self {
            Self::Pick(count) => format!("pick-{count}"),
            Self::External(count) => format!("external-{count}"),
            Self::Local { any, here } => format!("local-{any}-{here}"),
            Self::Sticky(anchor) => format!("sticky-{anchor}"),
            Self::StickyHere(anchor) => format!("sticky-here-{anchor}"),
            Self::ExternalSticky(anchor) => format!("external-sticky-{anchor}"),
            Self::LocalSticky(anchor) => format!("local-sticky-{anchor}"),
            Self::Remember(what) => memory("remember", what),
            Self::RememberHere(what) => memory("remember-here", what),
            Self::RememberLocal(what) => memory("remember-local", what),
        }
    }

    /// One that services share. Those of a port are made with it.
    pub fn parse(name: &str) -> Option<Self> {
        let (rest, last) = name.rsplit_once('-')?;
        let count = last.parse().ok()?;
        let class = match rest {
            "pick" => Self::Pick(count),
            "external" => Self::External(count),
            _ => {
                let any = rest.strip_prefix("local-")?.parse().ok()?;
                Self::Local { any, here: count }
            }
        };
        (class.name() == name).then_some(class)
    }

    /// The class and those that its rules lead to, these first.
    pub fn with_needed(self) -> Vec<Self> {
        match self {
            Self::Local { any, .. } if any > 0 => vec![Self::Pick(any), Self::External(any), self],
            Self::LocalSticky(anchor) => vec![Self::Sticky(anchor), Self::ExternalSticky(anchor), self],
            Self::RememberLocal(what) => vec![Self::Remember(what), Self::RememberHere(what), self],
            _ => vec![self],
        }
    }

    pub fn chain(self, layout: Layout, config: &Config) -> Chain {
        let mark = config.masquerade_mark;
        let hide = || Rule::new("hide the source").set_mark(!mark, mark);
        let pick = |count| layout.pick(ENDPOINTS, count);
        let remembered = |bond, anchor| layout.remembered(bond, anchor);
        let chain = Chain::regular();
        match self {
            Self::Pick(count) => chain.rule(pick(count)),
            Self::External(count) => chain.rule(hide()).rule(pick(count)),
            Self::Local { any, here } => {
                let chain = match any {
                    0 => chain,
                    _ => layout.short_cut(chain, config, Self::Pick(any), Self::External(any)),
                };
                Self::only_here(layout, chain, here)
            }
            Self::Sticky(anchor) => chain.rule(remembered(Bond::Anywhere, anchor)).rule(layout.unbound()),
            Self::StickyHere(anchor) => chain.rule(remembered(Bond::Here, anchor)).rule(layout.unbound()),
            Self::ExternalSticky(anchor) => {
                chain.rule(hide()).rule(remembered(Bond::Anywhere, anchor)).rule(layout.unbound())
            }
            Self::LocalSticky(anchor) => layout
                .short_cut(chain, config, Self::Sticky(anchor), Self::ExternalSticky(anchor))
                .rule(remembered(Bond::Here, anchor))
                .rule(layout.unbound()),
            Self::Remember(what) => Self::keep(layout, chain, what, Bond::Anywhere),
            Self::RememberHere(what) => Self::keep(layout, chain, what, Bond::Here),
            Self::RememberLocal(what) => {
                let chain = layout.short_cut(chain, config, Self::Remember(what), Self::Remember(what));
                chain.rule(Rule::new("from elsewhere").goto(Self::RememberHere(what).name()))
            }
        }
    }

    fn only_here(layout: Layout, chain: Chain, here: u32) -> Chain {
        if here > 0 {
            chain.rule(layout.pick(LOCAL_ENDPOINTS, here))
        } else {
            chain.rule(Rule::new("no endpoint on this node").discard())
        }
    }

    fn keep(layout: Layout, chain: Chain, Memory { anchor, seconds }: Memory, bond: Bond) -> Chain {
        chain.rule(layout.remember(seconds, bond, anchor)).rule(layout.forget(bond, anchor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_not_taken_for_ours() {
        for class in [Class::Pick(3), Class::External(1), Class::Local { any: 3, here: 0 }] {
            assert_eq!(Class::parse(&class.name()), Some(class));
        }
        let anchor = Anchor { address: [10, 96, 0, 10].into(), protocol: 6, port: 80 };
        let own = Class::LocalSticky(anchor).with_needed().into_iter();
        let own = own.chain(Class::RememberLocal(Memory { anchor, seconds: 60 }).with_needed());
        for name in own.map(Class::name) {
            assert_eq!(Class::parse(&name), None, "{name} is of one service only");
        }
        for other in ["dispatch", "pick-", "pick-03", "firewall-check", "local-1", "remember-output"] {
            assert_eq!(Class::parse(other), None, "{other}");
        }
    }

    #[test]
    fn chains_of_two_ports_never_have_one_name() {
        let anchor =
            |address: &str, port| Anchor { address: address.parse().expect("an address"), protocol: 6, port };
        let anchors =
            [anchor("10.96.0.1", 180), anchor("10.96.0.11", 80), anchor("fd00::1", 80), anchor("fd00::", 80)];
        let names: std::collections::BTreeSet<_> =
            anchors.into_iter().map(|anchor| Class::Sticky(anchor).name()).collect();
        assert_eq!(names.len(), anchors.len());
        assert!(names.iter().all(|name| !name.contains(':')), "{names:?}");
    }
}
