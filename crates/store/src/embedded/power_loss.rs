//! Power loss, simulated: a disk that forgets what was not synced.
//!
//! While writers run, the power is "cut" again and again: the image of that moment holds every synced write and, of
//! the others, a random part in pieces of a sector. A store opened on the image must hold everything that had been
//! acknowledged before the cut, and each transaction whole.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redb::{Builder, StorageBackend};
use tokio::task::JoinSet;

use super::{Embedded, Options, open, tables::State};
use crate::api::{Key, Store, Transaction};

const SECTOR: usize = 512;
const WRITERS: usize = 4;
const CUTS: usize = 60;

#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platters>>);

#[derive(Clone, Debug, Default)]
struct Platters {
    /// What the program sees.
    cached: Vec<u8>,
    /// What a power cut leaves for certain.
    synced: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        let platters = self.0.lock();
        let range = platters.cached.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(range);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // Of file systems that journal their metadata the length is the least of the worries.
        let mut platters = self.0.lock();
        platters.cached.resize(len as usize, 0);
        platters.synced.resize(len as usize, 0);
        platters.unsynced.retain(|(offset, data)| offset + data.len() <= len as usize);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platters = self.0.lock();
        platters.unsynced.clear();
        platters.synced = platters.cached.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platters = self.0.lock();
        let offset = offset as usize;
        platters
            .cached
            .get_mut(offset..offset + data.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(data);
        platters.unsynced.push((offset, data.to_vec()));
        Ok(())
    }
}

impl Disk {
    /// What is found after the power comes back.
    fn cut(&self, random: &mut u64) -> Disk {
        let platters = self.0.lock().clone();
        let mut image = platters.synced;
        for (offset, data) in platters.unsynced {
            for (index, sector) in data.chunks(SECTOR).enumerate() {
                if draw(random).is_multiple_of(2) {
                    let begin = offset + index * SECTOR;
                    image[begin..begin + sector.len()].copy_from_slice(sector);
                }
            }
        }
        Disk(Arc::new(Mutex::new(Platters { cached: image.clone(), synced: image, unsynced: Vec::new() })))
    }

    fn open(&self, dir: &std::path::Path) -> Store {
        let disk = self.clone();
        let opener: super::database::OpenFile =
            Arc::new(move || Builder::new().create_with_backend(disk.clone()));
        let lock = open::lock(dir).unwrap();
        let path = dir.join("simulated");
        let (db, state) = open::open_with(&path, opener, lock).unwrap();
        Store::new(Embedded::start(Options::new(dir), db, state).unwrap())
    }
}

fn draw(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 20
}

fn keys(writer: usize) -> [Key; 3] {
    ["a", "b", "c"].map(|name| format!("w{writer}/{name}").parse().unwrap())
}

/// The number each writer's keys hold; they must hold the same one.
async fn stored(store: &Store) -> BTreeMap<usize, u64> {
    let mut numbers = BTreeMap::new();
    for writer in 0..WRITERS {
        let mut held = Vec::new();
        for key in keys(writer) {
            let entry = store.get(&key).await.unwrap();
            held.push(entry.map_or(0, |entry| str::from_utf8(&entry.value).unwrap().parse().unwrap()));
        }
        assert!(held.iter().all(|number| *number == held[0]), "half a transaction: {held:?}");
        numbers.insert(writer, held[0]);
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_cut() {
    let disk = Disk::default();
    {
        let database = Builder::new().create_with_backend(disk.clone()).unwrap();
        open::make_tables(&database, State::default()).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let store = disk.open(dir.path());
    let acknowledged = Arc::new(Mutex::new(BTreeMap::<usize, u64>::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, acknowledged, stop) = (store.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
        writers.spawn(async move {
            for number in 1_u64.. {
                let text = number.to_string();
                let write = keys(writer)
                    .into_iter()
                    .fold(Transaction::new(), |write, key| write.put(key, text.clone()));
                store.transact(write).await.unwrap();
                acknowledged.lock().insert(writer, number);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
    }
    let mut random = 0x5eed_u64;
    let mut last = 0;
    for cut in 0..CUTS {
        tokio::time::sleep(Duration::from_micros(draw(&mut random) % 4000)).await;
        // Before the image: what is acknowledged now must be on it.
        let promised = acknowledged.lock().clone();
        let image = disk.cut(&mut random);
        let image_dir = tempfile::tempdir().unwrap();
        let survivor = image.open(image_dir.path());
        let found = stored(&survivor).await;
        for (writer, number) in promised {
            assert!(
                found[&writer] >= number,
                "cut {cut}: writer {writer} was promised {number}, found {found:?}"
            );
        }
        let revision = survivor.revision().await.unwrap().0;
        assert!(revision >= last, "cut {cut}: revision {revision} after {last}");
        last = revision;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    assert!(last > CUTS as u64, "the writers wrote while the power was cut");
}
