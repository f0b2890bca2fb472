//! The chains that judge a packet: from the class of its peer to a function, and from that to a verdict.

use model::policy::output::Direction;
use node_nft::{Chain, Expr, Key, MetaKey, Reg, Rule, Verdict};

use super::{ASIDE, FAMILIES, Judged, LATE, PUBLISHED, Place, Refusal, code, family, host, refuse_as};
use crate::{Decision, Options};

/// The chains that judge the node itself.
pub(super) const HOSTS: [(Subject, Direction, &str); 4] = [
    (Subject::Host, Direction::In, "host-in"),
    (Subject::Host, Direction::Out, "host-out"),
    (Subject::Published, Direction::In, PUBLISHED),
    (Subject::Late, Direction::Out, LATE),
];

/// Who is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The source of what goes out and the destination of what comes in.
    Workload,
    Host,
    /// The node, by the port that was asked for: another one is in the packet, since it is forwarded.
    Published,
    /// The node, where nothing can be rejected any more.
    Late,
}

impl Subject {
    pub(super) fn load(self, rule: Rule, direction: Direction, ipv6: bool, to: Reg) -> Rule {
        match (self, direction) {
            (Self::Workload, Direction::Out) => rule.ip_saddr(ipv6, to),
            (Self::Workload, Direction::In) => rule.ip_daddr(ipv6, to),
            (Self::Host | Self::Published | Self::Late, _) => {
                let value = Key::new().address(host(ipv6)).as_bytes().to_vec();
                rule.expr(Expr::Immediate { value, to })
            }
        }
    }

    pub(super) fn judge_name(self, direction: Direction, ipv6: bool) -> String {
        let name = Place::Subjects(direction, ipv6).name().replace("-subjects", "");
        match self {
            Self::Workload => name,
            Self::Host => format!("host-{name}"),
            Self::Published => format!("host-published-{name}"),
            Self::Late => format!("host-late-{name}"),
        }
    }

    pub(super) fn decide_name(self, direction: Direction) -> String {
        let side = if direction == Direction::In { "in" } else { "out" };
        match self {
            Self::Workload => format!("{side}-decide"),
            Self::Host => format!("host-{side}-decide"),
            Self::Published => "host-published-decide".to_owned(),
            Self::Late => "host-late-decide".to_owned(),
        }
    }

    /// The port that is asked for.
    fn port(self, rule: Rule, to: Reg) -> Rule {
        if self == Self::Published { rule.ct_original_port(to) } else { rule.dport(to) }
    }

    fn judged(self) -> Judged {
        match self {
            Self::Workload => Judged::Workload,
            Self::Host | Self::Late => Judged::Host,
            Self::Published => Judged::Published,
        }
    }

    fn decisions(self) -> Place {
        if self == Self::Late { Place::LateDecisions } else { Place::Decisions }
    }
}

fn peer(rule: Rule, direction: Direction, ipv6: bool, to: Reg) -> Rule {
    match direction {
        Direction::Out => rule.ip_daddr(ipv6, to),
        Direction::In => rule.ip_saddr(ipv6, to),
    }
}

/// The mark has a decision that refuses: their numbers differ in the lowest bit alone, and no class is one of them.
fn refused(comment: &str) -> Rule {
    const { assert!(code(Decision::Drop) & !1 == code(Decision::Reject) & !1) };
    let (reg, value) = (Reg(0), code(Decision::Drop) & !1);
    Rule::new(comment).meta(MetaKey::Mark, reg).bits(reg, !1, 0, reg).is(reg, &value.to_ne_bytes())
}

fn clear_mark(comment: &str) -> Rule {
    let zero = Expr::Immediate { value: vec![0; 4], to: Reg(0) };
    Rule::new(comment).expr(zero).expr(Expr::SetMeta { key: MetaKey::Mark, from: Reg(0) })
}

