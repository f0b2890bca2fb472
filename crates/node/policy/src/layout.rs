//! The table: its sets, and the rules, whose number does not depend on what they enforce.
//!
//! ```text
//!  hook ─► established? accept ─► guard of interfaces ─► with itself? accept ─► mine ─► host-in, host-out
//!                                                                                │         (hooks input, output; forward: below)
//!                                                                                │ source or destination is restricted
//!                                   keep the mark's bits on the jump stack ◄─────┘
//!                                        │
//!                                      judge ─► out4/out6 (source's rules) ─► in4/in6 (destination's rules)
//!
//!  in4:     mark := class of ip saddr                       peers4 (exact), else blocks4 (ranges), else 0
//!           mark := function of daddr . mark                in-functions4: what is decided on this class
//!           else mark := function of daddr . 0              in-functions4: on everybody else
//!             │
//!  decide:  mark := decision of mark . protocol . port         function-ports      ┐
//!           mark := decision of mark . protocol . port         function-ranges     │
//!           mark := decision of mark . protocol . source port  function-sources    │ the first that has the key
//!           mark := decision of mark . protocol . both ports   function-boxes      │ decides: 1, 2 or 3
//!           mark := decision of mark . protocol                function-protocols  │
//!           mark := decision of mark                           function-defaults   ┘
//!           mark 1: return   2: drop   3: goto reject          decisions
//! ```
//!
//! Functions are said once, however many workloads and classes they hold for, and never change: a workload is led to another.
//!
//! The node itself is judged by the same maps, in chains of its own: it is whoever receives in hook input and sends in hook
//! output, whatever its addresses are at the moment, and stands in keys as [`host`].
//!
//! What the node forwards is its own as far as others know it as the node's ([`Passage`](crate::Passage)): ports that it publishes
//! for containers, what leaves under its address, and what it routes from one of its networks into another.
//!
//! ```text
//!  forward ─► … mine ─► to or from a workload? accept ─► from an inner link? accept
//!                       ─► translated? host-published: host-in, by the port that was asked for
//!                       ─► to an inner link? accept ─► host-in, host-out
//!  postrouting, after NAT ─► established? accept ─► to a workload or an inner link? accept ─► hidden behind the node? host-late
//! ```
//!
//! While a large change is made, workloads that it concerns are in `in-aside4`: then the highest bit is set in the class
//! that is asked for, and under such keys is what holds meanwhile (`phases`).
//!
//! The large maps have numbers for values, and one small verdict map turns these into verdicts: the kernel walks verdict
//! maps element by element, once for each hook and rule that leads to them, whenever a rule or a jump is added.
//!
//! Ranges of ports are in trees whose keys are function, protocol and port one after the other, compared as one number: a range
//! of ports of one function is a range of such numbers. As a concatenation the kernel would hold them in
//! tables of bits, which it copies as a whole whenever one range comes or goes. Only what needs both ports is one.
//!
//! The class is handed from one rule to the next in the packet's mark because `nft` 1.0.6 aborts when it lists a rule
//! in which the result of one map is the key of another, and registers do not outlive a rule. Bits of the mark that
//! others need are put back from the jump stack: each has a chain that calls the next one and then sets its bit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::{policy::output::Direction, protocol};
use node_nft::{
    Chain, ChainKind, Cmp, Element, Elements, Expr, Family, Hook, Key, MetaKey, PayloadBase, Policy, Reg,
    Reject, Rule, Table, Verdict,
};

use crate::{Decision, Options, TABLE};

mod judging;
mod place;
mod refusal;

use judging::{HOSTS, Subject, decide, judge, judge_side};
pub use place::{ASIDE, Place, Way, aside};
pub use refusal::{Judged, Refusal};

/// Stands for the node itself where keys have the address of a workload. No packet has it as source or destination, but
/// within the loopback interface, which passes before.
pub fn host(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::new(127, 255, 255, 255).into() }
}

const FAMILIES: [bool; 2] = [false, true];
const DIRECTIONS: [Direction; 2] = [Direction::Out, Direction::In];
const REJECT: &str = "reject";
const PUBLISHED: &str = "host-published";
const LATE: &str = "host-late";
/// Sources are translated at 100.
pub(crate) const AFTER_NAT: i32 = 101;
/// Where packets are counted that would be dropped, if that is all that is done.
pub const OBSERVED: &str = "observed";

