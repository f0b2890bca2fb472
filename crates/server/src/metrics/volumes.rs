//! Numbers of each consumer and each of its volumes, as they were when they were observed last.
//!
//! A volume that is gone leaves nothing behind: what is told is what there is.

use std::{fmt, sync::Arc};

use drivers::storage::{ConsumerStats, StorageStats};
use parking_lot::RwLock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use storage_backend::{LATENCIES, OperationFigures, VolumeFigures};

#[derive(Clone, Debug, Default)]
pub(super) struct Volumes(Arc<RwLock<Observed>>);

#[derive(Debug, Default)]
struct Observed {
    consumers: Vec<ConsumerStats>,
    volumes: Vec<VolumeFigures>,
}

impl Volumes {
    pub(super) fn observe(&self, stats: &StorageStats) {
        let (consumers, volumes) = (stats.consumers.clone(), stats.volumes.clone());
        *self.0.write() = Observed { consumers, volumes };
    }
}

type Told = Result<(), fmt::Error>;

impl Collector for Volumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Told {
        let observed = self.0.read();
        let consumers = &observed.consumers;
        let mut of_consumers = |name, help, read: fn(&ConsumerStats) -> Option<u64>| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            consumers.iter().try_for_each(|one| {
                let labels = [("consumer", one.id.as_str()), ("name", one.name.as_str())];
                read(one).map_or(Ok(()), |value| gauge(&mut metric, &labels, value))
            })
        };
        of_consumers("consumer_granted_bytes", "Bytes promised to a consumer", |it| Some(it.granted_bytes))?;
        of_consumers("consumer_used_bytes", "Bytes a consumer uses", |it| Some(it.used_bytes))?;
        of_consumers("consumer_last_seen_seconds", "When a consumer was heard of last", |it| it.last_seen)?;
        let volumes = &observed.volumes;
        let mut of_volumes = |name, help, read: fn(&VolumeFigures) -> Option<u64>| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            volumes.iter().try_for_each(|one| {
                let consumer = one.consumer.to_string();
                let labels = [("consumer", consumer.as_str()), ("volume", one.volume.as_str())];
                read(one).map_or(Ok(()), |value| gauge(&mut metric, &labels, value))
            })
        };
        of_volumes("volume_size_bytes", "Size of a volume", |it| Some(it.size))?;
        of_volumes("volume_held_bytes", "Bytes a volume alone holds", |it| Some(it.holds))?;
        of_volumes("volume_clients", "Clients that have a volume open", |it| Some(it.sessions as u64))?;
        of_volumes("volume_last_used_seconds", "When a volume was read or written last", |it| it.last_used)?;
        let mut of_operations =
            |name, help, kind, tell: fn(&mut MetricEncoder<'_>, &OperationFigures) -> Told| {
                let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
                for one in volumes {
                    let consumer = one.consumer.to_string();
                    for figures in one.operations.iter().filter(|figures| figures.operations() > 0) {
                        let labels = [
                            ("consumer", consumer.as_str()),
                            ("volume", one.volume.as_str()),
                            ("operation", figures.kind),
                        ];
                        tell(&mut metric.encode_family(&labels)?, figures)?;
                    }
                }
                Ok(())
            };
        let help = "Bytes clients read, wrote and trimmed";
        of_operations("volume_bytes", help, MetricType::Counter, |metric, it| counter(metric, it.bytes))?;
        let help = "Operations of clients that were refused or failed";
        of_operations("volume_errors", help, MetricType::Counter, |metric, it| counter(metric, it.errors))?;
        let help = "Time from an operation's arrival to its answer";
        of_operations("volume_operation_seconds", help, MetricType::Histogram, histogram)
    }
}

fn gauge(metric: &mut MetricEncoder<'_>, labels: &[(&str, &str); 2], value: u64) -> Told {
    metric.encode_family(labels)?.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
}

fn counter(metric: &mut MetricEncoder<'_>, value: u64) -> Told {
    metric.encode_counter::<NoLabelSet, u64, u64>(&value, None)
}

fn histogram(metric: &mut MetricEncoder<'_>, figures: &OperationFigures) -> Told {
    let bounds = LATENCIES.iter().map(|bound| bound.as_secs_f64()).chain([f64::MAX]);
    let buckets: Vec<_> = bounds.zip(figures.took).collect();
    metric.encode_histogram::<NoLabelSet>(figures.spent.as_secs_f64(), figures.operations(), &buckets, None)
}
