//! The stories a user plays, on every cloud and every pair of them, with reachability asked of the simulated wire.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod attach;
mod clusters;
mod endpoints;
mod faults;
mod house;
mod random;
mod resume;
mod sites;

use house::{CLOUDS, House, PING, both, rule};
use model::Direction;

/// E1: two VMs do not reach each other, then they do, then they do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quickstart_on_every_cloud() {
    for cloud in CLOUDS {
        let house = House::new(&[cloud]).await;
        let [a, b] = ["a", "b"].map(|name| format!("ns.{cloud}.{name}"));
        tokio::join!(house.create(&a, 0), house.create(&b, 0));
        assert!(!house.joined(&a, &b), "{cloud}: before");
        house.put(&a, both(&b)).await;
        assert!(!house.joined(&a, &b), "{cloud}: one end is not enough");
        house.put(&b, both(&a)).await;
        assert!(house.joined(&a, &b), "{cloud}: permitted");
        house.unjoin(&a, &b).await;
        assert!(!house.joined(&a, &b), "{cloud}: after");
        house.end(&[&a, &b]).await;
    }
}

/// E2: two regions. E3: two namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_and_namespaces_on_every_cloud() {
    for cloud in CLOUDS {
        let house = House::new(&[cloud]).await;
        let [a, b, c] = [format!("ns.{cloud}.a"), format!("ns.{cloud}.b"), format!("other.{cloud}.c")];
        tokio::join!(house.create(&a, 0), house.create(&b, 1), house.create(&c, 0));
        assert!(!house.joined(&a, &b) && !house.joined(&a, &c) && !house.joined(&b, &c), "{cloud}");
        house.join(&a, &b).await;
        assert!(house.joined(&a, &b) && !house.joined(&a, &c), "{cloud}: regions");
        house.join(&a, &c).await;
        assert!(house.joined(&a, &b) && house.joined(&a, &c) && !house.joined(&b, &c), "{cloud}: namespaces");
        house.unjoin(&a, &c).await;
        assert!(house.joined(&a, &b) && !house.joined(&a, &c), "{cloud}: after");
        house.end(&[&a, &b, &c]).await;
    }
}

fn pairs() -> Vec<(&'static str, &'static str)> {
    let pairs =
        CLOUDS.iter().enumerate().flat_map(|(place, a)| CLOUDS[place + 1..].iter().map(move |b| (*a, *b)));
    pairs.collect()
}

/// E4: two clouds through a VPN; a second region then uses the same gateway, and the first link is not disturbed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_clouds() {
    for (one, two) in pairs() {
        let house = House::new(&[one, two]).await;
        let [a, b, c] = [format!("ns.{one}.a"), format!("ns.{two}.b"), format!("ns.{one}.c")];
        tokio::join!(house.create(&a, 0), house.create(&b, 0));
        assert!(!house.joined(&a, &b), "{one} {two}: before");
        house.join(&a, &b).await;
        house.settle().await;
        assert!(house.joined(&a, &b), "{one} {two}: linked");
        let link = house.orchestrator.links().await.remove(0);
        for end in link.ends.iter().flatten() {
            assert_eq!(
                (end.tunnels_up, end.bgp_established),
                (end.tunnels, end.tunnels),
                "{one} {two}: {end:?}"
            );
            assert!(end.tunnels >= 2);
        }
        house.create(&c, 1).await;
        house.join(&c, &b).await;
        house.settle().await;
        assert!(
            house.joined(&c, &b) && house.joined(&a, &b) && !house.joined(&a, &c),
            "{one} {two}: second region"
        );
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![], "{one} {two}: no drift");
        house.unjoin(&a, &b).await;
        house.settle().await;
        assert!(house.joined(&c, &b) && !house.joined(&a, &b), "{one} {two}: the other stays");
        house.end(&[&a, &b, &c]).await;
    }
}

