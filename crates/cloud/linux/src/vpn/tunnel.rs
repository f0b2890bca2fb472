//! One tunnel: its namespace, its daemon, its interface in the edge.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use cloud_api::{CloudError, Result};
use model::{Secret, Site};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use super::charon::{self, CHARON, Charon, Esp, Security, Told};
use crate::{
    cloud::Inner,
    daemon::Daemon,
    names::{inside, outer},
    namespace,
    shell::{delete_link, ip_in, run, veth},
};

/// The edge's end of the line to a tunnel's outside. Lines are apart, so all have the same.
const EDGE: &str = "169.254.2.1";
/// Room for ESP inside UDP.
const MTU: u32 = 1400;
/// How long a daemon may take to answer at first.
const START: Duration = Duration::from_secs(10);
/// How often the lines of a tunnel that is down are made anew.
const MEND: Duration = Duration::from_secs(3);
/// How long a new key may take to be in use at both ends before the caller is answered; it goes on afterwards.
const ROTATION: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tunnel {
    pub site: Site,
    pub peer: Site,
    pub which: usize,
    /// The public addresses of both ends.
    pub local: IpAddr,
    pub remote: IpAddr,
    pub local_bgp: Ipv4Addr,
    pub peer_bgp: Ipv4Addr,
    pub peer_asn: u32,
    pub shared_key: Secret,
}

/// Names a tunnel among all of a cloud.
pub(super) fn key(site: &Site, interface: &str) -> String {
    format!("{site} {interface}")
}

impl Tunnel {
    /// The inside, in the edge. It also names the BGP session.
    pub(crate) fn interface(&self) -> String {
        inside(self.local_bgp)
    }

    fn key(&self) -> String {
        key(&self.site, &self.interface())
    }

    /// A number that no other tunnel of the site has: for its table of routes and its XFRM interface.
    fn number(&self) -> u32 {
        0x1_0000 + (u32::from(self.local_bgp) & 0xffff)
    }

    /// Leads what the peer sends to this tunnel's daemon; before the table that routes everything else.
    fn rule(&self) -> String {
        format!("pref 100 from {} to {} lookup {}", self.remote, self.local, self.number())
    }

    /// One end begins at once; the other only if nothing has come of it, so that they do not cross.
    fn begins(&self) -> bool {
        self.local < self.remote
    }

    fn told(&self, esp: Esp) -> Told<'_> {
        Told {
            esp,
            local: self.local,
            remote: self.remote,
            shared_key: &self.shared_key,
            if_id: self.number(),
        }
    }

    /// What is remembered of the key that the peer was last shown.
    fn digest(&self) -> String {
        common::hex(&Sha256::digest(format!("trestle {} {}", self.key(), self.shared_key.expose()))[..16])
    }
}

impl Inner {
    fn tunnel_dir(&self, tunnel: &Tunnel) -> PathBuf {
        self.run_dir(&tunnel.key())
    }

    /// Makes a tunnel, or what is missing of it. A tunnel that is as it should be is left alone.
    pub(crate) async fn make_tunnel(&self, tunnel: &Tunnel) -> Result {
        let turn = self.turn_of(&tunnel.key());
        let _turn = turn.lock().await;
        let (dir, outside) =
            (self.ensure_run_dir(&tunnel.key())?, self.names.tunnel(&tunnel.site, &tunnel.interface()));
        let daemon = Daemon::new(&dir, "charon");
        // A controller that is killed in between leaves a daemon without its interface, or that without its address.
        let whole = dir.join("whole");
        let is_whole = whole.exists()
            && daemon.is_running()
            && namespace::exists(&outside)
            && namespace::has_link(&self.names.edge(&tunnel.site), &tunnel.interface()).await;
        let started = Instant::now();
        if !is_whole {
            let _ = fs::remove_file(&whole);
            daemon.stop().await;
            namespace::stop_all(&outside).await;
            self.make_outside(tunnel, &outside).await?;
            self.start_charon(tunnel, &outside, &dir, &daemon).await?;
            files::write(&whole, b"").map_err(|err| {
                CloudError::unavailable(format!("cannot write to {}: {err}", dir.display()))
            })?;
        }
        let esp = read_esp(&dir);
        let mut charon = Charon::connect(&dir).await.map_err(|err| failed(tunnel, &err))?;
        charon.tell(&tunnel.told(esp)).await.map_err(|err| failed(tunnel, &err))?;
        // A daemon that was started anew begins whichever end it is: the peer does not know that it was gone.
        let was_up = dir.join("key").exists();
        let is_idle = !charon.security().await.map_err(|err| failed(tunnel, &err))?.is_busy;
        if is_idle && (tunnel.begins() || was_up) {
            charon.initiate().await.map_err(|err| failed(tunnel, &err))?;
        }
        debug!(tunnel = tunnel.key(), ?esp, elapsed = ?started.elapsed(), "a tunnel is told");
        Ok(())
    }

