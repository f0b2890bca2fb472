//! What a node adds up when everything goes wrong: bounded, and nothing forgotten.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::net::Ipv4Addr;

use node_flows::{Key, Limits, Sampler, Sum, Sums};

fn key(from: u32, to: u32, port: u16) -> Key<u8> {
    let address = |number: u32| Some(Ipv4Addr::from(0x0a00_0000 + number).into());
    Key { label: 0, from: address(from), to: address(to), protocol: 6, port: Some(port), service: None }
}

fn total(sums: &Sums<u8>) -> u64 {
    sums.iter().map(|(_, sum)| sum.count).sum()
}

/// As the agent does: each second is added up, and what nobody takes is added to what waits.
#[test]
fn an_hour_without_a_controller_costs_rows_and_no_connection() {
    let (mut second, mut waiting) = (Sums::new(Limits::default()), Sums::new(Limits::default()));
    let (mut state, mut told) = (1_u64, 0);
    for number in 0..3_600_u64 {
        // A clock that is put back by a day, and forward again.
        let now =
            if (1_000..2_000).contains(&number) { 14_400_000 + number } else { 100_800_000 + number * 1_000 };
        for _ in 0..300 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let roll = |sides: u64, shift: u32| (state >> shift) % sides;
            let port = u16::try_from(roll(1_000, 40)).unwrap();
            second.add(key(roll(500, 20) as u32, roll(500, 30) as u32, port), Sum::one(now));
            told += 1;
        }
        second.take(usize::MAX).into_iter().for_each(|(key, sum)| waiting.add(key, sum));
        assert!(waiting.len() <= Limits::default().rows + 1, "second {number}: {}", waiting.len());
    }
    assert_eq!(total(&waiting), told);
    assert!(waiting.iter().all(|(_, sum)| sum.first <= sum.last && sum.first >= 14_400_000));
    // It is there again, and takes some at a time.
    let mut taken = 0;
    while !waiting.is_empty() {
        taken += waiting.take(2_000).iter().map(|(_, sum)| sum.count).sum::<u64>();
    }
    assert_eq!(taken, told);
}

#[test]
fn a_million_connections_in_a_second_are_counted_and_few_are_read() {
    let (mut sums, mut sampler) = (Sums::new(Limits::default()), Sampler::new(30_000));
    let mut read = 0;
    for number in 0..1_000_000_u32 {
        if let Some(weight) = sampler.weigh() {
            read += 1;
            sums.add(key(number % 50_000, number % 7, (number % 60_000) as u16), Sum::one(1).times(weight));
        }
    }
    // What was not read counts like the next one that is.
    sampler.renew();
    sums.add(key(1, 2, 3), Sum::one(1).times(sampler.weigh().unwrap()));
    assert_eq!(total(&sums), 1_000_001);
    assert!(read < 200_000 && sums.len() <= Limits::default().rows + 1, "{read} {}", sums.len());
    assert_eq!(sampler.unread() + read, 1_000_000);
}
