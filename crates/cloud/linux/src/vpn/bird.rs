//! BIRD: one daemon per site, which tells peers of the site's networks and puts theirs into the edge's routes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use cloud_api::{CloudError, Result};
use ipnet::Ipv4Net;
use model::Site;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::{Instant, sleep, timeout},
};
use tracing::info;

use super::{
    charon::{BIRD, find},
    tunnel::Tunnel,
};
use crate::{cloud::Inner, daemon::Daemon, namespace, state::State, underlay::SPACE};

const PATIENCE: Duration = Duration::from_secs(5);

/// How a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    pub is_established: bool,
    pub routes: BTreeSet<Ipv4Net>,
}

/// bird.conf. BIRD waits a second before it connects, whatever it is told, from when the interface is up. The first
/// tunnel to a peer is preferred while it works; BFD finds out in less than a second when not.
pub(crate) fn settings(
    asn: u32,
    router_id: std::net::Ipv4Addr,
    spaces: &[Ipv4Net],
    tunnels: &[Tunnel],
    dir: &Path,
) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "\
log \"{}/bird.log\" {{ warning, error, fatal, bug, auth }};
router id {router_id};
protocol device {{ scan time 1; }}
protocol bfd {{
  interface \"t*\" {{ min rx interval 200 ms; min tx interval 200 ms; idle tx interval 1 s; multiplier 4; }};
}}
protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}
protocol static own {{
  ipv4;
",
        dir.display()
    );
    for space in spaces {
        let _ = writeln!(text, "  route {space} blackhole;");
    }
    text.push_str("}\n");
    let own: String = spaces.iter().map(|space| format!(", {space}+")).collect();
    for tunnel in tunnels {
        let _ = write!(
            text,
            "\
protocol bgp {name} {{
  local {local} as {asn};
  neighbor {peer} as {peer_asn};
  interface \"{name}\";
  direct;
  bfd on;
  hold time 9;
  keepalive time 3;
  error wait time 1, 3;
  connect delay time 0;
  connect retry time 1;
  ipv4 {{
    import where net !~ [ 0.0.0.0/0, 169.254.0.0/16+, {SPACE}+{own} ];
    import limit 1000 action block;
    export where proto = \"own\";
    next hop self;
    preference {preference};
  }};
}}
",
            name = tunnel.interface(),
            local = tunnel.local_bgp,
            peer = tunnel.peer_bgp,
            peer_asn = tunnel.peer_asn,
            preference = 200 - tunnel.which.min(99),
        );
    }
    text
}

impl Inner {
    pub(super) fn bird_key(site: &Site) -> String {
        format!("{site} bird")
    }

    /// Lets BIRD run with what the state says, and not run where there is nobody to talk to.
    pub(crate) async fn settle_bird(&self, state: &State, site: &Site) -> Result {
        let key = Self::bird_key(site);
        let turn = self.turn_of(&key);
        let _turn = turn.lock().await;
        let tunnels = self.tunnels_of(state, site, None)?;
        let daemon = Daemon::new(&self.run_dir(&key), "bird");
        let Some(asn) = state.gateways.get(site).copied().filter(|_| !tunnels.is_empty()) else {
            daemon.stop().await;
            self.remove_run_dir(&key);
            return Ok(());
        };
        let no_block = || CloudError::unavailable(format!("the edge of {site} has no addresses yet"));
        let block = self.underlay.block(site)?.ok_or_else(no_block)?;
        let dir = self.ensure_run_dir(&key)?;
        let spaces: Vec<Ipv4Net> = state.networks_of(site).map(|(_, space)| space).collect();
        let text = settings(asn, block.edge(), &spaces, &tunnels, &dir);
        let conf = dir.join("bird.conf");
        let is_same = fs::read_to_string(&conf).is_ok_and(|there| there == text);
        if daemon.is_running() && is_same {
            return Ok(());
        }
        files::write(&conf, text.as_bytes())
            .map_err(|err| CloudError::unavailable(format!("cannot write {}: {err}", conf.display())))?;
        if daemon.is_running() {
            return ask(&dir, "configure").await.map(drop);
        }
        // One that was started without being remembered.
        let edge = self.names.edge(site);
        namespace::stop_all(&edge).await;
        let program = find(BIRD).ok_or_else(|| CloudError::unavailable("bird is gone"))?;
        let (conf, socket) = (conf.display().to_string(), dir.join("bird").display().to_string());
        let _ = fs::remove_file(&socket);
        daemon.start(&edge, &[&program, "-f", "-c", &conf, "-s", &socket], &[])?;
        info!(%site, "BIRD was started");
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if UnixStream::connect(&socket).await.is_ok() {
                return Ok(());
            }
            if !daemon.is_running() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        let said = fs::read_to_string(dir.join("bird.out")).unwrap_or_default();
        Err(CloudError::unavailable(format!("BIRD for {site} does not start: {}; see {conf}", said.trim())))
    }

    pub(crate) fn has_bird(&self, site: &Site) -> bool {
        Daemon::new(&self.run_dir(&Self::bird_key(site)), "bird").is_running()
    }

