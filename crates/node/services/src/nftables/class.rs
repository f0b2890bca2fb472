//! Classes: one chain for each way of treating packets and each number of endpoints.

use node_nft::{Chain, Rule};

use super::layout::{ENDPOINTS, LOCAL_ENDPOINTS, Layout};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// One of so many endpoints at random.
    Pick(u32),
    /// As `Pick`, with the source hidden.
    External(u32),
    /// The endpoint that the client had before, else as `Pick`.
    Sticky(u32),
    /// As `Sticky`, with the source hidden.
    ExternalSticky(u32),
    /// Pods and the node itself may go to any of the first number, others only to one of the second number on this
    /// node, with their source as it is.
    Local {
        any: u32,
        here: u32,
    },
    LocalSticky {
        any: u32,
        here: u32,
    },
    /// Not a way to an endpoint: binds the client to the one it got, for so many seconds, unless that is gone.
    Remember(u32),
}

impl Class {
    pub fn name(self) -> String {
        match self {
            Self::Pick(count) => format!("pick-{count}"),
            Self::External(count) => format!("external-{count}"),
            Self::Sticky(count) => format!("sticky-{count}"),
            Self::ExternalSticky(count) => format!("external-sticky-{count}"),
            Self::Local { any, here } => format!("local-{any}-{here}"),
            Self::LocalSticky { any, here } => format!("local-sticky-{any}-{here}"),
            Self::Remember(seconds) => format!("remember-{seconds}"),
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        let (rest, last) = name.rsplit_once('-')?;
        let count = last.parse().ok()?;
        let class = match rest {
            "pick" => Self::Pick(count),
            "external" => Self::External(count),
            "sticky" => Self::Sticky(count),
            "external-sticky" => Self::ExternalSticky(count),
            "remember" => Self::Remember(count),
            _ => {
                let (kind, any) = rest.rsplit_once('-')?;
                let any = any.parse().ok()?;
                match kind {
                    "local" => Self::Local { any, here: count },
                    "local-sticky" => Self::LocalSticky { any, here: count },
                    _ => return None,
                }
            }
        };
        (class.name() == name).then_some(class)
    }

    /// The class and those that its rules lead to, these first.
    pub fn with_needed(self) -> Vec<Self> {
        match self {
            Self::Local { any, .. } if any > 0 => vec![Self::Pick(any), Self::External(any), self],
            Self::LocalSticky { any, .. } if any > 0 => {
                vec![Self::Sticky(any), Self::ExternalSticky(any), self]
            }
            _ => vec![self],
        }
    }

    pub fn chain(self, layout: Layout, mark: u32) -> Chain {
        let hide = || Rule::new("hide the source").set_mark(!mark, mark);
        let pick = |count| layout.pick(ENDPOINTS, count);
        let chain = Chain::regular();
        match self {
            Self::Pick(count) => chain.rule(pick(count)),
            Self::External(count) => chain.rule(hide()).rule(pick(count)),
            Self::Sticky(count) => chain.rule(layout.remembered()).rule(pick(count)),
            Self::ExternalSticky(count) => chain.rule(hide()).rule(layout.remembered()).rule(pick(count)),
            Self::Local { any, here } => {
                let chain = layout.short_cut(chain, any, Self::Pick(any), Self::External(any));
                Self::only_here(layout, chain, here)
            }
            Self::LocalSticky { any, here } => {
                let chain = layout.short_cut(chain, any, Self::Sticky(any), Self::ExternalSticky(any));
                let chain = if here > 0 { chain.rule(layout.remembered()) } else { chain };
                Self::only_here(layout, chain, here)
            }
            Self::Remember(seconds) => chain.rule(layout.remember(seconds)).rule(layout.forget()),
        }
    }

    fn only_here(layout: Layout, chain: Chain, here: u32) -> Chain {
        if here > 0 {
            chain.rule(layout.pick(LOCAL_ENDPOINTS, here))
        } else {
            chain.rule(Rule::new("no endpoint on this node").discard())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_not_taken_for_ours() {
        for class in [
            Class::Pick(3),
            Class::External(1),
            Class::Sticky(70_000),
            Class::ExternalSticky(2),
            Class::Local { any: 3, here: 0 },
            Class::LocalSticky { any: 3, here: 2 },
            Class::Remember(10_800),
        ] {
            assert_eq!(Class::parse(&class.name()), Some(class));
        }
        for other in ["dispatch", "pick-", "pick-03", "firewall-check", "local-1", "remember-output"] {
            assert_eq!(Class::parse(other), None, "{other}");
        }
    }
}
