//! The demonstration's directory: made by it, recognised by a file in it, and gone when it ends.
//!
//! In: where it is to be. Out: a directory of its own, and the mark that names of namespaces carry. Holds a lock, so that
//! two demonstrations in one directory do not undo each other. One that was killed left its file: the next one takes away,
//! by the mark, what is still there, before it begins.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use cloud_linux::namespace;
use model::Segment;

use crate::context::ContextFile;

/// By this file a directory is known as a demonstration's.
const FLAG: &str = "trestle-demo";
/// The client's context as it was before.
const CONTEXT: &str = "context.before";

pub struct Home {
    dir: PathBuf,
    mark: String,
    clouds: Vec<Segment>,
    _lock: files::Lock,
}

impl Home {
    /// Takes the directory. True if an earlier demonstration had left something, which is gone now.
    pub async fn enter(dir: PathBuf, clouds: Vec<Segment>) -> anyhow::Result<(Self, bool)> {
        let failed = || format!("cannot use {} for the demonstration", dir.display());
        let flag = dir.join(FLAG);
        let there = entries(&dir).with_context(failed)?;
        if !there.is_empty() && !flag.exists() {
            bail!(
                "{} is not a demonstration's directory, and it would be emptied at the end; give another --data-dir",
                dir.display()
            );
        }
        files::create_dir(&dir).with_context(failed)?;
        let lock = match files::Lock::take(&flag) {
            Ok(lock) => lock,
            Err(fs::TryLockError::WouldBlock) => bail!("a demonstration runs in {} already", dir.display()),
            Err(fs::TryLockError::Error(err)) => return Err(err).with_context(failed),
        };
        let linux = dir.join("linux");
        files::create_dir(&linux).with_context(failed)?;
        let mark = cloud_linux::mark(&linux).with_context(failed)?;
        let home = Self { dir, mark, clouds, _lock: lock };
        let is_old = there.iter().any(|path| path.file_name().is_some_and(|name| name != FLAG));
        if is_old {
            home.clear().await?;
            files::create_dir(&linux).with_context(|| format!("cannot make {}", linux.display()))?;
        }
        home.remember_context()?;
        Ok((home, is_old))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The name of a node's or Pod's namespace.
    pub fn namespace(&self, of: &str) -> String {
        format!("{}{of}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("trd.{}.", self.mark)
    }

    /// Nothing is left, on the machine or on disk. The controller must have stopped.
    pub async fn leave(self) -> anyhow::Result<()> {
        self.clear().await?;
        fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))
    }

    /// Takes away everything but the flag.
    async fn clear(&self) -> anyhow::Result<()> {
        if rustix::process::geteuid().is_root() {
            for name in namespace::all().iter().filter(|name| name.starts_with(&self.prefix())) {
                namespace::delete(name).await?;
            }
            cloud_linux::erase(&self.dir.join("linux"), &self.clouds).await?;
        }
        self.restore_context()?;
        for path in entries(&self.dir)? {
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false if path.file_name().is_some_and(|name| name == FLAG) => Ok(()),
                false => fs::remove_file(&path),
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    fn remember_context(&self) -> anyhow::Result<()> {
        match fs::read(ContextFile::path()?) {
            Ok(text) => Ok(files::write(&self.dir.join(CONTEXT), &text)?),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(err) => Err(err).context("cannot read the context of the command line"),
        }
    }

    /// The command line knows again what it knew before, unless somebody has told it something else since.
    fn restore_context(&self) -> anyhow::Result<()> {
        let path = ContextFile::path()?;
        let is_ours = ContextFile::load()
            .ok()
            .flatten()
            .and_then(|context| context.token_file)
            .is_some_and(|token| token.starts_with(&self.dir));
        if !is_ours {
            return Ok(());
        }
        match fs::read(self.dir.join(CONTEXT)) {
            Ok(text) => files::write(&path, &text),
            Err(_) => fs::remove_file(&path),
        }
        .with_context(|| format!("cannot restore {}", path.display()))
    }
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}
