//! strongSwan's daemon for one tunnel: its settings, and what it is told.

use std::{net::IpAddr, path::Path};

use cloud_api::{CloudError, CloudErrorKind, Result};
use model::Secret;

use super::vici::{Section, Vici, ViciError};

/// The daemon that needs no service manager and has no fixed file names.
pub(crate) const CHARON: &str = "charon-systemd";
pub(crate) const BIRD: &str = "bird";
const LIBIPSEC: &str = "libstrongswan-kernel-libipsec.so";
const PLUGINS: [&str; 2] = ["/usr/lib/ipsec/plugins", "/usr/lib64/strongswan/plugins"];

/// Names of the one connection, its one child, and its key.
const CONNECTION: &str = "site";
const CHILD: &str = "net";
const KEY: &str = "psk";

/// Who does ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Esp {
    Kernel,
    Userspace,
}

/// Where a program is.
pub(crate) fn find(program: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/usr/local/sbin", "/usr/libexec/ipsec"]);
    dirs.map(|dir| format!("{dir}/{program}")).find(|path| Path::new(path).is_file())
}

/// Whether links can be made here; the error says which packages are missing.
pub fn require_programs() -> Result {
    let mut missing = Vec::new();
    if find(CHARON).is_none() {
        missing.extend(["charon-systemd", "strongswan-libcharon", "libstrongswan-standard-plugins"]);
    }
    if find(BIRD).is_none() {
        missing.push("bird2");
    }
    refuse(&missing)
}

pub(crate) fn require_libipsec() -> Result {
    let there = PLUGINS.iter().any(|dir| Path::new(dir).join(LIBIPSEC).is_file());
    refuse(if there { &[] } else { &["libcharon-extra-plugins"] })
}

fn refuse(missing: &[&str]) -> Result {
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    let message = format!(
        "a VPN between clouds needs strongSwan and BIRD, which are not installed; on Debian: apt-get install {missing}"
    );
    Err(CloudError::new(CloudErrorKind::Unsupported, message))
}

/// strongswan.conf.
pub(crate) fn settings(esp: Esp, dir: &Path) -> String {
    let dir = dir.display();
    let (kernel, plugin) = match esp {
        Esp::Kernel => ("kernel-netlink", String::new()),
        // It puts the remote selector, which is everything, into a table of routes; that table comes last, so
        // that it does not swallow its own packets.
        Esp::Userspace => {
            ("kernel-libipsec kernel-netlink", "    kernel-libipsec { allow_peer_ts = yes }\n".to_owned())
        }
    };
    format!(
        "\
charon-systemd {{
  load = random nonce openssl pem pkcs1 x509 pubkey hmac sha1 sha2 aes gcm kdf curve25519 {kernel} socket-default vici
  install_routes = no
  install_virtual_ip = no
  routing_table = 220
  routing_table_prio = 40000
  # libipsec keeps eight for itself.
  threads = 16
  # A peer that is gone is found out in seconds, not in minutes.
  retransmit_timeout = 1.0
  retransmit_tries = 3
  retransmit_base = 1.3
  # Keys are changed without a gap.
  make_before_break = yes
  plugins {{
    vici {{ socket = unix://{dir}/vici }}
{plugin}  }}
  filelog {{
    log {{
      path = {dir}/charon.log
      default = 0
      time_format = %F %T
      flush_line = yes
    }}
  }}
}}
"
    )
}

/// One tunnel, as the daemon is told.
pub(crate) struct Told<'t> {
    pub esp: Esp,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub shared_key: &'t Secret,
    /// Ties the tunnel to its XFRM interface.
    pub if_id: u32,
}

