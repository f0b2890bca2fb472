//! How many refusals are written down (pure): so many a minute for each caller, the rest counted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// Callers that are told apart; those beyond share one quota.
const MAX_KEYS: usize = 1000;

/// What is left of each caller's quota.
pub struct Quota<K> {
    per_minute: u32,
    /// None: those beyond [`MAX_KEYS`].
    windows: BTreeMap<Option<K>, Window>,
}

struct Window {
    began: Timestamp,
    admitted: u32,
    left_out: u64,
}

impl Window {
    /// A clock that went back ends a window too, or it might never end.
    fn is_over(&self, now: Timestamp) -> bool {
        now < self.began || now.duration_since(self.began) >= WINDOW
    }
}

impl<K: Ord + Clone> Quota<K> {
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, windows: BTreeMap::new() }
    }

    /// Whether one more is written down; if not it is counted.
    pub fn admit(&mut self, key: K, now: Timestamp) -> bool {
        let key = Some(key)
            .filter(|key| self.windows.len() < MAX_KEYS || self.windows.contains_key(&Some(key.clone())));
        let new = Window { began: now, admitted: 0, left_out: 0 };
        let window = self.windows.entry(key).or_insert(new);
        if window.admitted < self.per_minute {
            window.admitted += 1;
            return true;
        }
        window.left_out += 1;
        false
    }

    /// Ends the windows that are over; to be called every second or so. Returns whose refusals were left out in them, and how many.
    pub fn ended(&mut self, now: Timestamp) -> Vec<(Option<K>, u64)> {
        let over: Vec<_> = self
            .windows
            .iter()
            .filter(|(_, window)| window.is_over(now))
            .map(|(key, _)| key.clone())
            .collect();
        let left_out = over.into_iter().filter_map(|key| {
            let window = self.windows.remove(&key)?;
            (window.left_out > 0).then_some((key, window.left_out))
        });
        left_out.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn so_many_a_minute_are_admitted_and_the_rest_is_counted() {
        let mut quota = Quota::new(3);
        assert_eq!((0..10).filter(|_| quota.admit("a", at(100))).count(), 3);
        assert!(quota.admit("b", at(101)), "another caller has a quota of his own");
        assert_eq!(quota.ended(at(159)), []);
        assert_eq!(quota.ended(at(160)), [(Some("a"), 7)]);
        assert!(quota.admit("a", at(160)));
        assert_eq!(quota.ended(at(1000)), []);
    }

    #[test]
    fn callers_without_number_share_what_is_left() {
        let mut quota = Quota::new(1);
        let admitted = (0..5000).filter(|n| quota.admit(*n, at(0))).count();
        assert_eq!(admitted, MAX_KEYS + 1);
        assert_eq!(quota.ended(at(60)), [(None, 5000 - MAX_KEYS as u64 - 1)]);
    }

    #[test]
    fn a_clock_that_goes_back_ends_the_window() {
        let mut quota = Quota::new(1);
        assert!(quota.admit("a", at(5000)) && !quota.admit("a", at(5000)));
        assert_eq!(quota.ended(at(10)), [(Some("a"), 1)]);
        assert!(quota.admit("a", at(10)));
    }
}
