//! File systems on devices: looked at, made, checked and grown, by the programs that belong to them.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Command, Output},
};

use tonic::Status;

use super::content::{Content, HEAD, TAIL, content, mark};
use crate::plan::FileSystem;

/// What fsck answers when it has mended something.
const MENDED: i32 = 1;

pub(super) fn look(device: &Path, size: u64) -> Result<Content, Status> {
    let failed = |err: io::Error| Status::internal(format!("cannot read {}: {err}", device.display()));
    let file = File::open(device).map_err(failed)?;
    let mut head = vec![0; usize::try_from(size).unwrap_or(HEAD).min(HEAD)];
    let mut tail = vec![0; TAIL.min(head.len())];
    file.read_exact_at(&mut head, 0).map_err(failed)?;
    let end = size - tail.len() as u64;
    file.read_exact_at(&mut tail, end).map_err(failed)?;
    Ok(content(&head, &tail))
}

/// On a device that is empty, or on which it broke off. Killed at any time, it is begun again.
pub(super) fn make(fs: FileSystem, device: &Path, size: u64) -> Result<(), Status> {
    let failed = |err: io::Error| Status::internal(format!("cannot write to {}: {err}", device.display()));
    let file = OpenOptions::new().read(true).write(true).open(device).map_err(failed)?;
    let last = size.checked_sub(TAIL as u64);
    let last =
        last.ok_or_else(|| Status::failed_precondition("the volume is too small for a file system"))?;
    file.write_all_at(&mark(), last).and_then(|()| file.sync_all()).map_err(failed)?;
    // What is trimmed would be the mark too, and the volume is empty.
    let (program, words): (_, &[&str]) = match fs {
        FileSystem::Ext4 => ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard"]),
        FileSystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
    };
    let output = run(Command::new(program).args(words).arg(device))?;
    if !output.status.success() {
        return Err(Status::internal(format!("{program} failed: {}", said(&output))));
    }
    let mut block = vec![0; TAIL];
    file.read_exact_at(&mut block, last).map_err(failed)?;
    if block == mark() {
        file.write_all_at(&[0; TAIL], last).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

/// Before it is mounted. XFS checks itself when it is mounted.
pub(super) fn check(fs: FileSystem, device: &Path) -> Result<(), Status> {
    if fs == FileSystem::Xfs {
        return Ok(());
    }
    let output = run(Command::new("e2fsck").arg("-p").arg(device))?;
    match output.status.code() {
        Some(0) => Ok(()),
        Some(MENDED) => {
            tracing::warn!(device = %device.display(), said = said(&output), "the file system was mended");
            Ok(())
        }
        _ => Err(Status::failed_precondition(format!(
            "the file system on {} needs somebody to look at it: e2fsck says: {}",
            device.display(),
            said(&output)
        ))),
    }
}

/// As large as the device, while it is mounted there.
pub(super) fn grow(fs: FileSystem, device: &Path, mounted: &Path) -> Result<(), Status> {
    let output = match fs {
        FileSystem::Ext4 => run(Command::new("resize2fs").arg(device))?,
        FileSystem::Xfs => run(Command::new("xfs_growfs").arg("-d").arg(mounted))?,
    };
    if output.status.success() {
        return Ok(());
    }
    Err(Status::internal(format!(
        "the file system on {} cannot be grown: {}",
        device.display(),
        said(&output)
    )))
}

fn run(command: &mut Command) -> Result<Output, Status> {
    command.env("LC_ALL", "C").output().map_err(|err| {
        let program = command.get_program().to_string_lossy().into_owned();
        match err.kind() {
            io::ErrorKind::NotFound => Status::failed_precondition(format!(
                "there is no {program} here: the node, or the driver's image, needs e2fsprogs and xfsprogs"
            )),
            _ => Status::internal(format!("cannot start {program}: {err}")),
        }
    })
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim().replace('\n', "; ");
    text.chars().take(1000).collect()
}
