//! Tags: resolving wide and deep graphs, and what one change costs, beside the original's way of doing it.
//!
//! The peer walks the same shape in a redis-server of its own, one TYPE and one HGETALL or SMEMBERS per node, one
//! after the other, as the original's tag service does (without the duplicates that it returns). The peer's sample
//! is smaller; both figures are rates.

#[path = "tags/redis.rs"]
mod redis;

use std::{
    collections::BTreeSet,
    hint::black_box,
    io::{self, Write as _},
    time::{Duration, Instant},
};

use benches::report;
use model::{Leaf, Member, TagName};
use redis::Redis;
use tags::{Fact, Graph, Request, ResolvedMember, Write};

const WIDE: usize = 1_000_000;
const DEEP: usize = 100_000;
const PEER: usize = 20_000;
const RUNS: usize = 11;
const UPDATES: usize = 2_000;

fn main() -> io::Result<()> {
    wide()?;
    grouped()?;
    deep()?;
    match Redis::start()? {
        Some(mut redis) => peer(&mut redis),
        None => {
            let hint = "tags.wide.peer and tags.deep.peer NOT MEASURED: there is no redis-server here; install \
                        the Debian package redis-server";
            writeln!(io::stderr(), "{hint}")
        }
    }
}

fn wide() -> io::Result<()> {
    let wide = tag("wide", 0);
    let facts = || {
        (0..WIDE).flat_map(|number| {
            let name = tag("default.linux.vm-", number);
            [Write::Put(Fact::Leaf(name.clone(), leaf(number))), join(&tag("wide", 0), name)]
        })
    };
    let mut graph = Graph::default();
    let started = Instant::now();
    graph.apply([Write::Put(Fact::Group(wide.clone()))]);
    graph.apply(facts());
    report("tags.load", "facts_per_s", 2.0 * WIDE as f64 / started.elapsed().as_secs_f64(), "1/s");

    let took = median((0..RUNS).map(|_| time(|| read(&graph, &wide, WIDE))));
    report("tags.wide", "members_per_s", WIDE as f64 / took.as_secs_f64(), "1/s");
    update(graph, &wide)
}

/// One leaf changes below a subscribed group of a million, while readers hold the state before.
fn update(mut graph: Graph, wide: &TagName) -> io::Result<()> {
    let subscriber = "default>linux>vm".parse().map_err(io::Error::other)?;
    graph.apply([Write::Put(Fact::Subscription(wide.clone(), subscriber))]);
    let mut published = graph.clone();
    let took = (0..UPDATES).map(|round| {
        let number = round * 7_919 % WIDE;
        let request = Request::SetLeaf { tag: tag("default.linux.vm-", number), leaf: leaf(number + WIDE) };
        let took = time(|| {
            let plan = graph.plan(&request).expect("the leaf exists");
            let heard = graph.apply(plan.writes).by_subscriber();
            assert_eq!(heard.len(), 1, "the subscriber of the group hears of it");
            heard
        });
        published = graph.clone();
        took
    });
    let mut took: Vec<_> = took.collect();
    took.sort_unstable();
    report("tags.update", "ms", took[UPDATES / 2].as_secs_f64() * 1e3, "ms");
    report("tags.update", "p99_ms", took[UPDATES * 99 / 100].as_secs_f64() * 1e3, "ms");
    Ok(())
}

/// The same million in a thousand groups whose names interleave: the most that sorting can cost.
fn grouped() -> io::Result<()> {
    const GROUPS: usize = 1_000;
    let top = tag("top", 0);
    let mut graph = Graph::default();
    graph.apply([Write::Put(Fact::Group(top.clone()))]);
    graph.apply((0..GROUPS).flat_map(|group| {
        let group = tag("group-", group);
        [Write::Put(Fact::Group(group.clone())), join(&tag("top", 0), group)]
    }));
    graph.apply((0..WIDE).flat_map(|number| {
        let name = tag("default.linux.vm-", number);
        [Write::Put(Fact::Leaf(name.clone(), leaf(number))), join(&tag("group-", number % GROUPS), name)]
    }));
    let took = median((0..RUNS).map(|_| time(|| read(&graph, &top, WIDE))));
    report("tags.grouped", "members_per_s", WIDE as f64 / took.as_secs_f64(), "1/s");
    Ok(())
}

