"""boto3 against the simulated EC2: everything a plugin needs, and refusals."""
import sys
import time

import boto3
from botocore.exceptions import ClientError

url = sys.argv[1]
keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
ec2 = boto3.client("ec2", region_name="us-east-1", endpoint_url=url, **keys)
eu = boto3.client("ec2", region_name="eu-west-1", endpoint_url=url, **keys)


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error
    else:
        raise AssertionError(f"{code} was expected")


def until(look, wanted):
    for _ in range(200):
        if look() == wanted:
            return
        time.sleep(0.2)
    raise AssertionError(f"never {wanted}")


tags = lambda kind: [{"ResourceType": kind, "Tags": [{"Key": "lab", "Value": "boto3"}]}]
assert len(ec2.describe_regions()["Regions"]) == 3
vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags("vpc"))["Vpc"]["VpcId"]
other = eu.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
ec2.get_waiter("vpc_available").wait(VpcIds=[vpc])
assert ec2.describe_vpcs(Filters=[{"Name": "tag:lab", "Values": ["boto3"]}])["Vpcs"][0]["CidrBlock"] == "10.0.0.0/16"
refused("InvalidVpc.Range", ec2.create_vpc, CidrBlock="10.0.0.0/8")
refused("InvalidVpcID.NotFound", ec2.describe_vpcs, VpcIds=[other])
refused("DryRunOperation", ec2.create_vpc, CidrBlock="10.0.0.0/16", DryRun=True)
zone = ec2.describe_availability_zones()["AvailabilityZones"][0]["ZoneName"]
subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/17", AvailabilityZone=zone)["Subnet"]["SubnetId"]
refused("InvalidSubnet.Conflict", ec2.create_subnet, VpcId=vpc, CidrBlock="10.0.1.0/24")
public = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.240.0/20")["Subnet"]["SubnetId"]

group = ec2.create_security_group(GroupName="lab", Description="lab", VpcId=vpc)["GroupId"]
refused("InvalidGroup.Duplicate", ec2.create_security_group, GroupName="lab", Description="lab", VpcId=vpc)
everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
ec2.revoke_security_group_egress(GroupId=group, IpPermissions=everything)
refused("InvalidPermission.NotFound", ec2.revoke_security_group_egress, GroupId=group, IpPermissions=everything)
web = [{"IpProtocol": "tcp", "FromPort": 80, "ToPort": 90, "IpRanges": [{"CidrIp": "10.1.0.9/16", "Description": "web"}]}]
ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=web)
refused("InvalidPermission.Duplicate", ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=web)
shown = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
assert shown["IpPermissionsEgress"] == [] and shown["IpPermissions"][0]["IpRanges"][0]["CidrIp"] == "10.1.0.0/16"
web[0]["IpRanges"][0]["Description"] = "other"
ec2.update_security_group_rule_descriptions_ingress(GroupId=group, IpPermissions=web)
rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
assert [(rule["Description"], rule["IsEgress"]) for rule in rules] == [("other", False)]
many = [{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "IpRanges": [{"CidrIp": f"10.9.{n}.0/24"} for n in range(60)]}]
refused("RulesPerSecurityGroupLimitExceeded", ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=many)

wanted = dict(ImageId="ami-1", InstanceType="t3.micro", MinCount=1, MaxCount=1, ClientToken="lab-1",
              NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group]}])
vm = ec2.run_instances(**wanted)["Instances"][0]["InstanceId"]
assert ec2.run_instances(**wanted)["Instances"][0]["InstanceId"] == vm, "a token counts once"
ec2.get_waiter("instance_running").wait(InstanceIds=[vm], WaiterConfig={"Delay": 1})
refused("DependencyViolation", ec2.delete_security_group, GroupId=group)
refused("DependencyViolation", ec2.delete_subnet, SubnetId=subnet)
refused("DependencyViolation", ec2.delete_vpc, VpcId=vpc)

pcx = ec2.create_vpc_peering_connection(VpcId=vpc, PeerVpcId=other, PeerRegion="eu-west-1")["VpcPeeringConnection"]
pcx = pcx["VpcPeeringConnectionId"]
assert eu.accept_vpc_peering_connection(VpcPeeringConnectionId=pcx)["VpcPeeringConnection"]["Status"]["Code"] == "active"
main = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
table = ec2.describe_route_tables(Filters=main)["RouteTables"][0]["RouteTableId"]
ec2.create_route(RouteTableId=table, DestinationCidrBlock="10.1.0.0/16", VpcPeeringConnectionId=pcx)
refused("RouteAlreadyExists", ec2.create_route, RouteTableId=table, DestinationCidrBlock="10.1.0.0/16", VpcPeeringConnectionId=pcx)

