//! librados, loaded when it is needed: the binary builds and runs on machines without Ceph.
//!
//! In: commands as JSON. Out: what the monitors answer. Holds: the library and one connection, which librados keeps
//! alive and whose calls may be made from any thread.

#![allow(
    unsafe_code,
    reason = "a C library without Rust bindings that do not link it; every call is in this file"
)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

use libloading::Library;
use serde_json::Value;

use crate::command::{CommandError, Commands, ConnectError, EINVAL, Target, answer, words};

type Handle = *mut c_void;
type Create2 = unsafe extern "C" fn(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
type ReadConf = unsafe extern "C" fn(Handle, *const c_char) -> c_int;
type SetConf = unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int;
type Connect = unsafe extern "C" fn(Handle) -> c_int;
type Shutdown = unsafe extern "C" fn(Handle);
type FreeBuffer = unsafe extern "C" fn(*mut c_char);
type Buffers = (*mut *mut c_char, *mut usize);
type MonCommand = unsafe extern "C" fn(
    Handle,
    *const *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut *mut c_char,
    *mut usize,
) -> c_int;
type MonCommandTarget = unsafe extern "C" fn(
    Handle,
    *const c_char,
    *const *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut *mut c_char,
    *mut usize,
) -> c_int;

/// The functions we call. They stay valid as long as the library, which is kept beside them.
pub(crate) struct Librados {
    create2: Create2,
    conf_read_file: ReadConf,
    conf_set: SetConf,
    connect: Connect,
    shutdown: Shutdown,
    buffer_free: FreeBuffer,
    mon_command: MonCommand,
    mon_command_target: MonCommandTarget,
    _library: Library,
}

pub(crate) struct Connection {
    rados: Librados,
    handle: Handle,
}

// SAFETY: librados documents its cluster handle as usable from several threads at once.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Librados {
    pub(crate) fn load() -> Result<Self, libloading::Error> {
        // SAFETY: librados' initialisers have no preconditions, and the types above are those of its header.
        unsafe {
            let library = Library::new("librados.so.2")?;
            Ok(Self {
                create2: *library.get(b"rados_create2\0")?,
                conf_read_file: *library.get(b"rados_conf_read_file\0")?,
                conf_set: *library.get(b"rados_conf_set\0")?,
                connect: *library.get(b"rados_connect\0")?,
                shutdown: *library.get(b"rados_shutdown\0")?,
                buffer_free: *library.get(b"rados_buffer_free\0")?,
                mon_command: *library.get(b"rados_mon_command\0")?,
                mon_command_target: *library.get(b"rados_mon_command_target\0")?,
                _library: library,
            })
        }
    }

    pub(crate) fn connect(self, target: &Target) -> Result<Connection, ConnectError> {
        let failed = |attempt| {
            let conf = target.conf.clone();
            move |reason: String| ConnectError::Librados { attempt, conf, reason }
        };
        let text = |text: &str| CString::new(text).map_err(|_| "a zero byte in a name or path".to_owned());
        let checked = |code: c_int| {
            if code < 0 { Err(std::io::Error::from_raw_os_error(-code).to_string()) } else { Ok(()) }
        };
        let user = text(&target.user).map_err(failed("take the user's name"))?;
        let conf = text(&target.conf.to_string_lossy()).map_err(failed("take the path"))?;
        let keyring = text(&target.keyring.to_string_lossy()).map_err(failed("take the keyring's path"))?;
        let mut handle = ptr::null_mut();
        // SAFETY: all strings end in zero and outlive the calls; the handle is used only after it was made.
        unsafe {
            checked((self.create2)(&mut handle, c"ceph".as_ptr(), user.as_ptr(), 0))
                .map_err(failed("start"))?;
            // From here on the handle is shut down with the connection.
            let connection = Connection { rados: self, handle };
            let rados = &connection.rados;
            checked((rados.conf_read_file)(handle, conf.as_ptr()))
                .map_err(failed("read the configuration"))?;
            // Without these a cluster that is down would block a caller for minutes.
            let settings = [
                (c"keyring", keyring.as_c_str()),
                (c"client_mount_timeout", c"10"),
                (c"rados_mon_op_timeout", c"15"),
            ];
            for (name, value) in settings {
                checked((rados.conf_set)(handle, name.as_ptr(), value.as_ptr()))
                    .map_err(failed("be configured"))?;
            }
            checked((rados.connect)(handle)).map_err(failed("connect"))?;
            Ok(connection)
        }
    }
}

impl Connection {
    fn call(
        &self,
        command: &Value,
        send: impl FnOnce(*const *const c_char, Buffers, Buffers) -> c_int,
    ) -> Result<Value, CommandError> {
        let failed = |errno, message| CommandError { command: words(command), errno, message };
        let text = CString::new(command.to_string()).map_err(|_| failed(EINVAL, "a zero byte".to_owned()))?;
        let list = [text.as_ptr()];
        let (mut out, mut out_len, mut said, mut said_len) = (ptr::null_mut(), 0, ptr::null_mut(), 0);
        let code = send(list.as_ptr(), (&mut out, &mut out_len), (&mut said, &mut said_len));
        let (out, said) = (self.take(out, out_len), self.take(said, said_len));
        if code < 0 {
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let os = std::io::Error::from_raw_os_error(-code).to_string();
            return Err(failed(-code, if said.is_empty() { os } else { said }));
        }
        Ok(answer(&out))
    }

    /// Copies a buffer of librados and gives it back.
    fn take(&self, buffer: *mut c_char, length: usize) -> Vec<u8> {
        if buffer.is_null() {
            return Vec::new();
        }
        // SAFETY: librados gave us this buffer of this length, and nobody else frees it.
        unsafe {
            let bytes = std::slice::from_raw_parts(buffer.cast::<u8>(), length).to_vec();
            (self.rados.buffer_free)(buffer);
            bytes
        }
    }
}

impl Commands for Connection {
    fn run(&self, command: &Value) -> Result<Value, CommandError> {
        let none: &CStr = c"";
        self.call(command, |list, (out, out_len), (said, said_len)| {
            // SAFETY: the command list and the places for the answers live through the call.
            unsafe {
                (self.rados.mon_command)(self.handle, list, 1, none.as_ptr(), 0, out, out_len, said, said_len)
            }
        })
    }

    fn tell(&self, monitor: &str, command: &Value) -> Result<Value, CommandError> {
        let failed = |_| CommandError {
            command: words(command),
            errno: EINVAL,
            message: "a zero byte in a name".to_owned(),
        };
        let name = CString::new(monitor).map_err(failed)?;
        let none: &CStr = c"";
        self.call(command, |list, (out, out_len), (said, said_len)| {
            // SAFETY: as in `run`; the monitor's name lives through the call too.
            unsafe {
                (self.rados.mon_command_target)(
                    self.handle,
                    name.as_ptr(),
                    list,
                    1,
                    none.as_ptr(),
                    0,
                    out,
                    out_len,
                    said,
                    said_len,
                )
            }
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `create2` and is not used after this.
        unsafe { (self.rados.shutdown)(self.handle) }
    }
}