fn deep() -> io::Result<()> {
    let mut graph = Graph::default();
    graph.apply((0..DEEP - 1).flat_map(|level| {
        let group = tag("level-", level);
        [Write::Put(Fact::Group(group.clone())), join(&group, tag("level-", level + 1))]
    }));
    graph.apply([Write::Put(Fact::Leaf(tag("level-", DEEP - 1), leaf(0)))]);
    let top = tag("level-", 0);
    let took = median((0..RUNS).map(|_| time(|| read(&graph, &top, 1))));
    report("tags.deep", "levels_per_s", DEEP as f64 / took.as_secs_f64(), "1/s");
    Ok(())
}

fn peer(redis: &mut Redis) -> io::Result<()> {
    let leaves: Vec<String> = (0..PEER).map(|number| tag("default.linux.vm-", number).to_string()).collect();
    for (number, leaf) in leaves.iter().enumerate() {
        redis.send(&["HSET", leaf, "uri", &uri(number), "ip", ""])?;
    }
    for leaf in &leaves {
        redis.send(&["SADD", "wide", leaf])?;
    }
    let levels: Vec<String> = (0..PEER).map(|level| tag("level-", level).to_string()).collect();
    for pair in levels.windows(2) {
        redis.send(&["SADD", &pair[0], &pair[1]])?;
    }
    redis.send(&["HSET", &levels[PEER - 1], "uri", &uri(0), "ip", ""])?;

    let started = Instant::now();
    assert_eq!(resolve(redis, "wide")?, PEER);
    report("tags.wide.peer", "members_per_s", PEER as f64 / started.elapsed().as_secs_f64(), "1/s");
    let started = Instant::now();
    assert_eq!(resolve(redis, &levels[0])?, 1);
    report("tags.deep.peer", "levels_per_s", PEER as f64 / started.elapsed().as_secs_f64(), "1/s");
    Ok(())
}

/// The original's resolve: two round trips per node. Returns the number of leaves.
fn resolve(redis: &mut Redis, root: &str) -> io::Result<usize> {
    let (mut pending, mut seen, mut leaves) = (vec![root.to_owned()], BTreeSet::new(), 0);
    while let Some(node) = pending.pop() {
        match redis.send(&["TYPE", &node])?.as_slice() {
            [kind] if kind == "hash" => {
                black_box(redis.send(&["HGETALL", &node])?);
                leaves += 1;
            }
            [kind] if kind == "set" => {
                let members = redis.send(&["SMEMBERS", &node])?;
                pending.extend(members.into_iter().filter(|member| seen.insert(member.clone())));
            }
            other => return Err(io::Error::other(format!("{node} is of type {other:?}"))),
        }
    }
    Ok(leaves)
}

/// Resolves, and looks at each member as whoever asked would.
fn read(graph: &Graph, tag: &TagName, expected: usize) {
    let resolved = graph.resolve(tag).expect("the tag exists");
    assert_eq!(resolved.len(), expected);
    let bytes: usize = resolved
        .iter()
        .map(|member| match member {
            ResolvedMember::Leaf { name, .. } => name.as_str().len(),
            ResolvedMember::Literal(_) => 0,
        })
        .sum();
    black_box(bytes);
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn join(parent: &TagName, member: TagName) -> Write {
    Write::Put(Fact::Membership(parent.clone(), Member::Tag(member)))
}

fn tag(stem: &str, number: usize) -> TagName {
    format!("{stem}{number:07}").parse().expect("letters, digits, dots and dashes are a name")
}

fn leaf(number: usize) -> Leaf {
    Leaf { uri: Some(uri(number).into()), ip: None }
}

fn uri(number: usize) -> String {
    format!("/hosts/local/vm/{number}")
}
