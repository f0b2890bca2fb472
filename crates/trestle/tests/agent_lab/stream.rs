//! A stream of single packets, each the first of a connection: how many were sent, and how many came.

use std::{
    net::{IpAddr, UdpSocket},
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use testkit::namespaces::Namespace;

use super::world::{Pod, eventually};

const PORT: u16 = 9000;
const PAUSE: Duration = Duration::from_millis(2);

/// Packets from several Pods to one. Whoever sends them is told apart by what is in them.
pub struct Stream {
    stop: Arc<AtomicBool>,
    /// Nothing is sent meanwhile.
    halted: Arc<RwLock<bool>>,
    counts: Arc<Counts>,
    began: Instant,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    sent: [AtomicU64; 2],
    came: [AtomicU64; 2],
    /// Microseconds from the beginning to the first and the last forbidden packet that came since it was looked at.
    first: AtomicU64,
    last: AtomicU64,
}

const PERMITTED: usize = 0;
const FORBIDDEN: usize = 1;

impl Stream {
    /// From the first Pod packets may pass, from the second they may not.
    pub fn start(permitted: &Pod, forbidden: &Pod, to: &Pod) -> Self {
        Self::between(&permitted.namespace, &forbidden.namespace, &to.namespace, to.addresses[0])
    }

    /// The same between any machines, to this address.
    pub fn between(permitted: &Namespace, forbidden: &Namespace, to: &Namespace, address: IpAddr) -> Self {
        let mut stream = Self {
            stop: Arc::default(),
            halted: Arc::default(),
            counts: Arc::default(),
            began: Instant::now(),
            threads: Vec::new(),
        };
        stream.receive(to);
        stream.send(permitted, address, PERMITTED);
        stream.send(forbidden, address, FORBIDDEN);
        stream
    }

    fn receive(&mut self, to: &Namespace) {
        let (stop, counts, began) = (Arc::clone(&self.stop), Arc::clone(&self.counts), self.began);
        let (ready, started) = std::sync::mpsc::channel();
        self.threads.push(to.within(move || {
            let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 8];
            while !stop.load(Relaxed) {
                let Ok(1) = socket.recv(&mut buffer) else { continue };
                let which = usize::from(buffer[0]);
                counts.came[which].fetch_add(1, Relaxed);
                if which == FORBIDDEN {
                    let now = began.elapsed().as_micros() as u64;
                    let _ = counts.first.compare_exchange(0, now, Relaxed, Relaxed);
                    counts.last.store(now, Relaxed);
                }
            }
        }));
        started.recv().expect("the receiver starts");
    }

    fn send(&mut self, from: &Namespace, to: IpAddr, which: usize) {
        let (stop, halted, counts) =
            (Arc::clone(&self.stop), Arc::clone(&self.halted), Arc::clone(&self.counts));
        self.threads.push(from.within(move || {
            while !stop.load(Relaxed) {
                // Held until it is sent: who halts the stream waits for what is on its way.
                let halted = halted.read().unwrap();
                if !*halted {
                    // A port of its own for each, so that none is part of something that was permitted.
                    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
                    if socket.send_to(&[which as u8], (to, PORT)).is_ok() {
                        counts.sent[which].fetch_add(1, Relaxed);
                    }
                }
                drop(halted);
                thread::sleep(PAUSE);
            }
        }));
    }

    /// Nobody sends until it goes on: as while a machine restarts.
    pub fn halt(&self) {
        *self.halted.write().unwrap() = true;
        thread::sleep(Duration::from_millis(30));
    }

    pub fn go_on(&self) {
        *self.halted.write().unwrap() = false;
    }

    /// Waits until so many more packets of each kind were sent, and those that pass have come.
    pub fn more(&self, count: u64) {
        let sent = || [PERMITTED, FORBIDDEN].map(|which| self.counts.sent[which].load(Relaxed));
        let before = sent();
        eventually("packets are sent", || {
            let enough = sent().iter().zip(before).all(|(now, before)| *now >= before + count);
            if enough { Ok(()) } else { Err(String::new()) }
        });
        thread::sleep(Duration::from_millis(10));
    }

    pub fn permitted(&self) -> u64 {
        self.counts.came[PERMITTED].load(Relaxed)
    }

    /// Forbidden packets that came, and the time from the first to the last of them, since it was asked last.
    pub fn passed(&self) -> (u64, Duration) {
        let came = self.counts.came[FORBIDDEN].swap(0, Relaxed);
        let (first, last) = (self.counts.first.swap(0, Relaxed), self.counts.last.swap(0, Relaxed));
        (came, Duration::from_micros(last.saturating_sub(first)))
    }

    /// How many forbidden packets were sent.
    pub fn forbidden_sent(&self) -> u64 {
        self.counts.sent[FORBIDDEN].load(Relaxed)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
