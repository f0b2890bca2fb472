// A later dataplane of Azure NPM: its goal states hold Go's own encoding, which Go reads here into types with NPM's names of
// fields. Usage: later ADDRESS POD NODE CA CERT KEY ADDRESS-OF-A-POD; ends when that address is in a set that a policy is applied
// to, the policy isolates it, and the policy is gone again.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/gob"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"lab/protos"
)

type IPSetMetadata struct {
	Name string
	Type int8
}

type PodMetadata struct{ PodKey, PodIP, NodeName string }

type ControllerIPSets struct {
	*IPSetMetadata
	IPPodMetadata   map[string]*PodMetadata
	MemberIPSets    map[string]*IPSetMetadata
	NetPolReference map[string]struct{}
}

type SetInfo struct {
	IPSet     *IPSetMetadata
	Included  bool
	MatchType int8
}

type ACLPolicy struct {
	Comment           string
	SrcList, DstList  []SetInfo
	Target, Direction string
	DstPorts          struct{ Port, EndPort int32 }
	Protocol          string
}

type TranslatedIPSet struct {
	Metadata *IPSetMetadata
	Members  []string
}

type NPMNetworkPolicy struct {
	Namespace, PolicyKey string
	PodSelectorIPSets    []*TranslatedIPSet
	PodSelectorList      []SetInfo
	RuleIPSets           []*TranslatedIPSet
	ACLs                 []*ACLPolicy
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(state *protos.GoalState, into any) {
	check(gob.NewDecoder(bytes.NewReader(state.Data)).Decode(into))
}

func main() {
	address, pod, node, wanted := os.Args[1], os.Args[2], os.Args[3], os.Args[7]
	pem, err := os.ReadFile(os.Args[4])
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(os.Args[5], os.Args[6])
	check(err)
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := protos.NewDataplaneEventsClient(connection).Connect(ctx, &protos.DatapathPodMetadata{PodName: pod, NodeName: node})
	check(err)
	holding := map[string]bool{} // parts with the address, and lists of them
	isolating := ""
	for {
		events, err := stream.Recv()
		check(err)
		for what, state := range events.Payload {
			switch what {
			case "IPSETAPPLY":
				var sets []*ControllerIPSets
				read(state, &sets)
				for _, set := range sets {
					_, holds := set.IPPodMetadata[wanted]
					for _, member := range set.MemberIPSets {
						holds = holds || holding[member.Name]
					}
					holding[set.Name] = holds
					fmt.Println("set", set.Name, set.Type, len(set.IPPodMetadata), len(set.MemberIPSets))
				}
			case "POLICYAPPLY":
				var policies []*NPMNetworkPolicy
				read(state, &policies)
				for _, policy := range policies {
					selected := len(policy.PodSelectorList) == 1 && holding[policy.PodSelectorList[0].IPSet.Name]
					for _, acl := range policy.ACLs {
						if selected && acl.Target == "DROP" && acl.Direction == "IN" && acl.Protocol == "unspecified" {
							isolating = policy.PolicyKey
						}
						fmt.Println("policy", policy.PolicyKey, acl.Target, acl.Direction, acl.Protocol, len(acl.SrcList))
					}
				}
			case "POLICYREMOVE":
				var names []string
				read(state, &names)
				for _, name := range names {
					if name == isolating {
						fmt.Println("removed", name)
						return
					}
				}
			}
		}
	}
}
