//! Network namespaces: which there are, making and deleting them, and acting inside one.

use std::{collections::BTreeSet, fs, io, path::PathBuf, thread};

use cloud_api::{CloudError, Result};
use node_kernel::sysctl;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::shell::run;

/// Where `ip netns` keeps them.
const DIR: &str = "/run/netns";
/// The file system that namespaces are files of; a file of another one was left by an `ip netns add` cut short.
const NSFS: i64 = 0x6e73_6673;

fn path(name: &str) -> PathBuf {
    PathBuf::from(DIR).join(name)
}

pub fn exists(name: &str) -> bool {
    rustix::fs::statfs(path(name)).is_ok_and(|stat| stat.f_type == NSFS)
}

/// The names of all namespaces.
pub fn all() -> BTreeSet<String> {
    // Without the directory there has never been one.
    let entries = fs::read_dir(DIR).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Makes a namespace with its loopback up, if there is none.
pub async fn ensure(name: &str) -> Result {
    if exists(name) {
        return Ok(());
    }
    // Nothing, or the rest of one.
    let _ = fs::remove_file(path(name));
    run(&["ip", "netns", "add", name]).await?;
    run(&["ip", "-n", name, "link", "set", "lo", "up"]).await.map(drop)
}

/// Ends what runs in a namespace, then deletes it with all that is in it. One that is not there is fine.
pub async fn delete(name: &str) -> Result {
    if exists(name) {
        // A daemon that outlives its namespace may spin.
        stop_all(name).await;
        run(&["ip", "netns", "delete", name]).await?;
    }
    let _ = fs::remove_file(path(name));
    Ok(())
}

pub async fn has_link(namespace: &str, link: &str) -> bool {
    run(&["ip", "-n", namespace, "link", "show", link]).await.is_ok()
}

/// Does something inside a namespace, on a thread of its own. Sockets opened there stay there.
pub async fn inside<T: Send + 'static>(
    name: &str,
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let path = path(name);
    let failed = {
        let name = name.to_owned();
        move |err: io::Error| CloudError::unavailable(format!("cannot enter namespace {name}: {err}"))
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let enter = || {
            let file = fs::File::open(&path)?;
            move_into_link_name_space(file_descriptor(&file), Some(LinkNameSpaceType::Network))?;
            Ok(())
        };
        // The caller may have gone.
        let _ = tell.send(enter().map_err(failed).and_then(|()| act()));
    });
    told.await.unwrap_or_else(|_| Err(CloudError::unavailable("a thread inside a namespace has panicked")))
}

/// Lets a namespace route. Packets may come back another way than they went.
pub async fn forward(name: &str) -> Result {
    let text = name.to_owned();
    inside(name, move || {
        let mut settings = vec![
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
        ];
        if has_ipv6() {
            settings.push(("net/ipv6/conf/all/forwarding", "1"));
        }
        let set = sysctl::ensure(&settings).map(drop);
        set.map_err(|err| CloudError::unavailable(format!("{text}: {err}: {}", err.source)))
    })
    .await
}

/// Whether this kernel has IPv6; without it there are no twins, and everything else works.
pub(crate) fn has_ipv6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

fn file_descriptor(file: &fs::File) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(file)
}

/// The processes inside a namespace.
pub(crate) async fn pids(name: &str) -> Vec<i32> {
    let listed = run(&["ip", "netns", "pids", name]).await.unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Ends what runs inside a namespace: told to first, made to after two seconds.
pub async fn stop_all(name: &str) {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::KILL] {
        let running = pids(name).await;
        if running.is_empty() {
            return;
        }
        for pid in running.into_iter().filter_map(Pid::from_raw) {
            // One that has just ended is fine.
            let _ = kill_process(pid, signal);
        }
        for _ in 0..100 {
            if pids(name).await.is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}