/// A decision as a value of the large maps; no class and no function has such a number.
pub const fn code(decision: Decision) -> u32 {
    match decision {
        Decision::Permit => 1,
        Decision::Drop => 2,
        Decision::Reject => 3,
    }
}

/// Numbers below, and those with [`ASIDE`], are no classes and no functions.
pub const FIRST_CLASS: u32 = 16;

/// What every table has, whatever it enforces; `observe`: what is refused is counted and passes.
pub fn constants(observe: bool) -> [(Place, Elements); 2] {
    [Place::Decisions, Place::LateDecisions].map(|place| {
        let verdict = |decision| match decision {
            Decision::Permit => Verdict::Return,
            Decision::Drop | Decision::Reject if observe => Verdict::Goto(OBSERVED.into()),
            Decision::Reject if place == Place::Decisions => Verdict::Goto(REJECT.into()),
            Decision::Drop | Decision::Reject => Verdict::Drop,
        };
        let all = [Decision::Permit, Decision::Drop, Decision::Reject];
        let element =
            |decision| (Key::new().mark(code(decision)).into(), Element::verdict(verdict(decision)));
        (place, all.map(element).into())
    })
}

/// The table without elements.
pub fn table(options: &Options) -> Table {
    let mut table = Table::new(Family::Inet, TABLE);
    let base = |hook| Chain::base(ChainKind::Filter, hook, 0, Policy::Accept);
    let entry = || Rule::new("restricted?").jump("mine");

    let mut forward = base(Hook::Forward).rule(replies());
    forward = guards(forward, options, &[Side::In, Side::Out]);
    for ipv6 in FAMILIES {
        forward = forward.rule(with_itself(ipv6));
    }
    table.chain("forward", routed(forward.rule(entry()), options));
    table.chain("leaving", leaving(options));

    let mut input = base(Hook::Input).rule(loopback(MetaKey::InInterfaceName)).rule(replies());
    input = neighbours(input);
    input = guards(input, options, &[Side::In]);
    table.chain("input", input.rule(entry()).rule(host_entry(Direction::In)));

    let mut output = base(Hook::Output).rule(loopback(MetaKey::OutInterfaceName)).rule(replies());
    output = neighbours(output);
    if options.host_to_own {
        for ipv6 in FAMILIES {
            let own = family("the node to its own workloads", ipv6).ip_daddr(ipv6, Reg(0));
            output = output.rule(own.in_set(Reg(0), Place::Locals(ipv6).name()).accept());
        }
    }
    table.chain("output", output.rule(entry()).rule(host_entry(Direction::Out)));

    let first = keepers(&mut table, options.kept_mark_bits, "", "judge");
    table.chain("mine", mine(&first, options));
    table.chain("judge", judge(Subject::Workload, &DIRECTIONS));
    for (whom, direction, name) in HOSTS {
        let judging = format!("{name}-judge");
        let first = keepers(&mut table, options.kept_mark_bits, &format!("{name}-"), &judging);
        table.chain(name, host_restricted(direction, &first));
        table.chain(judging, judge(whom, &[direction]));
    }
    let workloads = DIRECTIONS.map(|direction| (Subject::Workload, direction));
    let hosts = HOSTS.map(|(whom, direction, _)| (whom, direction));
    let judging: Vec<(Subject, Direction)> = hosts.into_iter().chain(workloads).collect();
    for (whom, direction) in judging.iter().copied() {
        for ipv6 in FAMILIES {
            table.chain(whom.judge_name(direction, ipv6), judge_side(whom, direction, ipv6, options));
        }
    }
    for (whom, direction) in judging {
        table.chain(whom.decide_name(direction), decide(whom, direction, options));
    }
    if options.observe {
        table.chain(OBSERVED, Chain::regular().rule(Rule::new("would be refused").counter()));
    }
    let reset = Rule::new("tcp").l4proto(Reg(0)).is(Reg(0), &[crate::l4::TCP]).reject(Reject::TcpReset);
    let prohibited = Rule::new("others").reject(Reject::AdminProhibited);
    table.chain(REJECT, Chain::regular().rule(reset).rule(prohibited));
    table
}

