"""ibm-vpc and IBM's transit gateway client against the simulated IBM Cloud: everything a plugin needs, and refusals."""
import sys
import time
from importlib.metadata import version

from ibm_cloud_networking_services.transit_gateway_apis_v1 import TransitGatewayApisV1
from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import IAMAuthenticator
from ibm_vpc import VpcV1
from ibm_vpc.vpc_v1 import VpcsPager

url = sys.argv[1]
key = IAMAuthenticator("any-key", url=url)
vpc = VpcV1(authenticator=key, version="2026-09-15")
vpc.set_service_url(f"{url}/v1")
transit = TransitGatewayApisV1(authenticator=key, version="2026-09-15")
transit.set_service_url(f"{url}/v1")
zone = {"name": "us-south-1"}


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as err:
        assert err.code == status, err
        return
    raise AssertionError(f"{status} was expected")


def until(look, field, wanted):
    for _ in range(200):
        found = look().get_result()
        if found[field] == wanted:
            return found
        time.sleep(0.4)
    raise AssertionError(f"{field} is {found[field]}, not {wanted}")


def gone(look):
    for _ in range(200):
        try:
            look()
        except ApiException as err:
            assert err.code == 404, err
            return
        time.sleep(0.4)
    raise AssertionError("it is still there")


assert {one["name"] for one in vpc.list_regions().get_result()["regions"]} >= {"us-south"}
assert len(vpc.list_region_zones("us-south").get_result()["zones"]) == 3
nets = [vpc.create_vpc(name=f"net{n}", address_prefix_management="manual").get_result() for n in range(3)]
refused(400, vpc.create_vpc, name="net1")
refused(404, vpc.get_vpc, "r006-none")
for net in nets:
    until(lambda: vpc.get_vpc(net["id"]), "status", "available")
assert len(VpcsPager(client=vpc, limit=2).get_all()) == 3
subnets = []
for n, net in enumerate(nets[:2]):
    vpc.create_vpc_address_prefix(net["id"], cidr=f"10.{n}.0.0/18", zone=zone, name=f"prefix{n}")
    refused(400, vpc.create_vpc_address_prefix, net["id"], cidr=f"10.{n}.1.0/24", zone=zone, name="overlap")
    body = {"vpc": {"id": net["id"]}, "zone": zone, "ipv4_cidr_block": f"10.{n}.0.0/24", "name": f"sub{n}"}
    subnets.append(vpc.create_subnet(body).get_result())
    until(lambda: vpc.get_subnet(subnets[-1]["id"]), "status", "available")
refused(400, vpc.create_subnet, {"vpc": {"id": nets[0]["id"]}, "zone": zone, "ipv4_cidr_block": "10.9.0.0/24"})

group = vpc.create_security_group(vpc={"id": nets[0]["id"]}, name="closed", rules=[]).get_result()
assert group["rules"] == []
rule = {"direction": "inbound", "protocol": "tcp", "port_min": 80, "port_max": 90, "name": "web", "remote": {"cidr_block": "10.1.0.0/16"}}
made = vpc.create_security_group_rule(group["id"], rule).get_result()
everything = {"direction": "outbound", "protocol": "icmp_tcp_udp", "name": "out", "remote": {"address": "10.1.0.4"}}
vpc.create_security_group_rule(group["id"], everything)
refused(400, vpc.create_security_group_rule, group["id"], {"direction": "inbound", "protocol": "tcp", "port_min": 90, "port_max": 80, "name": "x"})
assert len(vpc.list_security_group_rules(group["id"]).get_result()["rules"]) == 2
vpc.delete_security_group_rule(group["id"], made["id"])
assert len(vpc.get_security_group(group["id"]).get_result()["rules"]) == 1
assert len(vpc.list_security_groups(vpc_id=nets[0]["id"]).get_result()["security_groups"]) == 2

vm = {"name": "vm1", "zone": zone, "profile": {"name": "bx2-2x8"}, "image": {"id": "image-1"}, "vpc": {"id": nets[0]["id"]},
      "primary_network_attachment": {"name": "primary", "virtual_network_interface": {
          "subnet": {"id": subnets[0]["id"]}, "security_groups": [{"id": group["id"]}]}}}
vm = vpc.create_instance(vm).get_result()
vm = until(lambda: vpc.get_instance(vm["id"]), "status", "running")
assert vm["primary_network_attachment"]["primary_ip"]["address"].startswith("10.0.0."), vm
assert [one["name"] for one in vpc.list_instances(name="vm1").get_result()["instances"]] == ["vm1"]
refused(409, vpc.delete_subnet, subnets[0]["id"])
refused(409, vpc.delete_security_group, group["id"])
refused(409, vpc.delete_vpc, nets[0]["id"])

