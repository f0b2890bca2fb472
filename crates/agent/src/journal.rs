//! The node's state on disk: the messages that make it, one after the other.
//!
//! In: the messages of each step, as they came. Out: the state that they make, through the same [`Held`] that takes
//! them from the controller. So a change costs what it weighs, and there is no second format to keep true.
//!
//! ```text
//!   MAGIC version\n | seals | length crc message | length crc message | … flush | … flush | a crash cut this sho
//!   └─ written anew, whole, when it has grown to several times the state ──────────┘         └ dropped on reading
//! ```
//!
//! Steps are written before they take effect in the kernel: after a crash the node goes on from what it was told last.
//! A lost tail costs nothing but to be sent again, if power failed before it was on the disk. Two *seals* say how much there
//! must be: one how much is safe on the disk, one how much was written since the machine has started, which nothing but
//! damage takes away while it runs. If less can be read, something that was in force is lost, and what is left must not be
//! taken for all there is. If the disk is full the node goes on without: the file stays at an earlier step, and is written
//! anew as soon as that works.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use prost::Message as _;
use wire::trestle::v1::{ToNode, to_node};

use crate::held::{Gathered, Held, Taken};

const MAGIC: &str = "trestle node state 3 ";
/// Files of these kinds have one seal and none; they are read, and written anew with the next step.
const ONE_SEAL_MAGIC: &str = "trestle node state 2 ";
const UNSEALED_MAGIC: &str = "trestle node state 1 ";
/// What is safe on the disk: a length and its checksum.
const SEAL: usize = 12;
/// What was written: a length, the machine's start in which that was, and their checksum.
const WRITTEN: usize = 28;
/// Names the machine's start: another one each time.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// No message is nearly as long; a larger number is not a length.
const MAX_MESSAGE: u32 = 256 << 20;
/// A journal below this size is not worth shortening.
const SMALL: u64 = 256 << 10;
/// How much longer than after its last rewriting a journal may grow.
const GROWTH: u64 = 4;
/// Between two tries to write to a disk that refused.
const RETRY: Duration = Duration::from_secs(5);
/// Power may fail: at most so much of the past is lost with it, and what comes while the disk is at it.
const SYNC: Duration = Duration::from_secs(1);
const CUT: &str = "nobody told how it ended";

/// The open file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// None while the file does not hold the state and no step may be added to it.
    file: Option<File>,
    length: u64,
    rewritten_length: u64,
    failure: Option<(String, Instant)>,
    unsynced_since: Option<Instant>,
    syncing: Option<Syncing>,
    boot: Boot,
}

/// A disk may take long to have what it was given: steps do not wait for it.
#[derive(Debug)]
struct Syncing {
    /// How much was written when it began.
    length: u64,
    done: Receiver<io::Result<()>>,
}

/// A start of the machine.
type Boot = [u8; 16];

/// What was found at the start.
#[derive(Debug)]
pub struct Loaded {
    pub journal: Journal,
    pub held: Held,
    /// Bytes at the end that were no whole step.
    pub dropped: u64,
    pub finding: Finding,
    /// Written by a version that kept no seal.
    pub is_old: bool,
}

/// What can be said of the state that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is what was told last.
    Whole,
    /// There is no file.
    Nothing,
    /// Something that was told is missing, and why.
    Damaged(String),
}

impl Journal {
    /// Opens the journal in a directory and reads the state it holds, as far as it can be read.
    pub fn open(dir: &Path) -> Loaded {
        let path = dir.join("state");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let finding = match opened.and_then(|file| Self::at(&path).load(file)) {
            Ok(loaded) => return loaded,
            Err(err) if err.kind() == io::ErrorKind::NotFound => Finding::Nothing,
            Err(err) => damaged(&path, &err),
        };
        Loaded { journal: Self::at(&path), held: Held::default(), dropped: 0, finding, is_old: false }
    }

    fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            length: 0,
            rewritten_length: 0,
            failure: None,
            unsynced_since: None,
            syncing: None,
            boot: boot(),
        }
    }

    fn load(mut self, file: File) -> io::Result<Loaded> {
        let Read { mut held, whole, same_version, sealed, is_old } = read(&file, self.boot)?;
        let size = file.metadata()?.len();
        let finding = match sealed {
            Some(sealed) if whole > 0 && whole >= sealed => Finding::Whole,
            Some(sealed) => damaged(&self.path, &format!("{whole} of {sealed} bytes can be read")),
            None => damaged(&self.path, &"it does not begin as it should"),
        };
        if finding == Finding::Whole {
            // Steps are added behind the last whole one. Making a file shorter works also on a full disk.
            file.set_len(whole)?;
            (self.file, self.length, self.rewritten_length) = (Some(file), whole, whole);
        }
        if !same_version {
            held.forget_unknown();
            // The next step is the first of a file of this version.
            self.file = None;
        }
        Ok(Loaded { journal: self, held, dropped: size - whole, finding, is_old })
    }

    /// Bytes on disk.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Why the newest state is not on disk; none if it is.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|(text, _)| text.as_str())
    }

    /// Adds the messages of a step. `held` is the state they make.
    pub fn append(&mut self, messages: &Gathered, held: &Held) {
        if self.file.is_none() || self.length > SMALL.max(self.rewritten_length * GROWTH) {
            if self.failure.is_none() {
                self.rewrite(held);
            }
            return;
        }
        let mut bytes = Vec::new();
        messages.encoded().for_each(|message| put(&mut bytes, message));
        let Some(file) = &mut self.file else { return };
        let written = file.seek(SeekFrom::Start(self.length)).and_then(|_| file.write_all(&bytes));
        match written {
            Ok(()) => {
                self.length += bytes.len() as u64;
                self.unsynced_since.get_or_insert_with(Instant::now);
                self.seal();
            }
            Err(err) => {
                // What was written of the step would be in the way of the next.
                let _ = file.set_len(self.length);
                self.fail("add to", &err);
            }
        }
    }

    /// Called now and then: has what was written synced, and tries again what failed.
    pub fn tend(&mut self, held: &Held, now: Instant) {
        match &self.failure {
            Some((_, at)) if now.duration_since(*at) >= RETRY => return self.rewrite(held),
            Some(_) => return,
            None => {}
        }
        if let Some(syncing) = &self.syncing {
            match syncing.done.try_recv() {
                Err(TryRecvError::Empty) => return,
                Ok(done) => self.synced(syncing.length, done),
                Err(TryRecvError::Disconnected) => self.synced(syncing.length, Err(io::Error::other(CUT))),
            }
        }
        if self.unsynced_since.is_some_and(|since| now.duration_since(since) >= SYNC) {
            self.begin_sync();
        }
    }

    /// The last word: everything is on the disk afterwards, or it is said why not.
    pub fn finish(&mut self, held: &Held) {
        if self.failure.is_some() {
            return self.rewrite(held);
        }
        if let Some(Syncing { length, done }) = self.syncing.take() {
            let done = done.recv().unwrap_or_else(|_| Err(io::Error::other(CUT)));
            self.synced(length, done);
        }
        if self.unsynced_since.take().is_some()
            && let Some(done) = self.file.as_ref().map(File::sync_data)
        {
            self.synced(self.length, done);
        }
    }

    /// Beside what comes meanwhile.
    fn begin_sync(&mut self) {
        let Some(file) = &self.file else { return };
        self.unsynced_since = None;
        let (said, done) = mpsc::channel();
        let begun = file.try_clone().and_then(|file| {
            let sync = move || drop(said.send(file.sync_data()));
            thread::Builder::new().name("journal".into()).spawn(sync).map(drop)
        });
        match begun {
            Ok(()) => self.syncing = Some(Syncing { length: self.length, done }),
            Err(err) => self.fail("sync", &err),
        }
    }

    fn synced(&mut self, length: u64, done: io::Result<()>) {
        self.syncing = None;
        let sealed = |file: &File| file.write_all_at(&seal(length), header().len() as u64);
        match (done, &self.file) {
            (Err(err), _) => self.fail("sync", &err),
            (Ok(()), Some(file)) => {
                if let Err(err) = sealed(file) {
                    self.fail("seal", &err);
                }
            }
            (Ok(()), None) => {}
        }
    }

    /// Notes that all up to here is written. If that cannot be, what is noted is less, and true.
    fn seal(&mut self) {
        let (seals, at) = (seals(self.length, self.boot), header().len());
        if let Some(file) = &self.file
            && let Err(err) = file.write_all_at(&seals[SEAL..], (at + SEAL) as u64)
        {
            self.fail("seal", &err);
        }
    }

    /// Writes the state anew. If that fails the old file stays, with an earlier state.
    fn rewrite(&mut self, held: &Held) {
        let Some(messages) = held.messages() else { return };
        let (mut length, boot) = (0, self.boot);
        let replaced = files::replace(&self.path, |file| {
            let mut out = BufWriter::new(file);
            let header = header();
            out.write_all(header.as_bytes())?;
            out.write_all(&[0; SEAL + WRITTEN])?;
            length = (header.len() + SEAL + WRITTEN) as u64;
            let mut bytes = Vec::new();
            for message in messages {
                bytes.clear();
                put(&mut bytes, &message.encode_to_vec());
                out.write_all(&bytes)?;
                length += bytes.len() as u64;
            }
            out.into_inner()?.write_all_at(&seals(length, boot), header.len() as u64)
        });
        match replaced {
            Ok(file) => {
                (self.file, self.length, self.rewritten_length) = (Some(file), length, length);
                (self.failure, self.unsynced_since, self.syncing) = (None, None, None);
            }
            Err(err) => self.fail("replace", &err),
        }
    }

    fn fail(&mut self, what: &str, err: &io::Error) {
        let text = format!(
            "cannot {what} {}: {err}; after a restart the node begins with an older state",
            self.path.display()
        );
        tracing::error!(path = %self.path.display(), error = %err, "cannot keep the state on disk; enforcing goes on");
        (self.file, self.syncing, self.failure) = (None, None, Some((text, Instant::now())));
    }
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Finding {
    Finding::Damaged(format!("the node's state in {} is damaged: {why}", path.display()))
}

