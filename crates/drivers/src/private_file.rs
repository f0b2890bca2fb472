//! Files that only their owner reads, written whole or not at all.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// Makes a directory, and those above it, that only the owner enters.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The same for a directory that holds secrets: one that is there and that others enter is refused. What they have already
/// read or put there would not be undone by closing it silently.
pub fn own_dir(path: &Path) -> io::Result<()> {
    create_dir(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let text = format!(
        "others can enter {} (mode {:03o}); look who was there, then run: chmod 700 {}",
        path.display(),
        mode & 0o777,
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Makes a file that only its owner reads, from its first byte. A file of that name, with whatever permissions, goes first.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Replaces a file's content; after a crash the file holds the old content or the new, never a part.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension("new");
    // A leftover of an earlier crash may have other permissions.
    let mut file = create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // A bare file name has the empty path as its parent.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_directory_that_others_enter_is_refused_with_what_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        own_dir(&path).unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o700, 0o700));
        for loose in [0o755, 0o710, 0o707, 0o777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(loose)).unwrap();
            let refused = own_dir(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("chmod 700 {}", path.display())), "{refused}");
        }
    }

    #[test]
    fn a_file_is_private_from_its_first_byte_also_where_another_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        drop(create(&path).unwrap());
        assert_eq!(mode(&path), 0o600);
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
    }
}
