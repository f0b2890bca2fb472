//! The files.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{Ask, Flow, Kind, Uses, frame, frame::Frames, top, uses::Place};

const SUFFIX: &str = "flows";
/// Rows of a sealed file that are the same in one of these are one.
const BUCKET: u64 = 60_000;
/// Rows of a frame of a sealed file.
const ROWS: usize = 4_096;
/// A file is sealed after this, however small it is.
const LIFE: u64 = 3_600_000;
/// What rules have decided is written after this; what came since is counted again after a crash.
const PAUSE: u64 = 60_000;
/// Kinds that are added up at once; of more, the rest is left out and that is told.
const KINDS: usize = 200_000;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub bytes: u64,
    /// Milliseconds.
    pub age: u64,
}

impl Limits {
    /// A file is sealed when it has so many bytes: at most a sixteenth of all, so that little goes at once.
    fn file(self) -> u64 {
        (self.bytes / 16).clamp(4_096, 8 << 20)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot use the record of flows {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write flows to {path}; what is recorded can be read")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

struct Segment {
    path: PathBuf,
    number: u64,
    bytes: u64,
    first: u64,
    last: u64,
}

impl Segment {
    fn note(&mut self, flows: &[Flow]) {
        for flow in flows {
            self.first = self.first.min(flow.first);
            self.last = self.last.max(flow.last);
        }
    }
}

/// The one who writes. Reading is done with [`Reading`]s, which hold nobody up.
pub struct Record {
    dir: PathBuf,
    limits: Limits,
    /// The oldest first.
    sealed: VecDeque<Segment>,
    /// With when it was begun.
    open: Option<(Segment, File, u64)>,
    next: u64,
    uses: Uses,
    /// When they were written.
    written: u64,
}

/// A record that was opened.
pub struct Opened {
    pub record: Record,
    /// Bytes at the end of a file that were not whole, and are gone.
    pub torn: u64,
}

/// A file to be read, as far as it was written when it was asked for.
#[derive(Clone, Debug)]
pub struct Reading {
    path: PathBuf,
    bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub flows: Vec<Flow>,
    /// There are more than were asked for.
    pub more: bool,
}

impl Record {
    pub fn open(dir: &Path, limits: Limits, now: u64) -> Result<Opened, RecordError> {
        let failed = |source| RecordError::Open { path: dir.to_owned(), source };
        files::closed_dir(dir).map_err(failed)?;
        let mut numbered = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            if let Some(number) = number.filter(|_| path.extension().is_some_and(|it| it == SUFFIX)) {
                numbered.insert(number, path);
            }
        }
        let next = numbered.keys().last().map_or(1, |last| last + 1);
        let known = Uses::read(dir).map_err(failed)?;
        let is_new = known.is_none();
        let uses = known.unwrap_or_default();
        let sealed = VecDeque::new();
        let mut record = Self { dir: dir.to_owned(), limits, sealed, open: None, next, uses, written: now };
        let counted = record.uses.counted;
        let mut torn = 0;
        for (number, path) in numbered {
            let bytes = fs::read(&path).map_err(failed)?;
            let mut segment = Segment { path, number, bytes: 0, first: u64::MAX, last: 0 };
            let mut frames = Frames::new(&bytes);
            loop {
                let begins = Place { file: number, bytes: frames.whole as u64 };
                let Some(frame) = frames.next() else { break };
                segment.first = segment.first.min(frame.first);
                segment.last = segment.last.max(frame.last);
                if !is_new && begins >= counted {
                    record.uses.note(&frame.flows());
                }
            }
            segment.bytes = frames.whole as u64;
            torn += (bytes.len() - frames.whole) as u64;
            if frames.whole < bytes.len() {
                let file = fs::OpenOptions::new().write(true).open(&segment.path);
                file.and_then(|file| file.set_len(segment.bytes)).map_err(failed)?;
            }
            record.sealed.push_back(segment);
        }
        if is_new {
            record.uses.since = record.first().unwrap_or(now).min(now);
            record.uses.write(dir).map_err(failed)?;
        }
        record.uses.counted = Place { file: next, bytes: 0 };
        Ok(Opened { record, torn })
    }

    /// Records what came at once. An error: none of it is recorded.
    pub fn append(&mut self, flows: &[Flow], now: u64) -> Result<(), RecordError> {
        if flows.is_empty() {
            return Ok(());
        }
        self.seal_if_due(now);
        let bytes = frame::encode(flows);
        let (mut segment, mut file, begun) = match self.open.take() {
            Some(open) => open,
            None => self.begin(now)?,
        };
        let written = file.write_all(&bytes);
        let Err(source) = written else {
            segment.bytes += bytes.len() as u64;
            segment.note(flows);
            self.uses.note(flows);
            self.uses.counted = Place { file: segment.number, bytes: segment.bytes };
            self.open = Some((segment, file, begun));
            if now.abs_diff(self.written) >= PAUSE {
                self.write_uses(now);
            }
            self.sweep(now);
            return Ok(());
        };
        let path = segment.path.clone();
        // A part may have been written, and what comes next must not stand behind it.
        match file.set_len(segment.bytes) {
            Ok(()) => self.open = Some((segment, file, begun)),
            Err(_) => self.sealed.push_back(segment),
        }
        Err(RecordError::Write { path, source })
    }

    fn begin(&mut self, now: u64) -> Result<(Segment, File, u64), RecordError> {
        let path = self.dir.join(format!("{:012}.{SUFFIX}", self.next));
        let make = || {
            files::create(&path)?;
            // At its end, wherever that is after a part of a frame was taken back.
            fs::OpenOptions::new().append(true).open(&path)
        };
        let file = make().map_err(|source| RecordError::Write { path: path.clone(), source })?;
        let number = self.next;
        self.next += 1;
        Ok((Segment { path, number, bytes: 0, first: u64::MAX, last: 0 }, file, now))
    }

    fn seal_if_due(&mut self, now: u64) {
        let limit = self.limits.file();
        let is_due =
            |segment: &Segment, begun: u64| segment.bytes >= limit || now.saturating_sub(begun) >= LIFE;
        if self.open.as_ref().is_some_and(|(segment, _, begun)| is_due(segment, *begun))
            && let Some((mut segment, file, _)) = self.open.take()
        {
            drop(file);
            // Bytes mean something else in a file that is condensed.
            self.uses.counted = Place { file: self.next, bytes: 0 };
            let is_known = self.write_uses(now);
            // Without room for another file it stays as it is.
            if is_known && let Ok(bytes) = condense(&segment.path) {
                segment.bytes = bytes;
            }
            self.sealed.push_back(segment);
        }
    }

    /// Whether they could be. If not, the next time they are.
    fn write_uses(&mut self, now: u64) -> bool {
        let is_written = self.uses.write(&self.dir).is_ok();
        if is_written {
            self.written = now;
        }
        is_written
    }

    /// The policies that there are, by name, each with its version, and when somebody looked before: what rules decide is counted by them.
    pub fn policies_are(&mut self, there: impl Iterator<Item = (String, String)>, looked: u64, now: u64) {
        self.uses.policies_are(there, looked, now);
        if now.abs_diff(self.written) >= PAUSE {
            self.write_uses(now);
        }
    }

    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Forgets what is too old or too much.
    pub fn sweep(&mut self, now: u64) {
        let horizon = now.saturating_sub(self.limits.age);
        while let Some(oldest) = self.sealed.front() {
            if self.bytes() <= self.limits.bytes && oldest.last >= horizon {
                return;
            }
            // What cannot be removed now is found again by the next start.
            fs::remove_file(&oldest.path).ok();
            // A file without a row has neither time.
            self.uses.since = self.uses.since.max(oldest.last.saturating_add(1));
            self.sealed.pop_front();
        }
    }

    pub fn bytes(&self) -> u64 {
        self.segments().map(|segment| segment.bytes).sum()
    }

    /// The earliest time in it.
    fn first(&self) -> Option<u64> {
        self.segments().map(|segment| segment.first).min().filter(|first| *first < u64::MAX)
    }

    /// What has to be read for a question, newest first.
    pub fn readings(&self, ask: &Ask) -> Vec<Reading> {
        let asked = self.segments().filter(|segment| ask.overlaps(segment.first, segment.last));
        let mut readings: Vec<Reading> =
            asked.map(|segment| Reading { path: segment.path.clone(), bytes: segment.bytes }).collect();
        readings.reverse();
        readings
    }

    /// The oldest first.
    fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.iter().chain(self.open.as_ref().map(|(segment, ..)| segment))
    }
}

/// Rows that are the same but for their time become one for each minute. O(file).
fn condense(path: &Path) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    let mut rows: BTreeMap<(u64, Kind), Flow> = BTreeMap::new();
    for flow in Frames::new(&bytes).flat_map(|frame| frame.flows()) {
        let bucket = flow.last / BUCKET;
        match rows.get_mut(&(bucket, flow.kind.clone())) {
            Some(row) => row.join(&flow),
            None => drop(rows.insert((bucket, flow.kind.clone()), flow)),
        }
    }
    let rows: Vec<Flow> = rows.into_values().collect();
    let content: Vec<u8> = rows.chunks(ROWS).flat_map(frame::encode).collect();
    files::write(path, &content)?;
    Ok(content.len() as u64)
}

