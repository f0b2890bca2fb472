package main

import (
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

func aws(url string) {
	in := func(region string) *ec2.Client {
		return ec2.New(ec2.Options{Region: region, BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")})
	}
	client, eu := in("us-east-1"), in("eu-west-1")
	refused := func(code string, err error) {
		var said smithy.APIError
		that(errors.As(err, &said), err)
		is(code, said.ErrorCode())
	}
	patience := time.Minute

	vpc := must(client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: to("10.0.0.0/16"), TagSpecifications: []types.TagSpecification{
		{ResourceType: types.ResourceTypeVpc, Tags: []types.Tag{{Key: to("lab"), Value: to("go & <more>")}}}}})).Vpc
	check(ec2.NewVpcAvailableWaiter(client).Wait(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{*vpc.VpcId}}, patience))
	for range 6 {
		must(client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: to("10.9.0.0/16"), TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeVpc, Tags: []types.Tag{{Key: to("spare"), Value: to("yes")}}}}}))
	}
	spare := []types.Filter{{Name: to("tag:spare"), Values: []string{"y*"}}}
	var spares []types.Vpc
	pages := 0
	for pager := ec2.NewDescribeVpcsPaginator(client, &ec2.DescribeVpcsInput{Filters: spare, MaxResults: to(int32(5))}); pager.HasMorePages(); pages++ {
		spares = append(spares, must(pager.NextPage(ctx)).Vpcs...)
	}
	is(2, pages)
	is(6, len(spares))
	for _, one := range spares {
		must(client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: one.VpcId}))
	}
	by := func(name, value string) *ec2.DescribeVpcsInput {
		return &ec2.DescribeVpcsInput{Filters: []types.Filter{{Name: &name, Values: []string{value}}}}
	}
	is(1, len(must(client.DescribeVpcs(ctx, by("cidr", "10.0.0.0/16"))).Vpcs))
	shown := must(client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{*vpc.VpcId}})).Vpcs[0]
	is("go & <more>", *shown.Tags[0].Value)
	is(types.VpcStateAvailable, shown.State)
	is("associated", string(shown.CidrBlockAssociationSet[0].CidrBlockState.State))
	that(!*shown.IsDefault && *shown.OwnerId != "" && *shown.DhcpOptionsId != "", "a VPC's fields")
	_, err := client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{"vpc-0123456789abcdef0"}})
	refused("InvalidVpcID.NotFound", err)
	_, err = client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: to("10.0.0.0/16"), DryRun: to(true)})
	refused("DryRunOperation", err)

	must(client.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: vpc.VpcId, EnableDnsHostnames: &types.AttributeBooleanValue{Value: to(true)}}))
	for _, name := range []types.VpcAttributeName{types.VpcAttributeNameEnableDnsHostnames, types.VpcAttributeNameEnableDnsSupport} {
		attribute := must(client.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: vpc.VpcId, Attribute: name}))
		that(attribute.EnableDnsHostnames != nil && *attribute.EnableDnsHostnames.Value || attribute.EnableDnsSupport != nil && *attribute.EnableDnsSupport.Value, name)
	}
	subnet := must(client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc.VpcId, CidrBlock: to("10.0.0.0/24"), AvailabilityZone: to("us-east-1b")})).Subnet
	check(ec2.NewSubnetAvailableWaiter(client).Wait(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{*subnet.SubnetId}}, patience))
	is("us-east-1b", *subnet.AvailabilityZone)
	is(251, *subnet.AvailableIpAddressCount)

	group := must(client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: to("lab"), Description: to("lab"), VpcId: vpc.VpcId})).GroupId
	check(ec2.NewSecurityGroupExistsWaiter(client).Wait(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{*group}}, patience))
	rules := must(client.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: group, IpPermissions: []types.IpPermission{
		{IpProtocol: to("tcp"), FromPort: to(int32(80)), ToPort: to(int32(90)), IpRanges: []types.IpRange{{CidrIp: to("10.1.0.0/16"), Description: to("web")}}},
		{IpProtocol: to("icmp"), FromPort: to(int32(-1)), ToPort: to(int32(-1)), IpRanges: []types.IpRange{{CidrIp: to("0.0.0.0/0")}}},
	}})).SecurityGroupRules
	is(2, len(rules))
	is("10.1.0.0/16", *rules[0].CidrIpv4)
	found := must(client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{{Name: to("group-name"), Values: []string{"lab"}}}}))
	is(2, len(found.SecurityGroups[0].IpPermissions))
	is("-1", *found.SecurityGroups[0].IpPermissionsEgress[0].IpProtocol)
	must(client.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: group, SecurityGroupRuleIds: []string{*rules[1].SecurityGroupRuleId}}))
	count := 0
	for pager := ec2.NewDescribeSecurityGroupRulesPaginator(client, &ec2.DescribeSecurityGroupRulesInput{
		Filters: []types.Filter{{Name: to("group-id"), Values: []string{*group}}}, MaxResults: to(int32(5))}); pager.HasMorePages(); {
		count += len(must(pager.NextPage(ctx)).SecurityGroupRules)
	}
	is(2, count)

	ran := must(client.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: to("ami-1"), InstanceType: types.InstanceTypeT3Micro, MinCount: to(int32(1)), MaxCount: to(int32(2)),
		SubnetId: subnet.SubnetId, SecurityGroupIds: []string{*group}, TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: to("Name"), Value: to("vm")}}}}}))
	is(2, len(ran.Instances))
	vm, twin := ran.Instances[0].InstanceId, ran.Instances[1].InstanceId
	is(types.InstanceStateNamePending, ran.Instances[0].State.Name)
	here := &ec2.DescribeInstancesInput{InstanceIds: []string{*vm, *twin}}
	quick := func(o *ec2.InstanceRunningWaiterOptions) { o.MinDelay, o.MaxDelay = time.Second/2, time.Second }
	running := must(ec2.NewInstanceRunningWaiter(client, quick).WaitForOutput(ctx, here, patience))
	check(ec2.NewInstanceStatusOkWaiter(client).Wait(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: []string{*vm, *twin}}, patience))
	instance := running.Reservations[0].Instances[0]
	is("10.0.0.4", *instance.PrivateIpAddress)
	is(*group, *instance.SecurityGroups[0].GroupId)
	is("us-east-1b", *instance.Placement.AvailabilityZone)
	is(types.ArchitectureValuesX8664, instance.Architecture)
	that(time.Since(*instance.LaunchTime) != 0 && *instance.NetworkInterfaces[0].SubnetId == *subnet.SubnetId, instance)
	interfaces := must(client.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{{Name: to("attachment.instance-id"), Values: []string{*vm}}}}))
	is(types.NetworkInterfaceStatusInUse, interfaces.NetworkInterfaces[0].Status)
	placed := must(client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: to("availability-zone"), Values: []string{"us-east-1b"}}, {Name: to("instance.group-id"), Values: []string{*group}}}}))
	is(1, len(placed.Reservations))
	is(2, len(placed.Reservations[0].Instances))
	must(client.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*vm}, Tags: []types.Tag{{Key: to("more"), Value: to("")}}}))
	tags := must(client.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []types.Filter{{Name: to("resource-id"), Values: []string{*vm}}}}))
	is(2, len(tags.Tags))
	is(types.ResourceTypeInstance, tags.Tags[0].ResourceType)
	_, err = client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}})
	refused("InvalidInstanceID.NotFound", err)
	_, err = client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: vpc.VpcId})
	refused("DependencyViolation", err)

	// A peering across regions, and a route over it.
	other := must(eu.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: to("10.1.0.0/16")})).Vpc
	pcx := must(client.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{VpcId: vpc.VpcId, PeerVpcId: other.VpcId, PeerRegion: to("eu-west-1")})).VpcPeeringConnection.VpcPeeringConnectionId
	check(ec2.NewVpcPeeringConnectionExistsWaiter(eu).Wait(ctx, &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{*pcx}}, patience))
	must(eu.AcceptVpcPeeringConnection(ctx, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: pcx}))
	table := must(client.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: vpc.VpcId})).RouteTable.RouteTableId
	must(client.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: to("10.1.0.0/16"), VpcPeeringConnectionId: pcx}))
	tied := must(client.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: table, SubnetId: subnet.SubnetId})).AssociationId
	routes := must(client.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{*table}})).RouteTables[0]
	is(2, len(routes.Routes))
	is(*subnet.SubnetId, *routes.Associations[0].SubnetId)

	// NAT.
	igw := must(client.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	check(ec2.NewInternetGatewayExistsWaiter(client).Wait(ctx, &ec2.DescribeInternetGatewaysInput{InternetGatewayIds: []string{*igw}}, patience))
	must(client.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: igw, VpcId: vpc.VpcId}))
	address := must(client.AllocateAddress(ctx, &ec2.AllocateAddressInput{Domain: types.DomainTypeVpc})).AllocationId
	nat := must(client.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: subnet.SubnetId, AllocationId: address})).NatGateway.NatGatewayId
	one := &ec2.DescribeNatGatewaysInput{NatGatewayIds: []string{*nat}}
	check(ec2.NewNatGatewayAvailableWaiter(client, func(o *ec2.NatGatewayAvailableWaiterOptions) { o.MinDelay = time.Second }).Wait(ctx, one, patience))
	must(client.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: nat}))
	check(ec2.NewNatGatewayDeletedWaiter(client, func(o *ec2.NatGatewayDeletedWaiterOptions) { o.MinDelay = time.Second }).Wait(ctx, one, patience))
	must(client.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: address}))
	must(client.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: igw, VpcId: vpc.VpcId}))
	must(client.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: igw}))

	// A VPN connection at a transit gateway.
	hub := must(client.CreateTransitGateway(ctx, &ec2.CreateTransitGatewayInput{Options: &types.TransitGatewayRequestOptions{AmazonSideAsn: to(int64(64520))}})).TransitGateway.TransitGatewayId
	until("a transit gateway is available", func() bool {
		return must(client.DescribeTransitGateways(ctx, &ec2.DescribeTransitGatewaysInput{TransitGatewayIds: []string{*hub}})).TransitGateways[0].State == types.TransitGatewayStateAvailable
	})
	customer := must(client.CreateCustomerGateway(ctx, &ec2.CreateCustomerGatewayInput{BgpAsn: to(int32(64999)), IpAddress: to("34.1.2.3"), Type: types.GatewayTypeIpsec1})).CustomerGateway
	check(ec2.NewCustomerGatewayAvailableWaiter(client).Wait(ctx, &ec2.DescribeCustomerGatewaysInput{CustomerGatewayIds: []string{*customer.CustomerGatewayId}}, patience))
	is("64999", *customer.BgpAsn)
	tunnel := types.VpnTunnelOptionsSpecification{TunnelInsideCidr: to("169.254.21.0/30"), PreSharedKey: to("abcdefgh"), IKEVersions: []types.IKEVersionsRequestListValue{{Value: to("ikev2")}}}
	vpn := must(client.CreateVpnConnection(ctx, &ec2.CreateVpnConnectionInput{CustomerGatewayId: customer.CustomerGatewayId, Type: to("ipsec.1"), TransitGatewayId: hub,
		Options: &types.VpnConnectionOptionsSpecification{TunnelOptions: []types.VpnTunnelOptionsSpecification{tunnel}}})).VpnConnection
	link := &ec2.DescribeVpnConnectionsInput{VpnConnectionIds: []string{*vpn.VpnConnectionId}}
	check(ec2.NewVpnConnectionAvailableWaiter(client, func(o *ec2.VpnConnectionAvailableWaiterOptions) { o.MinDelay = time.Second }).Wait(ctx, link, 5*patience))
	up := must(client.DescribeVpnConnections(ctx, link)).VpnConnections[0]
	is(2, len(up.VgwTelemetry))
	is(types.TelemetryStatusDown, up.VgwTelemetry[0].Status)
	is("169.254.21.0/30", *up.Options.TunnelOptions[0].TunnelInsideCidr)
	that(strings.Contains(*up.CustomerGatewayConfiguration, "<pre_shared_key>abcdefgh</pre_shared_key>"), *up.CustomerGatewayConfiguration)
	_, err = client.DeleteCustomerGateway(ctx, &ec2.DeleteCustomerGatewayInput{CustomerGatewayId: customer.CustomerGatewayId})
	refused("IncorrectState", err)
	must(client.DeleteVpnConnection(ctx, &ec2.DeleteVpnConnectionInput{VpnConnectionId: vpn.VpnConnectionId}))
	check(ec2.NewVpnConnectionDeletedWaiter(client, func(o *ec2.VpnConnectionDeletedWaiterOptions) { o.MinDelay = time.Second }).Wait(ctx, link, 5*patience))
	must(client.DeleteCustomerGateway(ctx, &ec2.DeleteCustomerGatewayInput{CustomerGatewayId: customer.CustomerGatewayId}))
	must(client.DeleteTransitGateway(ctx, &ec2.DeleteTransitGatewayInput{TransitGatewayId: hub}))

	must(client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*vm, *twin}}))
	check(ec2.NewInstanceTerminatedWaiter(client, func(o *ec2.InstanceTerminatedWaiterOptions) { o.MinDelay, o.MaxDelay = time.Second/2, time.Second }).Wait(ctx, here, patience))
	must(client.DisassociateRouteTable(ctx, &ec2.DisassociateRouteTableInput{AssociationId: tied}))
	must(client.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: table}))
	must(client.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: pcx}))
	check(ec2.NewVpcPeeringConnectionDeletedWaiter(client).Wait(ctx, &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{*pcx}}, patience))
	deleted := must(client.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: group}))
	is(*group, *deleted.GroupId)
	must(client.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: subnet.SubnetId}))
	must(client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: vpc.VpcId}))
	must(eu.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: other.VpcId}))
	is(0, len(must(client.DescribeVpcs(ctx, by("cidr", "10.0.0.0/16"))).Vpcs))
}
