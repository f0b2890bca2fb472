//! Reads fewer messages the more there are: every message counts, and what is not read counts as the next one that is.

/// One interval's share of attention.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    budget: u64,
    /// Messages of this interval.
    seen: u64,
    /// Messages since the last one that was read.
    skipped: u64,
    /// Messages that were never read, ever.
    unread: u64,
}

impl Sampler {
    /// So many messages of an interval are all read; of twice as many the second half by every second one, and so on.
    pub fn new(budget: u64) -> Self {
        Self { budget: budget.max(1), seen: 0, skipped: 0, unread: 0 }
    }

    /// Whether the next message is to be read, and for how many it then stands.
    pub fn weigh(&mut self) -> Option<u64> {
        self.seen += 1;
        self.skipped += 1;
        if self.skipped < (self.seen - 1) / self.budget + 1 {
            self.unread += 1;
            return None;
        }
        Some(std::mem::take(&mut self.skipped))
    }

    /// Another interval begins.
    pub fn renew(&mut self) {
        self.seen = 0;
    }

    pub fn unread(&self) -> u64 {
        self.unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_the_budget_everything_is_read() {
        let mut sampler = Sampler::new(100);
        for _ in 0..5 {
            assert!((0..100).all(|_| sampler.weigh() == Some(1)));
            sampler.renew();
        }
        assert_eq!(sampler.unread(), 0);
    }

    #[test]
    fn beyond_it_few_are_read_and_all_are_counted() {
        let mut sampler = Sampler::new(100);
        let read: Vec<u64> = (0..1_000_000).filter_map(|_| sampler.weigh()).collect();
        let total: u64 = read.iter().sum();
        assert!(read.len() < 1_500, "{}", read.len());
        assert!(
            total <= 1_000_000 && 1_000_000 - total < 20_000,
            "the rest comes with the next one: {total}"
        );
        sampler.renew();
        assert_eq!(sampler.weigh().map(|weight| weight + total), Some(1_000_001));
    }
}
