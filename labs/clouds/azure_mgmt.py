"""azure-mgmt-network, -compute, -containerservice and azure-identity against the simulated Azure, and refusals."""
import os
import sys
import time

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import ManagedIdentityCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.containerservice import ContainerServiceClient
from azure.mgmt.network import NetworkManagementClient, __version__

url, group = sys.argv[1], "g1"
os.environ["AZURE_POD_IDENTITY_AUTHORITY_HOST"] = url
credential = ManagedIdentityCredential()
token = credential.get_token("https://management.azure.com/.default")
assert token.token == "sim", token


class Token(SansIOHTTPPolicy):
    """The client's own policy shows no token without TLS."""

    def on_request(self, request):
        request.http_request.headers["Authorization"] = f"Bearer {token.token}"


class Anonymous(SansIOHTTPPolicy):
    pass


class Quick(RequestsTransport):
    """Time passes faster here than the answers know that ask for a pause."""

    def sleep(self, duration):
        time.sleep(duration / 100)


def client(kind, policy):
    return kind(credential, "s1", base_url=url, authentication_policy=policy(), transport=Quick())


network, compute = client(NetworkManagementClient, Token), client(ComputeManagementClient, Token)


def refused(code, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
        if hasattr(answer, "result"):
            answer.result()
    except HttpResponseError as error:
        assert error.error is not None and error.error.code == code, error
        return
    raise AssertionError(f"{code} was expected")


def made(poller):
    return poller.result(timeout=300)


try:
    client(NetworkManagementClient, Anonymous).virtual_networks.get(group, "v1")
    raise AssertionError("without a token nothing is answered")
except ClientAuthenticationError:
    pass

vnets, subnets, peerings = network.virtual_networks, network.subnets, network.virtual_network_peerings
for name, space in (("v1", "10.1.0.0/16"), ("v2", "10.2.0.0/16")):
    body = {"location": "westus2", "tags": {"a": "b"}, "properties": {
        "addressSpace": {"addressPrefixes": [space]},
        "subnets": [{"name": "default", "properties": {"addressPrefix": space.replace("/16", "/24")}}]}}
    vnet = made(vnets.begin_create_or_update(group, name, body))
    assert vnet.provisioning_state == "Succeeded" and vnet.subnets[0].id.endswith("/subnets/default"), vnet
assert [vnet.name for vnet in vnets.list(group)] == ["v1", "v2"] == [vnet.name for vnet in vnets.list_all()]
try:
    vnets.get(group, "v3")
    raise AssertionError("there is no v3")
except ResourceNotFoundError as error:
    assert error.error.code == "ResourceNotFound"
refused("LocationNotAvailableForResourceType", vnets.begin_create_or_update, group, "v3",
        {"location": "moon", "properties": {"addressSpace": {"addressPrefixes": ["10.3.0.0/16"]}}})
refused("NetcfgSubnetRangesOverlap", subnets.begin_create_or_update, group, "v1", "two",
        {"properties": {"addressPrefix": "10.1.0.128/25"}})
made(subnets.begin_create_or_update(group, "v1", "two", {"properties": {"addressPrefix": "10.1.1.0/24"}}))
assert [subnet.name for subnet in subnets.list(group, "v1")] == ["default", "two"]
made(subnets.begin_delete(group, "v1", "two"))
made(vnets.begin_delete(group, "v3"))
assert vnets.update_tags(group, "v2", {"tags": {"c": "d"}}).tags == {"c": "d"}


def rule(name, priority, **more):
    return {"name": name, "properties": {
        "priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourcePortRange": "*",
        "destinationPortRange": "80-90", "sourceAddressPrefixes": ["10.2.0.0/16", "10.3.0.1/32"],
        "destinationAddressPrefix": "*", **more}}


groups, rules = network.network_security_groups, network.security_rules
body = {"location": "westus2", "properties": {"securityRules": [rule("web", 100), rule("more", 101)]}}
nsg = made(groups.begin_create_or_update(group, "nsg", body))
assert len(nsg.security_rules) == 2 and len(nsg.default_security_rules) == 6, nsg
body["properties"]["securityRules"][1]["properties"]["priority"] = 100
refused("SecurityRuleConflict", groups.begin_create_or_update, group, "nsg", body)
refused("SecurityRuleInvalidPriority", rules.begin_create_or_update, group, "nsg", "x", rule("x", 99))
refused("SecurityRuleInvalidDescription", rules.begin_create_or_update, group, "nsg", "x", rule("x", 102, description="x" * 141))
made(rules.begin_create_or_update(group, "nsg", "one", rule("one", 300)))
assert rules.get(group, "nsg", "one").priority == 300
made(rules.begin_delete(group, "nsg", "one"))

subnet = vnets.get(group, "v1").subnets[0].id
nic = made(network.network_interfaces.begin_create_or_update(group, "nic", {"location": "westus2", "properties": {
    "networkSecurityGroup": {"id": nsg.id},
    "ipConfigurations": [{"name": "primary", "properties": {"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic"}}]}}))
assert nic.ip_configurations[0].private_ip_address == "10.1.0.4", nic
machines = compute.virtual_machines
vm = made(machines.begin_create_or_update(group, "vm", {"location": "westus2", "properties": {
    "hardwareProfile": {"vmSize": "Standard_B1s"},
    "storageProfile": {"imageReference": {"publisher": "Debian", "offer": "debian-12", "sku": "12", "version": "latest"},
                       "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"}},
    "osProfile": {"computerName": "vm", "adminUsername": "a", "linuxConfiguration": {"disablePasswordAuthentication": True}},
    "networkProfile": {"networkInterfaces": [{"id": nic.id, "properties": {"primary": True, "deleteOption": "Delete"}}]}}}))