fn connection(told: &Told<'_>) -> Section {
    let (local, remote) = (told.local.to_string(), told.remote.to_string());
    let end = |id: &str| Section::default().text("auth", "psk").text("id", id);
    let all = ["0.0.0.0/0"];
    let child = Section::default()
        .list("local_ts", &all)
        .list("remote_ts", &all)
        .list("esp_proposals", &["aes256gcm16-ecp256", "aes256gcm16-modp2048", "aes256-sha256-modp2048"])
        .text("start_action", "none")
        .text("dpd_action", "restart")
        .text("close_action", "none");
    let mut connection = Section::default()
        .text("version", "2")
        .list("local_addrs", &[&local])
        .list("remote_addrs", &[&remote])
        .list(
            "proposals",
            &["aes256-sha256-modp2048", "aes256-sha256-ecp256", "aes256gcm16-prfsha256-ecp256"],
        )
        .text("mobike", "no")
        .text("dpd_delay", "2s")
        .text("keyingtries", "0")
        .text("unique", "replace")
        // libipsec knows ESP inside UDP only.
        .text("encap", if told.esp == Esp::Userspace { "yes" } else { "no" })
        .section("local", end(&local))
        .section("remote", end(&remote));
    if told.esp == Esp::Kernel {
        let id = told.if_id.to_string();
        connection = connection.text("if_id_in", id.clone()).text("if_id_out", id);
    }
    Section::default()
        .section(CONNECTION, connection.section("children", Section::default().section(CHILD, child)))
}

/// How a tunnel is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Security {
    pub is_up: bool,
    /// It is up, or somebody is at it.
    pub is_busy: bool,
    /// The number of the newest security association.
    pub newest: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// The daemon of one tunnel.
pub(crate) struct Charon(Vici);

impl Charon {
    pub(crate) async fn connect(dir: &Path) -> Result<Self, ViciError> {
        Vici::connect(&dir.join("vici")).await.map(Self)
    }

    /// Tells it the tunnel and its key. What it was told before is replaced; what is up stays up.
    pub(crate) async fn tell(&mut self, told: &Told<'_>) -> Result<(), ViciError> {
        let (local, remote) = (told.local.to_string(), told.remote.to_string());
        let key = Section::default()
            .text("id", KEY)
            .text("type", "IKE")
            .text("data", told.shared_key.expose())
            .list("owners", &[&local, &remote]);
        self.0.command("load-shared", &key).await?;
        self.0.command("load-conn", &connection(told)).await
    }

    /// Starts to make the tunnel, and does not wait for it.
    pub(crate) async fn initiate(&mut self) -> Result<(), ViciError> {
        let what = Section::default().text("ike", CONNECTION).text("child", CHILD).text("timeout", "-1");
        self.0.request("initiate", &what).await.map(drop)
    }

    /// Proves the key to the peer anew, beside the association that is there.
    pub(crate) async fn reauthenticate(&mut self) -> Result<(), ViciError> {
        let what = Section::default().text("ike", CONNECTION).text("reauth", "yes");
        self.0.command("rekey", &what).await
    }

    pub(crate) async fn security(&mut self) -> Result<Security, ViciError> {
        let mut security = Security::default();
        for event in self.0.list("list-sas", "list-sa").await? {
            let Some(association) = event.child(CONNECTION) else { continue };
            let number = |section: &Section, name: &str| -> u64 {
                section.get(name).and_then(|text| text.parse().ok()).unwrap_or_default()
            };
            security.is_busy = true;
            let established = association.get("state") == Some("ESTABLISHED");
            for (_, child) in association.child("child-sas").iter().flat_map(|children| children.sections()) {
                if established && child.get("state") == Some("INSTALLED") {
                    security.is_up = true;
                    security.newest = security.newest.max(number(association, "uniqueid"));
                }
                security.bytes_in += number(child, "bytes-in");
                security.bytes_out += number(child, "bytes-out");
            }
        }
        Ok(security)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_in_no_file_and_userspace_esp_comes_last_in_routing() {
        let text = settings(Esp::Userspace, Path::new("/run/trestle/x/y"));
        assert!(text.contains("socket = unix:///run/trestle/x/y/vici"), "{text}");
        assert!(
            text.contains("kernel-libipsec kernel-netlink") && text.contains("routing_table_prio = 40000")
        );
        assert!(!settings(Esp::Kernel, Path::new("/x")).contains("kernel-libipsec"));
    }

    #[test]
    fn a_kernel_tunnel_is_tied_to_its_interface() {
        let key = Secret::new("k");
        let told = |esp| Told {
            esp,
            local: [1, 1, 1, 1].into(),
            remote: [2, 2, 2, 2].into(),
            shared_key: &key,
            if_id: 7,
        };
        let of = |esp| connection(&told(esp)).child(CONNECTION).unwrap().clone();
        assert_eq!(of(Esp::Kernel).get("if_id_in"), Some("7"));
        assert_eq!(
            (of(Esp::Userspace).get("if_id_in"), of(Esp::Userspace).get("encap")),
            (None, Some("yes"))
        );
    }
}
