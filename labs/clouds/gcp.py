"""google-cloud-compute against the simulated Compute Engine: everything a plugin needs, and refusals."""
import sys
import time

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1 as gce

host = sys.argv[1].removeprefix("http://")
project, region, zone = "p1", "us-west1", "us-west1-a"


class Token(AnonymousCredentials):
    """Any bearer will do."""

    def apply(self, headers, token=None):
        headers["authorization"] = "Bearer ya29.x"

    def before_request(self, request, method, url, headers):
        self.apply(headers)


def client(kind):
    transport = kind.get_transport_class("rest")
    return kind(transport=transport(host=host, url_scheme="http", credentials=Token()))


operations = {
    "global": client(gce.GlobalOperationsClient),
    "region": client(gce.RegionOperationsClient),
    "zone": client(gce.ZoneOperationsClient),
}


def done(operation):
    """The library's own poller goes to Google whatever the endpoint, so this asks itself."""
    for _ in range(200):
        if operation.zone:
            operation = operations["zone"].wait(project=project, zone=zone, operation=operation.name)
        elif operation.region:
            operation = operations["region"].wait(project=project, region=region, operation=operation.name)
        else:
            operation = operations["global"].wait(project=project, operation=operation.name)
        if operation.status == gce.Operation.Status.DONE:
            assert not operation.error.errors, operation.error
            return
        time.sleep(0.2)
    raise AssertionError("the operation does not end")


def refused(kind, call, **arguments):
    try:
        call(**arguments)
    except kind:
        return
    raise AssertionError(f"{kind} was expected")


networks, subnets, firewalls = client(gce.NetworksClient), client(gce.SubnetworksClient), client(gce.FirewallsClient)
instances, routers = client(gce.InstancesClient), client(gce.RoutersClient)
gateways, externals, tunnels = client(gce.VpnGatewaysClient), client(gce.ExternalVpnGatewaysClient), client(gce.VpnTunnelsClient)

for name in ("net1", "net2"):
    network = gce.Network(name=name, auto_create_subnetworks=False, routing_config={"routing_mode": "GLOBAL"})
    done(networks.insert_unary(project=project, network_resource=network))
refused(exceptions.Conflict, networks.insert_unary, project=project, network_resource=gce.Network(name="net1"))
refused(exceptions.NotFound, networks.get, project=project, network="net3")
refused(exceptions.BadRequest, networks.insert_unary, project=project, network_resource=gce.Network(name="Net_3"))
for name, net in (("sub1", "net1"), ("sub2", "net2")):
    subnet = gce.Subnetwork(name=name, network=f"projects/{project}/global/networks/{net}", ip_cidr_range=f"10.{name[-1]}.0.0/16")
    done(subnets.insert_unary(project=project, region=region, subnetwork_resource=subnet))
overlap = gce.Subnetwork(name="sub3", network=f"global/networks/net1", ip_cidr_range="10.1.7.0/24")
refused(exceptions.BadRequest, subnets.insert_unary, project=project, region=region, subnetwork_resource=overlap)
assert any(scope.subnetworks for _, scope in subnets.aggregated_list(project=project))
web = gce.Firewall(name="web", network="global/networks/net1", direction="INGRESS", source_ranges=["10.2.0.0/16"],
                   allowed=[gce.Allowed(I_p_protocol="tcp", ports=["80-90"])], target_tags=["web"])
done(firewalls.insert_unary(project=project, firewall_resource=web))
assert firewalls.get(project=project, firewall="web").priority == 1000
web.source_ranges = ["10.2.0.0/24"]
done(firewalls.update_unary(project=project, firewall="web", firewall_resource=web))
assert [one.name for one in firewalls.list(project=project)] == ["web"]

vm = gce.Instance(name="vm1", machine_type=f"zones/{zone}/machineTypes/e2-micro", disks=[gce.AttachedDisk(boot=True)],
                  network_interfaces=[gce.NetworkInterface(subnetwork=f"regions/{region}/subnetworks/sub1")],
                  tags=gce.Tags(items=["web"]))
