//! What was told to the proxy and is not in force yet, and since when it ought to be.
//!
//! Times are those that slices carry. One from before this agent began says nothing about it; a time in the future is
//! somebody's wrong clock.

use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub struct Pending {
    began: SystemTime,
    slices: i64,
    services: i64,
    triggered: Vec<SystemTime>,
}

impl Pending {
    pub fn new(began: SystemTime) -> Self {
        Self { began, slices: 0, services: 0, triggered: Vec::new() }
    }

    pub fn service(&mut self) {
        self.services += 1;
    }

    /// A slice changed, because of what happened at a time.
    pub fn slice(&mut self, triggered: Option<&str>) {
        self.slices += 1;
        let time = triggered.and_then(|text| text.parse::<jiff::Timestamp>().ok()).map(SystemTime::from);
        self.triggered.extend(time.filter(|time| *time >= self.began));
    }

    pub fn slices(&self) -> i64 {
        self.slices
    }

    pub fn services(&self) -> i64 {
        self.services
    }

    /// All of it is in force now: how long each change took.
    pub fn take(&mut self, now: SystemTime) -> Vec<Duration> {
        (self.slices, self.services) = (0, 0);
        let triggered = std::mem::take(&mut self.triggered).into_iter();
        triggered.filter_map(|time| now.duration_since(time).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_from_before_the_start_from_the_future_and_without_sense_do_not_count() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut pending = Pending::new(at(1_000));
        for text in [
            Some("1970-01-01T00:16:41.5Z"),
            Some("1970-01-01T01:16:50+01:00"),
            Some("1970-01-01T00:16:39Z"),
            Some("1970-01-01T03:00:00Z"),
            Some("yesterday"),
            Some(""),
            None,
        ] {
            pending.slice(text);
        }
        pending.service();
        assert_eq!((pending.slices(), pending.services()), (7, 1));
        let took = pending.take(at(1_011));
        assert_eq!(took, [Duration::from_millis(9_500), Duration::from_secs(1)]);
        assert_eq!((pending.slices(), pending.services(), pending.take(at(2_000)).len()), (0, 0, 0));
    }
}
