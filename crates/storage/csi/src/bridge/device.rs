//! The kernel's nbd devices, over netlink: connected, given another socket or size, disconnected.
//!
//! A device that was connected so stays when the socket's other end is gone, and waits for the next one.

use std::{
    fs,
    os::fd::{AsRawFd as _, BorrowedFd},
    path::{Path, PathBuf},
    process::Command,
};

use node_kernel::netlink::{ACK, Header, MessageWriter, NetlinkError, REQUEST, Socket, Writer};

use crate::attach::AttachError;

const NETLINK_GENERIC: isize = 16;
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Command, version and padding.
const FIXED: usize = 4;
const NO_ENTRY: i32 = 2;

const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE: u16 = 2;
const BLOCK_SIZE: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const BACKEND: u16 = 10;
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;

/// Has flags, read only, flush, FUA, trim: of what a server can do, what this client passes on.
const PASSED: u16 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5;
/// Sectors of the devices. A file system keeps those it was made with, so this never changes.
const SECTOR: u64 = 4096;
/// Seconds for which a device waits for its next bridge: longer than anybody waits.
const WAITS: u64 = 30 * 24 * 3600;

/// What a bridge serves: the kernel's devices, or what stands for them.
pub trait Devices: Send + Sync + 'static {
    /// Gives a socket to the device of a backend that waits for one, or else to a new one; its number.
    fn serve(&self, backend: &str, size: u64, flags: u16, socket: BorrowedFd<'_>)
    -> Result<u32, AttachError>;
    fn resize(&self, index: u32, backend: &str, size: u64) -> Result<(), AttachError>;
    /// What waits for it fails.
    fn disconnect(&self, index: u32) -> Result<(), AttachError>;
}

pub struct KernelDevices;

impl Devices for KernelDevices {
    fn serve(
        &self,
        backend: &str,
        size: u64,
        flags: u16,
        socket: BorrowedFd<'_>,
    ) -> Result<u32, AttachError> {
        let mut kernel = Kernel::open()?;
        match find(backend) {
            Some((index, _)) => kernel.resume(index, backend, size, socket).map(|()| index),
            None => kernel.connect(backend, size, flags, socket),
        }
    }

    fn resize(&self, index: u32, backend: &str, size: u64) -> Result<(), AttachError> {
        Kernel::open()?.resize(index, backend, size)
    }

    fn disconnect(&self, index: u32) -> Result<(), AttachError> {
        Kernel::open()?.disconnect(index)
    }
}

pub struct Kernel {
    socket: Socket,
    family: u16,
}

impl Kernel {
    pub fn open() -> Result<Self, AttachError> {
        match Self::family() {
            Err(AttachError::NoModule) => {
                // It is not loaded by itself. Where it is not, or there is no modprobe, the second question says so.
                let _ = Command::new("modprobe").arg("nbd").output();
                Self::family()
            }
            found => found,
        }
    }

