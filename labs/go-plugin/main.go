// A cloud whose plugin knows nothing but the seed's eight methods. It has one network per namespace, whose address space
// it asks of the controller; its rules are known by their content, and the ids it gives them are its own.
//
//	lab LISTEN CONTROLLER CA CERT KEY
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sort"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"lab/pb"
)

type resource struct {
	ip    netip.Addr
	rules map[string]*pb.PermitListRule
}

type plugin struct {
	pb.UnimplementedCloudPluginServer
	controller pb.ControllerClient
	mutex      sync.Mutex
	spaces     map[string]netip.Prefix
	resources  map[string]*resource
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, controller, ca, cert, key string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}
	connection, err := grpc.NewClient(controller, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	socket, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterCloudPluginServer(server, &plugin{
		controller: pb.NewControllerClient(connection),
		spaces:     map[string]netip.Prefix{},
		resources:  map[string]*resource{},
	})
	fmt.Println("the plugin listens on", socket.Addr())
	return server.Serve(socket)
}

func (p *plugin) GetUsedAddressSpaces(_ context.Context, at *pb.InvisinetsDeployment) (*pb.AddressSpaceList, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	answer := &pb.AddressSpaceList{}
	if space, there := p.spaces[at.Namespace]; there {
		answer.AddressSpaces = append(answer.AddressSpaces, space.String())
	}
	return answer, nil
}

// The description is the name of what is to be made; the seed has no other place for it.
func (p *plugin) CreateResource(ctx context.Context, wanted *pb.ResourceDescription) (*pb.CreateResourceResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	name := strings.TrimSpace(string(wanted.Description))
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "the description is empty")
	}
	space, there := p.spaces[wanted.Namespace]
	if !there {
		// The controller asks every cloud what it uses, this one too.
		p.mutex.Unlock()
		found, err := p.controller.FindUnusedAddressSpace(ctx, &pb.Namespace{Namespace: wanted.Namespace})
		p.mutex.Lock()
		if err != nil {
			return nil, fmt.Errorf("asking the controller for a space: %w", err)
		}
		if space, err = netip.ParsePrefix(found.Address); err != nil {
			return nil, err
		}
		p.spaces[wanted.Namespace] = space
		fmt.Println("the controller tells", wanted.Namespace, "of", space)
	}
	uri := wanted.Namespace + "/" + name
	if _, taken := p.resources[uri]; taken {
		return nil, status.Error(codes.AlreadyExists, uri+" is there")
	}
	ip := space.Addr().Next()
	for p.uses(ip) {
		ip = ip.Next()
	}
	p.resources[uri] = &resource{ip: ip, rules: map[string]*pb.PermitListRule{}}
	return &pb.CreateResourceResponse{Name: name, Uri: uri, Ip: ip.String()}, nil
}

func (p *plugin) uses(ip netip.Addr) bool {
	for _, other := range p.resources {
		if other.ip == ip {
			return true
		}
	}
	return false
}

func (p *plugin) find(uri string) (*resource, error) {
	if found, there := p.resources[uri]; there {
		return found, nil
	}
	return nil, status.Error(codes.NotFound, "there is no "+uri)
}

// What a rule says, without who calls it what.
func content(rule *pb.PermitListRule) string {
	targets := append([]string{}, rule.Targets...)
	tags := append([]string{}, rule.Tags...)
	sort.Strings(targets)
	sort.Strings(tags)
	return fmt.Sprint(rule.Direction, rule.Protocol, rule.SrcPort, rule.DstPort, targets, tags)
}

func (p *plugin) GetPermitList(_ context.Context, id *pb.ResourceID) (*pb.PermitList, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	found, err := p.find(id.Id)
	if err != nil {
		return nil, err
	}
	list := &pb.PermitList{AssociatedResource: id.Id, Namespace: id.Namespace}
	for _, rule := range found.rules {
		list.Rules = append(list.Rules, rule)
	}
	return list, nil
}

func (p *plugin) AddPermitListRules(_ context.Context, list *pb.PermitList) (*pb.BasicResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	found, err := p.find(list.AssociatedResource)
	if err != nil {
		return nil, err
	}
	for _, rule := range list.Rules {
		if len(rule.Targets) == 0 {
			return &pb.BasicResponse{Success: false, Message: "a rule without targets"}, nil
		}
		rule.Id = fmt.Sprintf("fw-%d", len(found.rules))
		found.rules[content(rule)] = rule
		fmt.Println("permits", list.AssociatedResource, content(rule))
	}
	return &pb.BasicResponse{Success: true}, nil
}

func (p *plugin) DeletePermitListRules(_ context.Context, list *pb.PermitList) (*pb.BasicResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	found, err := p.find(list.AssociatedResource)
	if err != nil {
		return nil, err
	}
	for _, rule := range list.Rules {
		if _, there := found.rules[content(rule)]; !there {
			fmt.Println("asked to delete what is not there:", content(rule))
			return &pb.BasicResponse{Success: false, Message: "no such rule: " + content(rule)}, nil
		}
		delete(found.rules, content(rule))
		fmt.Println("permits no more", list.AssociatedResource, content(rule))
	}
	return &pb.BasicResponse{Success: true}, nil
}

// The seed's gateways have numbers and BGP addresses of their own choosing.
func (p *plugin) CreateVpnGateway(context.Context, *pb.InvisinetsDeployment) (*pb.CreateVpnGatewayResponse, error) {
	return &pb.CreateVpnGatewayResponse{GatewayIpAddresses: []string{"198.18.0.1", "198.18.0.2"}, Asn: 65515}, nil
}

func (p *plugin) CreateVpnBgpSessions(context.Context, *pb.CreateVpnBgpSessionsRequest) (*pb.CreateVpnBgpSessionsResponse, error) {
	return &pb.CreateVpnBgpSessionsResponse{BgpIpAddresses: []string{"169.254.21.1", "169.254.22.1"}}, nil
}

func (p *plugin) CreateVpnConnections(_ context.Context, wanted *pb.CreateVpnConnectionsRequest) (*pb.BasicResponse, error) {
	fmt.Println("tunnels to", wanted.Cloud, "AS", wanted.Asn, wanted.GatewayIpAddresses, "BGP", wanted.BgpIpAddresses)
	return &pb.BasicResponse{Success: true}, nil
}