assert vm.provisioning_state == "Succeeded" and vm.vm_id, vm
assert network.network_interfaces.get(group, "nic").virtual_machine.id == vm.id
assert groups.get(group, "nsg").network_interfaces[0].id == nic.id
assert [machine.name for machine in machines.list(group)] == ["vm"]
refused("InUseNetworkSecurityGroupCannotBeDeleted", groups.begin_delete, group, "nsg")
refused("InUseSubnetCannotBeDeleted", vnets.begin_delete, group, "v1")
refused("NicInUse", network.network_interfaces.begin_delete, group, "nic")

one, two = vnets.get(group, "v1").id, vnets.get(group, "v2").id
first = made(peerings.begin_create_or_update(group, "v1", "p", {"properties": {"remoteVirtualNetwork": {"id": two}, "allowVirtualNetworkAccess": True}}))
assert first.peering_state == "Initiated", first
made(peerings.begin_create_or_update(group, "v2", "p", {"properties": {"remoteVirtualNetwork": {"id": one}, "allowVirtualNetworkAccess": True}}))
assert peerings.get(group, "v1", "p").peering_state == "Connected"
refused("RemoteVnetHasNoGateways", peerings.begin_create_or_update, group, "v1", "p",
        {"properties": {"remoteVirtualNetwork": {"id": two}, "useRemoteGateways": True}})
made(peerings.begin_delete(group, "v2", "p"))
assert peerings.get(group, "v1", "p").peering_state == "Disconnected"
made(peerings.begin_delete(group, "v1", "p"))

addresses = network.public_ip_addresses


def address(name, zones=("1", "2", "3")):
    body = {"location": "westus2", "sku": {"name": "Standard"}, "zones": list(zones), "properties": {"publicIPAllocationMethod": "Static"}}
    return made(addresses.begin_create_or_update(group, name, body))


nat = made(network.nat_gateways.begin_create_or_update(group, "nat", {
    "location": "westus2", "sku": {"name": "Standard"}, "properties": {"publicIpAddresses": [{"id": address("natip").id}]}}))
made(subnets.begin_create_or_update(group, "v1", "default", {"properties": {"addressPrefix": "10.1.0.0/24", "natGateway": {"id": nat.id}}}))
refused("InUseNatGatewayCannotBeDeleted", network.nat_gateways.begin_delete, group, "nat")
refused("PublicIPAddressCannotBeDeleted", addresses.begin_delete, group, "natip")
made(subnets.begin_create_or_update(group, "v1", "default", {"properties": {"addressPrefix": "10.1.0.0/24"}}))
made(network.nat_gateways.begin_delete(group, "nat"))