impl Reading {
    /// What is in it of what is asked about. A file that is gone meanwhile was too old.
    fn flows(&self, ask: &Ask, is_about: impl Fn(&Flow) -> bool) -> Result<Vec<Flow>, RecordError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(RecordError::Open { path: self.path.clone(), source }),
        };
        // What has come since is for who follows. A file that was sealed since may be shorter.
        let written = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(bytes.len());
        let frames = Frames::new(&bytes[..written]).filter(|frame| ask.overlaps(frame.first, frame.last));
        Ok(frames.flat_map(|frame| frame.flows()).filter(is_about).collect())
    }

    /// The newest that are asked about, newest first. Reads no more files than it takes.
    pub fn find(readings: &[Self], ask: &Ask, most: usize) -> Result<Found, RecordError> {
        Self::find_by(readings, ask, |flow| ask.is_about(flow), most)
    }

    /// The same, by another question within the time of this one.
    pub fn find_by(
        readings: &[Self],
        ask: &Ask,
        is_about: impl Fn(&Flow) -> bool,
        most: usize,
    ) -> Result<Found, RecordError> {
        let mut flows = Vec::new();
        let mut unread = false;
        for (index, reading) in readings.iter().enumerate() {
            flows.extend(reading.flows(ask, &is_about)?);
            if flows.len() >= most {
                unread = index + 1 < readings.len();
                break;
            }
        }
        flows.sort_by_key(|flow| std::cmp::Reverse((flow.last, flow.first)));
        let more = unread || flows.len() > most;
        flows.truncate(most);
        Ok(Found { flows, more })
    }

    /// All that are asked about, added up by kind, those with the largest count first.
    pub fn top(readings: &[Self], ask: &Ask, most: usize) -> Result<Found, RecordError> {
        let mut rows = Vec::new();
        let mut more = false;
        for reading in readings {
            rows.extend(reading.flows(ask, |flow| ask.is_about(flow))?);
            rows = top(rows);
            more |= rows.len() > KINDS;
            rows.truncate(KINDS);
        }
        more |= rows.len() > most;
        rows.truncate(most);
        Ok(Found { flows: rows, more })
    }
}

#[cfg(test)]
mod tests;
