//! Random histories with a real kernel: it takes every transaction, and holds afterwards what it should. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use node_kernel::policy::PolicyExecutor;
use node_nft::Limits;
use node_policy::Options;
use testkit::namespaces::{in_namespace, run};
use testkit::planes::{Dice, local_change, policy_change, set_change};

fn history(seed: u64, limit: usize) {
    let mut dice = Dice::new(seed);
    let options = Options { node: "here".into(), limits: Limits { elements: limit }, ..Options::default() };
    let mut executor = PolicyExecutor::open(options).unwrap();
    executor.apply([], []).unwrap();
    for step in 0..25 {
        let (mut changes, mut local) = (Vec::new(), Vec::new());
        for _ in 0..=dice.roll(4) {
            match dice.roll(3) {
                0 => changes.push(policy_change(&mut dice)),
                1 => changes.push(set_change(&mut dice)),
                _ => local.push(local_change(&mut dice)),
            }
        }
        let what = format!("seed {seed} step {step}: {changes:#?} {local:#?}");
        let outcome = executor.apply(changes, local).unwrap();
        assert!(!outcome.compared, "the kernel refused: {what}");
        // Somebody else's commit to the table makes verify read and compare everything.
        run("nft add element inet trestle-policy closed4 { 192.0.2.1 }
             nft delete element inet trestle-policy closed4 { 192.0.2.1 }");
        let outcome = executor.verify().unwrap();
        assert!(outcome.compared && outcome.applied.transactions == 0, "{what}\n{outcome:?}");
    }
    executor.stop().unwrap();
}

#[test]
fn the_kernel_follows_random_histories() {
    in_namespace(|| (1..=8).for_each(|seed| history(seed, 8192)));
}

#[test]
fn the_kernel_follows_torn_steps() {
    in_namespace(|| (100..=107).for_each(|seed| history(seed, 3)));
}
