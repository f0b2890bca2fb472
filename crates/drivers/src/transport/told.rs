//! Which sets and policies nodes were told of, also by earlier runs: a client of Azure NPM that was away over a restart
//! must be told what is gone, since its protocol has no way to say what there is.
//!
//! In: names as they are told, and as they go. Out: the names that an earlier run told and that are not there. Holds: a file
//! of names, one in a line, which is written anew at the start and when it has grown; lines are added as names come. It
//! is not forced to the disk: after a loss of power, what was told last may be missing, and its removal with it.

use std::{
    collections::{HashSet, VecDeque},
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use ::transport::core::KEPT_LOSSES;
use model::policy::output::Identifier;
use tracing::warn;
use wire::trestle::v1::ObjectKind;

/// Lines that may be there beyond those that are needed.
const SLACK: usize = 10_000;

/// A set or a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub kind: ObjectKind,
    pub name: Identifier,
}

/// The names that were told.
pub struct Told {
    path: PathBuf,
    /// None: it cannot be written, which was said.
    file: Option<File>,
    lines: usize,
    present: HashSet<Name>,
    /// What is gone, oldest first, each once or more; bounded as what the fan-out remembers is.
    gone: VecDeque<Name>,
    kept: usize,
    /// What an earlier run told, until it is known what is there.
    earlier: Vec<Name>,
}

impl Told {
    pub fn open(path: PathBuf) -> Self {
        let earlier = match earlier(&path) {
            Ok(names) => names,
            Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(err) => {
                warn!(%err, path = %path.display(), "what nodes were told before is not known; dataplanes may keep what is gone");
                Vec::new()
            }
        };
        let file = append(&path);
        let lines = earlier.len();
        Self { path, file, lines, present: HashSet::new(), gone: VecDeque::new(), kept: KEPT_LOSSES, earlier }
    }

    /// Names that are told from now on.
    pub fn come(&mut self, names: impl IntoIterator<Item = Name>) {
        let mut text = String::new();
        for name in names {
            if !self.present.contains(&name) {
                writeln!(text, "{name}").expect("a String takes everything");
                self.lines += 1;
                self.present.insert(name);
            }
        }
        if let Some(file) = self.file.as_mut().filter(|_| !text.is_empty())
            && let Err(err) = file.write_all(text.as_bytes())
        {
            self.fail(&err);
        }
        if self.earlier.is_empty() && self.lines > self.present.len() + self.gone.len() + SLACK {
            self.rewrite();
        }
    }

    /// A name that is told no more.
    pub fn go(&mut self, name: Name) {
        if self.present.remove(&name) {
            self.gone.push_back(name);
            if self.gone.len() > self.kept {
                self.gone.pop_front();
            }
        }
    }

    /// Everything that is there has come: what an earlier run told and is not there. Once.
    pub fn settle(&mut self) -> Vec<Name> {
        let earlier = std::mem::take(&mut self.earlier);
        let mut seen = HashSet::new();
        let mut missing: Vec<_> = earlier
            .into_iter()
            .rev()
            .filter(|name| !self.present.contains(name) && seen.insert(name.clone()))
            .take(self.kept)
            .collect();
        missing.reverse();
        // They are older than what has gone since.
        missing.iter().rev().for_each(|name| self.gone.push_front(name.clone()));
        self.rewrite();
        missing
    }

    fn rewrite(&mut self) {
        let mut seen = HashSet::new();
        let gone = self.gone.iter().filter(|name| !self.present.contains(name) && seen.insert(*name));
        let mut lines = 0;
        let written = files::replace(&self.path, |file| {
            let mut out = BufWriter::new(file);
            for name in gone.chain(&self.present) {
                writeln!(out, "{name}")?;
                lines += 1;
            }
            out.flush()
        });
        self.lines = lines;
        match written {
            Ok(_) => self.file = append(&self.path),
            Err(err) => self.fail(&err),
        }
    }

    fn fail(&mut self, err: &io::Error) {
        warn!(%err, path = %self.path.display(), "what nodes are told is not written down; dataplanes that are away over a restart may keep what is gone");
        self.file = None;
    }
}

/// One line after the other: there may be as many as there are objects.
fn earlier(path: &Path) -> io::Result<Vec<Name>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines.filter_map(|line| line.map(|line| Name::read(&line)).transpose()).collect()
}

fn append(path: &Path) -> Option<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened
        .inspect_err(|err| warn!(%err, path = %path.display(), "what nodes are told cannot be written down"))
        .ok()
}

/// As it stands in a line.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)
    }
}

impl Name {
    /// A line that was cut, or is of another version, is passed over.
    fn read(line: &str) -> Option<Self> {
        let (word, name) = line.split_once(' ')?;
        let kinds = [ObjectKind::AppliedToSet, ObjectKind::AddressSet, ObjectKind::Policy];
        let kind = kinds.into_iter().find(|kind| kind.word() == word)?;
        (!name.is_empty()).then(|| Self { kind, name: Identifier::parse(name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name { kind: ObjectKind::AddressSet, name: Identifier::parse(text) }
    }

    #[test]
    fn what_an_earlier_run_told_and_is_gone_is_known_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("told");
        let mut first = Told::open(path.clone());
        assert!(first.settle().is_empty());
        first.come(["a", "b", "c"].map(name));
        first.go(name("b"));
        first.come([name("a")]);
        drop(first);

        let mut second = Told::open(path.clone());
        second.come([name("c"), name("d")]);
        assert_eq!(second.settle(), [name("a"), name("b")]);
        assert!(second.settle().is_empty());
        drop(second);
        // Also by the one after it; a line that was cut is nothing.
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "address-set\npoli").unwrap();
        let mut third = Told::open(path);
        third.come([name("a")]);
        let mut missing = third.settle();
        missing.sort_by_key(|name| name.name.to_string());
        assert_eq!(missing, ["b", "c", "d"].map(name));
    }

    #[test]
    fn the_file_does_not_grow_with_what_comes_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("told");
        let mut told = Told::open(path.clone());
        told.kept = 10;
        told.settle();
        for n in 0..30_000 {
            told.come([name(&format!("n{n}"))]);
            told.go(name(&format!("n{n}")));
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= SLACK + 20, "{lines}");
        drop(told);
        assert_eq!(Told::open(path).earlier.last(), Some(&name("n29999")));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_said_and_nothing_else() {
        let mut told = Told::open("/nonexistent/told".into());
        told.come([name("a")]);
        told.go(name("a"));
        assert!(told.settle().is_empty());
    }
}