pub(super) fn judge(whom: Subject, directions: &[Direction]) -> Chain {
    let mut chain = Chain::regular();
    for direction in directions {
        chain = chain.rule(clear_mark("no class yet"));
        for ipv6 in FAMILIES {
            chain = chain.rule(family("judge", ipv6).jump(whom.judge_name(*direction, ipv6)));
        }
    }
    chain.rule(clear_mark("permitted"))
}

fn to_mark(rule: Rule, map: Place) -> Rule {
    rule.map(Reg(0), map.name(), Reg(8)).expr(Expr::SetMeta { key: MetaKey::Mark, from: Reg(8) })
}

/// Nobody should come here. Better nothing than what was not decided.
fn unknown(whom: Subject, direction: Direction, options: &Options) -> Rule {
    refuse_as(whom.judged(), Rule::new("nothing is known of it"), direction, options)
}

/// From the class of the peer to the function that decides.
pub(super) fn judge_side(whom: Subject, direction: Direction, ipv6: bool, options: &Options) -> Chain {
    let subject = |rule, direction, ipv6, to| whom.load(rule, direction, ipv6, to);
    let unrestricted = subject(family("not restricted", ipv6), direction, ipv6, Reg(0));
    let exact = peer(family("class of the peer", ipv6), direction, ipv6, Reg(0));
    let block = family("class of its block", ipv6).meta(MetaKey::Mark, Reg(0)).is(Reg(0), &[0; 4]);
    let block = peer(block, direction, ipv6, Reg(0));
    let of_side = |place: fn(Direction, bool) -> Place| place(direction, ipv6);
    let mut chain = Chain::regular()
        .rule(unrestricted.not_in_set(Reg(0), of_side(Place::Subjects).name()).verdict(Verdict::Return))
        .rule(to_mark(exact, Place::Peers(ipv6)))
        .rule(to_mark(block, Place::Blocks(ipv6)));
    let elsewhere = || {
        let rule = subject(family("its rules are being replaced", ipv6), direction, ipv6, Reg(0));
        rule.in_set(Reg(0), of_side(Place::Aside).name()).set_mark(!ASIDE, ASIDE)
    };
    let next = if ipv6 { 4 } else { 1 };
    for pass in ["this class", "everybody else"] {
        if pass == "everybody else" {
            chain = chain.rule(clear_mark("everybody else"));
        }
        chain = chain.rule(elsewhere());
        let pair = subject(family(pass, ipv6), direction, ipv6, Reg(0)).meta(MetaKey::Mark, Reg(next));
        chain = chain.rule(to_mark(pair, of_side(Place::Functions)).goto(whom.decide_name(direction)));
    }
    chain.rule(unknown(whom, direction, options))
}

/// What the function in the mark decides.
pub(super) fn decide(whom: Subject, direction: Direction, options: &Options) -> Chain {
    let key = |comment: &str| Rule::new(comment).meta(MetaKey::Mark, Reg(0));
    let of_protocol = |comment: &str| key(comment).l4proto(Reg(1));
    let port = whom.port(of_protocol("port"), Reg(2));
    let range = whom.port(of_protocol("ports"), Reg(2));
    let source = of_protocol("source ports").sport(Reg(2));
    let both = whom.port(of_protocol("both ports").sport(Reg(2)), Reg(3));
    let mut chain = Chain::regular()
        .rule(to_mark(port, Place::Ports))
        .rule(to_mark(range, Place::Ranges))
        .rule(to_mark(source, Place::Sources))
        .rule(to_mark(both, Place::Boxes))
        .rule(to_mark(of_protocol("protocol"), Place::Protocols))
        .rule(to_mark(key("any"), Place::Defaults));
    if let Some(group) = options.log_refused {
        let refusal = Refusal { judged: whom.judged(), direction, why: String::new() };
        chain = chain.rule(refused("told").log(refusal.prefix(), group));
    }
    let decided = key("decided").vmap(Reg(0), whom.decisions().name());
    chain.rule(decided).rule(unknown(whom, direction, options))
}
