//! Figures that others count and this only shows: read from their statistics when somebody asks.

use prometheus_client::metrics::gauge::Gauge;

type Read<Stats> = fn(&Stats) -> u64;

/// Name, help, and where it is in the statistics.
pub(super) type Figure<Stats> = (&'static str, &'static str, Read<Stats>);

/// One gauge per figure. Those that only grow are gauges too.
pub(super) struct Figures<Stats>(Vec<(Gauge, Read<Stats>)>);

impl<Stats> Figures<Stats> {
    pub fn new(
        figures: &[Figure<Stats>],
        gauge: &mut impl FnMut(&'static str, &'static str) -> Gauge,
    ) -> Self {
        Self(figures.iter().map(|(name, help, read)| (gauge(name, help), *read)).collect())
    }

    pub fn observe(&self, stats: &Stats) {
        for (gauge, read) in &self.0 {
            gauge.set(i64::try_from(read(stats)).unwrap_or(i64::MAX));
        }
    }
}
