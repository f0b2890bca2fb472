package main

import (
	"errors"
	"strings"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/networking-go-sdk/transitgatewayapisv1"
	"github.com/IBM/vpc-go-sdk/vpcv1"
)

// got is an answer without what came with it.
func got[T any](value T, _ *core.DetailedResponse, err error) T { return must(value, err) }

func ok(_ *core.DetailedResponse, err error) { check(err) }

func ibm(url string) {
	key := &core.IamAuthenticator{ApiKey: "any-key", URL: url}
	vpc := must(vpcv1.NewVpcV1(&vpcv1.VpcV1Options{URL: url + "/v1", Authenticator: key}))
	transit := must(transitgatewayapisv1.NewTransitGatewayApisV1(&transitgatewayapisv1.TransitGatewayApisV1Options{URL: url + "/v1", Authenticator: key, Version: to("2025-01-01")}))
	refused := func(status int, answer *core.DetailedResponse, err error) {
		var said *core.SDKProblem
		that(errors.As(err, &said) && strings.TrimSpace(err.Error()) != "", err)
		is(status, answer.StatusCode)
	}
	gone := func(what string, look func() (*core.DetailedResponse, error)) {
		until(what+" is gone", func() bool {
			answer, err := look()
			return err != nil && answer != nil && answer.StatusCode == 404
		})
	}
	zone := &vpcv1.ZoneIdentityByName{Name: to("us-south-1")}

	is("available", *got(vpc.GetRegionZone(vpc.NewGetRegionZoneOptions("us-south", "us-south-1"))).Status)
	net := got(vpc.CreateVPC(vpc.NewCreateVPCOptions().SetName("net1").SetAddressPrefixManagement("manual")))
	got(vpc.CreateVPC(vpc.NewCreateVPCOptions().SetName("net2")))
	until("a VPC is available", func() bool {
		return *got(vpc.GetVPC(vpc.NewGetVPCOptions(*net.ID))).Status == vpcv1.VPCStatusAvailableConst
	})
	_, answer, err := vpc.GetVPC(vpc.NewGetVPCOptions("r006-none"))
	refused(404, answer, err)
	pager := must(vpc.NewVpcsPager(&vpcv1.ListVpcsOptions{Limit: to(int64(1))}))
	nets := must(pager.GetAll())
	is(2, len(nets))
	that(net.DefaultSecurityGroup.ID != nil && net.DefaultNetworkACL.ID != nil && net.DefaultRoutingTable.ID != nil && net.CreatedAt != nil, net)
	renamed := got(vpc.UpdateVPC(vpc.NewUpdateVPCOptions(*net.ID, must((&vpcv1.VPCPatch{Name: to("net-one")}).AsPatch()))))
	is("net-one", *renamed.Name)

	here := &vpcv1.VPCIdentityByID{ID: net.ID}
	got(vpc.CreateVPCAddressPrefix(vpc.NewCreateVPCAddressPrefixOptions(*net.ID, "10.0.0.0/18", zone)))
	subnet := got(vpc.CreateSubnet(vpc.NewCreateSubnetOptions(&vpcv1.SubnetPrototypeSubnetByCIDR{Name: to("sub1"), VPC: here, Zone: zone, Ipv4CIDRBlock: to("10.0.0.0/24")})))
	until("a subnet is available", func() bool {
		return *got(vpc.GetSubnet(vpc.NewGetSubnetOptions(*subnet.ID))).Status == vpcv1.SubnetStatusAvailableConst
	})
	is(256, *subnet.TotalIpv4AddressCount)
	is(1, len(must(must(vpc.NewSubnetsPager(&vpcv1.ListSubnetsOptions{VPCID: net.ID})).GetAll())))
	_, answer, err = vpc.CreateSubnet(vpc.NewCreateSubnetOptions(&vpcv1.SubnetPrototypeSubnetByCIDR{VPC: here, Zone: zone, Ipv4CIDRBlock: to("10.9.0.0/24")}))
	refused(400, answer, err)

	group := got(vpc.CreateSecurityGroup(vpc.NewCreateSecurityGroupOptions(here).SetName("lab")))
	is(0, len(group.Rules))
	rule := got(vpc.CreateSecurityGroupRule(vpc.NewCreateSecurityGroupRuleOptions(*group.ID, &vpcv1.SecurityGroupRulePrototypeSecurityGroupRuleProtocolTcpudp{
		Direction: to("inbound"), Protocol: to("tcp"), PortMin: to(int64(80)), PortMax: to(int64(90)), Remote: &vpcv1.SecurityGroupRuleRemotePrototypeCIDR{CIDRBlock: to("10.1.0.0/16")}})))
	tcp, fits := rule.(*vpcv1.SecurityGroupRuleSecurityGroupRuleProtocolTcpudp)
	that(fits && *tcp.PortMax == 90 && *tcp.Remote.(*vpcv1.SecurityGroupRuleRemote).CIDRBlock == "10.1.0.0/16", rule)
	got(vpc.UpdateSecurityGroupRule(vpc.NewUpdateSecurityGroupRuleOptions(*group.ID, *tcp.ID, must((&vpcv1.SecurityGroupRulePatch{PortMax: to(int64(99))}).AsPatch()))))
	is(99, *got(vpc.GetSecurityGroupRule(vpc.NewGetSecurityGroupRuleOptions(*group.ID, *tcp.ID))).(*vpcv1.SecurityGroupRuleSecurityGroupRuleProtocolTcpudp).PortMax)
	is(1, len(got(vpc.ListSecurityGroupRules(vpc.NewListSecurityGroupRulesOptions(*group.ID))).Rules))

	images := got(vpc.ListImages(&vpcv1.ListImagesOptions{})).Images
	made := got(vpc.CreateInstance(vpc.NewCreateInstanceOptions(&vpcv1.InstancePrototypeInstanceByImageInstanceByImageInstanceByNetworkAttachment{
		Name: to("vm1"), Zone: zone, VPC: here, Profile: &vpcv1.InstanceProfileIdentityByName{Name: to("bx2-2x8")}, Image: &vpcv1.ImageIdentityByID{ID: images[0].ID},
		PrimaryNetworkAttachment: &vpcv1.InstanceNetworkAttachmentPrototype{Name: to("primary"),
			VirtualNetworkInterface: &vpcv1.InstanceNetworkAttachmentPrototypeVirtualNetworkInterfaceVirtualNetworkInterfacePrototypeInstanceNetworkAttachmentContext{
				Subnet: &vpcv1.SubnetIdentityByID{ID: subnet.ID}, SecurityGroups: []vpcv1.SecurityGroupIdentityIntf{&vpcv1.SecurityGroupIdentityByID{ID: group.ID}}}}})))
	until("an instance runs", func() bool {
		return *got(vpc.GetInstance(vpc.NewGetInstanceOptions(*made.ID))).Status == vpcv1.InstanceStatusRunningConst
	})
	vm := got(vpc.GetInstance(vpc.NewGetInstanceOptions(*made.ID)))
	that(strings.HasPrefix(*vm.PrimaryNetworkAttachment.PrimaryIP.Address, "10.0.0."), vm.PrimaryNetworkAttachment)
	is("bx2-2x8", *vm.Profile.Name)
	is(1, len(must(must(vpc.NewInstancesPager(&vpcv1.ListInstancesOptions{VPCID: net.ID})).GetAll())))
	answer, err = vpc.DeleteSubnet(vpc.NewDeleteSubnetOptions(*subnet.ID))
	refused(409, answer, err)

	// A VPN gateway with a connection that speaks BGP.
	ike := got(vpc.CreateIkePolicy(vpc.NewCreateIkePolicyOptions("sha256", 14, "aes256", 2).SetName("ike")))
	is("sha256", *ike.AuthenticationAlgorithm)
	esp := got(vpc.CreateIpsecPolicy(vpc.NewCreateIpsecPolicyOptions("sha256", "aes256", "group_14").SetName("esp")))
	begun := got(vpc.CreateVPNGateway(vpc.NewCreateVPNGatewayOptions(&vpcv1.VPNGatewayPrototypeVPNGatewayRouteModePrototype{
		Name: to("gw"), Mode: to("route"), LocalAsn: to(int64(64999)), Subnet: &vpcv1.SubnetIdentityByID{ID: subnet.ID}}))).(*vpcv1.VPNGateway)
	look := func() *vpcv1.VPNGateway {
		return got(vpc.GetVPNGateway(vpc.NewGetVPNGatewayOptions(*begun.ID))).(*vpcv1.VPNGateway)
	}
	until("a VPN gateway is stable", func() bool { return *look().LifecycleState == vpcv1.VPNGatewayLifecycleStateStableConst })
	gateway := look()
	is(2, len(gateway.Members))
	that(*gateway.Members[0].PublicIP.Address != "0.0.0.0", gateway.Members)
	tunnel := func(own, other string) vpcv1.VPNGatewayConnectionTunnelPrototype {
		return vpcv1.VPNGatewayConnectionTunnelPrototype{TunnelInterfaceIP: &vpcv1.IP{Address: &own}, NeighborIP: &vpcv1.IP{Address: &other}}
	}
	link := got(vpc.CreateVPNGatewayConnection(vpc.NewCreateVPNGatewayConnectionOptions(*gateway.ID, &vpcv1.VPNGatewayConnectionPrototypeVPNGatewayConnectionDynamicRouteModePrototype{
		Name: to("link"), Psk: to("aKeyOfSomeLength"), RoutingProtocol: to("bgp"), IkePolicy: &vpcv1.VPNGatewayConnectionIkePolicyPrototypeIkePolicyIdentityByID{ID: ike.ID},
		IpsecPolicy: &vpcv1.VPNGatewayConnectionIPsecPolicyPrototypeIPsecPolicyIdentityByID{ID: esp.ID},
		Peer:        &vpcv1.VPNGatewayConnectionDynamicRouteModePeerPrototypeVPNGatewayConnectionPeerByAddress{Address: to("203.0.113.1"), Asn: to(int64(64998))},
		Tunnels:     []vpcv1.VPNGatewayConnectionTunnelPrototype{tunnel("169.254.21.1", "169.254.21.2"), tunnel("169.254.21.5", "169.254.21.6")}}))).(*vpcv1.VPNGatewayConnectionRouteModeVPNGatewayConnectionDynamicRouteMode)
	is("down", *link.Status)
	is("169.254.21.1", *link.Tunnels[0].TunnelInterfaceIP.Address)
	changed := got(vpc.UpdateVPNGatewayConnection(vpc.NewUpdateVPNGatewayConnectionOptions(*gateway.ID, *link.ID, map[string]any{"psk": "anotherKeyOfSomeLength"}))).(*vpcv1.VPNGatewayConnectionRouteModeVPNGatewayConnectionDynamicRouteMode)
	is("anotherKeyOfSomeLength", *changed.Psk)
	is(1, len(must(must(vpc.NewVPNGatewayConnectionsPager(&vpcv1.ListVPNGatewayConnectionsOptions{VPNGatewayID: gateway.ID})).GetAll())))
	is(1, len(must(must(vpc.NewVPNGatewaysPager(&vpcv1.ListVPNGatewaysOptions{})).GetAll())))
	answer, err = vpc.DeleteIkePolicy(vpc.NewDeleteIkePolicyOptions(*ike.ID))
	refused(409, answer, err)

	hub := got(transit.CreateTransitGateway(transit.NewCreateTransitGatewayOptions("us-south", "hub").SetGlobal(true)))
	until("a transit gateway is available", func() bool {
		return *got(transit.GetTransitGateway(transit.NewGetTransitGatewayOptions(*hub.ID))).Status == "available"
	})
	joint := got(transit.CreateTransitGatewayConnection(transit.NewCreateTransitGatewayConnectionOptions(*hub.ID, "vpc").SetNetworkID(*net.CRN).SetName("joint")))
	until("a VPC is attached", func() bool {
		return *got(transit.GetTransitGatewayConnection(transit.NewGetTransitGatewayConnectionOptions(*hub.ID, *joint.ID))).Status == "attached"
	})
	is(1, len(must(must(transit.NewTransitGatewaysPager(&transitgatewayapisv1.ListTransitGatewaysOptions{})).GetAll())))
	answer, err = transit.DeleteTransitGateway(transit.NewDeleteTransitGatewayOptions(*hub.ID))
	refused(409, answer, err)
	ok(transit.DeleteTransitGatewayConnection(transit.NewDeleteTransitGatewayConnectionOptions(*hub.ID, *joint.ID)))
	gone("a connection", func() (*core.DetailedResponse, error) {
		_, answer, err := transit.GetTransitGatewayConnection(transit.NewGetTransitGatewayConnectionOptions(*hub.ID, *joint.ID))
		return answer, err
	})
	ok(transit.DeleteTransitGateway(transit.NewDeleteTransitGatewayOptions(*hub.ID)))

	ok(vpc.DeleteVPNGatewayConnection(vpc.NewDeleteVPNGatewayConnectionOptions(*gateway.ID, *link.ID)))
	ok(vpc.DeleteVPNGateway(vpc.NewDeleteVPNGatewayOptions(*gateway.ID)))
	gone("a VPN gateway", func() (*core.DetailedResponse, error) {
		_, answer, err := vpc.GetVPNGateway(vpc.NewGetVPNGatewayOptions(*gateway.ID))
		return answer, err
	})
	ok(vpc.DeleteIkePolicy(vpc.NewDeleteIkePolicyOptions(*ike.ID)))
	ok(vpc.DeleteIpsecPolicy(vpc.NewDeleteIpsecPolicyOptions(*esp.ID)))
	ok(vpc.DeleteInstance(vpc.NewDeleteInstanceOptions(*vm.ID)))
	gone("an instance", func() (*core.DetailedResponse, error) {
		_, answer, err := vpc.GetInstance(vpc.NewGetInstanceOptions(*vm.ID))
		return answer, err
	})
	ok(vpc.DeleteSecurityGroup(vpc.NewDeleteSecurityGroupOptions(*group.ID)))
	ok(vpc.DeleteSubnet(vpc.NewDeleteSubnetOptions(*subnet.ID)))
	gone("a subnet", func() (*core.DetailedResponse, error) {
		_, answer, err := vpc.GetSubnet(vpc.NewGetSubnetOptions(*subnet.ID))
		return answer, err
	})
	for _, one := range nets {
		ok(vpc.DeleteVPC(vpc.NewDeleteVPCOptions(*one.ID)))
	}
	until("all VPCs are gone", func() bool { return len(got(vpc.ListVpcs(&vpcv1.ListVpcsOptions{})).Vpcs) == 0 })
}
