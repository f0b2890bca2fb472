//! Random histories: after every step the table decides as the naive reading does, equals what the transactions led to,
//! and does not depend on the history. Between the transactions of one policy change a packet meets the old decision or
//! the new one.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod large;

use model::policy::output::Direction;
use node_nft::{
    Hook, Limits, Live, Plan, Table,
    fake::FakeKernel,
    walk::{End, Flow, Memory, World},
};
use node_policy::{Change, Decision, ObjectKind, Options, Packet, Passage, Plane, Subject, naive::Naive};
use testkit::planes::{Dice, local_change, packet, policy_change, set_change};

/// Where a packet is met.
#[derive(Clone, Copy, Debug)]
enum Met {
    Forward(Passage),
    /// On its way out, under the node's address.
    Hidden,
    Input,
    Output,
}

/// The port that was asked for where another one is in the packet.
const PUBLISHED: u16 = 80;
const EVERYWHERE: [Met; 6] = [
    Met::Forward(Passage::Inner),
    Met::Forward(Passage::Routed),
    Met::Forward(Passage::Published(PUBLISHED)),
    Met::Hidden,
    Met::Input,
    Met::Output,
];

fn by_table(table: &Table, packet: &Packet, met: Met) -> Decision {
    let (source, destination) = ((packet.source, packet.l4.first), (packet.destination, packet.l4.second));
    let mut flow = Flow::new(packet.l4.protocol, source, destination);
    let (hook, enters, leaves) = match met {
        // Whichever end is within: that is seen in the packet, so that both are met.
        Met::Forward(Passage::Inner) if packet.l4.second.is_multiple_of(2) => (Hook::Forward, "in1", "y"),
        Met::Forward(Passage::Inner) => (Hook::Forward, "x", "in1"),
        Met::Forward(_) => (Hook::Forward, "x", "y"),
        Met::Hidden => (Hook::Postrouting, "", "y"),
        Met::Input => (Hook::Input, "x", ""),
        Met::Output => (Hook::Output, "", "y"),
    };
    (flow.mark, flow.interfaces) = (0xffff_ffff, (enters.into(), leaves.into()));
    flow.masqueraded = matches!(met, Met::Hidden);
    if let Met::Forward(Passage::Published(port)) = met {
        (flow.original.1, flow.translated) = (port, true);
    }
    let world = World { tables: &[table], is_local: &|_| false, memory: &Memory::new() };
    match world.hook(hook, &mut flow).unwrap() {
        End::Passed => {
            assert_eq!(flow.mark & 0xc000, 0xc000, "bits that others need stay: {packet:?}");
            Decision::Permit
        }
        End::Dropped => Decision::Drop,
        End::Rejected(_) => Decision::Reject,
    }
}

/// One end is the node itself, by an address that nobody asks for.
fn met(packet: Packet, met: Met) -> (Packet, Met) {
    let own = if packet.source.is_ipv6() { "fd09::9" } else { "10.9.9.9" }.parse().unwrap();
    let packet = match met {
        Met::Forward(_) | Met::Hidden => packet,
        Met::Input => Packet { destination: own, ..packet },
        Met::Output => Packet { source: own, ..packet },
    };
    (packet, met)
}

fn by_naive(naive: &Naive, packet: &Packet, met: Met) -> Decision {
    match met {
        Met::Forward(passage) => naive.decide_forwarded(packet, passage),
        Met::Hidden => naive.decide_hidden(packet),
        Met::Input => naive.decide_input(packet),
        Met::Output => naive.decide_output(packet),
    }
}

fn by_plane(plane: &Plane, packet: &Packet, met: Met) -> Decision {
    match met {
        Met::Forward(passage) => plane.decide_forwarded(packet, passage),
        Met::Hidden => plane.decide_hidden(packet),
        Met::Input => plane.decide_input(packet),
        Met::Output => plane.decide_output(packet),
    }
}

/// What the rules that are named decide, of what comes in to the node.
fn by_rulings(plane: &Plane, packet: &Packet) -> Decision {
    let Packet { source, destination, l4 } = *packet;
    let sent = plane.ruling(Subject::Workload(source), destination, Direction::Out, l4);
    let refused = sent.filter(|ruling| ruling.decision != Decision::Permit);
    let ruling = refused.or_else(|| plane.ruling(Subject::Host, source, Direction::In, l4));
    ruling.map_or(Decision::Permit, |ruling| ruling.decision)
}

/// The table with the kernel's elements.
fn as_in_kernel(plane: &Plane, kernel: &FakeKernel) -> Table {
    let mut table = plane.table();
    for (name, set) in &kernel.table.as_ref().unwrap().sets {
        table.sets.get_mut(name).unwrap().elements = Some(set.elements.clone());
    }
    table
}

