//! Address spaces: blocks by size out of configured pools.
//!
//! Free space is kept as pieces that never cross a boundary of octets, in the order in which they came to be free;
//! a block is cut from the first piece whose beginning suits it. That keeps large and small blocks apart, so that
//! a pool of /16s is not nibbled away by /24s. Only when no beginning suits is any aligned place taken, so that
//! nothing is refused while it would fit.

use ipnet::Ipv4Net;

/// Addresses in a network unless asked otherwise: a /16.
pub const DEFAULT_SIZE: u32 = 65_534;

/// Where networks get their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools(Vec<Ipv4Net>);

/// Why pools cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error("there is no pool of addresses; configure at least one, for example 10.0.0.0/8")]
    None,
    #[error("the pools {a} and {b} overlap")]
    Overlap { a: Ipv4Net, b: Ipv4Net },
}

/// No pool holds a block of the size asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free address space for {size} addresses; add a pool or delete networks")]
pub struct NoSpaceLeft {
    pub size: u32,
}

impl Default for Pools {
    fn default() -> Self {
        Self(vec![Ipv4Net::new_assert([10, 0, 0, 0].into(), 8)])
    }
}

impl Pools {
    pub fn new(pools: Vec<Ipv4Net>) -> Result<Self, PoolError> {
        let pools: Vec<_> = pools.iter().map(Ipv4Net::trunc).collect();
        if pools.is_empty() {
            return Err(PoolError::None);
        }
        for (place, a) in pools.iter().enumerate() {
            if let Some(b) = pools.iter().skip(place + 1).find(|b| overlap(**b, *a)) {
                return Err(PoolError::Overlap { a: *a, b: *b });
            }
        }
        Ok(Self(pools))
    }

    pub fn contains(&self, net: Ipv4Net) -> bool {
        self.0.iter().any(|pool| pool.contains(&net))
    }

    /// Finds one block per size (0: the default size) that overlaps neither `used` nor one another.
    pub fn find(
        &self,
        used: impl IntoIterator<Item = Ipv4Net>,
        sizes: &[u32],
    ) -> Result<Vec<Ipv4Net>, NoSpaceLeft> {
        let mut free = Free::new(&self.0, used);
        sizes.iter().map(|&size| free.take(if size == 0 { DEFAULT_SIZE } else { size })).collect()
    }
}

pub(crate) fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// First and last address of a piece.
type Piece = (u32, u32);

struct Free {
    pieces: Vec<Piece>,
    /// Where the last block was cut; the next one is looked for from here on first.
    at: usize,
}

impl Free {
    /// O(u log u + pieces).
    fn new(pools: &[Ipv4Net], used: impl IntoIterator<Item = Ipv4Net>) -> Self {
        let mut used: Vec<Piece> = used.into_iter().map(ends).collect();
        used.sort_unstable();
        let mut pieces = Vec::new();
        for pool in pools {
            let (mut first, last) = ends(*pool);
            let start = used.partition_point(|(_, end)| *end < first);
            let mut full = false;
            // A block inside another sorts after it, so the furthest end seen counts.
            for &(begin, end) in used[start..].iter().take_while(|(begin, _)| *begin <= last) {
                if begin > first {
                    split(first, begin - 1, &mut pieces);
                }
                match end.checked_add(1) {
                    Some(next) if next <= last => first = first.max(next),
                    _ => {
                        full = true;
                        break;
                    }
                }
            }
            if !full {
                split(first, last, &mut pieces);
            }
        }
        Self { pieces, at: 0 }
    }

    fn take(&mut self, size: u32) -> Result<Ipv4Net, NoSpaceLeft> {
        let no_space = NoSpaceLeft { size };
        let Some(block) = size.checked_next_power_of_two() else { return Err(no_space) };
        let order = (self.at..self.pieces.len()).chain(0..self.at);
        let suits = |(first, last): Piece| first.is_multiple_of(block) && last - first >= block - 1;
        let found = order.clone().find(|&at| suits(self.pieces[at])).map(|at| (at, self.pieces[at].0));
        let found =
            found.or_else(|| order.clone().find_map(|at| Some((at, aligned(self.pieces[at], block)?))));
        let (at, start) = found.ok_or(no_space)?;
        self.cut(at, start, start + (block - 1));
        let length = u8::try_from(32 - block.trailing_zeros()).unwrap_or(32);
        Ok(Ipv4Net::new_assert(start.into(), length))
    }

    fn cut(&mut self, at: usize, start: u32, end: u32) {
        let (first, last) = self.pieces[at];
        let mut rest = Vec::new();
        if start > first {
            split(first, start - 1, &mut rest);
        }
        if end < last {
            split(end + 1, last, &mut rest);
        }
        self.pieces.splice(at..=at, rest);
        self.at = at.min(self.pieces.len());
    }
}

fn ends(net: Ipv4Net) -> Piece {
    (net.network().into(), net.broadcast().into())
}

fn aligned((first, last): Piece, block: u32) -> Option<u32> {
    let start = first.checked_next_multiple_of(block)?;
    (start <= last && last - start >= block - 1).then_some(start)
}

