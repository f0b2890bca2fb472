//! What is mounted where, as the kernel says, and changes to that.

use std::{
    ffi::CString,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{major, minor},
    mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount},
};
use tonic::Status;

use crate::plan::FileSystem;

/// A line of the kernel's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Of the file system, by its device.
    device: (u32, u32),
    /// What of the file system is shown: of a device node on devtmpfs its name.
    root: String,
    pub(super) point: PathBuf,
    pub(super) read_only: bool,
    /// The file system itself is, as after an error.
    pub(super) frozen: bool,
}

pub(super) fn parse(list: &str) -> Vec<Mount> {
    list.lines().filter_map(line).collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/x rw,errors=continue`
fn line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut words = before.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let (root, point, options) = (plain(words.next()?), plain(words.next()?), words.next()?);
    let of_all = after.split(' ').nth(2).unwrap_or_default();
    let read_only = |options: &str| options.split(',').any(|option| option == "ro");
    Some(Mount {
        device,
        root,
        point: point.into(),
        read_only: read_only(options),
        frozen: read_only(of_all),
    })
}

/// Spaces and the like are written as three octal digits.
fn plain(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn mounts() -> Result<Vec<Mount>, Status> {
    let list = fs::read_to_string("/proc/thread-self/mountinfo");
    list.map(|list| parse(&list))
        .map_err(|err| Status::internal(format!("cannot see what is mounted: {err}")))
}

/// What is mounted at a path: the topmost.
pub(super) fn at(mounts: &[Mount], path: &Path) -> Option<Mount> {
    mounts.iter().rev().find(|mount| mount.point == path).cloned()
}

impl Mount {
    /// Whether it shows the file system on this device, or the device itself.
    pub(super) fn is_of(&self, device: &Path) -> bool {
        let Ok(found) = fs::metadata(device) else { return false };
        let numbers = (major(found.rdev()), minor(found.rdev()));
        let name = device.file_name().map(|name| format!("/{}", name.to_string_lossy()));
        self.device == numbers
            || (Some(&self.root) == name.as_ref()
                && fs::metadata(&self.point)
                    .is_ok_and(|there| there.file_type().is_block_device() && there.rdev() == found.rdev()))
    }
}

/// Paths where the device or its file system is, apart from one.
pub(super) fn others(mounts: &[Mount], device: &Path, but: &[&Path]) -> Vec<PathBuf> {
    let found = mounts.iter().filter(|mount| mount.is_of(device)).map(|mount| mount.point.clone());
    found.filter(|point| !but.contains(&point.as_path())).collect()
}

pub(super) fn mount_device(
    fs: FileSystem,
    device: &Path,
    point: &Path,
    read_only: bool,
    wanted: &[String],
) -> Result<(), Status> {
    let (flags, mut options) = options(wanted);
    match (fs, read_only) {
        // Nobody can write, not even the journal's replay.
        (FileSystem::Ext4, true) => options.push("noload".to_owned()),
        (FileSystem::Xfs, true) => options.push("norecovery".to_owned()),
        (FileSystem::Ext4 | FileSystem::Xfs, false) => {}
    }
    if fs == FileSystem::Xfs {
        // A copy has the UUID of what it was made of, and both may be on one node.
        options.push("nouuid".to_owned());
    }
    let flags = if read_only { flags | MountFlags::RDONLY } else { flags };
    let data = CString::new(options.join(","))
        .map_err(|_| Status::invalid_argument("a mount option has a zero byte"))?;
    let done = mount(device, point, fs.to_string(), flags, data.as_c_str());
    done.map_err(|err| refused(&format!("mount {} as {fs} at {}", device.display(), point.display()), err))
}

/// The kernel's flags, and what is the file system's own to understand.
fn options(wanted: &[String]) -> (MountFlags, Vec<String>) {
    let (mut flags, mut rest) = (MountFlags::empty(), Vec::new());
    for option in wanted {
        match option.as_str() {
            "defaults" | "rw" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "nodev" => flags |= MountFlags::NODEV,
            "nosuid" => flags |= MountFlags::NOSUID,
            "noexec" => flags |= MountFlags::NOEXEC,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            other => rest.push(other.to_owned()),
        }
    }
    (flags, rest)
}

pub(super) fn bind(from: &Path, to: &Path, read_only: bool) -> Result<(), Status> {
    let what = || format!("mount {} at {}", from.display(), to.display());
    mount_bind(from, to).map_err(|err| refused(&what(), err))?;
    if !read_only {
        return Ok(());
    }
    let made = mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, c"");
    made.map_err(|err| {
        // Better none than one that can be written to.
        let _ = unmount(to, UnmountFlags::DETACH);
        refused(&format!("make {} read-only", to.display()), err)
    })
}

/// Until nothing is mounted there.
pub(super) fn unmount_all(point: &Path) -> Result<(), Status> {
    while at(&mounts()?, point).is_some() {
        unmount(point, UnmountFlags::NOFOLLOW)
            .map_err(|err| refused(&format!("unmount {}", point.display()), err))?;
    }
    Ok(())
}

fn refused(what: &str, err: rustix::io::Errno) -> Status {
    Status::internal(format!("cannot {what}: {}", io::Error::from(err)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_with_all_its_oddities() {
        let list = "22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
                    90 28 43:0 / /a\\040b\\134c ro,noatime - ext4 /dev/nbd0 ro,errors=remount-ro\n\
                    91 28 43:0 /sub /x rw shared:1 master:2 - ext4 /dev/nbd0 rw\n\
                    92 28 0:5 /nbd0 /dev-at rw - devtmpfs udev rw\nnonsense\n";
        let mounts = parse(list);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].point, Path::new("/a b\\c"));
        assert_eq!((mounts[1].device, mounts[1].read_only, mounts[1].frozen), ((43, 0), true, true));
        assert_eq!(at(&mounts, Path::new("/x")).unwrap().root, "/sub");
        assert_eq!(mounts[3].root, "/nbd0");
        assert_eq!(at(&mounts, Path::new("/y")), None);
    }

    #[test]
    fn options_of_the_kernel_and_of_file_systems_are_told_apart() {
        let words = ["noatime", "ro", "discard", "rw", "data=journal"].map(str::to_owned);
        let (flags, rest) = options(&words);
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(rest, ["discard", "data=journal"]);
    }
}