nat = vpc.create_public_gateway(vpc={"id": nets[0]["id"]}, zone=zone, name="nat").get_result()
until(lambda: vpc.get_public_gateway(nat["id"]), "status", "available")
vpc.set_subnet_public_gateway(subnets[0]["id"], {"id": nat["id"]})
assert vpc.get_subnet_public_gateway(subnets[0]["id"]).get_result()["id"] == nat["id"]
refused(409, vpc.delete_public_gateway, nat["id"])
vpc.unset_subnet_public_gateway(subnets[0]["id"])
vpc.delete_public_gateway(nat["id"])
gone(lambda: vpc.get_public_gateway(nat["id"]))

refused(400, vpc.create_vpn_gateway, {"subnet": {"id": subnets[1]["id"]}, "mode": "route", "local_asn": 64512, "name": "bad"})
gateway = vpc.create_vpn_gateway({"subnet": {"id": subnets[1]["id"]}, "mode": "route", "local_asn": 64999, "name": "gw"}).get_result()
assert gateway["members"][0]["public_ip"]["address"] == "0.0.0.0"
gateway = until(lambda: vpc.get_vpn_gateway(gateway["id"]), "lifecycle_state", "stable")
ike = vpc.create_ike_policy(ike_version=2, authentication_algorithms=["sha256"], encryption_algorithms=["aes256"], dh_groups=[14], name="ike").get_result()
ipsec = vpc.create_ipsec_policy(authentication_algorithms=["sha256"], encryption_algorithms=["aes256"], pfs_groups=["group_14"], name="esp").get_result()
tunnel = lambda host: {"tunnel_interface_ip": {"address": f"169.254.21.{host}"}, "neighbor_ip": {"address": f"169.254.21.{host + 1}"}}
link = {"name": "link", "psk": "aKeyOfSomeLength", "peer": {"address": "203.0.113.1", "asn": 64998}, "routing_protocol": "bgp",
        "tunnels": [tunnel(1), tunnel(5)], "ike_policy": {"id": ike["id"]}, "ipsec_policy": {"id": ipsec["id"]}}
refused(400, vpc.create_vpn_gateway_connection, gateway["id"], {**link, "psk": "a/b"})
refused(400, vpc.create_vpn_gateway_connection, gateway["id"], {**link, "tunnels": [tunnel(1), tunnel(3)]})
link = vpc.create_vpn_gateway_connection(gateway["id"], link).get_result()
assert [one["status"] for one in link["tunnels"]] == ["down", "down"], link
static = {"name": "static", "psk": "aKeyOfSomeLength", "peer": {"address": "203.0.113.2"}, "routing_protocol": "none"}
static = vpc.create_vpn_gateway_connection(gateway["id"], static).get_result()
vpc.update_vpn_gateway_connection(gateway["id"], link["id"], {"psk": "anotherKeyOfSomeLength"})
assert len(vpc.list_vpn_gateway_connections(gateway["id"]).get_result()["connections"]) == 2
vpc.add_vpn_gateway_advertised_cidr(gateway["id"], "10.0.0.0/18")
assert vpc.list_vpn_gateway_advertised_cidrs(gateway["id"]).get_result()["advertised_cidrs"] == ["10.0.0.0/18"]
refused(409, vpc.delete_ike_policy, ike["id"])

hub = transit.create_transit_gateway(location="us-south", name="hub", global_=True).get_result()
until(lambda: transit.get_transit_gateway(hub["id"]), "status", "available")
joints = []
for kind, crn in (("vpc", nets[0]["crn"]), ("vpc", nets[1]["crn"]), ("vpn_gateway", gateway["crn"])):
    joint = transit.create_transit_gateway_connection(hub["id"], kind, network_id=crn, name=f"joint-{len(joints)}").get_result()
    until(lambda: transit.get_transit_gateway_connection(hub["id"], joint["id"]), "status", "attached")
    joints.append(joint)
assert len(transit.list_transit_gateway_connections(hub["id"]).get_result()["connections"]) == 3
refused(409, transit.delete_transit_gateway, hub["id"])
refused(409, vpc.delete_vpn_gateway, gateway["id"])

for joint in joints:
    transit.delete_transit_gateway_connection(hub["id"], joint["id"])
    gone(lambda: transit.get_transit_gateway_connection(hub["id"], joint["id"]))
transit.delete_transit_gateway(hub["id"])
for connection in (link, static):
    vpc.delete_vpn_gateway_connection(gateway["id"], connection["id"])
vpc.delete_vpn_gateway(gateway["id"])
gone(lambda: vpc.get_vpn_gateway(gateway["id"]))
vpc.delete_ike_policy(ike["id"])
vpc.delete_ipsec_policy(ipsec["id"])
vpc.delete_instance(vm["id"])
gone(lambda: vpc.get_instance(vm["id"]))
vpc.delete_security_group(group["id"])
for subnet in subnets:
    vpc.delete_subnet(subnet["id"])
    gone(lambda: vpc.get_subnet(subnet["id"]))
for net in nets:
    vpc.delete_vpc(net["id"])
    gone(lambda: vpc.get_vpc(net["id"]))
print("ibm-vpc", version("ibm-vpc"), "is content")