gateways, connections, locals_ = network.virtual_network_gateways, network.virtual_network_gateway_connections, network.local_network_gateways
made(subnets.begin_create_or_update(group, "v2", "GatewaySubnet", {"properties": {"addressPrefix": "10.2.255.0/27"}}))
ips = [address("gw0"), address("gw1")]
root = vnets.get(group, "v2").id.replace("virtualNetworks/v2", "virtualNetworkGateways/gw")
inside = f"{vnets.get(group, 'v2').id}/subnets/GatewaySubnet"


def gateway(sku="VpnGw1AZ", asn=64514, custom=(("169.254.21.2",), ("169.254.21.6",))):
    names = ("default", "activeActive")
    return {"location": "westus2", "properties": {
        "gatewayType": "Vpn", "vpnType": "RouteBased", "sku": {"name": sku, "tier": sku}, "activeActive": True, "enableBgp": True,
        "ipConfigurations": [{"name": name, "properties": {"subnet": {"id": inside}, "publicIPAddress": {"id": ip.id},
                                                           "privateIPAllocationMethod": "Dynamic"}} for name, ip in zip(names, ips)],
        "bgpSettings": {"asn": asn, "bgpPeeringAddresses": [
            {"ipconfigurationId": f"{root}/ipConfigurations/{name}", "customBgpIpAddresses": list(own)} for name, own in zip(names, custom)]}}}


refused("NonAzSkusNotAllowedForVPNGateway", gateways.begin_create_or_update, group, "gw", gateway(sku="VpnGw1"))
refused("InvalidBgpAsn", gateways.begin_create_or_update, group, "gw", gateway(asn=65518))
refused("InvalidCustomBgpIpAddress", gateways.begin_create_or_update, group, "gw", gateway(custom=(("169.254.30.1",), ())))
gw = made(gateways.begin_create_or_update(group, "gw", gateway()))
assert gw.bgp_settings.asn == 64514 and len(gw.bgp_settings.bgp_peering_addresses) == 2, gw
assert gw.bgp_settings.bgp_peering_addresses[0].tunnel_ip_addresses == [ips[0].ip_address]
lng = made(locals_.begin_create_or_update(group, "lng", {"location": "westus2", "properties": {
    "gatewayIpAddress": "52.1.2.3", "bgpSettings": {"asn": 64999, "bgpPeeringAddress": "169.254.21.1"}}}))


def connection(custom="169.254.21.2"):
    return {"location": "westus2", "properties": {
        "virtualNetworkGateway1": {"id": gw.id, "properties": {}}, "localNetworkGateway2": {"id": lng.id, "properties": {}},
        "connectionType": "IPsec", "connectionProtocol": "IKEv2", "enableBgp": True, "sharedKey": "secret1",
        "gatewayCustomBgpIpAddresses": [{"ipConfigurationId": f"{root}/ipConfigurations/default", "customBgpIpAddress": custom}]}}


refused("InvalidGatewayCustomBgpIpAddress", connections.begin_create_or_update, group, "con", connection("169.254.21.9"))
con = made(connections.begin_create_or_update(group, "con", connection()))
assert con.connection_status in ("Unknown", "NotConnected") and con.shared_key is None, con
made(connections.begin_set_shared_key(group, "con", {"value": "secret2"}))
assert connections.get_shared_key(group, "con").value == "secret2"
refused("InUseResourceCannotBeDeleted", gateways.begin_delete, group, "gw")
refused("InUseResourceCannotBeDeleted", locals_.begin_delete, group, "lng")
status = made(gateways.begin_get_bgp_peer_status(group, "gw"))
assert [peer.state for peer in status.value] == ["Connecting", "Connecting"], status
assert made(gateways.begin_get_learned_routes(group, "gw")).value == []
made(connections.begin_delete(group, "con"))
made(locals_.begin_delete(group, "lng"))
made(gateways.begin_delete(group, "gw"))
for ip in ("gw0", "gw1", "natip"):
    made(addresses.begin_delete(group, ip))
made(machines.begin_delete(group, "vm"))
made(groups.begin_delete(group, "nsg"))
for name in ("v1", "v2"):
    made(vnets.begin_delete(group, name))
assert list(vnets.list(group)) == [] == list(network.network_interfaces.list(group))

clusters = client(ContainerServiceClient, Token).managed_clusters


