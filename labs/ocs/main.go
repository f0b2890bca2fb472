// Clients of OCS's releases, each as its release calls: it connects without looking at the certificate, onboards with a ticket of its
// own provider, is given what it is to have, reports, and leaves. Usage: client ADDRESS KEY.pem, an RSA key whose public half the
// controller trusts. Ends with what went wrong first.
package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"lab/pb"
)

func check(holds bool, what string, said ...any) {
	if !holds {
		fmt.Fprintln(os.Stderr, append([]any{"NOT SO:", what}, said...)...)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "a call succeeds", err)
	return value
}

// ticket is as the provider of the releases makes it.
func ticket(key *rsa.PrivateKey, id string, quota int) string {
	payload := map[string]any{"id": id, "expirationDate": fmt.Sprint(time.Now().Add(48 * time.Hour).Unix()), "subjectRole": "ocs-client"}
	if quota > 0 {
		payload["storageQuotaInGiB"] = quota
	}
	text := must(json.Marshal(payload))
	hash := sha256.Sum256(text)
	signature := must(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:]))
	return base64.StdEncoding.EncodeToString(text) + "." + base64.StdEncoding.EncodeToString(signature)
}

type lab struct {
	ctx    context.Context
	client pb.OCSProviderClient
	key    *rsa.PrivateKey
}

// configured asks until the storage is made.
func configured[T any](call func() (T, error)) T {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		value, err := call()
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			return must(value, err)
		}
	}
}

func (l lab) leave(id *pb.Id) {
	must(l.client.OffboardConsumer(l.ctx, id))
	_, err := l.client.GetStorageConfig(l.ctx, id)
	check(status.Code(err) == codes.InvalidArgument, "who has left is not known", err)
}

// release410 names a capacity, acknowledges, and grows.
func (l lab) release410() {
	on := must(l.client.OnboardConsumer(l.ctx, &pb.Onboard{Ticket: ticket(l.key, "four-ten", 0), Name: "storageconsumer-1", Third: "1Gi"}))
	check(on.Granted == "1Gi", "what is granted is said as text", on)
	id := &pb.Id{Id: on.Id}
	must(l.client.AcknowledgeOnboarding(l.ctx, id))
	items := configured(func() (*pb.Items, error) { return l.client.GetStorageConfig(l.ctx, id) }).Items
	check(len(items) > 1, "connection details come one by one", items)
	for _, item := range items {
		var data map[string]string
		check(json.Unmarshal(item.Data, &data) == nil && item.Kind != "", "an item is named texts", item)
	}
	grown := must(l.client.UpdateCapacity(l.ctx, &pb.Capacity{Id: on.Id, Capacity: "2Gi"}))
	check(grown.Granted == "2Gi", "a grant grows", grown)
	l.leave(id)
	fmt.Println("4.10: onboarded, acknowledged, configured, resized, offboarded")
}

// release416 names a version; its capacity is its ticket's, and it claims what it has.
func (l lab) release416() {
	on := must(l.client.OnboardConsumer(l.ctx, &pb.Onboard{Ticket: ticket(l.key, "four-sixteen", 3), Name: "storageconsumer-2", Third: "4.16.3"}))
	check(on.Granted == "3Gi", "the capacity is the ticket's", on)
	id := &pb.Id{Id: on.Id}
	must(l.client.AcknowledgeOnboarding(l.ctx, id))
	must(l.client.FulfillStorageClaim(l.ctx, &pb.Claim{Name: "block", Id: on.Id, Type: 1}))
	_, err := l.client.FulfillStorageClaim(l.ctx, &pb.Claim{Name: "files", Id: on.Id})
	check(status.Code(err) == codes.InvalidArgument, "there are no shared file systems", err)
	claimed := configured(func() (*pb.Items, error) {
		return l.client.GetStorageClaimConfig(l.ctx, &pb.Claim{Name: "block", Id: on.Id})
	})
	check(len(claimed.Items) > 1, "a claim is configured", claimed)
	reported := must(l.client.ReportStatus(l.ctx, &pb.Report{Id: on.Id, OperatorVersion: "4.16.3"}))
	check(reported.Channel == "stable-4.16", "the client stays in its channel", reported)
	must(l.client.RevokeStorageClaim(l.ctx, &pb.Claim{Name: "block", Id: on.Id}))
	l.leave(id)
	fmt.Println("4.16: onboarded, claimed, reported, offboarded")
}

// today names nothing but itself, and reconciles what it is to have.
func (l lab) today() {
	text := ticket(l.key, "today", 2)
	onboard := &pb.Onboard{Ticket: text, Third: "5.0.1", PlatformVersion: "5.0.0", OperatorNamespace: "storage-client",
		ClientId: "0d2f6e0c-6a3c-4d2e-9d40-0a3f3a1a2b11", ClientName: "client", ClusterName: "berlin"}
	on := must(l.client.OnboardConsumer(l.ctx, onboard))
	id := &pb.Id{Id: on.Id}
	again := must(l.client.OnboardConsumer(l.ctx, onboard))
	check(again.Id == on.Id, "the same ticket is the same consumer", again)
	onboard.ClientId = "another"
	_, err := l.client.OnboardConsumer(l.ctx, onboard)
	check(status.Code(err) == codes.InvalidArgument, "a used ticket is its own client's", err)
	state := configured(func() (*pb.State, error) { return l.client.GetDesiredClientState(l.ctx, id) })
	secrets := 0
	for _, each := range state.Objects {
		var object struct {
			ApiVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		check(json.Unmarshal(each.Bytes, &object) == nil && object.ApiVersion != "" && object.Metadata.Name != "" && each.Op == 1, "objects are Kubernetes'", each)
		if object.Kind == "Secret" {
			check(object.Metadata.Namespace == "storage-client", "objects go where the operator runs", object)
			secrets++
		}
	}
	check(secrets > 0, "there are credentials among them")
	reported := must(l.client.ReportStatus(l.ctx, &pb.Report{Id: on.Id, OperatorVersion: "5.0.2", OperatorNamespace: "storage-client", Used: 0.25}))
	check(reported.Hash == state.Hash && reported.Channel == "stable-5.0", "the hash is the state's", reported)
	check(len(must(l.client.GetClientAlerts(l.ctx, id)).Alerts) == 0, "nothing is wrong")
	_, err = l.client.Notify(l.ctx, id)
	check(status.Code(err) == codes.Unimplemented, "there are no buckets", err)
	l.leave(id)
	fmt.Println("today: onboarded, reconciled, reported, offboarded")
}

func main() {
	block, _ := pem.Decode(must(os.ReadFile(os.Args[2])))
	key := must(x509.ParsePKCS8PrivateKey(block.Bytes)).(*rsa.PrivateKey)
	// As the releases' clients do it.
	blind := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	connection := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(blind)))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	l := lab{ctx, pb.NewOCSProviderClient(connection), key}
	l.release410()
	l.release416()
	l.today()
}
