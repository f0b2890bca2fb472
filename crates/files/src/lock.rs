//! One process at a time: a lock on a file, given back when it is dropped.

use std::{
    fs::{File, OpenOptions, TryLockError},
    ops::Deref,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// A file that this process has taken.
///
/// It is unlocked by name and not by closing alone: a child that is being started by another thread holds a copy of
/// every open file until it becomes its own program, and with the copy the lock.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the file, made if there is none; its content stays.
    pub fn take(path: &Path) -> Result<Self, TryLockError> {
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(TryLockError::Error)?;
        Self::of(file)
    }

    /// Takes a file that is open.
    pub fn of(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is closed next, which unlocks it if this could not.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cannot_have_it_and_the_second_has_it_after_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path).unwrap();
        assert!(matches!(Lock::take(&path), Err(TryLockError::WouldBlock)));
        drop(first);
        Lock::take(&path).unwrap();
    }

    /// As a child has it between its start and its program.
    #[test]
    fn a_copy_of_the_open_file_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path).unwrap();
        let copy = first.try_clone().unwrap();
        drop(first);
        Lock::take(&path).unwrap();
        drop(copy);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error_and_not_taken() {
        assert!(matches!(Lock::take(Path::new("/nowhere/at/all")), Err(TryLockError::Error(_))));
    }
}