def outbound(tag, priority, access="Allow"):
    return rule(f"out-{priority}", priority, direction="Outbound", access=access, protocol="Tcp" if tag != "*" else "*",
                destinationPortRange="443" if tag != "*" else "*", sourceAddressPrefixes=[], sourceAddressPrefix="*",
                destinationAddressPrefix=tag)


def pool(**more):
    return {"name": "nodes", "mode": "System", "count": 2, "vmSize": "Standard_D2s_v5", "vnetSubnetID": subnet, **more}


def cluster(services="10.4.128.0/17", pools=None, **more):
    return {"location": "westus2", "identity": {"type": "SystemAssigned"}, "properties": {
        "dnsPrefix": "k", "agentPoolProfiles": pools or [pool()], "apiServerAccessProfile": {"enablePrivateCluster": True},
        "networkProfile": {"networkPlugin": "azure", "serviceCidr": services, "dnsServiceIP": services.replace(".0/17", ".10")}},
        **more}


tags = ("MicrosoftContainerRegistry", "AzureFrontDoor.FirstParty", "AzureActiveDirectory", "AzureResourceManager")
allowed = [outbound(tag, 200 + number) for number, tag in enumerate(tags)]
closed = made(groups.begin_create_or_update(group, "closed", {"location": "westus2", "properties": {
    "securityRules": [outbound("*", 4096, access="Deny")]}}))
vnet = made(vnets.begin_create_or_update(group, "v4", {"location": "westus2", "properties": {
    "addressSpace": {"addressPrefixes": ["10.4.0.0/17"]}, "subnets": [{"name": "default", "properties": {
        "addressPrefix": "10.4.0.0/17", "networkSecurityGroup": {"id": closed.id},
        "privateEndpointNetworkPolicies": "NetworkSecurityGroupEnabled"}}]}}))
subnet = vnet.subnets[0].id
assert [one.id for one in groups.get(group, "closed").subnets] == [subnet]
refused("InUseNetworkSecurityGroupCannotBeDeleted", groups.begin_delete, group, "closed")
create = clusters.begin_create_or_update
refused("ServiceCidrOverlapExistingSubnetsCidr", create, group, "k", cluster("10.4.0.0/17"))
refused("MissingSystemPool", create, group, "k", cluster(pools=[pool(mode="User")]))
refused("InvalidParameter", create, group, "k", cluster(pools=[pool(name="Nodes-1")]))
refused("InvalidParameter", create, group, "k", cluster(identity=None))
refused("InsufficientSubnetSize", create, group, "k", cluster(pools=[pool(count=1000, maxPods=250)]))
try:
    made(create(group, "k", cluster()))
    raise AssertionError("nodes that reach nothing do not come up")
except HttpResponseError:
    assert clusters.get(group, "k").provisioning_state == "Failed"
made(clusters.begin_delete(group, "k"))
made(groups.begin_create_or_update(group, "closed", {"location": "westus2", "properties": {
    "securityRules": [*allowed, outbound("*", 4096, access="Deny")]}}))
k = made(create(group, "k", cluster()))
assert k.provisioning_state == "Succeeded" and k.power_state.code == "Running" and k.private_fqdn, k
assert k.node_resource_group == "MC_g1_k_westus2" and k.agent_pool_profiles[0].max_pods == 30, k
assert [one.name for one in clusters.list_by_resource_group(group)] == ["k"] == [one.name for one in clusters.list()]
inside = subnets.get(group, "v4", "default")
assert inside.private_endpoint_network_policies == "Disabled" and inside.ip_configurations, inside
refused("InUseSubnetCannotBeDeleted", vnets.begin_delete, group, "v4")
refused("PropertyChangeNotAllowed", create, group, "k", cluster("10.5.128.0/17"))
assert made(create(group, "k", cluster(pools=[pool(count=3)]))).agent_pool_profiles[0].count == 3
assert made(clusters.begin_update_tags(group, "k", {"tags": {"a": "b"}})).tags == {"a": "b"}
made(clusters.begin_delete(group, "k"))
made(vnets.begin_delete(group, "v4"))
made(groups.begin_delete(group, "closed"))
assert list(clusters.list()) == []
print("azure-mgmt-network", __version__, "is content")
