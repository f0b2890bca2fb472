//go:build tools

// What the lab builds of Kubernetes' storage group.
package main

import _ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
