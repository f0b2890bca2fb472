//! How an HA VPN gateway is: its tunnels by the gateway at the other end, and whether they are enough for high availability.

use serde_json::{Value, json};

use super::state::Gce;

impl Gce {
    pub(super) fn gateway_status(&self, gateway: &Value) -> Value {
        let mut peers: Vec<(&Value, Vec<&Value>)> = Vec::new();
        for (_, tunnel) in
            self.of_kind("vpnTunnels").filter(|(_, tunnel)| tunnel["vpnGateway"] == gateway["selfLink"])
        {
            let peer = &tunnel["peerExternalGateway"];
            match peers.iter_mut().find(|(known, _)| *known == peer) {
                Some((_, tunnels)) => tunnels.push(tunnel),
                None => peers.push((peer, vec![tunnel])),
            }
        }
        let connections: Vec<Value> = peers
            .into_iter()
            .map(|(peer, tunnels)| {
                let uses = |own: u64| tunnels.iter().any(|tunnel| tunnel["vpnGatewayInterface"] == own);
                let state = match uses(0) && uses(1) {
                    true => json!({"state": "CONNECTION_REDUNDANCY_MET"}),
                    false => json!({"state": "CONNECTION_REDUNDANCY_NOT_MET", "unsatisfiedReason": "INCOMPLETE_TUNNELS_COVERAGE"}),
                };
                let shown = tunnels.iter().map(|tunnel| {
                    json!({"tunnelUrl": tunnel["selfLink"], "localGatewayInterface": tunnel["vpnGatewayInterface"],
                        "peerGatewayInterface": tunnel["peerExternalGatewayInterface"]})
                });
                json!({"peerExternalGateway": peer, "state": state, "tunnels": shown.collect::<Vec<_>>()})
            })
            .collect();
        json!({"result": {"vpnConnections": connections}})
    }
}
