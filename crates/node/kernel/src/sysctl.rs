//! Kernel settings under /proc/sys, of the network namespace of the calling thread.

use std::{fs, io};

#[derive(Debug, thiserror::Error)]
#[error("cannot set {name} to {value}")]
pub struct SysctlError {
    pub name: &'static str,
    pub value: String,
    #[source]
    pub source: io::Error,
}

/// As it is; none if it cannot be read.
pub fn read(name: &str) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().to_owned())
}

/// Sets what differs, and returns how many that were. Names have slashes, as paths below /proc/sys.
pub fn ensure(settings: &[(&'static str, impl AsRef<str>)]) -> Result<usize, SysctlError> {
    let mut changed = 0;
    for (name, value) in settings {
        let (name, value) = (*name, value.as_ref());
        let path = format!("/proc/sys/{name}");
        let set = || {
            if fs::read_to_string(&path)?.trim() == value {
                return Ok(0);
            }
            fs::write(&path, value).map(|()| 1)
        };
        changed += set().map_err(|source| SysctlError { name, value: value.to_owned(), source })?;
    }
    Ok(changed)
}
