package main

import (
	"strings"
	"time"

	admv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	policyversioned "sigs.k8s.io/network-policy-api/pkg/client/clientset/versioned/fake"
	policyinformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"

	crdv1beta1 "antrea.io/antrea/v2/pkg/apis/crd/v1beta1"
	"antrea.io/antrea/v2/pkg/apiserver/storage"
	crdversioned "antrea.io/antrea/v2/pkg/client/clientset/versioned/fake"
	crdinformers "antrea.io/antrea/v2/pkg/client/informers/externalversions"
	"antrea.io/antrea/v2/pkg/controller/grouping"
	"antrea.io/antrea/v2/pkg/controller/labelidentity"
	"antrea.io/antrea/v2/pkg/controller/networkpolicy"
	"antrea.io/antrea/v2/pkg/controller/networkpolicy/store"
)

// controller is Antrea's, with everything it reads in memory.
type controller struct {
	validator                           *networkpolicy.NetworkPolicyValidator
	mutator                             *networkpolicy.NetworkPolicyMutator
	core                                *fake.Clientset
	crd                                 *crdversioned.Clientset
	crds                                crdinformers.SharedInformerFactory
	policies, appliedTo, address, group storage.Interface
	stop                                chan struct{}
}

func newController() *controller {
	c := &controller{core: fake.NewSimpleClientset(), crd: crdversioned.NewSimpleClientset(), stop: make(chan struct{})}
	cores := informers.NewSharedInformerFactory(c.core, 0)
	c.crds = crdinformers.NewSharedInformerFactory(c.crd, 0)
	policies := policyinformers.NewSharedInformerFactory(policyversioned.NewSimpleClientset(), 0)
	c.policies, c.appliedTo = store.NewNetworkPolicyStore(), store.NewAppliedToGroupStore()
	c.address, c.group = store.NewAddressGroupStore(), store.NewGroupStore()
	index := grouping.NewGroupEntityIndex()
	entities := grouping.NewGroupEntityController(index, cores.Core().V1().Pods(), cores.Core().V1().Namespaces(),
		c.crds.Crd().V1alpha2().ExternalEntities())
	crds := c.crds.Crd().V1beta1()
	main := networkpolicy.NewNetworkPolicyController(c.core, c.crd, index, labelidentity.NewLabelIdentityIndex(),
		cores.Core().V1().Namespaces(), cores.Core().V1().Services(), cores.Networking().V1().NetworkPolicies(),
		cores.Core().V1().Nodes(), crds.ClusterNetworkPolicies(), crds.NetworkPolicies(),
		policies.Policy().V1alpha1().AdminNetworkPolicies(), policies.Policy().V1alpha1().BaselineAdminNetworkPolicies(),
		policies.Policy().V1alpha2().ClusterNetworkPolicies(), crds.Tiers(), crds.ClusterGroups(), crds.Groups(),
		c.address, c.appliedTo, c.policies, c.group, false)
	c.validator, c.mutator = networkpolicy.NewNetworkPolicyValidator(main), networkpolicy.NewNetworkPolicyMutator(main)
	for _, tier := range systemTiers {
		must(c.crd.Tracker().Add(&crdv1beta1.Tier{ObjectMeta: metav1.ObjectMeta{Name: tier.name}, Spec: crdv1beta1.TierSpec{Priority: tier.priority}}))
	}
	cores.Start(c.stop)
	c.crds.Start(c.stop)
	policies.Start(c.stop)
	cores.WaitForCacheSync(c.stop)
	c.crds.WaitForCacheSync(c.stop)
	go index.Run(c.stop)
	go entities.Run(c.stop)
	go main.Run(c.stop)
	return c
}

// systemTiers are those that Antrea makes when it starts.
var systemTiers = []struct {
	name     string
	priority int32
}{{"emergency", 50}, {"securityops", 100}, {"networkops", 150}, {"platform", 200}, {"application", 250}, {"baseline", 253}}

// admit asks Antrea's schemas and its webhook; empty if both take the object as it is.
func (c *controller) admit(d *document) (bySchema bool, why string) {
	if schema, known := schemas[d.APIVersion+" "+d.Kind]; known {
		if why := schema.refuses(d.raw); why != "" {
			return true, why
		}
	}
	if !strings.HasPrefix(d.APIVersion, "crd.antrea.io/v1beta1") {
		return false, ""
	}
	review := func() *admv1.AdmissionReview {
		kind := metav1.GroupVersionKind{Group: "crd.antrea.io", Version: "v1beta1", Kind: d.Kind}
		object := runtime.RawExtension{Raw: d.raw}
		return &admv1.AdmissionReview{Request: &admv1.AdmissionRequest{Kind: kind, Operation: admv1.Create, Object: object}}
	}
	if strings.HasSuffix(d.Kind, "NetworkPolicy") {
		d.patch(c.mutator.Mutate(review()).Patch)
	}
	answer := c.validator.Validate(review())
	if answer.Allowed {
		return false, ""
	}
	if answer.Result == nil {
		return false, "refused"
	}
	return false, answer.Result.Message
}

// create puts an object where the controller finds it; what others name must be seen before they come.
func (c *controller) create(d *document) {
	object := d.typed()
	if !strings.HasPrefix(d.APIVersion, "crd.antrea.io") {
		must(c.core.Tracker().Add(object))
		return
	}
	must(c.crd.Tracker().Add(object))
	crds := c.crds.Crd().V1beta1()
	var seen cache.Store
	switch d.Kind {
	case "Tier":
		seen = crds.Tiers().Informer().GetStore()
	case "Group":
		seen = crds.Groups().Informer().GetStore()
	case "ClusterGroup":
		seen = crds.ClusterGroups().Informer().GetStore()
	default:
		return
	}
	for {
		if _, there, _ := seen.Get(object); there {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
