//! Processes that outlive the controller: traffic goes on while it restarts, and it recognises them afterwards.
//!
//! A process is known by its number and the time it was started, both in a file; a number that was given to somebody
//! else since is not ours.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use cloud_api::{CloudError, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

/// How long a process that was told to end may take, before it is made to.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// A process and the file that remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    file: PathBuf,
}

/// Who a process is, as long as the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    pid: i32,
    /// In ticks since the machine was started.
    started: u64,
}

impl Daemon {
    /// Remembered in this directory under this name.
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        Self { file: dir.join(format!("{name}.pid")) }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running().is_some()
    }

    fn running(&self) -> Option<Identity> {
        let text = fs::read_to_string(&self.file).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let known = Identity { pid: pid.parse().ok()?, started: started.parse().ok()? };
        (identity(known.pid) == Some(known)).then_some(known)
    }

    /// Starts it inside a namespace. What it prints goes to a file beside the one that remembers it.
    pub(crate) fn start(&self, namespace: &str, words: &[&str], environment: &[(&str, &str)]) -> Result {
        let failed = |what: &str, err: io::Error| {
            CloudError::unavailable(format!("cannot {what} `{}`: {err}", words.join(" ")))
        };
        let log = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(self.file.with_extension("out"))
            .map_err(|err| failed("open the log of", err))?;
        let errors = log.try_clone().map_err(|err| failed("open the log of", err))?;
        let child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .args(words)
            .envs(environment.iter().copied())
            // Ctrl-C at the controller's terminal is not meant for it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|err| failed("start", err))?;
        // It becomes the program under the same number. It is not waited for here; the runtime does when it ends.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let Some(known) = pid.and_then(identity) else {
            return Err(CloudError::unavailable(format!("`{}` has ended at once", words.join(" "))));
        };
        files::write(&self.file, format!("{} {}\n", known.pid, known.started).as_bytes())
            .map_err(|err| failed("remember", err))
    }

    /// Ends it, if it runs, and forgets it.
    pub(crate) async fn stop(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            let Some(pid) = self.running().and_then(|known| Pid::from_raw(known.pid)) else { break };
            // One that has just ended is fine.
            let _ = kill_process(pid, signal);
            let end = tokio::time::Instant::now() + PATIENCE;
            while self.is_running() && tokio::time::Instant::now() < end {
                tokio::time::sleep(PAUSE).await;
            }
        }
        let _ = fs::remove_file(&self.file);
    }
}

/// Who has this number; none if nobody, or only what is left of a process that nobody has waited for.
fn identity(pid: i32) -> Option<Identity> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; state and start time are the 1st and 20th words after it.
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*words.first()?, "Z" | "X") {
        return None;
    }
    Some(Identity { pid, started: words.get(19)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_away_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::new(dir.path(), "x");
        assert!(!daemon.is_running(), "nothing is remembered");
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = identity(pid).unwrap();
        fs::write(&daemon.file, format!("{pid} {}", me.started)).unwrap();
        assert!(daemon.is_running());
        fs::write(&daemon.file, format!("{pid} {}", me.started + 1)).unwrap();
        assert!(!daemon.is_running());
        fs::write(&daemon.file, "nonsense").unwrap();
        assert!(!daemon.is_running());
    }
}
