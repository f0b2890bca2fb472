//! Files as every part of Trestle keeps them: private, replaced whole or not at all, and taken by one process.
//!
//! In: paths and bytes. Out: files on disk. Holds nothing. Not here: what is in them.

mod lock;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

pub use lock::Lock;

/// Makes a directory, and those above it, that only the owner enters.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The same for a directory that holds secrets: one that is there and that others enter is refused. What they have already read
/// or put there would not be undone by closing it silently.
pub fn closed_dir(path: &Path) -> io::Result<()> {
    refused_if(path, 0o077, "others can enter")
}

/// The same for a directory whose content decides something but is no secret: it is refused if others write there.
pub fn guarded_dir(path: &Path) -> io::Result<()> {
    refused_if(path, 0o022, "others can write to")
}

fn refused_if(path: &Path, rights: u32, what: &str) -> io::Result<()> {
    create_dir(path)?;
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & rights == 0 {
        return Ok(());
    }
    let shown = path.display();
    let text = format!("{what} {shown} (mode {mode:03o}); look who was there, then run: chmod 700 {shown}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Makes a new file that only the owner reads, from its first byte on. What is there goes first: it may have other
/// permissions, or be a link to somewhere else.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Replaces a file's content; after a crash there is the old content or the new, never a part.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(content)).map(drop)
}

/// Replaces a file with what `fill` writes, and gives it back, open for writing at its end.
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let temporary = path.with_added_extension("new");
    let replaced = create(&temporary).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_dir_of(path)?;
        Ok(file)
    });
    if replaced.is_err() {
        // On a full disk a half-written file stands in the way of everybody.
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

/// Makes sure that a name which was just made, moved or removed is so on disk.
pub fn sync_dir_of(path: &Path) -> io::Result<()> {
    // A bare file name has the empty path as its parent.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_enter_is_refused_with_what_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        closed_dir(&path).unwrap();
        for (mode, enters, writes) in
            [(0o755, true, false), (0o710, true, false), (0o770, true, true), (0o702, true, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                (closed_dir(&path).is_err(), guarded_dir(&path).is_err()),
                (enters, writes),
                "{mode:o}"
            );
            let refused = closed_dir(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("chmod 700 {}", path.display())), "{refused}");
        }
    }

    #[test]
    fn content_is_replaced_and_leftovers_do_not_stand_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        fs::write(dir.path().join("a.key.new"), "half").unwrap();
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_cannot_be_filled_leaves_the_old_content_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write(&path, b"old").unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// A link that somebody left where the temporary file goes must not be followed.
    #[test]
    fn a_link_in_the_way_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("state"), dir.path().join("victim"));
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("state.new")).unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
