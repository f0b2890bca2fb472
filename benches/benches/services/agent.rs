//! What a whole agent takes with ten thousand services of ten endpoints: what it holds, its journal, its two parts.
//!
//! In a process of its own, as what other figures left would be counted too. Told by messages of the node protocol, as a
//! controller would; only the connection is missing.

use std::{
    env,
    io::{self, Write as _},
    process::Command,
    time::{Duration, Instant},
};

use agent::{Metrics, PolicySettings, services::ServiceSettings, worker::Worker};
use benches::report;
use wire::{
    service::node_service,
    trestle::v1::{
        NodeApply, NodeFlush, NodeStart, ObjectKind, ToNode, node_apply::Body, node_start::Mode, to_node,
    },
};

use super::{SERVICES, service, slice, status};

const ENDPOINTS: u32 = 10;
/// The word that makes a process the one that is measured.
pub const WORD: &str = "agent-alone";

pub fn measure() -> io::Result<()> {
    // As an agent of the binary begins anew.
    let done = Command::new(env::current_exe()?).arg(WORD).env("MIMALLOC_PURGE_DELAY", "0").status()?;
    if !done.success() {
        writeln!(io::stderr(), "services.agent10 NOT MEASURED: the agent ended with {done}")?;
    }
    Ok(())
}

pub fn run() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let mut parts = agent::parts("here", &PolicySettings::default()).map_err(io::Error::other)?;
    let (services, _control) = agent::services(ServiceSettings::default());
    parts.push(services);
    let worker = Worker::load("here", dir.path(), parts, Metrics::new());
    let mut worker = worker.map_err(io::Error::other)?;
    let started = Instant::now();
    worker.begin();
    worker.open();
    let start = NodeStart { epoch: 1, mode: Mode::Snapshot.into(), buckets: Vec::new(), tells_pods: true };
    worker.take(say(to_node::Message::Start(start)));
    for number in 0..SERVICES {
        let (name, service) = service(number);
        let body = Body::Service(Box::new(node_service(&name, &service)));
        worker.take(apply(ObjectKind::Service, name.to_string(), number.into(), body));
        let (name, slice) = slice(number, ENDPOINTS, 0);
        worker.take(apply(
            ObjectKind::EndpointSlice,
            name,
            (SERVICES + number).into(),
            Body::Slice((&slice).into()),
        ));
    }
    worker.take(say(to_node::Message::Flush(NodeFlush { revision: 1, synced: true })));
    worker.settle();
    report("services.agent10", "seconds", started.elapsed().as_secs_f64(), "s");
    let failures = worker.state().failures;
    if !failures.is_empty() {
        return Err(io::Error::other(failures.join("; ")));
    }
    // As it is when nothing happens.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(500));
        worker.tend(Instant::now());
    }
    report("services.agent10", "rss_mib", status("VmRSS:")?, "MiB");
    report("services.agent10", "own_mib", status("RssAnon:")?, "MiB");
    report("services.agent10", "peak_rss_mib", status("VmHWM:")?, "MiB");
    worker.finish();
    Ok(())
}

fn apply(kind: ObjectKind, name: String, hash: u64, body: Body) -> ToNode {
    say(to_node::Message::Apply(NodeApply { kind: kind.into(), name, hash, body: Some(body) }))
}

fn say(message: to_node::Message) -> ToNode {
    ToNode { message: Some(message) }
}
