//! Refusals of callers who did not say who they are: a sample, in a file of its own that takes no room from the others.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::record::Record;

/// Size at which the file replaces the older one.
const ROTATE_AT: u64 = 4 << 20;

pub struct Strangers {
    path: PathBuf,
    open: Option<(File, u64)>,
}

impl Strangers {
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join("strangers.log"), open: None }
    }

    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => {
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
                let size = file.metadata()?.len();
                (file, size)
            }
        };
        file.write_all(&line)?;
        size += line.len() as u64;
        if size >= ROTATE_AT {
            return fs::rename(&self.path, self.path.with_added_extension("1"));
        }
        self.open = Some((file, size));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn two_files_at_most_of_a_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let mut strangers = Strangers::new(dir.path());
        let record = Record::event(Timestamp::UNIX_EPOCH, "x", "y".repeat(100_000));
        (0..200).for_each(|_| strangers.append(&record).unwrap());
        let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|file| file.metadata().unwrap().len() < ROTATE_AT + 200_000));
    }
}
