//! The connections of those who have not said who they are.
//!
//! In: who connects, who is known by now, who has left. Out: whether there is room, and whose connection is cut to make some.
//! Every connection begins as a stranger's and is one until a call on it has proven who makes it. There are so many in all
//! and so many from one address. When these are taken, somebody goes who had time enough and did not use it: the oldest
//! one from the address that has the most. Whoever crowds a listener so loses connections to whoever does not, and a crowd
//! that only comes all at once is served in the order of its coming. A stranger that leaves, or is cut for what it did, keeps its
//! place until its time is over: so there are only so many handshakes a second, however fast strangers come and go.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use model::Subject;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{call::Place, places::block};

/// Time to shake hands and say who one is before others may have the room. Long enough for a crowd of nodes behind one address,
/// on a machine that is busy with all their handshakes: whoever is cut in the middle of one comes again, and costs another.
const GRACE: Duration = Duration::from_secs(5);
/// How often those are forgotten who are gone.
const FORGET: Duration = Duration::from_millis(100);
/// Calls a stranger may make at once on one connection, and per second after that.
const CALLS: f64 = 128.0;
const CALLS_PER_SECOND: f64 = 64.0;
/// Questions for health at once on one connection: they need no place, and are not to be had without end either.
const QUESTIONS: usize = 8;

/// The strangers of one listener.
pub struct Crowd {
    most: usize,
    most_per_address: usize,
    strangers: Mutex<Strangers>,
}

#[derive(Default)]
struct Strangers {
    /// By address and in the order of their coming.
    of: HashMap<IpAddr, BTreeMap<u64, Stranger>>,
    all: usize,
    /// How many have come.
    come: u64,
    /// When those who are gone, and whose time is over, were last forgotten.
    forgotten: Option<Instant>,
}

struct Stranger {
    since: Instant,
    cut: CancellationToken,
    is_gone: bool,
}

/// What is done with a newcomer.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Enter,
    /// In the place of another.
    Displace(IpAddr, u64),
    Refuse,
}

impl Crowd {
    pub fn new(most: usize, most_per_address: usize) -> Arc<Self> {
        Arc::new(Self { most, most_per_address, strangers: Mutex::default() })
    }

    /// Lets a connection in, as a stranger's; none if there is no room.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let (address, now) = (block(address), Instant::now());
        let mut strangers = self.strangers.lock();
        strangers.forget(now);
        match self.judge(&strangers, address, now) {
            Verdict::Enter => {}
            Verdict::Displace(address, number) => {
                if let Some(stranger) = strangers.remove(address, number) {
                    stranger.cut.cancel();
                }
            }
            Verdict::Refuse => return None,
        }
        strangers.come += 1;
        strangers.all += 1;
        let (number, cut) = (strangers.come, CancellationToken::new());
        let stranger = Stranger { since: now, cut: cut.clone(), is_gone: false };
        strangers.of.entry(address).or_default().insert(number, stranger);
        drop(strangers);
        Some(Guest {
            crowd: Arc::clone(self),
            address,
            number,
            cut,
            spoke: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            place: OnceLock::new(),
            owner: OnceLock::new(),
            questions: AtomicUsize::new(0),
            calls: Mutex::new((CALLS, now)),
        })
    }

    fn judge(&self, strangers: &Strangers, address: IpAddr, now: Instant) -> Verdict {
        let count = |address: &IpAddr| strangers.of.get(address).map_or(0, BTreeMap::len);
        let own = count(&address);
        let (from, crowds) = if own >= self.most_per_address {
            (address, false)
        } else if strangers.all >= self.most {
            let Some(from) = strangers.of.keys().max_by_key(|address| count(address)) else {
                return Verdict::Refuse;
            };
            // Addresses that have about as many do not push each other out: each handshake costs more than a refusal.
            (*from, count(from) > 2 * own + 1)
        } else {
            return Verdict::Enter;
        };
        let oldest = strangers.of.get(&from).and_then(BTreeMap::first_key_value);
        match oldest {
            Some((number, stranger)) if crowds || now.duration_since(stranger.since) >= GRACE => {
                Verdict::Displace(from, *number)
            }
            _ => Verdict::Refuse,
        }
    }
}

