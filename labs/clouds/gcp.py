"""google-cloud-compute against the simulated Compute Engine: everything a plugin needs, and refusals. Then clusters, by
google-cloud-container, and zones of names, by google-api-python-client."""
import sys
import time

import google_auth_httplib2
import httplib2
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1 as gce
from google.cloud import container_v1 as gke
from googleapiclient import discovery, errors

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

dns = discovery.build("dns", "v1", client_options={"api_endpoint": sys.argv[1]}, static_discovery=True,
                      http=google_auth_httplib2.AuthorizedHttp(Token(), http=httplib2.Http()))
network = f"https://www.googleapis.com/compute/v1/projects/{project}/global/networks/net2"
record = {"name": "gcr.io.", "type": "A", "ttl": 300, "rrdatas": ["199.36.153.4"]}
zone_of = {"name": "names", "dnsName": "gcr.io.", "description": "d", "visibility": "private",
           "privateVisibilityConfig": {"networks": [{"networkUrl": network}]}}
named = {"project": project, "managedZone": "names"}


def refuses(status, request):
    try:
        request.execute()
    except errors.HttpError as refusal:
        assert refusal.resp.status == status, refusal
        return
    raise AssertionError(f"{status} was expected")


dns.managedZones().create(project=project, body=zone_of).execute()
refuses(409, dns.managedZones().create(project=project, body=zone_of))
dns.changes().create(**named, body={"additions": [record]}).execute()
refuses(409, dns.changes().create(**named, body={"additions": [record]}))
rrsets = dns.resourceRecordSets().list(**named).execute()["rrsets"]
assert sorted(one["type"] for one in rrsets) == ["A", "NS", "SOA"], rrsets
refuses(400, dns.managedZones().delete(**named))
refused(exceptions.BadRequest, networks.delete_unary, project=project, network="net2")
dns.changes().create(**named, body={"deletions": [record]}).execute()
refuses(404, dns.changes().create(**named, body={"deletions": [record]}))
dns.managedZones().delete(**named).execute()
refuses(404, dns.managedZones().get(**named))
assert dns.managedZones().list(project=project).execute()["managedZones"] == []

clusters = client(gke.ClusterManagerClient)
parent = f"projects/{project}/locations/{region}"
pods = [gce.SubnetworkSecondaryRange(range_name=name, ip_cidr_range=range_) for name, range_ in
        (("pods", "10.4.128.0/17"), ("services", "10.4.64.0/18"))]
subnet = gce.Subnetwork(name="k8s", network="global/networks/net1", ip_cidr_range="10.4.0.0/18", secondary_ip_ranges=pods)
done(subnets.insert_unary(project=project, region=region, subnetwork_resource=subnet))
wanted = gke.Cluster(
    name="one", network="net1", subnetwork="k8s", initial_node_count=1, node_config=gke.NodeConfig(tags=["mine"]),
    ip_allocation_policy=gke.IPAllocationPolicy(
        use_ip_aliases=True, cluster_secondary_range_name="pods", services_secondary_range_name="services"),
    network_config=gke.NetworkConfig(default_enable_private_nodes=True),
    control_plane_endpoints_config=gke.ControlPlaneEndpointsConfig(
        ip_endpoints_config=gke.ControlPlaneEndpointsConfig.IPEndpointsConfig(enabled=True, enable_public_endpoint=False)))


def ended(operation):
    """Kubernetes Engine has no request that waits."""
    for _ in range(400):
        operation = clusters.get_operation(name=f"{parent}/operations/{operation.name}")
        if operation.status == gke.Operation.Status.DONE:
            assert not operation.error.message, operation
            return
        time.sleep(0.2)
    raise AssertionError("the operation does not end")


making = clusters.create_cluster(parent=parent, cluster=wanted)
assert clusters.get_cluster(name=f"{parent}/clusters/one").status == gke.Cluster.Status.PROVISIONING
refused(exceptions.Conflict, clusters.create_cluster, parent=parent, cluster=wanted)
refused(exceptions.BadRequest, clusters.delete_cluster, name=f"{parent}/clusters/one")
ended(making)
made = clusters.get_cluster(name=f"{parent}/clusters/one")
assert made.status == gke.Cluster.Status.RUNNING and made.cluster_ipv4_cidr == "10.4.128.0/17", made
assert made.endpoint.startswith("10.4.0.") and list(made.node_pools[0].config.tags) == ["mine"], made
nodes = [one for _, scope in instances.aggregated_list(project=project) for one in scope.instances]
assert len(nodes) == 2 and all("mine" in node.tags.items for node in nodes), nodes
everywhere = clusters.list_clusters(parent=f"projects/{project}/locations/-")
assert [one.name for one in everywhere.clusters] == ["one"] and not everywhere.missing_zones
assert not clusters.list_clusters(parent=f"projects/{project}/locations/europe-west1").clusters
refused(exceptions.NotFound, clusters.get_cluster, name=f"{parent}/clusters/two")
wanted.name = "two"
refused(exceptions.BadRequest, clusters.create_cluster, parent=parent, cluster=wanted)
refused(exceptions.BadRequest, subnets.delete_unary, project=project, region=region, subnetwork="k8s")
pool = gke.NodePool(name="more", initial_node_count=1, config=gke.NodeConfig(tags=["mine"]))
growing = clusters.create_node_pool(parent=f"{parent}/clusters/one", node_pool=pool)
refused(exceptions.BadRequest, clusters.delete_cluster, name=f"{parent}/clusters/one")
ended(growing)
assert [one.name for one in clusters.get_cluster(name=f"{parent}/clusters/one").node_pools] == ["default-pool", "more"]
ended(clusters.delete_node_pool(name=f"{parent}/clusters/one/nodePools/more"))
ended(clusters.delete_cluster(name=f"{parent}/clusters/one"))
refused(exceptions.NotFound, clusters.get_cluster, name=f"{parent}/clusters/one")
assert not any(scope.instances for _, scope in instances.aggregated_list(project=project))
done(subnets.delete_unary(project=project, region=region, subnetwork="k8s"))
print("google-cloud-container", gke.__version__, "is content")
