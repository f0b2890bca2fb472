//! What nodes have told, as connections that can be held against policies: each once, by labels where a Pod had some.
//!
//! In: the record of flows (`drivers::flows`) since a time. Out: connections, and what the reader must know of them. A connection between
//! two workloads is told twice, by the node that it comes to and by the one that it leaves: the first counts, where there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ::flows::{Ask, Direction, End, Flow, Verdict};
use drivers::flows::{Flows, now};
use model::protocol;
use policy::suggest::lasting;
use tonic::Code;
use wire::trestle::v1::{SeenEnd, SeenFlow};

use crate::{
    failure::Failure,
    flows_view::{self as view, time, written},
};

/// Rows of the record that are added up, the most frequent ones.
const ROWS: usize = 100_000;
/// Connections that are looked at, the most frequent ones.
const MOST: usize = 10_000;

/// What was seen since a time.
#[derive(Debug, Default, PartialEq)]
pub struct Recorded {
    pub flows: Vec<SeenFlow>,
    /// What is not in them.
    pub notes: Vec<String>,
    /// Why they are not all that was seen since then: too many, or the record does not go back so far.
    pub is_cut: Option<String>,
}

pub async fn recorded(
    flows: &Option<Arc<Flows>>,
    since: &str,
    with_denied: bool,
) -> Result<Recorded, Failure> {
    let record = view::recorded(flows)?;
    let since = time("since", since, now())?.unwrap_or(0);
    let whole = record.whole_since().await;
    let ask = Ask { since, ..Ask::default() };
    let found = record.top(ask, ROWS).await.map_err(|err| Failure::from_error(Code::Internal, &err))?;
    let mut recorded = sum_up(found.flows, with_denied);
    if found.more {
        let text =
            format!("more was seen than the {ROWS} most frequent rows of the record, which are looked at");
        recorded.is_cut = Some(text);
    }
    if whole > since {
        recorded.is_cut = Some(format!("the record goes back to {}, and no further", written(whole)));
    }
    recorded.notes.extend(recorded.is_cut.clone());
    Ok(recorded)
}

/// One end, as policies can tell it from others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Labelled(String, BTreeMap<String, String>),
    Address(IpAddr),
}

