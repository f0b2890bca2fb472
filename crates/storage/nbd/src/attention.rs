//! Whether to look for the next request before sleeping until it comes.
//!
//! In: how long clients took for their next request. Out: how a session waits for the next one. Holds: for each session,
//! how many short waits it has seen in a row; for all, how many of them look at this moment.
//!
//! To be woken up costs a thread more than a small request costs, on machines whose idle cores sleep. So a session whose
//! client answers at once, time after time, looks at its socket for a moment before it sleeps. One look in vain, and it
//! sleeps until the client is quick again: who is slow, far away or silent costs nothing.

use std::{
    io,
    num::NonZero,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A wait up to this long is short, and nobody looks longer.
const SHORT: Duration = Duration::from_micros(200);
/// So many short waits in a row make a quick client.
const QUICK: u8 = 2;

/// Never more sessions than half of the cores look: the clients may be on the others.
static EVERYBODY: LazyLock<Places> =
    LazyLock::new(|| Places::new(thread::available_parallelism().map_or(1, NonZero::get) / 2));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// At least one byte.
    Bytes(usize),
    /// Nothing for a while.
    Silence,
    /// The client is gone.
    End,
}

/// How long to wait for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Only what is here.
    None,
    /// For the first byte, and then what is here.
    First,
    /// For as much as there is room for, if it comes without a pause.
    All,
}

/// What a session knows of its client's pace.
pub(crate) struct Attention {
    /// Short waits in a row, up to [`QUICK`].
    short: u8,
    places: &'static Places,
}

impl Default for Attention {
    fn default() -> Self {
        Self { short: 0, places: &EVERYBODY }
    }
}

impl Attention {
    /// Waits for the client: with looks as long as they promise something, and then asleep.
    pub(crate) fn wait(
        &mut self,
        mut receive: impl FnMut(Patience) -> io::Result<Received>,
    ) -> io::Result<Received> {
        let began = Instant::now();
        if let Some(_place) = (self.short == QUICK).then(|| self.places.take()).flatten() {
            while began.elapsed() < SHORT {
                match receive(Patience::None)? {
                    // Whoever else wants this core has it.
                    Received::Silence => thread::yield_now(),
                    found => return Ok(found),
                }
            }
        }
        let received = receive(Patience::First)?;
        self.short = if began.elapsed() < SHORT { QUICK.min(self.short + 1) } else { 0 };
        Ok(received)
    }
}

/// Places for those who look at the same time.
struct Places {
    taken: AtomicUsize,
    most: usize,
}

struct Place<'a>(&'a Places);

impl Places {
    fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    fn take(&self) -> Option<Place<'_>> {
        let next = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|_| Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention(places: usize) -> Attention {
        Attention { short: QUICK, places: Box::leak(Box::new(Places::new(places))) }
    }

    /// Waits for a client that is found asleep only, after a pause; returns how often it was looked for.
    fn looks(attention: &mut Attention, pause: Duration) -> u32 {
        let mut looks = 0;
        let received = attention.wait(|patience| {
            if patience == Patience::None {
                looks += 1;
                return Ok(Received::Silence);
            }
            thread::sleep(pause);
            Ok(Received::Bytes(1))
        });
        assert_eq!(received.unwrap(), Received::Bytes(1));
        looks
    }

    #[test]
    fn a_quick_client_is_looked_for_until_one_look_was_in_vain() {
        let mut attention = attention(1);
        assert!(looks(&mut attention, Duration::ZERO) > 0);
        assert_eq!(attention.short, 0);
        assert_eq!(looks(&mut attention, 2 * SHORT), 0);
        assert_eq!(attention.short, 0, "a slow client stays slow");
    }

    #[test]
    fn what_a_look_finds_needs_no_sleep() {
        let mut attention = attention(1);
        let found = attention.wait(|patience| {
            assert_eq!(patience, Patience::None);
            Ok(Received::End)
        });
        assert_eq!((found.unwrap(), attention.short), (Received::End, QUICK));
        assert!(attention.wait(|_| Err(io::ErrorKind::ConnectionReset.into())).is_err());
        assert_eq!(attention.places.taken.load(Ordering::Relaxed), 0, "the place is free again");
    }

    #[test]
    fn nobody_looks_when_all_places_are_taken() {
        let mut attention = attention(1);
        let place = attention.places.take();
        assert!(place.is_some() && attention.places.take().is_none());
        assert_eq!(looks(&mut attention, Duration::ZERO), 0);
        drop(place);
        attention.short = QUICK;
        assert!(looks(&mut attention, Duration::ZERO) > 0);
    }
}
