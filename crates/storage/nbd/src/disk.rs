//! Threads that may wait for the disk, shared fairly by the consumers.
//!
//! In: work that waits, each with the consumer it is for. Out: it is done, by one of few threads. Holds: what waits for a
//! thread, in a lane for each consumer. Not here: what the work is (`session::waiting`).
//!
//! ```text
//!   consumer A  ▪▪▪▪▪▪▪▪▪▪ ─┐
//!   consumer B  ▪ ──────────┼─► one from each lane in turn ─► threads, no more than LANE for one consumer
//!   consumer C  ▪▪ ─────────┘
//! ```
//! Whoever asks for much waits behind itself only. A thread without work ends after a while.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use storage_provider::ConsumerId;

/// Threads in all, and for one consumer.
const THREADS: usize = 64;
const LANE: usize = 8;
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Inner>);

#[derive(Default)]
struct Inner {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    lanes: HashMap<ConsumerId, Lane>,
    /// Lanes that may give a thread work, in turn.
    order: VecDeque<ConsumerId>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Lane {
    jobs: VecDeque<Job>,
    running: usize,
    /// It is in the order.
    queued: bool,
}

impl Queue {
    fn push(&mut self, consumer: ConsumerId, job: Job) {
        self.lanes.entry(consumer).or_default().jobs.push_back(job);
        self.queue(consumer);
    }

    /// Puts a lane in the order, if it has work and a thread may take it.
    fn queue(&mut self, consumer: ConsumerId) {
        let Some(lane) = self.lanes.get_mut(&consumer) else { return };
        if !lane.queued && lane.running < LANE && !lane.jobs.is_empty() {
            lane.queued = true;
            self.order.push_back(consumer);
        }
    }

    fn take(&mut self) -> Option<(ConsumerId, Job)> {
        let consumer = self.order.pop_front()?;
        let lane = self.lanes.get_mut(&consumer).expect("what is in the order has a lane");
        lane.queued = false;
        lane.running += 1;
        let job = lane.jobs.pop_front().expect("what is in the order has work");
        self.queue(consumer);
        Some((consumer, job))
    }

    fn done(&mut self, consumer: ConsumerId) {
        let lane = self.lanes.get_mut(&consumer).expect("it ran in a lane");
        lane.running -= 1;
        if lane.running == 0 && lane.jobs.is_empty() {
            self.lanes.remove(&consumer);
        } else {
            self.queue(consumer);
        }
    }
}

impl Disk {
    /// Has a thread do it, after what the same consumer has asked for before and in turn with the others.
    pub(crate) fn run(&self, consumer: ConsumerId, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue.lock();
        queue.push(consumer, Box::new(job));
        self.call(queue);
    }

    /// Sees to it that somebody comes for what waits: who comes calls the next.
    fn call(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.order.is_empty() {
            return;
        }
        if queue.idle > 0 {
            self.0.work.notify_one();
        } else if queue.threads < THREADS {
            queue.threads += 1;
            drop(queue);
            let disk = self.clone();
            if thread::Builder::new().name("nbd-disk".to_owned()).spawn(move || disk.work()).is_err() {
                self.do_without();
            }
        }
    }

    /// There is no thread to be had. With none at all nobody would come, so the caller does it.
    fn do_without(&self) {
        let mut queue = self.0.queue.lock();
        queue.threads -= 1;
        if queue.threads == 0 {
            drop(queue);
            self.work_off();
        }
    }

    fn work(&self) {
        loop {
            self.work_off();
            let mut queue = self.0.queue.lock();
            if !queue.order.is_empty() {
                continue;
            }
            queue.idle += 1;
            let waited = self.0.work.wait_for(&mut queue, IDLE);
            queue.idle -= 1;
            if waited.timed_out() && queue.order.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }

    fn work_off(&self) {
        loop {
            let mut queue = self.0.queue.lock();
            let Some((consumer, job)) = queue.take() else { return };
            // This one may take long, and one waiting thread was perhaps called twice.
            self.call(queue);
            // A panic harms the request it was for, which is told so when the job is dropped.
            let _ = catch_unwind(AssertUnwindSafe(job));
            self.0.queue.lock().done(consumer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> ConsumerId {
        ConsumerId::new(Uuid::from_u128(n))
    }

    /// Takes and ends one piece of work after the other; whose they were.
    fn drain(queue: &mut Queue) -> Vec<ConsumerId> {
        std::iter::from_fn(|| {
            let (consumer, _) = queue.take()?;
            queue.done(consumer);
            Some(consumer)
        })
        .collect()
    }

    #[test]
    fn lanes_take_turns_however_long_they_are() {
        let mut queue = Queue::default();
        (0..50).for_each(|_| queue.push(id(1), Box::new(|| {})));
        (0..2).for_each(|_| queue.push(id(2), Box::new(|| {})));
        let order = drain(&mut queue);
        assert_eq!(order[..5], [id(1), id(2), id(1), id(2), id(1)]);
        assert_eq!((order.len(), queue.lanes.len(), queue.order.len()), (52, 0, 0));
    }

    #[test]
    fn one_consumer_has_a_part_of_the_threads_at_most() {
        let mut queue = Queue::default();
        (0..50).for_each(|_| queue.push(id(1), Box::new(|| {})));
        let taken: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken.len(), LANE);
        queue.push(id(2), Box::new(|| {}));
        assert_eq!(queue.take().map(|(consumer, _)| consumer), Some(id(2)));
        queue.done(id(1));
        assert_eq!(queue.take().map(|(consumer, _)| consumer), Some(id(1)));
        assert!(queue.take().is_none());
    }

    #[test]
    fn nobody_waits_behind_others_for_the_one_thread_there_is() {
        let disk = Disk::default();
        let wait_for_idle = || {
            (0..2000).any(|_| {
                thread::sleep(Duration::from_millis(5));
                disk.0.queue.lock().idle > 0
            })
        };
        for round in 0..20 {
            disk.run(id(9), || {});
            assert!(wait_for_idle(), "round {round}");
            // The first can only end when the second has run, while one thread is called for both.
            let (done, heard) = mpsc::channel();
            let (told, ended) = mpsc::channel();
            disk.run(id(1), move || told.send(heard.recv()).unwrap());
            disk.run(id(2), move || done.send(()).unwrap());
            assert!(ended.recv_timeout(Duration::from_secs(20)).unwrap().is_ok());
        }
    }

    #[test]
    fn a_stuck_consumer_and_one_that_panics_hinder_nobody() {
        let disk = Disk::default();
        let (stuck, release) = mpsc::channel::<()>();
        let release = Arc::new(Mutex::new(release));
        for _ in 0..100 {
            let release = Arc::clone(&release);
            disk.run(id(1), move || {
                let _ = release.lock().recv();
            });
        }
        disk.run(id(2), || assert!(std::env::args().count() == 0, "this one only"));
        let (done, heard) = mpsc::channel();
        disk.run(id(3), move || done.send(()).unwrap());
        heard.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(disk.0.queue.lock().threads <= THREADS);
        drop(stuck);
    }
}
