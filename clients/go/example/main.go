// Closes a database to everybody but the web, and asks who reaches it. Run it beside `trestle up`.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	trestle "trestle.dev/clients/go"
	"trestle.dev/clients/go/pb/tagservicepb"
	"trestle.dev/clients/go/pb/trestlev1"
)

const objects = `
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: example, labels: {app: web}}, spec: {nodeName: node-1}, status: {podIP: 10.8.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: example, labels: {app: db}}, spec: {nodeName: node-1}, status: {podIP: 10.8.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ci-0, namespace: example, labels: {app: ci}}, spec: {nodeName: node-1}, status: {podIP: 10.8.0.3}}
`

const policy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: example}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
`

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	config, err := trestle.Source{}.Config() // as the command line finds it
	if err != nil {
		return err
	}
	controller, err := trestle.Connect(config)
	if err != nil {
		return err
	}
	defer controller.Close()
	me, err := controller.Access.WhoAmI(ctx, &trestlev1.WhoAmIRequest{})
	if err != nil {
		return err
	}
	fmt.Println("I am", me.GetName())

	if _, err := controller.Apply(ctx, []byte(objects)); err != nil {
		return err
	}
	documents, err := trestle.Documents([]byte(policy))
	if err != nil {
		return err
	}
	var header metadata.MD
	applied, err := controller.Objects.ApplyObjects(ctx, &trestlev1.ApplyObjectsRequest{Documents: documents}, grpc.Header(&header))
	if err != nil {
		return err
	}
	fmt.Println("stored:", applied.GetApplied()[0].GetOutcome(), "as", len(trestle.ChangesOf(header)), "change")

	port := uint32(5432)
	for _, source := range []string{"example/web-0", "example/ci-0"} {
		answer, err := controller.Policies.Explain(ctx, &trestlev1.ExplainRequest{Source: source, Destination: "example/db-0", Port: &port})
		if err != nil {
			return err
		}
		fmt.Println(source, "to db:", answer.GetVerdict())
	}

	address := "10.8.0.2"
	if _, err := controller.Tags.SetTag(ctx, &tagservicepb.TagMapping{TagName: "example-db", Ip: &address}); err != nil {
		return err
	}
	_, err = controller.Tags.GetTag(ctx, &tagservicepb.Tag{TagName: "nobody"})
	fmt.Println("nobody is absent:", trestle.IsAbsent(err))
	return nil
}