fn seal(length: u64) -> [u8; SEAL] {
    let mut seal = [0; SEAL];
    let (value, crc) = seal.split_at_mut(8);
    value.copy_from_slice(&length.to_le_bytes());
    crc.copy_from_slice(&crc32fast::hash(value).to_le_bytes());
    seal
}

/// The length that a seal tells, if it is one.
fn unseal(bytes: [u8; SEAL]) -> Option<u64> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    (seal(length) == bytes).then_some(length)
}

fn seals(length: u64, boot: Boot) -> [u8; SEAL + WRITTEN] {
    let mut both = [0; SEAL + WRITTEN];
    both[..SEAL].copy_from_slice(&seal(length));
    let (value, crc) = both[SEAL..].split_at_mut(WRITTEN - 4);
    value[..8].copy_from_slice(&length.to_le_bytes());
    value[8..].copy_from_slice(&boot);
    crc.copy_from_slice(&crc32fast::hash(value).to_le_bytes());
    both
}

/// How much there should be, by both seals, if they are whole. What was written before the machine started need not have
/// come to the disk.
fn unseal_both(bytes: [u8; SEAL + WRITTEN], now: Boot) -> Option<u64> {
    let safe = unseal(*bytes.first_chunk()?)?;
    let written = u64::from_le_bytes(*bytes[SEAL..].first_chunk()?);
    let boot = *bytes[SEAL + 8..].first_chunk()?;
    if bytes[SEAL..] != seals(written, boot)[SEAL..] {
        return None;
    }
    Some(if boot == now && boot != Boot::default() { safe.max(written) } else { safe })
}

/// This start of the machine; zeros if the kernel does not tell.
fn boot() -> Boot {
    let text = fs::read_to_string(BOOT_ID).unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or_default().to_le_bytes()
}

fn header() -> String {
    format!("{MAGIC}{}\n", env!("CARGO_PKG_VERSION"))
}

fn put(out: &mut Vec<u8>, message: &[u8]) {
    out.extend((message.len() as u32).to_le_bytes());
    out.extend(crc32fast::hash(message).to_le_bytes());
    out.extend(message);
}

struct Read {
    held: Held,
    /// Bytes up to the end of the last whole step; 0 if there is none.
    whole: u64,
    same_version: bool,
    /// How much there should be, at least; none if that cannot be read.
    sealed: Option<u64>,
    is_old: bool,
}

fn read(file: &File, boot: Boot) -> io::Result<Read> {
    let mut input = BufReader::new(file);
    let mut held = Held::default();
    let mut first = [0; 64];
    let count = read_fully(&mut input, &mut first)?;
    let line = first[..count].iter().position(|byte| *byte == b'\n').map(|end| &first[..=end]);
    let begins = |line: &[u8], magic: &str| line.starts_with(magic.as_bytes());
    let known =
        |line: &&[u8]| [MAGIC, ONE_SEAL_MAGIC, UNSEALED_MAGIC].iter().any(|magic| begins(line, magic));
    let Some(line) = line.filter(known) else {
        return Ok(Read { held, whole: 0, same_version: true, sealed: None, is_old: false });
    };
    let same_version = line == header().as_bytes();
    let mut at = line.len() as u64;
    input.seek(SeekFrom::Start(at))?;
    let mut sealed = None;
    if begins(line, MAGIC) {
        let mut bytes = [0; SEAL + WRITTEN];
        if read_fully(&mut input, &mut bytes)? == bytes.len() {
            sealed = unseal_both(bytes, boot);
        }
        at += bytes.len() as u64;
    } else if begins(line, ONE_SEAL_MAGIC) {
        let mut bytes = [0; SEAL];
        if read_fully(&mut input, &mut bytes)? == bytes.len() {
            sealed = unseal(bytes);
        }
        at += bytes.len() as u64;
    }
    let mut whole = 0;
    while let Some((message, length)) = next(&mut input)? {
        at += length;
        let is_flush = matches!(message.message, Some(to_node::Message::Flush(_)));
        match held.take(message) {
            Ok(Taken::Step(..)) if is_flush => whole = at,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let is_old = begins(line, UNSEALED_MAGIC);
    if is_old {
        sealed = Some(file.metadata()?.len());
    }
    held.begin();
    Ok(Read { held, whole, same_version, sealed, is_old })
}

/// The next message and its length with its head; none at the end, or where a crash or a bad disk made it so.
fn next(input: &mut impl io::Read) -> io::Result<Option<(ToNode, u64)>> {
    let mut head = [0; 8];
    if read_fully(input, &mut head)? < head.len() {
        return Ok(None);
    }
    let [a, b, c, d, e, f, g, h] = head;
    let (length, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if length > MAX_MESSAGE {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    input.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize || crc32fast::hash(&bytes) != crc {
        return Ok(None);
    }
    let length = (head.len() + bytes.len()) as u64;
    Ok(ToNode::decode(bytes.as_slice()).ok().map(|message| (message, length)))
}

/// Reads until the buffer is full or there is no more; how much there was.
fn read_fully(input: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match input.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