/// What becomes of what the node forwards, after its workloads: see [`Passage`](crate::Passage).
fn routed(mut chain: Chain, options: &Options) -> Chain {
    let attached = Rule::new("from a workload").meta(MetaKey::InInterfaceName, Reg(0));
    chain = to_workloads(chain.rule(attached.in_set(Reg(0), Place::Interfaces.name()).accept()));
    let published = Rule::new("a port that the node publishes").ct_dnated().goto(PUBLISHED);
    chain = inner(chain, &options.inner_prefixes, MetaKey::InInterfaceName).rule(published);
    chain = inner(chain, &options.inner_prefixes, MetaKey::OutInterfaceName);
    chain.rule(host_entry(Direction::In)).rule(host_entry(Direction::Out))
}

/// What leaves under the node's address, although others sent it.
fn leaving(options: &Options) -> Chain {
    let chain = Chain::base(ChainKind::Filter, Hook::Postrouting, AFTER_NAT, Policy::Accept);
    let chain = to_workloads(chain.rule(loopback(MetaKey::OutInterfaceName)).rule(replies()));
    let chain = inner(chain, &options.inner_prefixes, MetaKey::OutInterfaceName);
    chain.rule(Rule::new("hidden behind the node").ct_snated().jump(LATE))
}

/// Workloads of the node are judged as such.
fn to_workloads(mut chain: Chain) -> Chain {
    for ipv6 in FAMILIES {
        let rule = family("to a workload", ipv6).ip_daddr(ipv6, Reg(0));
        chain = chain.rule(rule.in_set(Reg(0), Place::Locals(ipv6).name()).accept());
    }
    chain
}

/// Containers and machines within the node have addresses of their own, and are not the node.
pub(crate) fn inner(mut chain: Chain, prefixes: &[String], side: MetaKey) -> Chain {
    for prefix in prefixes {
        let value = prefix.as_bytes().to_vec();
        let rule = Rule::new("an inner link").meta(side, Reg(0));
        chain = chain.rule(rule.expr(Expr::Cmp { op: Cmp::Eq, from: Reg(0), value }).accept());
    }
    chain
}

/// What was judged when it began.
pub(crate) fn replies() -> Rule {
    Rule::new("replies, and what goes on").ct_established_or_related().accept()
}

pub(crate) fn family(comment: &str, ipv6: bool) -> Rule {
    let number = if ipv6 { 10 } else { 2 };
    Rule::new(comment).meta(MetaKey::Nfproto, Reg(15)).is(Reg(15), &[number])
}

fn subject(rule: Rule, direction: Direction, ipv6: bool, to: Reg) -> Rule {
    Subject::Workload.load(rule, direction, ipv6, to)
}

fn host_name(direction: Direction) -> &'static str {
    if direction == Direction::In { "host-in" } else { "host-out" }
}

fn host_entry(direction: Direction) -> Rule {
    Rule::new("the node itself").jump(host_name(direction))
}

fn host_restricted(direction: Direction, first: &str) -> Chain {
    let mut chain = Chain::regular();
    for ipv6 in FAMILIES {
        let rule = Subject::Host.load(family("restricted", ipv6), direction, ipv6, Reg(0));
        chain = chain.rule(rule.in_set(Reg(0), Place::Subjects(direction, ipv6).name()).goto(first));
    }
    chain
}

/// What closes, unless it is only counted. Its comment says why.
fn refuse(rule: Rule, direction: Direction, options: &Options) -> Rule {
    refuse_as(Judged::Workload, rule, direction, options)
}

fn refuse_as(judged: Judged, rule: Rule, direction: Direction, options: &Options) -> Rule {
    let why = rule.comment.clone();
    let rule = match options.log_refused {
        Some(group) => rule.log(Refusal { judged, direction, why }.prefix(), group),
        None => rule,
    };
    if options.observe { rule.jump(OBSERVED) } else { rule.discard() }
}

pub(crate) fn loopback(key: MetaKey) -> Rule {
    Rule::new("loopback").meta(key, Reg(0)).is(Reg(0), Key::new().interface("lo").as_bytes()).accept()
}

