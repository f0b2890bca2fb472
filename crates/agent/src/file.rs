//! Files that are replaced whole: after a crash there is the old content or the new, never a part.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Makes a directory, and those above it, that only the owner enters.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
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
