package main

import (
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sort"

	"antrea.io/antrea/v2/pkg/apis/controlplane"
	"antrea.io/antrea/v2/pkg/apis/controlplane/v1beta2"
	"antrea.io/antrea/v2/pkg/controller/networkpolicy/store"
	"antrea.io/antrea/v2/pkg/controller/types"
)

// view is what one node has, or what there is.
type view struct {
	NetworkPolicies v1beta2.NetworkPolicyList
	AppliedToGroups v1beta2.AppliedToGroupList
	AddressGroups   v1beta2.AddressGroupList
}

func (c *controller) view(node string) view {
	var v view
	sees := func(span types.SpanMeta) bool { return node == "" || span.Has(node) }
	for _, item := range c.policies.List() {
		if policy := item.(*types.NetworkPolicy); sees(policy.SpanMeta) {
			var told controlplane.NetworkPolicy
			store.ToNetworkPolicyMsg(policy, &told, true)
			var object v1beta2.NetworkPolicy
			must(v1beta2.Convert_controlplane_NetworkPolicy_To_v1beta2_NetworkPolicy(&told, &object, nil))
			v.NetworkPolicies.Items = append(v.NetworkPolicies.Items, object)
		}
	}
	for _, item := range c.appliedTo.List() {
		if group := item.(*types.AppliedToGroup); sees(group.SpanMeta) {
			var told controlplane.AppliedToGroup
			var of *string
			if node != "" {
				of = &node
			}
			store.ToAppliedToGroupMsg(group, &told, true, of)
			var object v1beta2.AppliedToGroup
			must(v1beta2.Convert_controlplane_AppliedToGroup_To_v1beta2_AppliedToGroup(&told, &object, nil))
			v.AppliedToGroups.Items = append(v.AppliedToGroups.Items, object)
		}
	}
	for _, item := range c.address.List() {
		if group := item.(*types.AddressGroup); sees(group.SpanMeta) {
			var told controlplane.AddressGroup
			store.ToAddressGroupMsg(group, &told, true)
			var object v1beta2.AddressGroup
			must(v1beta2.Convert_controlplane_AddressGroup_To_v1beta2_AddressGroup(&told, &object, nil))
			v.AddressGroups.Items = append(v.AddressGroups.Items, object)
		}
	}
	return v
}

// text is a view in a form that compares and prints: one line for each object and member.
func (v view) text() []string {
	var lines []string
	say := func(kind, name string, what any) {
		text, err := json.Marshal(what)
		must(err)
		lines = append(lines, fmt.Sprintf("%s %s %s", kind, name, text))
	}
	for _, policy := range v.NetworkPolicies.Items {
		policy.AppliedToGroups = once(policy.AppliedToGroups)
		say("policy", policy.Name, map[string]any{
			"uid": policy.UID, "generation": policy.Generation, "source": policy.SourceRef, "priority": policy.Priority,
			"tier": policy.TierPriority, "appliedTo": policy.AppliedToGroups, "rules": len(policy.Rules),
		})
		for _, rule := range policy.Rules {
			rule.AppliedToGroups = once(rule.AppliedToGroups)
			for _, peer := range []*v1beta2.NetworkPolicyPeer{&rule.From, &rule.To} {
				peer.AddressGroups = once(peer.AddressGroups)
				peer.IPBlocks = networks(peer.IPBlocks)
			}
			// In no order: Antrea itself makes one rule of several namespaces in any.
			say("rule", policy.Name, rule)
		}
	}
	members := func(kind, name string, uid any, members []v1beta2.GroupMember) {
		say(kind, name, uid)
		for _, member := range members {
			if kind == "addresses" && len(member.IPs) == 0 {
				// Antrea names nodes and external entities without addresses, too, which says nothing.
				continue
			}
			ips := make([]string, len(member.IPs))
			for i, ip := range member.IPs {
				ips[i] = fmt.Sprintf("%x", []byte(ip))
			}
			sort.Strings(ips)
			// A port of an external entity that has no name is named by nobody; we leave it out.
			member.Ports = slices.DeleteFunc(member.Ports, func(port v1beta2.NamedPort) bool { return port.Name == "" })
			sort.Slice(member.Ports, func(i, j int) bool { return fmt.Sprint(member.Ports[i]) < fmt.Sprint(member.Ports[j]) })
			member.IPs = nil
			text, err := json.Marshal(member)
			must(err)
			lines = append(lines, fmt.Sprintf("%s %s has %s at %v", kind, name, text, ips))
		}
	}
	for _, group := range v.AppliedToGroups.Items {
		// Addresses of those that a node has itself are its own business; here neither side says them.
		members("applied-to", group.Name, group.UID, group.GroupMembers)
	}
	for _, group := range v.AddressGroups.Items {
		members("addresses", group.Name, group.UID, group.GroupMembers)
	}
	// What is on several nodes Antrea lists for each of them, where no node is asked for.
	return once(lines)
}

// once sorts a list of groups: their order means nothing, and one that is named twice is one.
func once(list []string) []string {
	list = append([]string{}, list...)
	sort.Strings(list)
	return slices.Compact(list)
}

// networks clears the bits of hosts, as agents do, and leaves out blocks that are there already: of a group that is named twice.
func networks(blocks []v1beta2.IPBlock) []v1beta2.IPBlock {
	blocks = append([]v1beta2.IPBlock{}, blocks...)
	for i := range blocks {
		cidr := &blocks[i].CIDR
		ip, bits := net.IP(cidr.IP), 128
		if four := ip.To4(); four != nil {
			ip, bits = four, 32
		}
		cidr.IP = v1beta2.IPAddress(ip.Mask(net.CIDRMask(int(cidr.PrefixLength), bits)).To16())
	}
	var different []v1beta2.IPBlock
	for _, block := range blocks {
		if !slices.ContainsFunc(different, func(other v1beta2.IPBlock) bool { return reflect.DeepEqual(block, other) }) {
			different = append(different, block)
		}
	}
	return different
}

func texts(views map[string]view) map[string][]string {
	all := map[string][]string{}
	for node, v := range views {
		all[node] = v.text()
	}
	return all
}

func (c *controller) texts(nodes map[string][]string) map[string][]string {
	all := map[string][]string{}
	for node := range nodes {
		all[node] = c.view(node).text()
	}
	return all
}

func difference(ours, theirs map[string][]string) []string {
	var lines []string
	for node := range ours {
		have := map[string]int{}
		for _, line := range ours[node] {
			have[line]++
		}
		for _, line := range theirs[node] {
			have[line]--
		}
		for line, count := range have {
			switch {
			case count > 0:
				lines = append(lines, fmt.Sprintf("node %q: only ours: %s", node, line))
			case count < 0:
				lines = append(lines, fmt.Sprintf("node %q: only Antrea's: %s", node, line))
			}
		}
	}
	sort.Strings(lines)
	return lines
}