    /// The namespace of a tunnel's outside, and the way of its packets through the edge.
    async fn make_outside(&self, tunnel: &Tunnel, outside: &str) -> Result {
        let (edge, outer, number) =
            (self.names.edge(&tunnel.site), outer(&tunnel.interface()), tunnel.number());
        namespace::ensure(outside).await?;
        veth((outside, "wan"), (&edge, &outer)).await?;
        let local = tunnel.local;
        ip_in(
            outside,
            &[
                format!("address replace {local}/32 dev wan"),
                "link set wan up".to_owned(),
                format!("route replace default via {EDGE} dev wan onlink"),
            ],
        )
        .await?;
        // Rules cannot be replaced.
        let _ = ip_in(&edge, &[format!("rule delete {}", tunnel.rule())]).await;
        ip_in(
            &edge,
            &[
                format!("address replace {EDGE}/32 dev {outer}"),
                format!("link set {outer} up"),
                format!("route replace {local}/32 dev {outer} table {number}"),
                format!("rule add {}", tunnel.rule()),
            ],
        )
        .await
    }

    async fn start_charon(&self, tunnel: &Tunnel, outside: &str, dir: &Path, daemon: &Daemon) -> Result {
        let (edge, interface) = (self.names.edge(&tunnel.site), tunnel.interface());
        // What a daemon that was killed has left of itself.
        for (namespace, link) in [(edge.as_str(), interface.as_str()), (outside, "ipsec0")] {
            delete_link(namespace, link).await?;
        }
        let esp = try_kernel(tunnel, outside).await;
        if esp == Esp::Userspace {
            charon::require_libipsec()?;
        }
        let io =
            |err: std::io::Error| CloudError::unavailable(format!("cannot write {}: {err}", dir.display()));
        files::write(&dir.join("esp"), if esp == Esp::Kernel { b"kernel".as_slice() } else { b"userspace" })
            .map_err(io)?;
        let conf = dir.join("strongswan.conf");
        files::write(&conf, charon::settings(esp, dir).as_bytes()).map_err(io)?;
        let _ = fs::remove_file(dir.join("vici"));
        let program =
            charon::find(CHARON).ok_or_else(|| CloudError::unavailable("charon-systemd is gone"))?;
        let conf = conf.display().to_string();
        daemon.start(outside, &[&program], &[("STRONGSWAN_CONF", &conf)])?;
        self.until_ready(tunnel, outside, dir, daemon, esp).await?;
        if esp == Esp::Userspace {
            // The daemon keeps its end open wherever the interface goes. Its own routes need one of that name.
            run(&["ip", "-n", outside, "link", "set", "ipsec0", "netns", &edge, "name", &interface]).await?;
            ip_in(outside, &["tuntap add dev ipsec0 mode tun".to_owned(), "link set ipsec0 up".to_owned()])
                .await?;
        } else {
            run(&["ip", "-n", outside, "link", "set", &interface, "netns", &edge]).await?;
        }
        let local = tunnel.local_bgp;
        ip_in(
            &edge,
            &[
                format!("address replace {local}/30 dev {interface}"),
                format!("link set {interface} mtu {MTU} up"),
            ],
        )
        .await?;
        info!(tunnel = tunnel.key(), peer = %tunnel.peer, ?esp, "the daemon of a tunnel was started");
        Ok(())
    }

