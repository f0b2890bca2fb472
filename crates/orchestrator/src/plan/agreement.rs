//! Agreement: whether some connection between two networks is permitted at both ends, so that a way for it is worth making.
//!
//! In: what lists ask for between networks of different clouds, and where resources are. Out: pairs of networks between which
//! something that one resource lets out another one lets in. Not here: which way that is, and what becomes of it (`paths`).

use std::collections::BTreeMap;

use cloud_api::twin::of_twins;
use ipnet::{IpNet, Ipv4Net};
use model::{Address, Direction, NetworkName, ResourceName, Traffic};

/// What a list permits with somebody elsewhere: who, what, with whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'p> {
    pub resource: &'p ResourceName,
    pub traffic: Traffic,
    pub target: Address,
}

/// By the network that it is asked in, and the one that it is about.
pub(super) type Asks<'p> = BTreeMap<(&'p NetworkName, &'p NetworkName), Vec<Ask<'p>>>;

/// Resources by address. Their blocks never overlap.
pub(super) struct Located<'p>(BTreeMap<u32, (u32, &'p ResourceName, Ipv4Net)>);

impl<'p> Located<'p> {
    pub(super) fn new(resources: impl IntoIterator<Item = (&'p ResourceName, Address)>) -> Self {
        let placed = resources.into_iter().filter_map(|(name, address)| {
            let block = in_v4(address)?;
            Some((block.network().into(), (block.broadcast().into(), name, block)))
        });
        Self(placed.collect())
    }

    /// The resources that a target holds, or that it is part of.
    fn at(&self, target: Address) -> impl Iterator<Item = (&'p ResourceName, Ipv4Net)> {
        let net = in_v4(target);
        let (first, last) = net.map_or((1, 0), |net| (net.network().into(), net.broadcast().into()));
        let upto = net.map(|_| self.0.range(..=last).rev());
        let meets = move |(_, (end, ..)): &(&u32, &(u32, &ResourceName, Ipv4Net))| *end >= first;
        upto.into_iter().flatten().take_while(meets).map(|(_, (_, name, block))| (*name, *block))
    }
}

/// An address of either family as the networks of clouds have it.
fn in_v4(address: Address) -> Option<Ipv4Net> {
    match address.net() {
        IpNet::V4(net) => Some(net),
        IpNet::V6(net) => of_twins(net),
    }
}

/// The pairs of networks, the one that connections leave first, between which some connection is permitted at both ends.
/// O(asks · log resources) where targets are single addresses.
pub(super) fn agreed<'p>(asks: &Asks<'p>, located: &Located<'p>) -> Vec<(&'p NetworkName, &'p NetworkName)> {
    let agrees = |(home, other): &(&'p NetworkName, &'p NetworkName), asked: &Vec<Ask<'p>>| {
        let Some(answers) = asks.get(&(*other, *home)) else { return false };
        let mut by_resource: BTreeMap<&ResourceName, Vec<&Ask<'_>>> = BTreeMap::new();
        for answer in answers.iter().filter(|ask| ask.traffic.direction == Direction::Inbound) {
            by_resource.entry(answer.resource).or_default().push(answer);
        }
        let outbound = asked.iter().filter(|ask| ask.traffic.direction == Direction::Outbound);
        !by_resource.is_empty() && outbound.into_iter().any(|ask| is_answered(ask, &by_resource, located))
    };
    asks.iter().filter(|(pair, asked)| agrees(pair, asked)).map(|(pair, _)| *pair).collect()
}

fn is_answered(
    ask: &Ask<'_>,
    answers: &BTreeMap<&ResourceName, Vec<&Ask<'_>>>,
    located: &Located<'_>,
) -> bool {
    located.at(ask.target).any(|(receiver, _)| {
        let lets_in = |answer: &&Ask<'_>| {
            answer.traffic.meets(&ask.traffic)
                && located.at(answer.target).any(|(sender, _)| sender == ask.resource)
        };
        answers.get(receiver).is_some_and(|answers| answers.iter().any(lets_in))
    })
}
