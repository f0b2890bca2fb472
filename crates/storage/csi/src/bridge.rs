//! A bridge: one process between one nbd device of the kernel and the storage's NBD server, for as long as the volume is attached.
//!
//! In: the record of an attachment, requests of the kernel on a socket of its own. Out: the same requests to the server over TLS, as often
//! as it takes, and each answered once. Holds: what the kernel waits for, and what was written and may not be on the server's disk yet:
//! a server that comes back after a power cut gets it again, so that the kernel never believes in what is lost.
//!
//! The kernel keeps the device when the bridge dies and waits for the next one, and the bridge keeps everything when the server goes.
//! Nothing is asked of the driver: it may stop, and be replaced. Who was refused as a writer is told so for good, and the kernel gets errors.
//!
//! ```text
//!   kernel ── socket ──► pump ──► window ● ──► upstream ── TLS ──► NBD server
//!     ▲  └ netlink ◄── device        │ lost: connect, replay, go on
//!     └──────────── answers ◄────────┘
//! ```

mod control;
pub mod device;
mod line;
mod pump;
mod upstream;
mod window;

pub use control::{Ask, Link, State, ask};
pub use pump::{BridgeError, run};
