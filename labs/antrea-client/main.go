// A node agent's side of the watch API on an unmodified client-go: three watches over protobuf with a nodeName field
// selector, buffered until the bookmark, then live; reconnecting for ever; refusing whatever an agent would choke on.
// Beside them an informer, which lists by watching, follows the policies. Prints what it holds at the end.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// held is one resource as the agent has it: names, and of groups the keys of their members.
type held struct {
	mutex   sync.Mutex
	objects map[string]map[string]bool
	syncs   int
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func contents(object runtime.Object) (string, map[string]bool) {
	switch object := object.(type) {
	case *Group:
		members := map[string]bool{}
		for _, member := range object.Members {
			members[member.key()] = true
		}
		return object.Name, members
	case *Policy:
		if object.SourceType == "" || object.UID == "" {
			fail("a policy without its source: %v", object)
		}
		return object.Name, map[string]bool{fmt.Sprintf("%d rules, generation %d", object.Rules, object.Generation): true}
	}
	fail("%T is not an object of this API", object)
	return "", nil
}

// follow reads one watch to its end.
func (h *held) follow(stream watch.Interface) {
	defer stream.Stop()
	initial := map[string]map[string]bool{}
	isInitial := true
	for event := range stream.ResultChan() {
		h.mutex.Lock()
		target := h.objects
		if isInitial {
			target = initial
		}
		switch event.Type {
		case watch.Added:
			name, members := contents(event.Object)
			target[name] = members
		case watch.Modified:
			if patch, ok := event.Object.(*Patch); ok {
				members, known := target[patch.Name]
				if !known {
					fail("a patch of %s, which was never added", patch.Name)
				}
				for _, member := range patch.Added {
					members[member.key()] = true
				}
				for _, member := range patch.Removed {
					delete(members, member.key())
				}
			} else {
				name, members := contents(event.Object)
				if _, known := target[name]; !known {
					fail("%s was changed and never added", name)
				}
				target[name] = members
			}
		case watch.Deleted:
			name, _ := contents(event.Object)
			if _, known := target[name]; !known {
				fail("%s was deleted and never added", name)
			}
			delete(target, name)
		case watch.Bookmark:
			if !isInitial {
				fail("a second bookmark")
			}
			h.objects, isInitial = initial, false
			h.syncs++
		default:
			fail("an event an agent does not know: %v %v", event.Type, event.Object)
		}
		h.mutex.Unlock()
	}
}

func watches(client *rest.RESTClient, resource, node string) *held {
	h := &held{objects: map[string]map[string]bool{}}
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("nodeName", node).String(), Watch: true}
	go func() {
		for {
			request := client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec)
			if stream, err := request.Watch(context.Background()); err == nil {
				h.follow(stream)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return h
}

func (h *held) state() map[string][]string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	state := map[string][]string{}
	for name, members := range h.objects {
		list := []string{}
		for member := range members {
			list = append(list, member)
		}
		sort.Strings(list)
		state[name] = list
	}
	return state
}

func listed(client *rest.RESTClient, resource, node string) map[string][]string {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("nodeName", node).String()}
	object, err := client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Do(context.Background()).Get()
	if err != nil {
		fail("list %s: %v", resource, err)
	}
	h := held{objects: map[string]map[string]bool{}}
	put := func(object runtime.Object) { name, members := contents(object); h.objects[name] = members }
	switch list := object.(type) {
	case *GroupList:
		for i := range list.Items {
			put(&list.Items[i])
		}
	case *PolicyList:
		for i := range list.Items {
			put(&list.Items[i])
		}
	}
	return h.state()
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the watch API is and who we are")
	node := flag.String("node", "node-2", "which node's agent to be")
	until := flag.String("until", "", "a file: when it exists, compare what was followed with a list and end")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail("%v", err)
	}
	config.APIPath, config.GroupVersion = "/apis", &groupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		fail("%v", err)
	}

	resources := []string{"networkpolicies", "appliedtogroups", "addressgroups"}
	followed := map[string]*held{}
	for _, resource := range append(resources, "egressgroups") {
		followed[resource] = watches(client, resource, *node)
	}
	source := cache.NewListWatchFromClient(client, "networkpolicies", "", fields.Everything())
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &Policy{}, Handler: cache.ResourceEventHandlerFuncs{},
	})
	go informer.Run(nil)

	for {
		if _, err := os.Stat(*until); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	// The last change may still be under way.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		isEqual := true
		report := map[string]any{}
		for _, resource := range resources {
			want, have := listed(client, resource, *node), followed[resource].state()
			wanted, _ := json.Marshal(want)
			had, _ := json.Marshal(have)
			isEqual = isEqual && string(wanted) == string(had)
			report[resource] = map[string]any{"followed": have, "listed": want, "syncs": followed[resource].syncs}
		}
		report["egressgroups"] = map[string]any{"syncs": followed["egressgroups"].syncs}
		all := len(listed(client, "networkpolicies", *node))
		report["informer"] = map[string]any{"policies": len(store.List()), "synced": informer.HasSynced()}
		isEqual = isEqual && informer.HasSynced() && len(store.List()) >= all && followed["egressgroups"].syncs > 0
		if isEqual || time.Now().After(deadline) {
			text, _ := json.MarshalIndent(report, "", "  ")
			fmt.Println(string(text))
			if !isEqual {
				fail("what was followed is not what is there")
			}
			return
		}
	}
}
