//! The agent as a service of this host, where systemd runs.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// There where systemd runs.
const RUNS: &str = "/run/systemd/system";
const UNITS: &str = "/etc/systemd/system";
const AGENT: &str = "trestle-agent.service";
const BOOT: &str = "trestle-agent-boot.service";
/// The first words of a unit that is ours to remove.
const MARK: &str = "# Installed by `trestle join`";

/// The units as they are shipped, for a binary and a directory elsewhere.
const SHIPPED: [(&str, &str); 2] = [
    (BOOT, include_str!("../../../../../docs/examples/systemd/trestle-agent-boot.service")),
    (AGENT, include_str!("../../../../../docs/examples/systemd/trestle-agent.service")),
];

/// This program, as others find it.
pub fn program() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot tell where this program is")
}

/// Installs and starts the service; its name, or none where no systemd runs.
pub fn start(etc: &Path) -> anyhow::Result<Option<String>> {
    if !Path::new(RUNS).is_dir() {
        return Ok(None);
    }
    let etc = fs::canonicalize(etc).with_context(|| format!("cannot find {}", etc.display()))?;
    for (name, text) in SHIPPED {
        let path = Path::new(UNITS).join(name);
        let text = unit(text, &program()?, &etc);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "--quiet", BOOT, AGENT])?;
    systemctl(&["restart", AGENT])?;
    Ok(Some(AGENT.to_owned()))
}

/// Stops and removes the service, if it is ours; whether it was there.
pub fn remove() -> anyhow::Result<bool> {
    let ours = SHIPPED.map(|(name, _)| Path::new(UNITS).join(name)).into_iter();
    let ours: Vec<PathBuf> =
        ours.filter(|path| fs::read_to_string(path).is_ok_and(|text| text.starts_with(MARK))).collect();
    if ours.is_empty() {
        return Ok(false);
    }
    if Path::new(RUNS).is_dir() {
        systemctl(&["disable", "--quiet", "--now", AGENT, BOOT])?;
    }
    for path in ours {
        match fs::remove_file(&path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                return Err(err).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    if Path::new(RUNS).is_dir() {
        systemctl(&["daemon-reload"])?;
    }
    Ok(true)
}

/// A shipped unit, for this program and this directory.
fn unit(text: &str, program: &Path, etc: &Path) -> String {
    let text = text.replace("/usr/local/bin/trestle", &program.display().to_string());
    format!("{MARK}.\n{}", text.replace("/etc/trestle", &etc.display().to_string()))
}

fn systemctl(words: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("systemctl").args(words).output().context("cannot run systemctl")?;
    if !done.status.success() {
        bail!("`systemctl {}` failed: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_run_this_program_with_this_directory_and_may_renew_what_is_there() {
        for (name, text) in SHIPPED {
            let unit = unit(text, Path::new("/opt/trestle"), Path::new("/srv/etc"));
            assert!(
                unit.starts_with(MARK) && unit.contains("--config /srv/etc/agent.yaml"),
                "{name}: {unit}"
            );
            assert!(unit.contains("ExecStart=/opt/trestle agent "), "{name}: {unit}");
            assert!(!unit.contains("/etc/trestle") && !unit.contains("/usr/local/bin"), "{name}: {unit}");
        }
        assert!(
            unit(SHIPPED[1].1, Path::new("/x"), Path::new("/srv/etc")).contains("ReadWritePaths=-/srv/etc\n")
        );
    }
}