/// Two namespaces' gateways in one cloud, linked with one in another: what clouds make once for both goes with the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sites_linked_with_one_part_in_any_order() {
    let ordered = pairs().into_iter().flat_map(|(one, two)| [(one, two), (two, one)]);
    for (number, (many, one)) in ordered.enumerate() {
        let house = House::new(&[many, one]).await;
        let [a, b, c] = [format!("ns.{many}.a"), format!("other.{many}.b"), format!("ns.{one}.c")];
        tokio::join!(house.create(&a, 0), house.create(&b, 0), house.create(&c, 0));
        house.join(&a, &c).await;
        house.join(&b, &c).await;
        house.settle().await;
        assert!(house.joined(&a, &c) && house.joined(&b, &c) && !house.joined(&a, &b), "{many} {one}");
        // Each cloud meets both orders.
        let (first, second) = if number / 2 % 2 == 0 { (&a, &b) } else { (&b, &a) };
        house.unjoin(first, &c).await;
        house.settle().await;
        assert!(!house.joined(first, &c) && house.joined(second, &c), "{many} {one}: one of two");
        house.unjoin(second, &c).await;
        house.settle().await;
        house.end(&[&a, &b, &c]).await;
    }
}

/// A resource in a zone of its own uses the link that is there, and the one that comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_serves_every_zone() {
    let house = House::new(&["aws", "gcp"]).await;
    let [a, b, c] = ["ns.aws.a", "ns.gcp.b", "ns.aws.c"];
    tokio::join!(house.create(a, 0), house.create(b, 0));
    house.join(a, b).await;
    house.settle().await;
    assert!(house.joined(a, b));
    house.create(c, 2).await;
    house.join(c, b).await;
    house.join(a, c).await;
    house.settle().await;
    assert!(house.joined(c, b) && house.joined(a, b) && house.joined(a, c));
    house.unjoin(a, b).await;
    house.unjoin(c, b).await;
    house.settle().await;
    assert!(!house.joined(c, b) && house.joined(a, c));
    house.join(c, b).await;
    house.settle().await;
    assert!(house.joined(c, b), "a gateway that is made later");
    house.end(&[a, b, c]).await;
}

/// E5: a rule on a tag follows the tag. Here with public addresses, so NAT comes and goes too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_on_every_cloud() {
    for cloud in CLOUDS {
        let house = House::new(&[cloud]).await;
        let a = format!("ns.{cloud}.a");
        house.create(&a, 0).await;
        house.book.group("iptag", &["1.1.1.1"]);
        house.book.group("parenttag", &["iptag"]);
        let out =
            |to: [u8; 4]| house.sim.reaches_public(house.address(&a), std::net::IpAddr::from(to), &PING);
        assert!(!out([1, 1, 1, 1]), "{cloud}: before");
        house.put(&a, vec![rule("out", Direction::Outbound, "parenttag")]).await;
        house.settle().await;
        assert!(out([1, 1, 1, 1]) && !out([2, 2, 2, 2]), "{cloud}: one");
        house.book.group("iptag2", &["2.2.2.2"]);
        house.book.group("parenttag", &["iptag", "iptag2"]);
        house.settle().await;
        assert_eq!(
            [out([1, 1, 1, 1]), out([2, 2, 2, 2])],
            [true, true],
            "{cloud}: both, {:?} {:?}",
            house.sim.take_calls(),
            house.orchestrator.resources()
        );
        house.end(&[&a]).await;
    }
}

/// Somebody opens a VM by hand, or deletes what was made: the check says so, the fix mends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_seen_and_mended() {
    for (one, two) in [("aws", "gcp"), ("azure", "gcp"), ("gcp", "ibm")] {
        let house = House::new(&[one, two]).await;
        let [a, b] = [format!("ns.{one}.a"), format!("ns.{two}.b")];
        let (a, b) = (a.as_str(), b.as_str());
        tokio::join!(house.create(a, 0), house.create(b, 0));
        house.join(a, b).await;
        house.settle().await;
        assert!(house.joined(a, b));
        house.sim.vandalise();
        assert!(!house.joined(a, b));
        let seen = house.orchestrator.check().await.unwrap();
        assert!(!seen.is_empty());
        house.orchestrator.fix().await.unwrap();
        house.settle().await;
        assert!(house.joined(a, b), "{seen:?}");
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![]);
        house.end(&[a, b]).await;
    }
}
