// Package trestle is a client of a Trestle controller over gRPC: the services as generated from its contract, and around them what every
// caller needs. In: where the controller is and who calls, by default what the command line uses. Out: a connection that proves who calls,
// jobs and changes that can be waited for, documents that can be stored. It holds one connection.
//
// Not here: what nodes, cloud plugins and storage consumers speak; streams are those of the generated services.
package trestle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"trestle.dev/clients/go/pb/tagservicepb"
	"trestle.dev/clients/go/pb/trestlev1"
)

// A tag of a million members is about 40 MiB.
const maxMessage = 256 << 20

// Client is one controller. Its fields are the services of the contract.
type Client struct {
	Access       trestlev1.AccessClient
	Admin        trestlev1.AdminClient
	Enforcement  trestlev1.EnforcementClient
	Hosts        trestlev1.HostsClient
	Kubernetes   trestlev1.KubernetesClient
	Namespaces   trestlev1.NamespacesClient
	Nodes        trestlev1.NodesClient
	Objects      trestlev1.ObjectsClient
	Orchestrator trestlev1.OrchestratorClient
	Permissions  trestlev1.PermissionsClient
	Policies     trestlev1.PoliciesClient
	Services     trestlev1.ServicesClient
	Storage      trestlev1.StorageClient
	TagEvents    trestlev1.TagEventsClient
	Tags         tagservicepb.TagServiceClient

	connection *grpc.ClientConn
}

// Connect makes a client; the first call reaches out.
func Connect(config Config) (*Client, error) {
	target, transport, err := config.transport()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithUserAgent("trestle-go"),
	}
	if config.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{config.Token, transport.Info().SecurityProtocol == "tls"}))
	}
	connection, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", config.Server, err)
	}
	return &Client{
		Access:       trestlev1.NewAccessClient(connection),
		Admin:        trestlev1.NewAdminClient(connection),
		Enforcement:  trestlev1.NewEnforcementClient(connection),
		Hosts:        trestlev1.NewHostsClient(connection),
		Kubernetes:   trestlev1.NewKubernetesClient(connection),
		Namespaces:   trestlev1.NewNamespacesClient(connection),
		Nodes:        trestlev1.NewNodesClient(connection),
		Objects:      trestlev1.NewObjectsClient(connection),
		Orchestrator: trestlev1.NewOrchestratorClient(connection),
		Permissions:  trestlev1.NewPermissionsClient(connection),
		Policies:     trestlev1.NewPoliciesClient(connection),
		Services:     trestlev1.NewServicesClient(connection),
		Storage:      trestlev1.NewStorageClient(connection),
		TagEvents:    trestlev1.NewTagEventsClient(connection),
		Tags:         tagservicepb.NewTagServiceClient(connection),
		connection:   connection,
	}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.connection.Close() }

// IsAbsent tells what is not there from what could not be asked.
func IsAbsent(err error) bool { return status.Code(err) == codes.NotFound }

func (c Config) transport() (string, credentials.TransportCredentials, error) {
	if c.Server == "" {
		return "", nil, errors.New("no controller is named")
	}
	at, err := url.Parse(c.Server)
	if err != nil || at.Host == "" || (at.Scheme != "https" && at.Scheme != "http") {
		return "", nil, fmt.Errorf("%q is not a URL like https://127.0.0.1:8081", c.Server)
	}
	if at.Port() == "" {
		at.Host += ":8081"
	}
	if at.Scheme == "http" {
		// As the controller has it: what is not encrypted leaves no machine.
		if ip := net.ParseIP(at.Hostname()); at.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return "", nil, fmt.Errorf("%s is without TLS, which is for this machine alone: name it with https://", c.Server)
		}
		if c.Certificate != nil {
			return "", nil, fmt.Errorf("%s is without TLS: no certificate can be shown there", c.Server)
		}
		return "passthrough:///" + at.Host, insecure.NewCredentials(), nil
	}
	how := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		how.RootCAs = x509.NewCertPool()
		if !how.RootCAs.AppendCertsFromPEM(c.CA) {
			return "", nil, errors.New("the CA is no certificate in PEM")
		}
	}
	if c.Certificate != nil {
		how.Certificates = []tls.Certificate{*c.Certificate}
	}
	return "dns:///" + at.Host, credentials.NewTLS(how), nil
}

// bearer proves who calls by a token.
type bearer struct {
	token string
	tls   bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.tls }

func readFile(what, path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the %s: %w", what, err)
	}
	return content, nil
}
