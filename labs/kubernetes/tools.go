//go:build tools

// Package tools names what the lab builds of Kubernetes.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
