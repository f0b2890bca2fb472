// The Terraform provider for Trestle, as Terraform runs it: a plugin that speaks protocol 6.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"trestle.dev/clients/terraform/internal/provider"
)

// Set when it is built.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "wait for a debugger, and say how Terraform reaches this process")
	flag.Parse()
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address:         "registry.terraform.io/trestle/trestle",
		ProtocolVersion: 6,
		Debug:           *debug,
	})
	if err != nil {
		log.Fatal(err)
	}
}
