//! The contract's suite, on a simulated cloud; for the tests of each plugin. Not in the simulators themselves: they know nothing of
//! the contract.

use cloud_api::{
    Cloud,
    conformance::{Existing, Subject, run},
};
use cloud_sim::{Faults, Sim};

/// Runs the suite on a plugin, in a cloud that goes wrong as given and has a machine that somebody else made.
/// Falls if a promise is broken, if the cloud is not as it was afterwards, or if it gave an answer that it could not have.
pub async fn keeps_the_contract<C: Cloud>(
    kind: &str,
    faults: Faults,
    plugin: fn(&Sim) -> C,
    subject: fn(&C) -> Subject<'_>,
) {
    let seed = faults.seed;
    let sim = Sim::start().await.expect("there is a free port");
    let cloud = plugin(&sim);
    let machine = sim.put_machine(kind);
    let before = sim.objects();
    sim.set_faults(faults);
    let mut subject = subject(&cloud);
    subject.existing = Some(Existing { id: machine.id, space: machine.space });
    run(&subject).await.unwrap_or_else(|err| panic!("{kind}, seed {seed}: {err}"));
    assert_eq!(sim.defects(), Vec::<String>::new(), "{kind}, seed {seed}");
    assert_eq!(sim.objects(), before, "{kind}, seed {seed}");
}
