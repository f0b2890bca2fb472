package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

// quick shortens the pauses that answers ask for: time passes faster here than they know.
type quick struct{ *http.Client }

func (q quick) Do(request *http.Request) (*http.Response, error) {
	answer, err := q.Client.Do(request)
	if err == nil {
		if seconds, bad := strconv.Atoi(answer.Header.Get("Retry-After")); bad == nil {
			answer.Header.Del("Retry-After")
			answer.Header.Set("Retry-After-Ms", strconv.Itoa(10*seconds))
		}
	}
	return answer, err
}

func done[T any](poller *runtime.Poller[T], err error) T {
	check(err)
	return must(poller.PollUntilDone(ctx, nil))
}

func azure(behind string) {
	// The client shows its token to nobody without TLS.
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(request *httputil.ProxyRequest) {
		request.SetURL(must(url.Parse(behind)))
		request.Out.Host = request.In.Host
		request.Out.Header.Set("X-Forwarded-Proto", "https")
	}})
	defer front.Close()
	place := cloud.Configuration{ActiveDirectoryAuthorityHost: front.URL, Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
		cloud.ResourceManager: {Endpoint: front.URL, Audience: "https://management.azure.com/"}}}
	common := azcore.ClientOptions{Cloud: place, Transport: quick{front.Client()}}
	login := func(secret string) azcore.TokenCredential {
		return must(azidentity.NewClientSecretCredential("t1", "app", secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: common, DisableInstanceDiscovery: true}))
	}
	options := &arm.ClientOptions{ClientOptions: common}
	const sub, group, west = "s1", "g1", "westus2"
	network := must(armnetwork.NewClientFactory(sub, login("secret"), options))
	compute := must(armcompute.NewClientFactory(sub, login("secret"), options))
	resources := must(armresources.NewClientFactory(sub, login("secret"), options))
	refused := func(status int, code string, err error) {
		var said *azcore.ResponseError
		that(errors.As(err, &said), err)
		is(status, said.StatusCode)
		is(code, said.ErrorCode)
	}
	_, err := must(armnetwork.NewVirtualNetworksClient(sub, login("wrong"), options)).Get(ctx, group, "v1", nil)
	var unknown *azidentity.AuthenticationFailedError
	that(errors.As(err, &unknown), err)

	groups := resources.NewResourceGroupsClient()
	made := must(groups.CreateOrUpdate(ctx, group, armresources.ResourceGroup{Location: to(west)}, nil))
	is("Succeeded", *made.Properties.ProvisioningState)
	that(must(groups.CheckExistence(ctx, group, nil)).Success, "a group exists")

	vnets, subnets := network.NewVirtualNetworksClient(), network.NewSubnetsClient()
	for name, space := range map[string]string{"v1": "10.1.0.0/16", "v2": "10.2.0.0/16"} {
		vnet := done(vnets.BeginCreateOrUpdate(ctx, group, name, armnetwork.VirtualNetwork{Location: to(west), Tags: map[string]*string{"lab": to("go")},
			Properties: &armnetwork.VirtualNetworkPropertiesFormat{AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{&space}}}}, nil))
		is(armnetwork.ProvisioningStateSucceeded, *vnet.Properties.ProvisioningState)
		that(*vnet.Etag != "" && *vnet.Name == name && strings.HasSuffix(*vnet.ID, "/virtualNetworks/"+name), vnet)
	}
	subnet := done(subnets.BeginCreateOrUpdate(ctx, group, "v1", "default", armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: to("10.1.0.0/24")}}, nil))
	is("10.1.0.0/24", *subnet.Properties.AddressPrefix)
	count := 0
	for pager := vnets.NewListPager(group, nil); pager.More(); {
		count += len(must(pager.NextPage(ctx)).Value)
	}
	is(2, count)
	_, err = vnets.Get(ctx, group, "v3", nil)
	refused(404, "ResourceNotFound", err)
	_, err = subnets.Get(ctx, group, "v1", "none", nil)
	refused(404, "NotFound", err)
	tagged := must(vnets.UpdateTags(ctx, group, "v2", armnetwork.TagsObject{Tags: map[string]*string{"c": to("d")}}, nil))
	is("d", *tagged.Tags["c"])

	nsgs, rules := network.NewSecurityGroupsClient(), network.NewSecurityRulesClient()
	rule := func(priority int32) armnetwork.SecurityRule {
		return armnetwork.SecurityRule{Name: to("web"), Properties: &armnetwork.SecurityRulePropertiesFormat{Priority: &priority,
			Direction: to(armnetwork.SecurityRuleDirectionInbound), Access: to(armnetwork.SecurityRuleAccessAllow), Protocol: to(armnetwork.SecurityRuleProtocolTCP),
			SourceAddressPrefix: to("10.2.0.0/16"), SourcePortRange: to("*"), DestinationAddressPrefix: to("*"), DestinationPortRanges: []*string{to("80-90"), to("443")}}}
	}
	nsg := done(nsgs.BeginCreateOrUpdate(ctx, group, "nsg", armnetwork.SecurityGroup{Location: to(west),
		Properties: &armnetwork.SecurityGroupPropertiesFormat{SecurityRules: []*armnetwork.SecurityRule{to(rule(100))}}}, nil))
	is(6, len(nsg.Properties.DefaultSecurityRules))
	is(armnetwork.SecurityRuleProtocolTCP, *nsg.Properties.SecurityRules[0].Properties.Protocol)
	changed := done(rules.BeginCreateOrUpdate(ctx, group, "nsg", "web", rule(200), nil))
	is(200, *changed.Properties.Priority)
	_, err = rules.BeginCreateOrUpdate(ctx, group, "nsg", "bad", rule(99), nil)
	refused(400, "SecurityRuleInvalidPriority", err)
	is(1, len(must(rules.NewListPager(group, "nsg", nil).NextPage(ctx)).Value))

	nics := network.NewInterfacesClient()
	nic := done(nics.BeginCreateOrUpdate(ctx, group, "nic", armnetwork.Interface{Location: to(west), Properties: &armnetwork.InterfacePropertiesFormat{
		NetworkSecurityGroup: &armnetwork.SecurityGroup{ID: nsg.ID},
		IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{Name: to("primary"), Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
			Subnet: &armnetwork.Subnet{ID: subnet.ID}, PrivateIPAllocationMethod: to(armnetwork.IPAllocationMethodDynamic)}}}}}, nil))
	is("10.1.0.4", *nic.Properties.IPConfigurations[0].Properties.PrivateIPAddress)
	machines := compute.NewVirtualMachinesClient()
	vm := done(machines.BeginCreateOrUpdate(ctx, group, "vm", armcompute.VirtualMachine{Location: to(west), Properties: &armcompute.VirtualMachineProperties{
		HardwareProfile: &armcompute.HardwareProfile{VMSize: to(armcompute.VirtualMachineSizeTypes("Standard_B1s"))},
		StorageProfile: &armcompute.StorageProfile{
			ImageReference: &armcompute.ImageReference{Publisher: to("Debian"), Offer: to("debian-12"), SKU: to("12"), Version: to("latest")},
			OSDisk:         &armcompute.OSDisk{CreateOption: to(armcompute.DiskCreateOptionTypesFromImage), DeleteOption: to(armcompute.DiskDeleteOptionTypesDelete)}},
		OSProfile: &armcompute.OSProfile{ComputerName: to("vm"), AdminUsername: to("me"), AdminPassword: to("a-Long-0ne-please")},
		NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: []*armcompute.NetworkInterfaceReference{
			{ID: nic.ID, Properties: &armcompute.NetworkInterfaceReferenceProperties{Primary: to(true)}}}}}}, nil))
	is("Succeeded", *vm.Properties.ProvisioningState)
	that(vm.Properties.OSProfile.AdminPassword == nil && *vm.Properties.VMID != "", "a password is shown to nobody")
	view := must(machines.InstanceView(ctx, group, "vm", nil))
	is("PowerState/running", *view.Statuses[1].Code)
	shown := must(machines.Get(ctx, group, "vm", &armcompute.VirtualMachinesClientGetOptions{Expand: to(armcompute.InstanceViewTypesInstanceView)}))
	is(2, len(shown.Properties.InstanceView.Statuses))
	retagged := done(machines.BeginUpdate(ctx, group, "vm", armcompute.VirtualMachineUpdate{Tags: map[string]*string{"a": to("b")}}, nil))
	is("b", *retagged.Tags["a"])
	is(*vm.ID, *must(nics.Get(ctx, group, "nic", nil)).Properties.VirtualMachine.ID)
	is("vm", *must(machines.NewListAllPager(nil).NextPage(ctx)).Value[0].Name)
	_, err = nsgs.BeginDelete(ctx, group, "nsg", nil)
	refused(400, "InUseNetworkSecurityGroupCannotBeDeleted", err)

	peerings := network.NewVirtualNetworkPeeringsClient()
	for near, far := range map[string]string{"v1": "v2", "v2": "v1"} {
		id := must(vnets.Get(ctx, group, far, nil)).ID
		done(peerings.BeginCreateOrUpdate(ctx, group, near, "p", armnetwork.VirtualNetworkPeering{Properties: &armnetwork.VirtualNetworkPeeringPropertiesFormat{
			RemoteVirtualNetwork: &armnetwork.SubResource{ID: id}, AllowVirtualNetworkAccess: to(true)}}, nil))
	}
	is(armnetwork.VirtualNetworkPeeringStateConnected, *must(peerings.Get(ctx, group, "v1", "p", nil)).Properties.PeeringState)
	for _, near := range []string{"v1", "v2"} {
		done(peerings.BeginDelete(ctx, group, near, "p", nil))
	}

	// A VPN gateway, and a connection with somebody else's.
	addresses, gateways := network.NewPublicIPAddressesClient(), network.NewVirtualNetworkGatewaysClient()
	locals, connections := network.NewLocalNetworkGatewaysClient(), network.NewVirtualNetworkGatewayConnectionsClient()
	ip := done(addresses.BeginCreateOrUpdate(ctx, group, "ip", armnetwork.PublicIPAddress{Location: to(west), Zones: []*string{to("1"), to("2"), to("3")},
		SKU:        &armnetwork.PublicIPAddressSKU{Name: to(armnetwork.PublicIPAddressSKUNameStandard)},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{PublicIPAllocationMethod: to(armnetwork.IPAllocationMethodStatic)}}, nil))
	that(*ip.Properties.IPAddress != "", ip)
	inside := done(subnets.BeginCreateOrUpdate(ctx, group, "v2", "GatewaySubnet", armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: to("10.2.255.0/27")}}, nil))
	gateway := done(gateways.BeginCreateOrUpdate(ctx, group, "gw", armnetwork.VirtualNetworkGateway{Location: to(west), Properties: &armnetwork.VirtualNetworkGatewayPropertiesFormat{
		GatewayType: to(armnetwork.VirtualNetworkGatewayTypeVPN), VPNType: to(armnetwork.VPNTypeRouteBased), EnableBgp: to(true), BgpSettings: &armnetwork.BgpSettings{Asn: to(int64(64514))},
		SKU: &armnetwork.VirtualNetworkGatewaySKU{Name: to(armnetwork.VirtualNetworkGatewaySKUNameVPNGw1AZ), Tier: to(armnetwork.VirtualNetworkGatewaySKUTierVPNGw1AZ)},
		IPConfigurations: []*armnetwork.VirtualNetworkGatewayIPConfiguration{{Name: to("default"), Properties: &armnetwork.VirtualNetworkGatewayIPConfigurationPropertiesFormat{
			Subnet: &armnetwork.SubResource{ID: inside.ID}, PublicIPAddress: &armnetwork.SubResource{ID: ip.ID}}}}}}, nil))
	is(64514, *gateway.Properties.BgpSettings.Asn)
	is(*ip.Properties.IPAddress, *gateway.Properties.BgpSettings.BgpPeeringAddresses[0].TunnelIPAddresses[0])
	local := done(locals.BeginCreateOrUpdate(ctx, group, "lng", armnetwork.LocalNetworkGateway{Location: to(west), Properties: &armnetwork.LocalNetworkGatewayPropertiesFormat{
		GatewayIPAddress: to("52.1.2.3"), BgpSettings: &armnetwork.BgpSettings{Asn: to(int64(64999)), BgpPeeringAddress: to("169.254.21.1")}}}, nil))
	connection := done(connections.BeginCreateOrUpdate(ctx, group, "con", armnetwork.VirtualNetworkGatewayConnection{Location: to(west),
		Properties: &armnetwork.VirtualNetworkGatewayConnectionPropertiesFormat{ConnectionType: to(armnetwork.VirtualNetworkGatewayConnectionTypeIPsec),
			VirtualNetworkGateway1: &gateway.VirtualNetworkGateway, LocalNetworkGateway2: &local.LocalNetworkGateway, EnableBgp: to(true), SharedKey: to("secret1")}}, nil))
	is(armnetwork.VirtualNetworkGatewayConnectionTypeIPsec, *connection.Properties.ConnectionType)
	done(connections.BeginSetSharedKey(ctx, group, "con", armnetwork.ConnectionSharedKey{Value: to("secret2")}, nil))
	is("secret2", *must(connections.GetSharedKey(ctx, group, "con", nil)).Value)
	is(1, len(done(gateways.BeginGetBgpPeerStatus(ctx, group, "gw", nil)).Value))
	is("con", *must(connections.NewListPager(group, nil).NextPage(ctx)).Value[0].Name)
	_, err = gateways.BeginDelete(ctx, group, "gw", nil)
	refused(400, "InUseResourceCannotBeDeleted", err)

	done(connections.BeginDelete(ctx, group, "con", nil))
	done(locals.BeginDelete(ctx, group, "lng", nil))
	done(gateways.BeginDelete(ctx, group, "gw", nil))
	done(addresses.BeginDelete(ctx, group, "ip", nil))
	done(machines.BeginDelete(ctx, group, "vm", nil))
	done(nics.BeginDelete(ctx, group, "nic", nil))
	done(rules.BeginDelete(ctx, group, "nsg", "web", nil))
	done(nsgs.BeginDelete(ctx, group, "nsg", nil))
	for _, name := range []string{"v1", "v2", "v3"} {
		done(vnets.BeginDelete(ctx, group, name, nil))
	}
	for pager := vnets.NewListAllPager(nil); pager.More(); {
		is(0, len(must(pager.NextPage(ctx)).Value))
	}
	done(groups.BeginDelete(ctx, group, nil))
}
