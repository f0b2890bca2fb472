//! VPN: tunnels by IKEv2 and ESP (strongSwan), routes by BGP with BFD (BIRD), in the shape of the public clouds'
//! gateways: two tunnels to a peer, each between two public addresses, with BGP on a link-local /30 inside.
//!
//! ```text
//!   edge                                        outside of one tunnel (trt.…)
//!   t1501  169.254.21.1/30  ◄─── moved ───────  ipsec0 (libipsec) or an XFRM interface (kernel ESP)
//!   o1501  ──────────────────────────────────── wan 100.64.0.5   charon: IKE, and ESP if the kernel has none
//!   bird, one per site
//! ```
//!
//! Each tunnel has a daemon and a namespace of its own. With ESP in userspace it must: such a daemon has one interface
//! and cannot tell two peers apart that both may send anything. With ESP in the kernel it may as well: the interface
//! works for the namespace it was made in, wherever it is moved. A gateway's address is the same for all peers, so the
//! edge leads a packet to the daemon of its sender.

pub(crate) mod bird;
pub(crate) mod charon;
pub(crate) mod tunnel;
pub(crate) mod vici;

use std::{collections::BTreeSet, fs, os::unix::fs::DirBuilderExt as _, path::PathBuf};

use cloud_api::{CloudError, Result};
use futures::future::{join_all, try_join, try_join_all};
use model::{ConnectionStatus, Site};

use crate::{
    cloud::Inner,
    command,
    daemon::Daemon,
    names::{self, short},
    namespace,
    state::{Connection, State},
    underlay::Block,
};
use tunnel::Tunnel;

/// The tunnels of a connection.
pub(crate) fn tunnels(site: &Site, peer: &Site, connection: &Connection, block: Block) -> Vec<Tunnel> {
    let ends = connection.local_bgp.iter().zip(&connection.peer_bgp).zip(&connection.peer_addresses);
    ends.enumerate()
        .map(|(which, ((local_bgp, peer_bgp), remote))| Tunnel {
            site: site.clone(),
            peer: peer.clone(),
            which,
            local: block.tunnel(which).into(),
            remote: *remote,
            local_bgp: *local_bgp,
            peer_bgp: *peer_bgp,
            peer_asn: connection.peer_asn,
            shared_key: connection.shared_key.clone(),
        })
        .collect()
}

impl Inner {
    /// Where a daemon's files are.
    pub(crate) fn run_dir(&self, what: &str) -> PathBuf {
        self.names.run_dir().join(short(what))
    }

    pub(crate) fn ensure_run_dir(&self, what: &str) -> Result<PathBuf> {
        let dir = self.run_dir(what);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|err| CloudError::unavailable(format!("cannot make {}: {err}", dir.display())))?;
        Ok(dir)
    }

    pub(crate) fn remove_run_dir(&self, what: &str) {
        let _ = fs::remove_dir_all(self.run_dir(what));
        // Those above go only if they are empty.
        for above in self.names.run_dir().ancestors().take(3) {
            let _ = fs::remove_dir(above);
        }
    }

    /// Ends daemons that the state does not know, and removes their files.
    pub(crate) async fn remove_strange_daemons(&self, state: &State) -> Result {
        let mut known: BTreeSet<String> = BTreeSet::new();
        for site in state.connections.keys() {
            known.insert(short(&Self::bird_key(site)));
            let interfaces = state.connections[site].values().flat_map(|peer| &peer.local_bgp);
            known.extend(interfaces.map(|bgp| short(&tunnel::key(site, &names::inside(*bgp)))));
        }
        let commands = state.resources.iter().filter(|(_, resource)| resource.command().is_some());
        known.extend(commands.map(|(name, _)| short(&command::key(name))));
        let there = fs::read_dir(self.names.run_dir()).into_iter().flatten().flatten();
        for dir in there.filter(|dir| !known.contains(&*dir.file_name().to_string_lossy())) {
            for program in ["charon", "bird", "command"] {
                Daemon::new(&dir.path(), program).stop().await;
            }
            let _ = fs::remove_dir_all(dir.path());
        }
        for above in self.names.run_dir().ancestors().take(3) {
            let _ = fs::remove_dir(above);
        }
        Ok(())
    }

    /// The tunnels of a site to one peer, or to all.
    pub(crate) fn tunnels_of(&self, state: &State, site: &Site, peer: Option<&Site>) -> Result<Vec<Tunnel>> {
        let Some(connections) = state.connections.get(site) else { return Ok(Vec::new()) };
        let no_block = || CloudError::unavailable(format!("the edge of {site} has no addresses yet"));
        let block = self.underlay.block(site)?.ok_or_else(no_block)?;
        let of_peer = connections.iter().filter(|(name, _)| peer.is_none_or(|peer| peer == *name));
        Ok(of_peer.flat_map(|(peer, connection)| tunnels(site, peer, connection, block)).collect())
    }

    /// Makes the tunnels to a peer, and lets BGP know of them.
    pub(crate) async fn make_connection(&self, state: &State, site: &Site, peer: &Site) -> Result {
        charon::require_programs()?;
        let tunnels = self.tunnels_of(state, site, Some(peer))?;
        let made = try_join_all(tunnels.iter().map(|tunnel| self.make_tunnel(tunnel)));
        try_join(made, self.settle_bird(state, site)).await.map(drop)
    }

    /// Takes tunnels away that are not wanted: those of a connection that is gone, or that has other addresses now.
    pub(crate) async fn remove_tunnels(&self, site: &Site, tunnels: &[Tunnel]) -> Result {
        try_join_all(tunnels.iter().map(|tunnel| self.remove_tunnel(tunnel))).await?;
        // What is in the way of none of them is fine; a namespace that is left is.
        let left: BTreeSet<String> = tunnels
            .iter()
            .map(|tunnel| self.names.tunnel(site, &tunnel.interface()))
            .filter(|name| namespace::exists(name))
            .collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(CloudError::unavailable(format!("cannot remove {left:?}"))),
        }
    }

    pub(crate) async fn status(&self, site: &Site, peer: &Site) -> Result<ConnectionStatus> {
        let state = self.state();
        if !state.connections.get(site).is_some_and(|peers| peers.contains_key(peer)) {
            return Err(CloudError::not_found(format!("{site} has no connection to {peer}")));
        }
        let tunnels = self.tunnels_of(&state, site, Some(peer))?;
        let secured = join_all(tunnels.iter().map(|tunnel| self.security_of(tunnel))).await;
        let sessions = self.bgp_sessions(site).await;
        let mut status = ConnectionStatus {
            tunnels: u32::try_from(tunnels.len()).unwrap_or(u32::MAX),
            ..ConnectionStatus::default()
        };
        for (tunnel, secured) in tunnels.iter().zip(secured) {
            status.tunnels_up += u32::from(secured.is_up);
            status.bytes_in += secured.bytes_in;
            status.bytes_out += secured.bytes_out;
            if let Some(session) = sessions.get(&tunnel.interface()) {
                status.bgp_established += u32::from(session.is_established);
                status.routes.extend(session.routes.iter().copied());
            }
        }
        status.routes.sort();
        status.routes.dedup();
        Ok(status)
    }
}