done(instances.insert_unary(project=project, zone=zone, instance_resource=vm))
made = instances.get(project=project, zone=zone, instance="vm1")
assert made.status == "RUNNING" and made.network_interfaces[0].network_i_p.startswith("10.1."), made
refused(exceptions.BadRequest, subnets.delete_unary, project=project, region=region, subnetwork="sub1")

for near, far in (("net1", "net2"), ("net2", "net1")):
    peering = gce.NetworkPeering(name="peer", network=f"projects/{project}/global/networks/{far}", exchange_subnet_routes=True)
    body = gce.NetworksAddPeeringRequest(network_peering=peering)
    done(networks.add_peering_unary(project=project, network=near, networks_add_peering_request_resource=body))
assert networks.get(project=project, network="net1").peerings[0].state == "ACTIVE"
for near in ("net1", "net2"):
    body = gce.NetworksRemovePeeringRequest(name="peer")
    done(networks.remove_peering_unary(project=project, network=near, networks_remove_peering_request_resource=body))

gateway = gce.VpnGateway(name="gw", network="global/networks/net1")
done(gateways.insert_unary(project=project, region=region, vpn_gateway_resource=gateway))
assert len(gateways.get(project=project, region=region, vpn_gateway="gw").vpn_interfaces) == 2
router = gce.Router(name="router", network="global/networks/net1", bgp=gce.RouterBgp(asn=64514))
done(routers.insert_unary(project=project, region=region, router_resource=router))
external = gce.ExternalVpnGateway(name="ext", redundancy_type="TWO_IPS_REDUNDANCY", interfaces=[
    gce.ExternalVpnGatewayInterface(id=n, ip_address=f"52.1.2.{n}") for n in range(2)])
done(externals.insert_unary(project=project, external_vpn_gateway_resource=external))
tunnel = gce.VpnTunnel(name="tun", vpn_gateway=f"regions/{region}/vpnGateways/gw", vpn_gateway_interface=0, ike_version=2,
                       peer_external_gateway="global/externalVpnGateways/ext", peer_external_gateway_interface=0,
                       router=f"regions/{region}/routers/router", shared_secret="secret")
done(tunnels.insert_unary(project=project, region=region, vpn_tunnel_resource=tunnel))
shown = tunnels.get(project=project, region=region, vpn_tunnel="tun")
assert shown.shared_secret != "secret" and shown.status == "NO_INCOMING_PACKETS", shown
interface = gce.RouterInterface(name="if0", linked_vpn_tunnel=f"regions/{region}/vpnTunnels/tun", ip_range="169.254.21.2/30")
peer = gce.RouterBgpPeer(name="peer0", interface_name="if0", peer_ip_address="169.254.21.1", peer_asn=64999)
patch = gce.Router(interfaces=[interface], bgp_peers=[peer])
done(routers.patch_unary(project=project, region=region, router="router", router_resource=patch))
status = routers.get_router_status(project=project, region=region, router="router")
assert status.result.bgp_peer_status[0].status == "DOWN"
refused(exceptions.BadRequest, tunnels.delete_unary, project=project, region=region, vpn_tunnel="tun")
refused(exceptions.BadRequest, gateways.delete_unary, project=project, region=region, vpn_gateway="gw")
empty = gce.Router(name="router", network="global/networks/net1", bgp=gce.RouterBgp(asn=64514), interfaces=[], bgp_peers=[])
clear = {"interfaces": [], "bgpPeers": []}
done(routers.update_unary(project=project, region=region, router="router", router_resource=empty))

done(instances.delete_unary(project=project, zone=zone, instance="vm1"))
done(firewalls.delete_unary(project=project, firewall="web"))
print("google-cloud-compute", gce.__version__, "is content")