fn assert_converged(plane: &Plane, kernel: &FakeKernel, seed: u64) {
    let table = plane.table();
    let left = Plan::new(&table, kernel.table.as_ref(), Live::Atomic, Limits::default()).unwrap();
    assert!(left.is_empty(), "seed {seed}: {left:?}");
}

fn history(seed: u64, limit: usize) {
    let mut dice = Dice::new(seed);
    let dice_node = dice.node;
    let options = || Options {
        node: dice_node.into(),
        inner_prefixes: vec!["in".into()],
        limits: Limits { elements: limit },
        // What is told to a log is decided all the same.
        log_refused: seed.is_multiple_of(3).then_some(9),
        ..Options::default()
    };
    let mut plane = Plane::new(options());
    let mut naive = Naive::new(dice_node);
    let mut kernel = FakeKernel::new(&plane.table());
    for one in Plan::new(&plane.table(), None, Live::Atomic, Limits::default()).unwrap().transactions {
        kernel.commit(&one).unwrap();
    }
    for step in 0..25 {
        let (mut changes, mut local) = (Vec::new(), Vec::new());
        let only_policies = dice.one_in(2);
        for _ in 0..=dice.roll(3) {
            match dice.roll(if only_policies { 1 } else { 3 }) {
                0 => changes.push(policy_change(&mut dice)),
                1 => changes.push(set_change(&mut dice)),
                _ => local.push(local_change(&mut dice)),
            }
        }
        // One policy at a time: of two, a packet may meet one new and one old.
        if only_policies {
            changes.truncate(1);
        }
        let before = naive.clone();
        // Sets go after what names them.
        let (removed, kept): (Vec<_>, Vec<_>) = changes
            .iter()
            .cloned()
            .partition(|change| matches!(change, Change::Remove { kind: ObjectKind::AddressSet, .. }));
        kept.into_iter().chain(removed).for_each(|change| naive.take(change));
        local.iter().cloned().for_each(|change| naive.take_local(change));
        let what = format!("seed {seed} step {step}: {changes:#?} {local:#?}");
        let packets: Vec<_> =
            (0..60).map(|number| met(packet(&mut dice), EVERYWHERE[number % EVERYWHERE.len()])).collect();

        let transactions = plane.step(changes, local).transactions;
        let last = transactions.len().saturating_sub(1);
        for (index, one) in transactions.iter().enumerate() {
            kernel.commit(one).unwrap_or_else(|error| panic!("{what}\n{error}"));
            if only_policies && index < last {
                let table = as_in_kernel(&plane, &kernel);
                for (packet, met) in &packets {
                    let seen = by_table(&table, packet, *met);
                    let (old, new) = (by_naive(&before, packet, *met), by_naive(&naive, packet, *met));
                    assert!(seen == old || seen == new, "{what}\n{packet:?}: {seen:?}, {old:?} or {new:?}");
                }
            }
        }
        assert_converged(&plane, &kernel, seed);
        let table = plane.table();
        for (packet, met) in &packets {
            let expected = by_naive(&naive, packet, *met);
            let told = format!("{met:?} {packet:?}\n{what}\n{naive:#?}");
            assert_eq!(by_plane(&plane, packet, *met), expected, "plane, {told}");
            assert_eq!(by_table(&table, packet, *met), expected, "table, {told}");
            if let Met::Input = met {
                assert_eq!(by_rulings(&plane, packet), expected, "rulings, {told}");
            }
        }
        // The same state told at once gives the same table.
        if step % 8 == 7 {
            let (changes, local) = naive.tell();
            let mut fresh = Plane::new(options());
            fresh.step(changes, local);
            let mut copy = kernel.clone();
            let plan =
                Plan::new(&fresh.table(), copy.table.as_ref(), Live::Atomic, Limits::default()).unwrap();
            assert!(plan.is_empty(), "history shows, {what}\n{plan:#?}");
            assert_eq!(plane.errors(), fresh.errors(), "{what}");
            copy.writes = 0;
        }
    }
}

#[test]
fn the_table_decides_as_the_naive_reading_does() {
    for seed in 1..=80 {
        history(seed, 8192);
    }
}

#[test]
fn a_large_change_is_torn_only_where_nothing_is_decided() {
    for seed in 1_000..=1_050 {
        history(seed, 3);
    }
}

#[test]
#[ignore = "ten minutes: the same for many more histories"]
fn many_more_histories() {
    for seed in 10_000..20_000 {
        history(seed, if seed % 2 == 0 { 8192 } else { 4 });
    }
}