impl Strangers {
    /// Forgets those who are gone and whose time is over, now and then.
    fn forget(&mut self, now: Instant) {
        if self.forgotten.is_some_and(|last| now.duration_since(last) < FORGET) {
            return;
        }
        self.forgotten = Some(now);
        let mut left = 0;
        self.of.retain(|_, strangers| {
            strangers.retain(|_, stranger| !stranger.is_gone || now.duration_since(stranger.since) < GRACE);
            left += strangers.len();
            !strangers.is_empty()
        });
        self.all = left;
    }

    /// One has left.
    fn leave(&mut self, address: IpAddr, number: u64) {
        if let Some(stranger) = self.of.get_mut(&address).and_then(|of| of.get_mut(&number)) {
            stranger.is_gone = true;
        }
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Stranger> {
        let of = self.of.get_mut(&address)?;
        let removed = of.remove(&number);
        if of.is_empty() {
            self.of.remove(&address);
        }
        self.all -= usize::from(removed.is_some());
        removed
    }
}

/// A connection, as long as it is open.
pub struct Guest {
    crowd: Arc<Crowd>,
    address: IpAddr,
    number: u64,
    cut: CancellationToken,
    spoke: AtomicBool,
    is_known: AtomicBool,
    /// Its place among the connections of who is known on it.
    place: OnceLock<Place>,
    /// Whose it is, if a call has proven that by what it carried.
    owner: OnceLock<Subject>,
    /// Questions for health that are not answered yet.
    questions: AtomicUsize,
    /// How many calls a stranger may still make, and when that was so.
    calls: Mutex<(f64, Instant)>,
}

impl Guest {
    /// Closes the connection, whatever it is doing.
    pub fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// A request has come.
    pub fn spoke(&self) {
        self.spoke.store(true, Relaxed);
    }

    pub fn has_spoken(&self) -> bool {
        self.spoke.load(Relaxed)
    }

    /// It has proven who it is, and leaves the crowd. False if it came too late: its place was just given to another, and
    /// nothing should be begun on it any more.
    pub fn is_known(&self) -> bool {
        if self.is_known.load(Relaxed) {
            return true;
        }
        let mut strangers = self.crowd.strangers.lock();
        // Two calls at once: the other one may have done it.
        let in_time = self.is_known.load(Relaxed) || strangers.remove(self.address, self.number).is_some();
        self.is_known.store(in_time, Relaxed);
        in_time
    }

    /// Whether there is room among the connections of who has just proven who it is. If not, it stays a stranger's.
    pub fn has_place(&self, place: impl FnOnce() -> Option<Place>) -> bool {
        if self.place.get().is_some() {
            return true;
        }
        let place = place();
        // Two calls at once: the other one may have set it, and then this place is given back.
        place.is_some_and(|place| {
            let _ = self.place.set(place);
            true
        })
    }

    /// A call on it has proven by what it carried, not by a credential, whose it is. The next ones are this caller's too, as far
    /// as room is concerned.
    pub fn is_of(&self, subject: impl FnOnce() -> Subject) {
        if self.is_known() {
            self.owner.get_or_init(subject);
        }
    }

    pub fn owner(&self) -> Option<&Subject> {
        self.owner.get()
    }

    /// One more question for health; none if there are too many already.
    pub fn asks(self: &Arc<Self>) -> Option<Question> {
        let question = Question(Arc::clone(self));
        (self.questions.fetch_add(1, Relaxed) < QUESTIONS).then_some(question)
    }