/// ICMPv6 that finds neighbours, routers and listeners: without it there is no IPv6 on the link.
pub(crate) fn neighbours(chain: Chain) -> Chain {
    let kinds = |low: u8, high: u8| {
        Rule::new("neighbour discovery")
            .l4proto(Reg(0))
            .is(Reg(0), &[protocol::ICMPV6])
            .payload(PayloadBase::Transport, 0, 1, Reg(0))
            .expr(Expr::Range { inverted: false, from: Reg(0), low: vec![low], high: vec![high] })
            .accept()
    };
    chain.rule(kinds(130, 137)).rule(kinds(143, 143))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    In,
    Out,
}

impl Side {
    /// What comes from a workload's interface goes out, for the workload.
    fn direction(self) -> Direction {
        if self == Self::In { Direction::Out } else { Direction::In }
    }

    fn interface(self) -> MetaKey {
        match self {
            Self::In => MetaKey::InInterfaceName,
            Self::Out => MetaKey::OutInterfaceName,
        }
    }
}

/// An interface of a workload carries its own addresses only; one that should be known and is not carries nothing.
fn guards(mut chain: Chain, options: &Options, sides: &[Side]) -> Chain {
    let interfaces = Place::Interfaces.name();
    for side in sides {
        for prefix in &options.guarded_prefixes {
            let rule = Rule::new("unknown workload")
                .meta(side.interface(), Reg(0))
                .expr(Expr::Cmp { op: Cmp::Eq, from: Reg(0), value: prefix.as_bytes().to_vec() })
                .meta(side.interface(), Reg(0))
                .not_in_set(Reg(0), interfaces.clone());
            chain = chain.rule(refuse(rule, side.direction(), options));
        }
        for ipv6 in FAMILIES {
            let rule = family("not its own address", ipv6).meta(side.interface(), Reg(0));
            let rule = rule.in_set(Reg(0), interfaces.clone()).meta(side.interface(), Reg(0));
            let rule = match side {
                Side::In => rule.ip_saddr(ipv6, Reg(4)),
                Side::Out => rule.ip_daddr(ipv6, Reg(4)),
            };
            let rule = rule.not_in_set(Reg(0), Place::Homes(ipv6).name());
            chain = chain.rule(refuse(rule, side.direction(), options));
        }
    }
    chain
}

fn with_itself(ipv6: bool) -> Rule {
    let second = if ipv6 { Reg(4) } else { Reg(1) };
    family("a workload with itself", ipv6)
        .ip_saddr(ipv6, Reg(0))
        .ip_daddr(ipv6, second)
        .in_set(Reg(0), Place::Itself(ipv6).name())
        .accept()
}

/// Leaves the marks of all other traffic alone.
fn mine(first: &str, options: &Options) -> Chain {
    let mut chain = Chain::regular();
    for direction in DIRECTIONS {
        for ipv6 in FAMILIES {
            let rule = subject(family("closed", ipv6), direction, ipv6, Reg(0));
            let rule = rule.in_set(Reg(0), Place::Closed(ipv6).name());
            chain = chain.rule(refuse(rule, direction, options));
        }
    }
    for direction in DIRECTIONS {
        for ipv6 in FAMILIES {
            let rule = subject(family("restricted", ipv6), direction, ipv6, Reg(0));
            chain = chain.rule(rule.in_set(Reg(0), Place::Subjects(direction, ipv6).name()).goto(first));
        }
    }
    chain
}

/// A chain for each bit, and then this one; the name of the first.
fn keepers(table: &mut Table, bits: u32, prefix: &str, last: &str) -> String {
    let mut next = last.to_owned();
    for bit in (0..u32::BITS).rev().map(|shift| 1_u32 << shift).filter(|bit| bits & bit != 0) {
        let reg = Reg(0);
        let unset = Rule::new("not set").meta(MetaKey::Mark, reg).bits(reg, bit, 0, reg).is(reg, &[0; 4]);
        let chain = Chain::regular()
            .rule(unset.goto(next.clone()))
            .rule(Rule::new("judge").jump(next))
            .rule(Rule::new("put back").set_mark(!bit, bit));
        next = format!("{prefix}keep-{bit:#x}");
        table.chain(next.clone(), chain);
    }
    next
}
