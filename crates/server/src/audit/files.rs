//! The files of a log, as they are read: `audit.log` and its older ones `audit.log.1` …, and `audit.head`.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    chain::Head,
    verify::{Expected, Place, Report, Verifier},
};

/// Old files that are kept.
pub const KEEP: usize = 8;
/// Bytes read at once from the end of a file.
const CHUNK: u64 = 64 << 10;
/// Tries to open all files while the log is rotated meanwhile.
const TRIES: usize = 16;

pub fn log_path(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

pub fn head_path(dir: &Path) -> PathBuf {
    dir.join("audit.head")
}

/// A file of the log by its age; 0 is the newest.
pub fn aged(path: &Path, age: usize) -> PathBuf {
    if age == 0 { path.to_owned() } else { path.with_added_extension(age.to_string()) }
}

/// The head that was kept; none if there is no file, or nothing in it that could be one.
pub fn read_head(dir: &Path) -> io::Result<Option<Head>> {
    match fs::read(head_path(dir)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// All files of a log, newest first, as of one moment.
pub struct Opened {
    files: Vec<(PathBuf, File)>,
    head: Option<Head>,
}

impl Opened {
    /// A controller may be writing: files it rotates meanwhile are opened again.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let newest = log_path(dir);
        for _ in 0..TRIES {
            let head = read_head(dir)?;
            let mut files = Vec::new();
            for path in (0..=KEEP).map(|age| aged(&newest, age)) {
                match File::open(&path) {
                    Ok(file) => files.push((path, file)),
                    Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                    Err(err) => return Err(err),
                }
            }
            let first = files.first().filter(|(path, _)| *path == newest);
            let inode = first.map(|(_, file)| file.metadata().map(|data| data.ino())).transpose()?;
            if inode == fs::metadata(&newest).ok().map(|data| data.ino()) {
                return Ok(Self { files, head });
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "the log was rotated again and again meanwhile"))
    }

    /// The lines of all files, newest first.
    pub fn newest_first(self) -> impl Iterator<Item = io::Result<Vec<u8>>> {
        self.files.into_iter().flat_map(|(_, file)| Backwards::new(file))
    }

    /// Whether the log is as it was written.
    pub fn verify(mut self) -> io::Result<Report> {
        let head = self.head.take();
        self.verify_against(head)
    }

    /// The same with a head from elsewhere, which must not be newer than the files.
    pub fn verify_against(self, head: Option<Head>) -> io::Result<Report> {
        let is_rotated_out = self.files.len() > KEEP;
        let mut verifier = Verifier::new(Expected::Whole { head, is_rotated_out });
        let (mut end, mut torn) = (Place::default(), 0);
        for (path, file) in self.files.into_iter().rev() {
            (end, torn) = feed(&mut verifier, &path, file)?;
        }
        Ok(verifier.finish(end, torn))
    }
}

/// Whether the lines of one file follow each other as they were written.
pub fn verify_file(path: &Path) -> io::Result<Report> {
    let mut verifier = Verifier::new(Expected::Part);
    let (end, torn) = feed(&mut verifier, path, File::open(path)?)?;
    Ok(verifier.finish(end, torn))
}

/// Returns the place of the last line, and how many bytes stand behind the last newline.
fn feed(verifier: &mut Verifier, path: &Path, file: File) -> io::Result<(Place, usize)> {
    let mut place = Place { file: path.display().to_string(), line: 0 };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok((place, 0));
        }
        place.line += 1;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return Ok((place, line.len()));
        }
        verifier.line(place.clone(), &line);
    }
}

/// The lines of a file from its end. What stands behind the last newline is left out.
pub struct Backwards {
    file: File,
    /// The file up to here is not read yet; none before the first read.
    unread: Option<u64>,
    /// What was read and not given: whole lines, but for the first, which may begin in what is not read.
    buffer: Vec<u8>,
}

impl Backwards {
    pub fn new(file: File) -> Self {
        Self { file, unread: None, buffer: Vec::new() }
    }

    fn more(&mut self, unread: u64) -> io::Result<()> {
        let from = unread.saturating_sub(CHUNK);
        self.file.seek(SeekFrom::Start(from))?;
        let mut chunk = vec![0; usize::try_from(unread - from).unwrap_or_default()];
        self.file.read_exact(&mut chunk)?;
        chunk.append(&mut self.buffer);
        (self.buffer, self.unread) = (chunk, Some(from));
        Ok(())
    }

    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.unread.is_none() {
            self.unread = Some(self.file.metadata()?.len());
            // Cuts off what stands behind the last newline.
            self.take_line()?;
        }
        self.take_line()
    }

    /// What stands behind the last newline of what is left, which goes with it.
    fn take_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            let end = self.buffer.len() - searched;
            if let Some(newline) = self.buffer[..end].iter().rposition(|byte| *byte == b'\n') {
                let line = self.buffer.split_off(newline + 1);
                self.buffer.pop();
                return Ok(Some(line));
            }
            searched = self.buffer.len();
            match self.unread.unwrap_or_default() {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Ok(Some(std::mem::take(&mut self.buffer))),
                unread => self.more(unread)?,
            }
        }
    }
}

impl Iterator for Backwards {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backwards(text: &[u8]) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, text).unwrap();
        Backwards::new(File::open(path).unwrap()).collect::<io::Result<_>>().unwrap()
    }

    #[test]
    fn lines_come_from_the_end_without_what_is_torn() {
        assert_eq!(backwards(b""), [b""; 0]);
        assert_eq!(backwards(b"torn"), [b""; 0]);
        assert_eq!(backwards(b"a\nb\n"), [b"b", b"a"]);
        assert_eq!(backwards(b"a\nb\ntorn"), [b"b", b"a"]);
        let long: Vec<Vec<u8>> =
            (0..5000u32).map(|n| vec![b'a' + (n % 26) as u8; n as usize % 300 + 1]).collect();
        let mut text = long.join(&b'\n');
        text.push(b'\n');
        let read = backwards(&text);
        assert!(read.iter().rev().eq(long.iter()));
        let one = vec![b'x'; 300_000];
        assert_eq!(backwards(&[one.as_slice(), b"\ntorn"].concat()), [one]);
    }
}