    fn family() -> Result<Self, AttachError> {
        let failed = |source| AttachError::Kernel { what: "to be asked for network block devices", source };
        let mut socket = Socket::open(NETLINK_GENERIC, "generic").map_err(failed)?;
        let mut request = MessageWriter::new();
        let header = Header { kind: CONTROL, flags: REQUEST, seq: socket.next_seq() };
        request.message(header, &[GET_FAMILY, 1, 0, 0], |out| out.text(FAMILY_NAME, "nbd"));
        match socket.get(request.as_bytes(), |message| message.attrs(FIXED)?.get(FAMILY_ID)?.u16()) {
            Ok(family) => Ok(Self { socket, family }),
            Err(error) if error.errno() == Some(NO_ENTRY) => Err(AttachError::NoModule),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes a free device, or makes one; its number.
    pub fn connect(
        &mut self,
        backend: &str,
        size: u64,
        flags: u16,
        served: BorrowedFd<'_>,
    ) -> Result<u32, AttachError> {
        let request = self.request(CONNECT, REQUEST, |out| {
            out.bytes(SIZE, &size.to_ne_bytes());
            out.bytes(BLOCK_SIZE, &SECTOR.to_ne_bytes());
            out.bytes(SERVER_FLAGS, &u64::from(flags & PASSED).to_ne_bytes());
            configuration(out, backend, served);
        });
        let index = self.socket.get(request.0.as_bytes(), |message| message.attrs(FIXED)?.get(INDEX)?.u32());
        index.map_err(|source| AttachError::Kernel { what: "to connect a device", source })
    }

    /// Gives a device that has lost its socket another one.
    pub fn resume(
        &mut self,
        index: u32,
        backend: &str,
        size: u64,
        served: BorrowedFd<'_>,
    ) -> Result<(), AttachError> {
        self.execute("to give a device its next socket", RECONFIGURE, |out| {
            out.u32(INDEX, index);
            out.bytes(SIZE, &size.to_ne_bytes());
            configuration(out, backend, served);
        })
    }

    pub fn resize(&mut self, index: u32, backend: &str, size: u64) -> Result<(), AttachError> {
        self.execute("to change a device's size", RECONFIGURE, |out| {
            out.u32(INDEX, index);
            out.bytes(SIZE, &size.to_ne_bytes());
            out.text(BACKEND, backend);
        })
    }

    /// What waits for it fails.
    pub fn disconnect(&mut self, index: u32) -> Result<(), AttachError> {
        self.execute("to disconnect a device", DISCONNECT, |out| out.u32(INDEX, index))
    }

    fn execute(
        &mut self,
        what: &'static str,
        command: u8,
        attrs: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), AttachError> {
        let (request, seq) = self.request(command, REQUEST | ACK, attrs);
        let done: Result<(), NetlinkError> = self.socket.execute(request.as_bytes(), seq);
        done.map_err(|source| AttachError::Kernel { what, source })
    }

    fn request(
        &mut self,
        command: u8,
        flags: u16,
        attrs: impl FnOnce(&mut Writer<'_>),
    ) -> (MessageWriter, u32) {
        let seq = self.socket.next_seq();
        let mut request = MessageWriter::new();
        request.message(Header { kind: self.family, flags, seq }, &[command, 1, 0, 0], attrs);
        (request, seq)
    }
}

fn configuration(out: &mut Writer<'_>, backend: &str, served: BorrowedFd<'_>) {
    // No time is too long for a request: whether the storage comes back is the bridge's to say.
    out.bytes(TIMEOUT, &0_u64.to_ne_bytes());
    out.bytes(DEAD_CONNECTION_TIMEOUT, &WAITS.to_ne_bytes());
    out.text(BACKEND, backend);
    let fd = u32::try_from(served.as_raw_fd()).expect("an open file has a number");
    out.nest(SOCKETS, |out| out.nest(SOCKET_ITEM, |out| out.u32(SOCKET_FD, fd)));
}

/// The device that is connected for this backend, and its size.
pub fn find(backend: &str) -> Option<(u32, u64)> {
    let entries = fs::read_dir("/sys/block").ok()?.filter_map(Result::ok);
    entries.filter_map(|entry| number(&entry.path(), backend)).next()
}

fn number(dir: &Path, backend: &str) -> Option<(u32, u64)> {
    let index = dir.file_name()?.to_str()?.strip_prefix("nbd")?.parse().ok()?;
    let held = fs::read_to_string(dir.join("backend")).ok()?;
    (held.trim_end() == backend).then(|| (index, size(index)))
}

pub fn size(index: u32) -> u64 {
    let text = fs::read_to_string(format!("/sys/block/nbd{index}/size")).unwrap_or_default();
    text.trim().parse::<u64>().unwrap_or_default() * 512
}

pub fn path(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{index}"))
}

/// Disconnects what is connected for this backend, if anything is.
pub fn disconnect(backend: &str) -> Result<(), AttachError> {
    match find(backend) {
        Some((index, _)) => Kernel::open()?.disconnect(index),
        None => Ok(()),
    }
}