    /// The sessions of a site, by name; none of a daemon that does not answer.
    pub(crate) async fn bgp_sessions(&self, site: &Site) -> BTreeMap<String, Session> {
        let dir = self.run_dir(&Self::bird_key(site));
        let protocols = ask(&dir, "show protocols").await.unwrap_or_default();
        let routes = ask(&dir, "show route where source = RTS_BGP").await.unwrap_or_default();
        sessions(&protocols, &routes)
    }
}

/// Reads what BIRD prints of its protocols and routes.
fn sessions(protocols: &[String], routes: &[String]) -> BTreeMap<String, Session> {
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    for line in protocols {
        // t1501      BGP        ---        up     10:11:12.123  Established
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, "BGP", ..] = *words {
            let is_established = words.last() == Some(&"Established");
            sessions.insert(name.to_owned(), Session { is_established, routes: BTreeSet::new() });
        }
    }
    let mut net: Option<Ipv4Net> = None;
    for line in routes {
        // 10.1.0.0/16          unicast [t1501 10:11:12.123] * (200) [AS64513i]
        //                      unicast [t1505 10:11:12.123] (199) [AS64513i]
        if let Some(found) = line.split_whitespace().next().and_then(|word| word.parse().ok()) {
            net = Some(found);
        }
        let name = line.split_once('[').and_then(|(_, rest)| rest.split_whitespace().next());
        if let (Some(net), Some(session)) = (net, name.and_then(|name| sessions.get_mut(name))) {
            session.routes.insert(net);
        }
    }
    sessions
}

/// Sends a command to BIRD's socket. A line of an answer is a code and a text, or a space and a text if the code is as
/// before; a code below 1000 or above 7999 followed by a space is the last line.
async fn ask(dir: &Path, command: &str) -> Result<Vec<String>> {
    let talk = async {
        let mut stream = BufReader::new(UnixStream::connect(dir.join("bird")).await?);
        let mut text = String::new();
        stream.read_line(&mut text).await?;
        stream.get_mut().write_all(format!("{command}\n").as_bytes()).await?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            let code: Option<u16> = line.get(..4).and_then(|code| code.parse().ok());
            lines.push(match code {
                Some(_) => line.get(5..).unwrap_or_default().to_owned(),
                None => line.get(1..).unwrap_or_default().to_owned(),
            });
            match code {
                Some(code) if line.as_bytes().get(4) == Some(&b' ') && code >= 8000 => {
                    return Err(std::io::Error::other(lines.pop().unwrap_or_default()));
                }
                Some(code) if line.as_bytes().get(4) != Some(&b'-') && code < 1000 => return Ok(lines),
                _ => {}
            }
        }
    };
    let failed = |why: String| CloudError::unavailable(format!("BIRD does not do `{command}`: {why}"));
    match timeout(PATIENCE, talk).await {
        Ok(Ok(lines)) => Ok(lines),
        Ok(Err(err)) => Err(failed(err.to_string())),
        Err(_) => Err(failed("no answer".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    #[test]
    fn what_bird_prints_is_read() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let protocols = lines(
            "Name       Proto      Table      State  Since         Info\n\
             own        Static     master4    up     10:00:00.000  \n\
             t1501      BGP        ---        up     10:00:01.000  Established   \n\
             t1505      BGP        ---        start  10:00:01.000  Connect       Socket: Connection refused",
        );
        let routes = lines(
            "Table master4:\n\
             10.1.0.0/16          unicast [t1501 10:00:02.000] * (200) [AS64513i]\n\
             \tvia 169.254.21.2 on t1501\n\
             \tBGP.as_path: 64513\n\
             10.2.0.0/16          unicast [t1505 10:00:02.000] * (199) [AS64513i]\n\
                                  unicast [t1501 10:00:02.000] (200) [AS64513i]",
        );
        let read = sessions(&protocols, &routes);
        assert_eq!(read.len(), 2);
        assert!(read["t1501"].is_established && !read["t1505"].is_established);
        let nets = |name: &str| read[name].routes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(nets("t1501"), ["10.1.0.0/16", "10.2.0.0/16"]);
        assert_eq!(nets("t1505"), ["10.2.0.0/16"]);
    }

    #[test]
    fn a_peer_cannot_announce_our_own_networks_nor_the_way_to_itself() {
        let tunnel = Tunnel {
            site: "ns.a".parse().unwrap(),
            peer: "ns.b".parse().unwrap(),
            which: 1,
            local: [100, 64, 0, 6].into(),
            remote: [100, 64, 0, 10].into(),
            local_bgp: [169, 254, 21, 5].into(),
            peer_bgp: [169, 254, 21, 6].into(),
            peer_asn: 64513,
            shared_key: Secret::new("hunter2hunter2"),
        };
        let own = "10.0.0.0/16".parse().unwrap();
        let text = settings(64512, [100, 64, 0, 4].into(), &[own], &[tunnel], Path::new("/x"));
        let import = "import where net !~ [ 0.0.0.0/0, 169.254.0.0/16+, 100.64.0.0/16+, 10.0.0.0/16+ ];";
        assert!(text.contains(import), "{text}");
        assert!(text.contains("protocol bgp t1505") && text.contains("preference 199"));
        assert!(!text.contains("hunter2"));
    }
}
