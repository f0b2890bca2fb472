//! Somebody outside who asks Pods until they answer.

use std::{
    io::ErrorKind,
    net::UdpSocket,
    sync::mpsc::{Receiver, TryRecvError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::shape::Policy;

/// What should become true, does in this time.
const PATIENCE: Duration = Duration::from_secs(300);
/// What nobody answers in this time, is not answered.
const SILENCE: Duration = Duration::from_secs(2);
/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_micros(500);

/// A Pod that is asked because of one policy, from a port of its own: what was answered before is a connection, which lives on for as
/// long as somebody speaks.
struct Asked<'a> {
    policy: &'a Policy,
    called: Instant,
    socket: UdpSocket,
}

impl<'a> Asked<'a> {
    fn new(policy: &'a Policy, called: Instant) -> anyhow::Result<Self> {
        let socket =
            UdpSocket::bind((policy.from, 0)).context("cannot ask: too few open files are allowed")?;
        socket.connect((policy.pod, policy.port))?;
        socket.set_nonblocking(true)?;
        Ok(Self { policy, called, socket })
    }

    fn ask(&self) -> anyhow::Result<()> {
        heard(self.socket.send(b"who")).map(drop)
    }

    fn has_answered(&self) -> anyhow::Result<bool> {
        heard(self.socket.recv(&mut [0; 16]))
    }
}

/// Whether anything came or went. What is not taken now is asked for again.
fn heard(done: std::io::Result<usize>) -> anyhow::Result<bool> {
    match done {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable => Ok(false),
            _ => Err(error.into()),
        },
    }
}

/// As many open files as this process may have: each question is one, and each that is answered another.
pub fn allow_sockets() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

pub fn must_answer(policies: &[Policy], when: &str) -> anyhow::Result<()> {
    let (said, calls) = channel();
    let now = Instant::now();
    (0..policies.len()).try_for_each(|index| said.send((index, now)))?;
    drop(said);
    until_answered(policies, &calls).with_context(|| when.to_owned()).map(drop)
}

pub fn must_be_silent(policies: &[Policy], when: &str) -> anyhow::Result<()> {
    let now = Instant::now();
    let asked = policies.iter().map(|policy| Asked::new(policy, now)).collect::<anyhow::Result<Vec<_>>>()?;
    asked.iter().try_for_each(Asked::ask)?;
    std::thread::sleep(SILENCE);
    for one in &asked {
        if one.has_answered()? {
            let Policy { namespace, pod, port, .. } = one.policy;
            bail!("{pod}:{port} of {namespace} answers {when}");
        }
    }
    Ok(())
}

/// Asks whom calls are about until all have answered; how long each took, from its call.
pub fn until_answered(
    policies: &[Policy],
    calls: &Receiver<(usize, Instant)>,
) -> anyhow::Result<Vec<Duration>> {
    let (mut waiting, mut took) = (Vec::new(), Vec::with_capacity(policies.len()));
    let (mut open, mut last) = (true, Instant::now());
    while open || !waiting.is_empty() {
        loop {
            match calls.try_recv() {
                Ok((index, called)) => waiting.push(Asked::new(&policies[index], called)?),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        let asking = Instant::now();
        waiting.iter().try_for_each(Asked::ask)?;
        // Those who are to answer need a processor too.
        std::thread::sleep(asking.elapsed().max(PAUSE));
        let mut left = Vec::with_capacity(waiting.len());
        for one in waiting {
            if one.has_answered()? {
                took.push(one.called.elapsed());
                last = Instant::now();
            } else {
                left.push(one);
            }
        }
        waiting = left;
        if let Some(Asked { policy: Policy { namespace, name, pod, port, .. }, .. }) = waiting.first()
            && last.elapsed() > PATIENCE
        {
            bail!(
                "{} policies are not in force, the first {namespace}/{name} at {pod}:{port}",
                waiting.len()
            );
        }
    }
    if took.len() < policies.len() {
        bail!("{} of {} policies could not be applied", policies.len() - took.len(), policies.len());
    }
    Ok(took)
}