    /// Waits until the daemon answers, and has its interface.
    async fn until_ready(
        &self,
        tunnel: &Tunnel,
        outside: &str,
        dir: &Path,
        daemon: &Daemon,
        esp: Esp,
    ) -> Result {
        let end = Instant::now() + START;
        while Instant::now() < end {
            let has_interface = esp == Esp::Kernel || namespace::has_link(outside, "ipsec0").await;
            if has_interface && Charon::connect(dir).await.is_ok() {
                return Ok(());
            }
            if !daemon.is_running() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        let said = fs::read_to_string(dir.join("charon.out")).unwrap_or_default();
        let said = said.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
        Err(CloudError::unavailable(format!(
            "strongSwan's daemon for tunnel {} does not start: {said}; see {}",
            tunnel.key(),
            dir.display()
        )))
    }

    /// Ends a tunnel and removes all of it.
    pub(crate) async fn remove_tunnel(&self, tunnel: &Tunnel) -> Result {
        let turn = self.turn_of(&tunnel.key());
        let _turn = turn.lock().await;
        let (edge, interface) = (self.names.edge(&tunnel.site), tunnel.interface());
        Daemon::new(&self.tunnel_dir(tunnel), "charon").stop().await;
        namespace::delete(&self.names.tunnel(&tunnel.site, &interface)).await?;
        if namespace::exists(&edge) {
            let _ = ip_in(&edge, &[format!("rule delete {}", tunnel.rule())]).await;
            for link in [&interface, &outer(&interface)] {
                delete_link(&edge, link).await?;
            }
        }
        self.remove_run_dir(&tunnel.key());
        Ok(())
    }

    /// How a tunnel is; one whose daemon does not answer is down.
    pub(crate) async fn security_of(&self, tunnel: &Tunnel) -> Security {
        let asked = async { Charon::connect(&self.tunnel_dir(tunnel)).await?.security().await };
        asked.await.unwrap_or_default()
    }

    /// Brings up a tunnel that nobody is at, and shows the peer a new key once.
    pub(crate) async fn tend_tunnel(&self, tunnel: &Tunnel) -> Result {
        let dir = self.tunnel_dir(tunnel);
        if !Daemon::new(&dir, "charon").is_running() {
            info!(tunnel = tunnel.key(), "the daemon of a tunnel is gone and is started again");
            return self.make_tunnel(tunnel).await;
        }
        let turn = self.turn_of(&tunnel.key());
        // Somebody is at it.
        let Ok(_turn) = turn.try_lock() else { return Ok(()) };
        let mut charon = Charon::connect(&dir).await.map_err(|err| failed(tunnel, &err))?;
        let security = charon.security().await.map_err(|err| failed(tunnel, &err))?;
        let shown = fs::read_to_string(dir.join("key")).unwrap_or_default();
        match (security.is_up, shown.split_once(' ')) {
            (false, _) => {
                // Somebody may have taken an interface down, and routes with it.
                if self.is_time_to_mend(tunnel) {
                    let outside = self.names.tunnel(&tunnel.site, &tunnel.interface());
                    self.make_outside(tunnel, &outside).await?;
                }
                match security.is_busy {
                    true => Ok(()),
                    false => charon.initiate().await.map_err(|err| failed(tunnel, &err)),
                }
            }
            (true, Some((digest, _))) if digest == tunnel.digest() => Ok(()),
            // Another key was shown before: there must be a newer association than the one that it made.
            (true, Some((_, number))) if number.parse::<u64>().is_ok_and(|old| security.newest <= old) => {
                match tunnel.begins() {
                    true => charon.reauthenticate().await.map_err(|err| failed(tunnel, &err)),
                    false => Ok(()),
                }
            }
            (true, _) => {
                let text = format!("{} {}", tunnel.digest(), security.newest);
                files::write(&dir.join("key"), text.as_bytes()).map_err(|err| {
                    CloudError::unavailable(format!("cannot write to {}: {err}", dir.display()))
                })
            }
        }
    }

    /// Once in a while for each tunnel that is down.
    fn is_time_to_mend(&self, tunnel: &Tunnel) -> bool {
        let (mut mended, now) = (self.mended.lock(), Instant::now());
        let last = mended.entry(tunnel.key()).or_insert(now);
        let is_time = now.duration_since(*last) >= MEND;
        if is_time {
            *last = now;
        }
        is_time
    }

    /// Waits until the peer was shown the key, but not for ever.
    pub(crate) async fn until_rotated(&self, tunnels: &[Tunnel]) {
        let end = Instant::now() + ROTATION;
        let is_shown = |tunnel: &Tunnel| {
            let shown = fs::read_to_string(self.tunnel_dir(tunnel).join("key")).unwrap_or_default();
            shown.starts_with(&tunnel.digest())
        };
        while Instant::now() < end && !tunnels.iter().all(is_shown) {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Tries whether the kernel does ESP and has interfaces for it; makes the interface if so.
async fn try_kernel(tunnel: &Tunnel, outside: &str) -> Esp {
    let key = "0x".to_owned() + &"00".repeat(20);
    let state = ["ip", "-n", outside, "xfrm", "state"];
    let association = ["src", "127.0.0.1", "dst", "127.0.0.1", "proto", "esp", "spi", "0x101"];
    let cipher = ["mode", "tunnel", "aead", "rfc4106(gcm(aes))", key.as_str(), "128"];
    let add: Vec<&str> = state.iter().chain(&["add"]).chain(&association).chain(&cipher).copied().collect();
    if run(&add).await.is_err() {
        return Esp::Userspace;
    }
    let delete: Vec<&str> = state.iter().chain(&["delete"]).chain(&association).copied().collect();
    let _ = run(&delete).await;
    let (interface, id) = (tunnel.interface(), tunnel.number().to_string());
    let link = ["ip", "-n", outside, "link", "add", &interface, "type", "xfrm", "dev", "wan", "if_id", &id];
    match run(&link).await {
        Ok(_) => Esp::Kernel,
        Err(_) => Esp::Userspace,
    }
}

fn read_esp(dir: &Path) -> Esp {
    match fs::read_to_string(dir.join("esp")).as_deref() {
        Ok("kernel") => Esp::Kernel,
        _ => Esp::Userspace,
    }
}

fn failed(tunnel: &Tunnel, err: &dyn std::fmt::Display) -> CloudError {
    CloudError::unavailable(format!("tunnel {} to {}: {err}", tunnel.key(), tunnel.peer))
}