igw = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
ec2.attach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)
address = ec2.allocate_address(Domain="vpc")["AllocationId"]
nat = ec2.create_nat_gateway(SubnetId=public, AllocationId=address)["NatGateway"]["NatGatewayId"]
ec2.get_waiter("nat_gateway_available").wait(NatGatewayIds=[nat], WaiterConfig={"Delay": 1})

tgw = ec2.create_transit_gateway(Options={"AmazonSideAsn": 64520})["TransitGateway"]["TransitGatewayId"]
until(lambda: ec2.describe_transit_gateways(TransitGatewayIds=[tgw])["TransitGateways"][0]["State"], "available")
attachment = ec2.create_transit_gateway_vpc_attachment(TransitGatewayId=tgw, VpcId=vpc, SubnetIds=[subnet])
attachment = attachment["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
state = lambda: ec2.describe_transit_gateway_vpc_attachments(TransitGatewayAttachmentIds=[attachment])["TransitGatewayVpcAttachments"][0]["State"]
until(state, "available")
ec2.create_route(RouteTableId=table, DestinationCidrBlock="10.0.0.0/8", TransitGatewayId=tgw)
peer = dict(BgpAsn=64999, IpAddress="34.1.2.3", Type="ipsec.1")
customer = ec2.create_customer_gateway(**peer)["CustomerGateway"]["CustomerGatewayId"]
assert ec2.create_customer_gateway(**peer)["CustomerGateway"]["CustomerGatewayId"] == customer
tunnel = lambda net, key: {"TunnelInsideCidr": net, "PreSharedKey": key, "IKEVersions": [{"Value": "ikev2"}], "StartupAction": "start"}
link = lambda *tunnels: dict(CustomerGatewayId=customer, Type="ipsec.1", TransitGatewayId=tgw, Options={"StaticRoutesOnly": False, "TunnelOptions": list(tunnels)})
refused("InvalidParameterValue", ec2.create_vpn_connection, **link(tunnel("169.254.0.0/30", "abcdefgh")))
refused("InvalidParameterValue", ec2.create_vpn_connection, **link(tunnel("169.254.21.0/30", "0bcdefgh")))
vpn = ec2.create_vpn_connection(**link(tunnel("169.254.21.0/30", "abcdefgh"), tunnel("169.254.21.4/30", "abcdefgh")))
vpn = vpn["VpnConnection"]["VpnConnectionId"]
ec2.get_waiter("vpn_connection_available").wait(VpnConnectionIds=[vpn], WaiterConfig={"Delay": 1})
shown = ec2.describe_vpn_connections(VpnConnectionIds=[vpn])["VpnConnections"][0]
assert [one["TunnelInsideCidr"] for one in shown["Options"]["TunnelOptions"]] == ["169.254.21.0/30", "169.254.21.4/30"]
assert {one["Status"] for one in shown["VgwTelemetry"]} == {"DOWN"}, "nobody is at the other end"
outside = shown["Options"]["TunnelOptions"][0]["OutsideIpAddress"]
ec2.modify_vpn_tunnel_options(VpnConnectionId=vpn, VpnTunnelOutsideIpAddress=outside, TunnelOptions={"PreSharedKey": "another.key"})
ec2.get_waiter("vpn_connection_available").wait(VpnConnectionIds=[vpn], WaiterConfig={"Delay": 1})
refused("IncorrectState", ec2.delete_customer_gateway, CustomerGatewayId=customer)
refused("IncorrectState", ec2.delete_transit_gateway, TransitGatewayId=tgw)

ec2.delete_vpn_connection(VpnConnectionId=vpn)
ec2.get_waiter("vpn_connection_deleted").wait(VpnConnectionIds=[vpn], WaiterConfig={"Delay": 1})
ec2.delete_customer_gateway(CustomerGatewayId=customer)
ec2.delete_transit_gateway_vpc_attachment(TransitGatewayAttachmentId=attachment)
until(state, "deleted")
ec2.delete_transit_gateway(TransitGatewayId=tgw)
ec2.delete_nat_gateway(NatGatewayId=nat)
ec2.get_waiter("nat_gateway_deleted").wait(NatGatewayIds=[nat], WaiterConfig={"Delay": 1})
ec2.release_address(AllocationId=address)
ec2.detach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)
ec2.delete_internet_gateway(InternetGatewayId=igw)
ec2.terminate_instances(InstanceIds=[vm])
ec2.get_waiter("instance_terminated").wait(InstanceIds=[vm], WaiterConfig={"Delay": 1})
ec2.delete_security_group(GroupId=group)
ec2.delete_route(RouteTableId=table, DestinationCidrBlock="10.1.0.0/16")
ec2.delete_vpc_peering_connection(VpcPeeringConnectionId=pcx)
for one in (subnet, public):
    ec2.delete_subnet(SubnetId=one)
ec2.delete_vpc(VpcId=vpc)
eu.delete_vpc(VpcId=other)
print("boto3", boto3.__version__, "is content")