/// Cuts a range where octets end: `10.0.1.0-10.255.255.255` is `10.0.1-255.*` and `10.1-255.*.*`.
fn split(mut first: u32, last: u32, pieces: &mut Vec<Piece>) {
    loop {
        // The largest run of whole octets that begins here and ends at or before `last`.
        let end = [24, 16, 8, 0].into_iter().find_map(|shift| {
            let unit = 1u64 << shift;
            if !u64::from(first).is_multiple_of(unit) || u64::from(last - first) + 1 < unit {
                return None;
            }
            // Up to the end of the surrounding octet, in whole units.
            let limit = u64::from(first) - u64::from(first) % (unit << 8) + (unit << 8) - 1;
            let whole = (u64::from(last - first) + 1) / unit * unit + u64::from(first) - 1;
            u32::try_from(limit.min(whole)).ok()
        });
        let end = end.unwrap_or(last);
        pieces.push((first, end));
        if end >= last {
            return;
        }
        first = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nets(list: &[&str]) -> Vec<Ipv4Net> {
        list.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn find(used: &[&str], sizes: &[u32]) -> Result<Vec<Ipv4Net>, NoSpaceLeft> {
        Pools::default().find(nets(used), sizes)
    }

    /// The known answers of the reference.
    #[test]
    fn address_vectors_hold() {
        assert_eq!(find(&[], &[0]), Ok(nets(&["10.0.0.0/16"])));
        assert_eq!(find(&["10.0.0.0/16"], &[0]), Ok(nets(&["10.1.0.0/16"])));
        assert_eq!(find(&["10.0.0.0/16", "10.1.0.0/16"], &[0]), Ok(nets(&["10.2.0.0/16"])));
        assert_eq!(find(&[], &[200, 1000, 4]), Ok(nets(&["10.0.0.0/24", "10.1.0.0/22", "10.1.4.0/30"])));
        assert!(find(&["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"], &[0]).is_err());
    }

    /// The original never gave a freed range out again.
    #[test]
    fn a_freed_range_is_used_again() {
        assert_eq!(find(&["10.0.0.0/16", "10.2.0.0/16"], &[0]), Ok(nets(&["10.1.0.0/16"])));
    }

    #[test]
    fn nothing_is_refused_while_it_would_fit() {
        let pool = Pools::new(nets(&["192.168.0.0/22"])).unwrap();
        // Free: 192.168.1.0-192.168.3.255; no piece begins at a /23 boundary, but one is inside.
        assert_eq!(pool.find(nets(&["192.168.0.0/24"]), &[512]), Ok(nets(&["192.168.2.0/23"])));
        assert!(pool.find(nets(&["192.168.0.0/24", "192.168.2.0/24"]), &[512]).is_err());
    }

    #[test]
    fn several_pools_are_used_in_turn_and_must_not_overlap() {
        let pools = Pools::new(nets(&["10.0.0.0/16", "172.16.0.0/16"])).unwrap();
        assert_eq!(pools.find(nets(&["10.0.0.0/16"]), &[0]), Ok(nets(&["172.16.0.0/16"])));
        assert!(matches!(Pools::new(nets(&["10.0.0.0/8", "10.1.0.0/16"])), Err(PoolError::Overlap { .. })));
        assert_eq!(Pools::new(Vec::new()), Err(PoolError::None));
    }

    #[test]
    fn used_space_around_and_inside_a_pool_counts() {
        let pool = Pools::new(nets(&["10.1.0.0/16"])).unwrap();
        assert!(pool.find(nets(&["10.0.0.0/8"]), &[1]).is_err());
        assert!(pool.find(nets(&["0.0.0.0/0"]), &[1]).is_err());
        assert_eq!(pool.find(nets(&["10.1.0.0/16", "10.1.0.0/24"]), &[1]), Err(NoSpaceLeft { size: 1 }));
        assert_eq!(pool.find(nets(&["192.168.0.0/16"]), &[0]), Ok(nets(&["10.1.0.0/16"])));
        assert_eq!(
            Pools::new(nets(&["0.0.0.0/0"])).unwrap().find([], &[u32::MAX]),
            Err(NoSpaceLeft { size: u32::MAX })
        );
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_a_full_pool_is_full(
            sizes in proptest::collection::vec(1u32..600, 1..60),
            freed in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let pool = Pools::new(nets(&["10.7.0.0/20"])).unwrap();
            let mut used: Vec<Ipv4Net> = Vec::new();
            for (turn, size) in sizes.iter().enumerate() {
                if let Some(index) = freed.get(turn) && !used.is_empty() {
                    used.swap_remove(index.index(used.len()));
                }
                let block = size.next_power_of_two();
                match pool.find(used.iter().copied(), &[*size]) {
                    Ok(found) => {
                        prop_assert!(pool.contains(found[0]) && found[0].hosts().count() + 2 >= *size as usize);
                        prop_assert!(!used.iter().any(|other| overlap(*other, found[0])));
                        used.push(found[0]);
                    }
                    // The naive answer: no aligned block of the pool is free.
                    Err(_) => {
                        let length = u8::try_from(32 - block.trailing_zeros()).unwrap();
                        let pool: Ipv4Net = "10.7.0.0/20".parse().unwrap();
                        let fits = pool.subnets(length).unwrap().any(|net| !used.iter().any(|u| overlap(*u, net)));
                        prop_assert!(!fits);
                    }
                }
            }
        }
    }
}
