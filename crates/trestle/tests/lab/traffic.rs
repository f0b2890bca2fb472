//! Traffic that goes on while something happens: every probe is noted, and none may be forgotten.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use testkit::namespaces::Namespace;

use super::{
    probe::{Port, Target, answers, block_on},
    world::{PATIENCE, Pod, eventually},
};

/// New connections, one after the other, from one Pod to another.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// `patience` is what a probe waits for its answer. For traffic that must pass it is long, so that a busy machine is
    /// not taken for a lost packet; for traffic that must not, short, so that there are many. `pause` is between two.
    pub fn start(from: &Pod, to: &Pod, ipv6: bool, port: Port, patience: Duration, pause: Duration) -> Self {
        let mut traffic =
            Self { stop: Arc::default(), asked: Arc::default(), answered: Arc::default(), thread: None };
        let target = Target { address: to.addresses[usize::from(ipv6)], port };
        let (stop, asked, answered) =
            (Arc::clone(&traffic.stop), Arc::clone(&traffic.asked), Arc::clone(&traffic.answered));
        let run = move || {
            block_on(async {
                while !stop.load(Relaxed) {
                    let came = answers(target, patience).await;
                    asked.fetch_add(1, Relaxed);
                    answered.fetch_add(usize::from(came), Relaxed);
                    sleep(pause).await;
                }
            });
        };
        traffic.thread = Some(from.namespace.within(run));
        traffic
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Relaxed)
    }

    /// Waits until some more probes have been made.
    pub fn more(&self, count: usize) {
        let until = self.asked() + count;
        eventually("traffic flows", || if self.asked() >= until { Ok(()) } else { Err(String::new()) });
    }

    /// Ends it; how many were asked, and how many answered.
    pub fn stop(mut self) -> (usize, usize) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("traffic does not fall");
        }
        (self.asked(), self.answered.load(Relaxed))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// One connection that is used again and again, for as long as it is held.
pub struct Flow {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicUsize>,
    thread: JoinHandle<Result<usize, String>>,
}

impl Flow {
    pub fn start(from: &Pod, to: &Pod, port: u16) -> Self {
        Self::between(&from.namespace, (to.addresses[0], port).into())
    }

    /// From any machine to this address.
    pub fn between(from: &Namespace, address: SocketAddr) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let exchanges: Arc<AtomicUsize> = Arc::default();
        let (stopped, done) = (Arc::clone(&stop), Arc::clone(&exchanges));
        let run = move || {
            block_on(async {
                let mut stream = TcpStream::connect(address).await.map_err(|err| err.to_string())?;
                while !stopped.load(Relaxed) {
                    let exchange = async {
                        stream.write_all(b"ping").await?;
                        stream.read_exact(&mut [0; 4]).await
                    };
                    let count = done.load(Relaxed);
                    match timeout(PATIENCE, exchange).await {
                        Ok(Ok(_)) => done.store(count + 1, Relaxed),
                        Ok(Err(err)) => return Err(format!("after {count} exchanges: {err}")),
                        Err(_) => return Err(format!("silent after {count} exchanges")),
                    }
                    sleep(Duration::from_millis(2)).await;
                }
                Ok(done.load(Relaxed))
            })
        };
        Self { stop, exchanges, thread: from.within(run) }
    }

    pub fn exchanges(&self) -> usize {
        self.exchanges.load(Relaxed)
    }

    /// Ends it; how many exchanges there were, or how it broke.
    pub fn stop(self) -> Result<usize, String> {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("a flow does not fall")
    }
}