    /// One more call by a stranger. Whoever makes too many is cut.
    pub fn called(&self) {
        if self.is_known.load(Relaxed) {
            return;
        }
        let mut calls = self.calls.lock();
        let now = Instant::now();
        let grown = now.duration_since(calls.1).as_secs_f64() * CALLS_PER_SECOND;
        *calls = ((calls.0 + grown).min(CALLS) - 1.0, now);
        if calls.0 < 0.0 {
            self.cut.cancel();
        }
    }
}

/// A question for health, until it is answered.
pub struct Question(Arc<Guest>);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.questions.fetch_sub(1, Relaxed);
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.crowd.strangers.lock().leave(self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_cut(guest: &Guest) -> bool {
        guest.cut().is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_full_loses_its_oldest_once_that_had_its_time() {
        let crowd = Crowd::new(10, 2);
        let first = crowd.enter(address(1)).unwrap();
        let second = crowd.enter(address(1)).unwrap();
        assert!(crowd.enter(address(1)).is_none(), "nobody had time yet");
        let other = crowd.enter(address(2)).unwrap();
        tokio::time::advance(GRACE).await;
        let third = crowd.enter(address(1)).unwrap();
        assert!(is_cut(&first) && !is_cut(&second) && !is_cut(&third) && !is_cut(&other));
        // Who is known is no stranger any more, and cannot be displaced.
        assert!(second.is_known() && second.is_known() && !first.is_known());
        let fourth = crowd.enter(address(1)).unwrap();
        assert!(!is_cut(&second) && !is_cut(&third));
        // Those who leave are forgotten when their time is over.
        drop((first, second, third, fourth, other));
        tokio::time::advance(GRACE).await;
        drop(crowd.enter(address(9)));
        let strangers = crowd.strangers.lock();
        assert_eq!((strangers.of.len(), strangers.all), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_crowds_a_listener_makes_room_for_the_others() {
        let crowd = Crowd::new(4, 4);
        let hogs: Vec<_> = (0..4).map(|_| crowd.enter(address(1)).unwrap()).collect();
        let quiet = crowd.enter(address(2)).unwrap();
        let another = crowd.enter(address(3)).unwrap();
        assert!(is_cut(&hogs[0]) && is_cut(&hogs[1]) && !is_cut(&hogs[2]));
        // All have about as many: only time makes room now.
        assert!(crowd.enter(address(2)).is_none() && crowd.enter(address(1)).is_none());
        tokio::time::advance(GRACE).await;
        let late = crowd.enter(address(4)).unwrap();
        assert!(is_cut(&hogs[2]) && !is_cut(&quiet) && !is_cut(&another) && !is_cut(&late));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_and_goes_has_no_more_places_than_whoever_stays() {
        let crowd = Crowd::new(10, 2);
        for _ in 0..2 {
            drop(crowd.enter(address(1)).unwrap());
        }
        assert!(crowd.enter(address(1)).is_none());
        tokio::time::advance(GRACE).await;
        // Who is known has used none up.
        for _ in 0..10 {
            assert!(crowd.enter(address(1)).unwrap().is_known());
        }
        assert!(crowd.enter(address(1)).is_some());
    }

    #[tokio::test]
    async fn questions_for_health_are_few_at_once_and_any_number_in_turn() {
        let guest = Arc::new(Crowd::new(4, 4).enter(address(1)).unwrap());
        for _ in 0..100 {
            let asked: Vec<_> = (0..QUESTIONS).map(|_| guest.asks().unwrap()).collect();
            assert!(guest.asks().is_none());
            drop(asked);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_who_calls_without_pause_is_cut() {
        let crowd = Crowd::new(4, 4);
        let patient = crowd.enter(address(1)).unwrap();
        let known = crowd.enter(address(1)).unwrap();
        assert!(known.is_known());
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_millis(70)).await;
            patient.called();
            known.called();
        }
        assert!(!is_cut(&patient) && !is_cut(&known));
        for _ in 0..=128 {
            patient.called();
        }
        assert!(is_cut(&patient));
    }
}
