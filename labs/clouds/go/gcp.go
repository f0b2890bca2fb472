package main

import (
	"errors"
	"net/http"
	"strings"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/googleapis/gax-go/v2/apierror"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
)

// all reads a list to its end.
func all[T any](list interface{ Next() (T, error) }) []T {
	var found []T
	for {
		one, err := list.Next()
		if errors.Is(err, iterator.Done) {
			return found
		}
		check(err)
		found = append(found, one)
	}
}

func wait(operation *compute.Operation, err error) {
	check(err)
	check(operation.Wait(ctx))
	that(operation.Done(), "an operation is done when it was waited for")
}

func gcp(url string) {
	options := []option.ClientOption{option.WithEndpoint(url), option.WithTokenSource(oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "ya29.x"}))}
	const project, region, zone = "p1", "us-west1", "us-west1-a"
	refused := func(status int, err error) {
		var said *googleapi.Error
		that(errors.As(err, &said), err)
		is(status, said.Code)
		var typed *apierror.APIError
		that(errors.As(err, &typed) && typed.HTTPCode() == status, err)
	}

	networks := must(compute.NewNetworksRESTClient(ctx, options...))
	for _, name := range []string{"net1", "net2"} {
		wait(networks.Insert(ctx, &computepb.InsertNetworkRequest{Project: project, NetworkResource: &computepb.Network{
			Name: &name, AutoCreateSubnetworks: to(false), RoutingConfig: &computepb.NetworkRoutingConfig{RoutingMode: to("GLOBAL")}}}))
	}
	net := must(networks.Get(ctx, &computepb.GetNetworkRequest{Project: project, Network: "net1"}))
	that(!net.GetAutoCreateSubnetworks() && net.GetId() != 0 && net.GetCreationTimestamp() != "", net)
	is("GLOBAL", net.GetRoutingConfig().GetRoutingMode())
	is(2, len(all(networks.List(ctx, &computepb.ListNetworksRequest{Project: project, MaxResults: to(uint32(1))}))))
	_, err := networks.Get(ctx, &computepb.GetNetworkRequest{Project: project, Network: "none"})
	refused(http.StatusNotFound, err)
	_, err = networks.Insert(ctx, &computepb.InsertNetworkRequest{Project: project, NetworkResource: &computepb.Network{Name: to("net1")}})
	refused(http.StatusConflict, err)

	subnets := must(compute.NewSubnetworksRESTClient(ctx, options...))
	wait(subnets.Insert(ctx, &computepb.InsertSubnetworkRequest{Project: project, Region: region, SubnetworkResource: &computepb.Subnetwork{
		Name: to("sub1"), Network: net.SelfLink, IpCidrRange: to("10.1.0.0/16")}}))
	subnet := must(subnets.Get(ctx, &computepb.GetSubnetworkRequest{Project: project, Region: region, Subnetwork: "sub1"}))
	is("10.1.0.1", subnet.GetGatewayAddress())
	that(strings.HasSuffix(subnet.GetRegion(), "/regions/us-west1") && subnet.GetFingerprint() != "", subnet)
	listed := 0
	for _, scope := range all(subnets.AggregatedList(ctx, &computepb.AggregatedListSubnetworksRequest{Project: project})) {
		listed += len(scope.Value.GetSubnetworks())
	}
	is(1, listed)
	open := &computepb.Subnetwork{PrivateIpGoogleAccess: to(true)}
	_, err = subnets.Patch(ctx, &computepb.PatchSubnetworkRequest{Project: project, Region: region, Subnetwork: "sub1", SubnetworkResource: open})
	refused(http.StatusPreconditionFailed, err)
	open.Fingerprint = subnet.Fingerprint
	wait(subnets.Patch(ctx, &computepb.PatchSubnetworkRequest{Project: project, Region: region, Subnetwork: "sub1", SubnetworkResource: open}))
	that(must(subnets.Get(ctx, &computepb.GetSubnetworkRequest{Project: project, Region: region, Subnetwork: "sub1"})).GetPrivateIpGoogleAccess(), "a patched subnet")

	firewalls := must(compute.NewFirewallsRESTClient(ctx, options...))
	wait(firewalls.Insert(ctx, &computepb.InsertFirewallRequest{Project: project, FirewallResource: &computepb.Firewall{Name: to("web"), Network: net.SelfLink,
		SourceRanges: []string{"10.2.0.0/16"}, TargetTags: []string{"web"}, Allowed: []*computepb.Allowed{{IPProtocol: to("tcp"), Ports: []string{"80-90"}}}}}))
	rule := must(firewalls.Get(ctx, &computepb.GetFirewallRequest{Project: project, Firewall: "web"}))
	is(1000, rule.GetPriority())
	is("INGRESS", rule.GetDirection())
	wait(firewalls.Patch(ctx, &computepb.PatchFirewallRequest{Project: project, Firewall: "web", FirewallResource: &computepb.Firewall{SourceRanges: []string{"10.3.0.0/16"}}}))
	rule = must(firewalls.Get(ctx, &computepb.GetFirewallRequest{Project: project, Firewall: "web"}))
	is("10.3.0.0/16", rule.GetSourceRanges()[0])
	is(1, len(all(firewalls.List(ctx, &computepb.ListFirewallsRequest{Project: project, Filter: to("name=web")}))))

	instances := must(compute.NewInstancesRESTClient(ctx, options...))
	wait(instances.Insert(ctx, &computepb.InsertInstanceRequest{Project: project, Zone: zone, InstanceResource: &computepb.Instance{
		Name: to("vm1"), MachineType: to("zones/" + zone + "/machineTypes/e2-micro"), Tags: &computepb.Tags{Items: []string{"web"}}, Labels: map[string]string{"lab": "go"},
		Disks: []*computepb.AttachedDisk{{Boot: to(true), AutoDelete: to(true), InitializeParams: &computepb.AttachedDiskInitializeParams{
			SourceImage: to("projects/debian-cloud/global/images/family/debian-12")}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{Subnetwork: subnet.SelfLink}}}}))
	vm := must(instances.Get(ctx, &computepb.GetInstanceRequest{Project: project, Zone: zone, Instance: "vm1"}))
	is("RUNNING", vm.GetStatus())
	is("10.1.0.2", vm.GetNetworkInterfaces()[0].GetNetworkIP())
	is(subnet.GetSelfLink(), vm.GetNetworkInterfaces()[0].GetSubnetwork())
	wait(instances.SetTags(ctx, &computepb.SetTagsInstanceRequest{Project: project, Zone: zone, Instance: "vm1", TagsResource: &computepb.Tags{
		Items: []string{"web", "more"}, Fingerprint: vm.Tags.Fingerprint}}))
	is(1, len(all(instances.List(ctx, &computepb.ListInstancesRequest{Project: project, Zone: zone, Filter: to("labels.lab=go")}))))
	_, err = subnets.Delete(ctx, &computepb.DeleteSubnetworkRequest{Project: project, Region: region, Subnetwork: "sub1"})
	refused(http.StatusBadRequest, err)

	for near, far := range map[string]string{"net1": "net2", "net2": "net1"} {
		wait(networks.AddPeering(ctx, &computepb.AddPeeringNetworkRequest{Project: project, Network: near, NetworksAddPeeringRequestResource: &computepb.NetworksAddPeeringRequest{
			NetworkPeering: &computepb.NetworkPeering{Name: to("peer"), Network: to("projects/p1/global/networks/" + far), ExchangeSubnetRoutes: to(true)}}}))
	}
	is("ACTIVE", must(networks.Get(ctx, &computepb.GetNetworkRequest{Project: project, Network: "net1"})).GetPeerings()[0].GetState())
	for _, near := range []string{"net1", "net2"} {
		wait(networks.RemovePeering(ctx, &computepb.RemovePeeringNetworkRequest{Project: project, Network: near,
			NetworksRemovePeeringRequestResource: &computepb.NetworksRemovePeeringRequest{Name: to("peer")}}))
	}

	// HA VPN towards somebody else's gateway, with BGP.
	gateways, externals := must(compute.NewVpnGatewaysRESTClient(ctx, options...)), must(compute.NewExternalVpnGatewaysRESTClient(ctx, options...))
	routers, tunnels := must(compute.NewRoutersRESTClient(ctx, options...)), must(compute.NewVpnTunnelsRESTClient(ctx, options...))
	wait(gateways.Insert(ctx, &computepb.InsertVpnGatewayRequest{Project: project, Region: region, VpnGatewayResource: &computepb.VpnGateway{Name: to("gw"), Network: net.SelfLink}}))
	gateway := must(gateways.Get(ctx, &computepb.GetVpnGatewayRequest{Project: project, Region: region, VpnGateway: "gw"}))
	that(gateway.GetVpnInterfaces()[0].GetIpAddress() != "" && gateway.GetVpnInterfaces()[1].GetId() == 1, gateway)
	wait(externals.Insert(ctx, &computepb.InsertExternalVpnGatewayRequest{Project: project, ExternalVpnGatewayResource: &computepb.ExternalVpnGateway{
		Name: to("ext"), RedundancyType: to("SINGLE_IP_INTERNALLY_REDUNDANT"), Interfaces: []*computepb.ExternalVpnGatewayInterface{{Id: to(uint32(0)), IpAddress: to("52.1.2.3")}}}}))
	wait(routers.Insert(ctx, &computepb.InsertRouterRequest{Project: project, Region: region, RouterResource: &computepb.Router{
		Name: to("router"), Network: net.SelfLink, Bgp: &computepb.RouterBgp{Asn: to(uint32(64514))}}}))
	wait(tunnels.Insert(ctx, &computepb.InsertVpnTunnelRequest{Project: project, Region: region, VpnTunnelResource: &computepb.VpnTunnel{
		Name: to("tun"), VpnGateway: gateway.SelfLink, VpnGatewayInterface: to(int32(0)), IkeVersion: to(int32(2)), SharedSecret: to("secret"),
		PeerExternalGateway: to("projects/p1/global/externalVpnGateways/ext"), PeerExternalGatewayInterface: to(int32(0)), Router: to("projects/p1/regions/us-west1/routers/router")}}))
	tunnel := must(tunnels.Get(ctx, &computepb.GetVpnTunnelRequest{Project: project, Region: region, VpnTunnel: "tun"}))
	that(tunnel.GetSharedSecret() != "secret" && tunnel.GetSharedSecretHash() != "" && tunnel.GetDetailedStatus() != "", tunnel)
	is("52.1.2.3", tunnel.GetPeerIp())
	wait(routers.Patch(ctx, &computepb.PatchRouterRequest{Project: project, Region: region, Router: "router", RouterResource: &computepb.Router{
		Interfaces: []*computepb.RouterInterface{{Name: to("if0"), LinkedVpnTunnel: tunnel.SelfLink, IpRange: to("169.254.21.2/30")}},
		BgpPeers:   []*computepb.RouterBgpPeer{{Name: to("peer0"), InterfaceName: to("if0"), PeerIpAddress: to("169.254.21.1"), PeerAsn: to(uint32(64999))}}}}))
	status := must(routers.GetRouterStatus(ctx, &computepb.GetRouterStatusRouterRequest{Project: project, Region: region, Router: "router"}))
	is("DOWN", status.GetResult().GetBgpPeerStatus()[0].GetStatus())
	state := must(gateways.GetStatus(ctx, &computepb.GetStatusVpnGatewayRequest{Project: project, Region: region, VpnGateway: "gw"}))
	is("CONNECTION_REDUNDANCY_NOT_MET", state.GetResult().GetVpnConnections()[0].GetState().GetState())
	_, err = gateways.Delete(ctx, &computepb.DeleteVpnGatewayRequest{Project: project, Region: region, VpnGateway: "gw"})
	refused(http.StatusBadRequest, err)

	wait(routers.Update(ctx, &computepb.UpdateRouterRequest{Project: project, Region: region, Router: "router", RouterResource: &computepb.Router{
		Name: to("router"), Network: net.SelfLink, Bgp: &computepb.RouterBgp{Asn: to(uint32(64514))}}}))
	wait(tunnels.Delete(ctx, &computepb.DeleteVpnTunnelRequest{Project: project, Region: region, VpnTunnel: "tun"}))
	wait(routers.Delete(ctx, &computepb.DeleteRouterRequest{Project: project, Region: region, Router: "router"}))
	wait(gateways.Delete(ctx, &computepb.DeleteVpnGatewayRequest{Project: project, Region: region, VpnGateway: "gw"}))
	wait(externals.Delete(ctx, &computepb.DeleteExternalVpnGatewayRequest{Project: project, ExternalVpnGateway: "ext"}))
	wait(instances.Delete(ctx, &computepb.DeleteInstanceRequest{Project: project, Zone: zone, Instance: "vm1"}))
	wait(firewalls.Delete(ctx, &computepb.DeleteFirewallRequest{Project: project, Firewall: "web"}))
	wait(subnets.Delete(ctx, &computepb.DeleteSubnetworkRequest{Project: project, Region: region, Subnetwork: "sub1"}))
	for _, name := range []string{"net1", "net2"} {
		wait(networks.Delete(ctx, &computepb.DeleteNetworkRequest{Project: project, Network: name}))
	}
	is(0, len(all(networks.List(ctx, &computepb.ListNetworksRequest{Project: project}))))
}
