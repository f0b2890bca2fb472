//! Large graphs through a whole controller. Long: `make lab` runs them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail where it stands, and tell")]

use std::time::{Duration, Instant};

use testkit_controllers::controller::{Fixture, group, leaf};
use wire::tagservicepb::{Tag, TagMapping};

fn tag(name: &str) -> Tag {
    Tag { tag_name: name.into() }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; make lab runs it"]
async fn a_million_members_are_set_resolved_and_deleted_while_others_are_served() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await.max_decoding_message_size(1 << 30);
    let started = Instant::now();
    for block in 0..20_u32 {
        let members =
            (0..50_000).map(|n| std::net::Ipv4Addr::from_bits(0x0a00_0000 + block * 50_000 + n).to_string());
        let wide = TagMapping { tag_name: "wide".into(), child_tags: members.collect(), uri: None, ip: None };
        tags.set_tag(wide).await.unwrap();
    }
    println!("set a million members in {:?}", started.elapsed());
    tags.set_tag(leaf("small", "192.0.2.1")).await.unwrap();

    let mut others = fixture.tags().await;
    let started = Instant::now();
    let resolving = tokio::spawn(async move {
        let resolved = tags.resolve_tag(tag("wide")).await.unwrap().into_inner().mappings.len();
        (resolved, started.elapsed(), tags)
    });
    let mut slowest = Duration::ZERO;
    let mut served = 0;
    while !resolving.is_finished() {
        let asked = Instant::now();
        others.resolve_tag(tag("small")).await.unwrap();
        slowest = slowest.max(asked.elapsed());
        served += 1;
    }
    let (resolved, took, mut tags) = resolving.await.unwrap();
    assert_eq!(resolved, 1_000_000);
    println!(
        "resolved a million members in {took:?}; meanwhile {served} small calls, the slowest in {slowest:?}"
    );
    let started = Instant::now();
    tags.delete_tag(tag("wide")).await.unwrap();
    println!("deleted a million members in {:?}", started.elapsed());
    let dir = fixture.stop().await;
    let fixture = Fixture::start_in(dir, |_| {}).await;
    fixture.tags().await.get_tag(tag("small")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; make lab runs it"]
async fn a_hundred_thousand_levels_are_built_and_resolved() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("t0", "10.0.0.1")).await.unwrap();
    let started = Instant::now();
    for level in 1..100_000 {
        tags.set_tag(group(&format!("t{level}"), &[&format!("t{}", level - 1)])).await.unwrap();
    }
    println!("built 100,000 levels, one durable write each, in {:?}", started.elapsed());
    let started = Instant::now();
    assert_eq!(tags.resolve_tag(tag("t99999")).await.unwrap().into_inner().mappings.len(), 1);
    println!("resolved 100,000 levels in {:?}", started.elapsed());
    let closed = tags.set_tag(group("t1", &["t99999"])).await.unwrap_err();
    assert_eq!(closed.code(), tonic::Code::FailedPrecondition);
}