type Key = (Who, Who, &'static str, u16);

/// Adds up what can be said so. What the node that it comes to refuses has left its own all the same: that it was let out says nothing.
fn sum_up(flows: Vec<Flow>, with_denied: bool) -> Recorded {
    let (arriving, others): (Vec<Flow>, Vec<Flow>) =
        flows.into_iter().partition(|flow| flow.kind.direction == Direction::In);
    let arrived: BTreeSet<Key> = arriving.iter().filter_map(key).collect();
    let others = others.into_iter().filter(|flow| key(flow).is_none_or(|key| !arrived.contains(&key)));
    let wanted = arriving.into_iter().chain(others);
    let wanted = wanted.filter(|flow| with_denied || flow.kind.verdict != Verdict::Denied);
    let (mut sums, mut left_out) = (BTreeMap::<Key, (u64, u64)>::new(), 0);
    for flow in wanted {
        let Some(key) = key(&flow) else {
            left_out += 1;
            continue;
        };
        let (count, last) = sums.entry(key).or_default();
        *count = count.saturating_add(flow.count);
        *last = (*last).max(flow.last);
    }
    let mut sums: Vec<(Key, (u64, u64))> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let mut recorded = Recorded::default();
    if sums.len() > MOST {
        let text =
            format!("{} connections were seen, and the {MOST} most frequent are looked at", sums.len());
        recorded.is_cut = Some(text);
    }
    if left_out > 0 {
        let text = format!(
            "{left_out} rows name no port, or no end that labels or an address tell; they are left out"
        );
        recorded.notes.push(text);
    }
    let seen = |((from, to, protocol, port), (count, last)): (Key, (u64, u64))| SeenFlow {
        from: Some(end(from)),
        to: Some(end(to)),
        protocol: protocol.to_owned(),
        port: port.into(),
        count,
        last: written(last),
    };
    recorded.flows = sums.into_iter().take(MOST).map(seen).collect();
    recorded
}

fn key(flow: &Flow) -> Option<Key> {
    let (protocol, port) = passage(flow)?;
    Some((who(&flow.kind.from)?, who(&flow.kind.to)?, protocol, port))
}

/// None: it has a port, and it is not known which, or policies have no word for it.
fn passage(flow: &Flow) -> Option<(&'static str, u16)> {
    match protocol::name(flow.kind.protocol)? {
        "icmp" | "icmpv6" => Some(("icmp", 0)),
        name @ ("tcp" | "udp" | "sctp") => Some((name, flow.kind.port.filter(|port| *port > 0)?)),
        _ => None,
    }
}

fn who(end: &End) -> Option<Who> {
    if let Some((namespace, _)) = end.workload.strip_prefix("Pod ").and_then(|name| name.split_once('/')) {
        let labels = lasting(&end.labels.iter().cloned().collect());
        let labels = labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        return Some(Who::Labelled(namespace.to_owned(), labels));
    }
    end.address.map(Who::Address)
}

fn end(who: Who) -> SeenEnd {
    match who {
        Who::Labelled(namespace, labels) => SeenEnd { namespace, labels, address: String::new() },
        Who::Address(address) => SeenEnd { address: address.to_string(), ..SeenEnd::default() },
    }
}

#[cfg(test)]
mod tests {
    use ::flows::Kind;

    use super::*;

    fn flow(direction: Direction, from: &str, to: &str, port: Option<u16>) -> Flow {
        let end = |text: &str| {
            Arc::new(match text.split_once('/') {
                Some(_) => End {
                    address: "10.0.0.1".parse().ok(),
                    workload: format!("Pod {text}"),
                    labels: vec![
                        ("app".to_owned(), text.to_owned()),
                        ("pod-template-hash".to_owned(), port.unwrap_or_default().to_string()),
                    ],
                    tags: Vec::new(),
                },
                None => End { address: text.parse().ok(), ..End::default() },
            })
        };
        let kind = Kind {
            node: "n".into(),
            verdict: Verdict::Allowed,
            direction,
            from: end(from),
            to: end(to),
            protocol: 6,
            port,
            service: None,
            rule: "".into(),
        };
        Flow { kind, count: 2, bytes: None, first: 1, last: 1_700_000_000_000 }
    }

    #[test]
    fn a_connection_that_two_nodes_tell_counts_once() {
        let of = |direction, from, to, port| flow(direction, from, to, Some(port));
        let mut other_rule = of(Direction::In, "s/a", "s/b", 80);
        other_rule.kind.rule = "ingress rule 1 of NetworkPolicy s/b".into();
        let mut denied = of(Direction::In, "s/c", "s/b", 80);
        denied.kind.verdict = Verdict::Denied;
        let mut ping = of(Direction::In, "s/a", "s/b", 8 << 8);
        ping.kind.protocol = 58;
        let all = vec![
            of(Direction::In, "s/a", "s/b", 80),
            other_rule,
            of(Direction::Out, "s/a", "s/b", 80),
            of(Direction::Out, "s/a", "192.0.2.1", 443),
            flow(Direction::In, "s/a", "s/b", None),
            flow(Direction::In, "", "s/b", Some(80)),
            denied,
            // It was let out, and refused where it came to.
            of(Direction::Out, "s/c", "s/b", 80),
            ping,
        ];
        let told = sum_up(all.clone(), false);
        let seen: Vec<_> = told.flows.iter().map(|one| (one.count, &*one.protocol, one.port)).collect();
        assert_eq!(seen, [(4, "tcp", 80), (2, "icmp", 0), (2, "tcp", 443)], "{told:#?}");
        assert_eq!((told.notes.len(), told.is_cut), (1, None));
        let from = told.flows[0].from.as_ref().unwrap();
        assert_eq!((&*from.namespace, from.labels.len()), ("s", 1), "what a controller makes up is left out");
        assert_eq!(told.flows[0].last, "2023-11-14T22:13:20.000Z");
        assert_eq!(told.flows[2].to.as_ref().unwrap().address, "192.0.2.1");
        assert_eq!(sum_up(all, true).flows.len(), 4);
    }
}
