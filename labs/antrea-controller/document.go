package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	crdv1alpha2 "antrea.io/antrea/v2/pkg/apis/crd/v1alpha2"
	crdv1beta1 "antrea.io/antrea/v2/pkg/apis/crd/v1beta1"
)

// document is an object as it was generated.
type document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	raw               json.RawMessage
}

func (d *document) UnmarshalJSON(raw []byte) error {
	type plain document
	d.raw = append(json.RawMessage{}, raw...)
	return json.Unmarshal(raw, (*plain)(d))
}

func (d *document) String() string {
	return fmt.Sprintf("%s %s/%s of %s", d.Kind, d.Namespace, d.Name, d.APIVersion)
}

type set struct {
	Objects []document
	Refused []struct {
		Object document
		Why    string
	}
}

// typed reads a document as what it is.
func (d *document) typed() runtime.Object {
	var object runtime.Object
	switch d.APIVersion + " " + d.Kind {
	case "v1 Namespace":
		// Every API server says the name in a label, too.
		object = &corev1.Namespace{}
	case "v1 Node":
		object = &corev1.Node{}
	case "v1 Pod":
		object = &corev1.Pod{}
	case "v1 Service":
		object = &corev1.Service{}
	case "networking.k8s.io/v1 NetworkPolicy":
		object = &networkingv1.NetworkPolicy{}
	case "crd.antrea.io/v1alpha2 ExternalEntity":
		object = &crdv1alpha2.ExternalEntity{}
	case "crd.antrea.io/v1beta1 Tier":
		object = &crdv1beta1.Tier{}
	case "crd.antrea.io/v1beta1 Group":
		object = &crdv1beta1.Group{}
	case "crd.antrea.io/v1beta1 ClusterGroup":
		object = &crdv1beta1.ClusterGroup{}
	case "crd.antrea.io/v1beta1 NetworkPolicy":
		object = &crdv1beta1.NetworkPolicy{}
	case "crd.antrea.io/v1beta1 ClusterNetworkPolicy":
		object = &crdv1beta1.ClusterNetworkPolicy{}
	default:
		must(fmt.Errorf("%s is of no kind that is compared", d))
	}
	must(json.Unmarshal(d.raw, object))
	switch object := object.(type) {
	case *corev1.Namespace:
		if object.Labels == nil {
			object.Labels = map[string]string{}
		}
		object.Labels[corev1.LabelMetadataName] = object.Name
	case *corev1.Pod:
		if len(object.Status.PodIPs) > 0 {
			object.Status.PodIP = object.Status.PodIPs[0].IP
		}
		if object.Spec.ServiceAccountName == "" {
			object.Spec.ServiceAccountName = "default"
		}
		for i := range object.Spec.Containers {
			for j := range object.Spec.Containers[i].Ports {
				if port := &object.Spec.Containers[i].Ports[j]; port.Protocol == "" {
					port.Protocol = corev1.ProtocolTCP
				}
			}
		}
	case *networkingv1.NetworkPolicy:
		defaults(object)
	}
	return object
}

// defaults are what an API server fills in.
func defaults(policy *networkingv1.NetworkPolicy) {
	tcp := corev1.ProtocolTCP
	fill := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = &tcp
			}
		}
	}
	for i := range policy.Spec.Ingress {
		fill(policy.Spec.Ingress[i].Ports)
	}
	for i := range policy.Spec.Egress {
		fill(policy.Spec.Egress[i].Ports)
	}
	if len(policy.Spec.PolicyTypes) == 0 {
		policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(policy.Spec.Egress) > 0 {
			policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

// patch does what the webhook wants to be changed, which is texts only: names of rules, and the tier.
func (d *document) patch(patch []byte) {
	if len(patch) == 0 {
		return
	}
	var changes []struct{ Path, Value string }
	must(json.Unmarshal(patch, &changes))
	var object any
	must(utiljson.Unmarshal(d.raw, &object))
	for _, change := range changes {
		at, path := object, strings.Split(strings.TrimPrefix(change.Path, "/"), "/")
		for _, part := range path[:len(path)-1] {
			if list, is := at.([]any); is {
				index, err := strconv.Atoi(part)
				must(err)
				at = list[index]
			} else {
				at = at.(map[string]any)[part]
			}
		}
		at.(map[string]any)[path[len(path)-1]] = change.Value
	}
	raw, err := json.Marshal(object)
	must(err)
	d.raw = raw
}

// empty makes a group one that nobody is in.
func (d *document) empty() {
	var object map[string]any
	must(utiljson.Unmarshal(d.raw, &object))
	object["spec"] = map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "nobody"}}}
	raw, err := json.Marshal(object)
	must(err)
	d.raw = raw
}
