//! Files that are replaced whole: after a crash there is the old content or the new, never a part.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// Makes a directory, and those above it, that only the owner enters.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The same for the directory of the agent's state: one that is there and that others can write to is refused, since whoever
/// changes the state opens every Pod of the node. There is no secret in it that reading would give away.
pub fn own_dir(path: &Path) -> io::Result<()> {
    create_dir(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o022 == 0 {
        return Ok(());
    }
    let shown = path.display();
    let text = format!(
        "others can write to {shown} (mode {:03o}); look what is there, then run: chmod 700 {shown}",
        mode & 0o777
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Replaces a file with what `fill` writes, and gives it back, open for writing at its end.
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let temporary = path.with_added_extension("new");
    let replaced = write(&temporary, fill).and_then(|file| {
        fs::rename(&temporary, path)?;
        // A bare file name has the empty path as its parent.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
        Ok(file)
    });
    if replaced.is_err() {
        // On a full disk a half-written file stands in the way of everybody.
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

fn write(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    fill(&mut file)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_write_to_is_refused_with_what_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        own_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        let refused = own_dir(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("chmod 700 {}", path.display())), "{refused}");
    }
}
